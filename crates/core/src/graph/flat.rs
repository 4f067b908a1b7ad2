//! A graph as it is instantiated: child graphs put in place of their nodes, nodes numbered so that edges go forward.
//!
//! Knows graphs; nothing of what is right. Where a child has several first or last nodes, an empty node gathers the
//! edges, so that two wide children in a row do not become a square of edges.
//!
//! Invariants: **forward**: a node's dependencies have lower numbers. **own**: memory of a child graph that is in here
//! once is this graph's own. Allocations of the outermost graph keep their numbers.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::{SmallVec, smallvec};

use super::fault::NodeSite;
use super::graph::{Addressing, Graph, Node, NodeKind};
use super::index::Index;
use super::node::{Access, GraphAllocId, GraphId, Label, Memory, NodeId, Origin, Work};
use super::pins::Pin;
use crate::op::Act;
use crate::units::Range;

/// A node, by its number in the instantiated graph.
#[derive(Clone, Debug)]
pub struct FlatNode {
    /// What it is; never a child graph.
    pub kind: NodeKind,
    /// Where it comes from.
    pub origin: Origin,
    /// What it does to memory.
    pub accesses: SmallVec<[Access; 2]>,
    /// See [`Node::may_share`](super::Node::may_share).
    pub may_share: bool,
    /// For people.
    pub label: Label,
    /// The nodes that it depends on, as the edges say.
    pub dependencies: SmallVec<[NodeId; 2]>,
}

impl FlatNode {
    /// As a person finds it again, of one thing that it does to memory.
    pub fn site(&self, act: Act) -> NodeSite {
        NodeSite { origin: self.origin.clone(), noun: self.kind.noun(), act, label: self.label.clone() }
    }
}

/// An allocation, by its number in the instantiated graph.
#[derive(Clone, Debug)]
pub struct FlatAlloc {
    /// The graph that it is of.
    pub graph: GraphId,
    /// Its number there.
    pub alloc: GraphAllocId,
    /// Its alloc node; none where that was removed.
    pub node: Option<NodeId>,
    /// Its size in bytes, as asked for.
    pub bytes: u64,
    /// Where it is; none before symbolic addresses are placed.
    pub range: Option<Range>,
    /// Whether each instance has an address of its own for it.
    pub is_symbolic: bool,
    /// Its free node in the instantiated graph.
    pub freed: Option<NodeId>,
}

impl FlatAlloc {
    /// Whether a launch leaves it unfreed.
    pub fn is_output(&self) -> bool {
        self.node.is_some() && self.freed.is_none()
    }
}

/// No graph has more nodes, those of its children included.
const NODES_MAX: usize = 1 << 22;

/// The whole: see the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Flat {
    pub(super) nodes: Vec<FlatNode>,
    pub(super) allocs: Vec<FlatAlloc>,
    pub(super) index: Index,
    pub(super) granularity: u64,
    /// Whether addresses may be shared without a path: something was removed, or a child is in here.
    pub(super) is_doubtful: bool,
    /// What the graphs in here name of others by one life, rising.
    pub(super) pins: Vec<Pin>,
    /// A graph that is in here more than once although its memory has one name or one place.
    pub(super) twice: Option<GraphId>,
    /// A graph whose addresses each instance finds, and finds none here: it is not in here (any more), or its alloc
    /// node is not, and a node names its memory.
    pub(super) unplaced: Option<GraphId>,
    movable: SmallVec<[GraphId; 1]>,
    /// How often a graph is in here, and where its allocations begin.
    graphs: FxHashMap<GraphId, (u32, u32)>,
}

/// Whether a graph may be in another one more than once.
fn may_repeat(graph: &Graph) -> bool {
    match graph.addressing {
        Addressing::Fixed => graph.allocs().next().is_none(),
        // Each time has its own addresses; but what is left live has one name.
        Addressing::Symbolic => graph.allocs().all(|(_, alloc)| alloc.freed.is_some()),
    }
}

impl Flat {
    pub(super) fn new(graph: &Graph) -> Self {
        let mut flat = Flat {
            nodes: Vec::with_capacity(graph.len()),
            index: Index::with_capacity(graph.len()),
            granularity: graph.granularity,
            ..Flat::default()
        };
        flat.inline(graph, &[], &[]);
        if flat.is_too_large() {
            return flat;
        }
        flat.settle_pins();
        if flat.graphs.len() > 1 || flat.graphs.values().any(|(times, _)| *times > 1) {
            flat.is_doubtful = true;
            flat.adopt();
        }
        flat.unplaced = flat.find_unplaced();
        for at in 0..flat.nodes.len() {
            if let NodeKind::MemFree(Memory::Own(alloc)) = flat.nodes[at].kind {
                // Of several free nodes the first counts here; that there are several is found when it is checked.
                flat.allocs[alloc.index()].freed.get_or_insert(NodeId(at as u32));
            }
        }
        flat
    }

    /// Memory of other graphs that nodes name.
    fn foreign(&self) -> impl Iterator<Item = (GraphId, GraphAllocId)> + '_ {
        let named = self.nodes.iter().flat_map(|node| {
            let freed = if let NodeKind::MemFree(memory) = node.kind { Some(memory) } else { None };
            node.accesses.iter().map(|access| access.memory).chain(freed)
        });
        named.filter_map(
            |memory| if let Memory::Foreign { graph, alloc } = memory { Some((graph, alloc)) } else { None },
        )
    }

    /// Keeps the pins of memory that nodes name: one that was removed pins nothing.
    fn settle_pins(&mut self) {
        if self.pins.is_empty() {
            return;
        }
        let named: FxHashSet<_> = self.foreign().collect();
        self.pins.retain(|pin| named.contains(&(pin.graph, pin.alloc)));
        self.pins.sort_unstable();
        self.pins.dedup();
    }

    /// Whether it has too many nodes, or too many beside each other: it is not whole then.
    pub(super) fn is_too_large(&self) -> bool {
        self.nodes.len() >= NODES_MAX || self.index.is_full()
    }

    /// Appends all nodes of `graph`; those that depend on none come after `entry`. What comes after the whole graph
    /// comes after the nodes returned.
    fn inline(&mut self, graph: &Graph, path: &[NodeId], entry: &[NodeId]) -> Vec<NodeId> {
        let base = self.allocs.len() as u32;
        let times = self.graphs.entry(graph.id).or_insert((0, base));
        times.0 += 1;
        if times.0 > 1 && !may_repeat(graph) {
            self.twice.get_or_insert(graph.id);
        }
        self.is_doubtful |= graph.is_shrunk;
        self.pins.extend(graph.pins());
        self.movable.extend_from_slice(&graph.movable);
        self.allocs.extend(graph.allocs.iter().enumerate().map(|(at, alloc)| FlatAlloc {
            graph: graph.id,
            alloc: GraphAllocId(at as u32),
            node: None,
            bytes: alloc.bytes,
            range: alloc.range,
            is_symbolic: alloc.range.is_none(),
            freed: None,
        }));
        let mut last = vec![NodeId(u32::MAX); graph.nodes.len()];
        let mut leaves = Vec::new();
        for id in graph.topological_order() {
            if self.is_too_large() {
                break;
            }
            let node = &graph.nodes[id.index()];
            let mut dependencies: SmallVec<[NodeId; 2]> =
                node.before.iter().map(|before| last[before.index()]).collect();
            if dependencies.is_empty() {
                dependencies.extend_from_slice(entry);
            }
            let origin: Origin = path.iter().copied().chain([id]).collect();
            last[id.index()] = match &node.kind {
                NodeKind::Child(child) => self.inline_child(child, &origin, dependencies),
                _ => self.inline_node(node, base, origin, dependencies),
            };
            if node.after.is_empty() {
                leaves.push(last[id.index()]);
            }
        }
        leaves
    }

    /// A node that is no child graph, of a graph whose allocations have numbers from `base` on.
    fn inline_node(&mut self, node: &Node, base: u32, origin: Origin, dependencies: SmallVec<[NodeId; 2]>) -> NodeId {
        let own = |memory: Memory| match memory {
            Memory::Own(alloc) => Memory::Own(GraphAllocId(alloc.0 + base)),
            other => other,
        };
        let kind = match &node.kind {
            NodeKind::MemFree(memory) => NodeKind::MemFree(own(*memory)),
            NodeKind::MemAlloc(alloc) => {
                let alloc = GraphAllocId(alloc.0 + base);
                self.allocs[alloc.index()].node = Some(NodeId(self.nodes.len() as u32));
                NodeKind::MemAlloc(alloc)
            }
            other => other.clone(),
        };
        let accesses = node.accesses.iter().map(|it| Access { memory: own(it.memory), ..*it }).collect();
        let label = node.label.clone();
        self.push(FlatNode { kind, origin, accesses, may_share: node.may_share, label, dependencies })
    }

    /// A child graph in place of its node; the one node that all of it comes before.
    fn inline_child(&mut self, child: &Graph, origin: &Origin, dependencies: SmallVec<[NodeId; 2]>) -> NodeId {
        let entry = match dependencies.len() {
            0 | 1 => dependencies,
            _ => smallvec![self.push_empty(origin, dependencies)],
        };
        match self.inline(child, origin, &entry)[..] {
            [leaf] => leaf,
            [] => self.push_empty(origin, entry),
            ref leaves => self.push_empty(origin, leaves.into()),
        }
    }

    fn push_empty(&mut self, origin: &Origin, dependencies: SmallVec<[NodeId; 2]>) -> NodeId {
        self.push(FlatNode {
            kind: NodeKind::Work(Work::Empty),
            origin: origin.clone(),
            accesses: SmallVec::new(),
            may_share: false,
            label: Label::default(),
            dependencies,
        })
    }

    fn push(&mut self, node: FlatNode) -> NodeId {
        self.index.push(&node.dependencies);
        self.nodes.push(node);
        NodeId(self.nodes.len() as u32 - 1)
    }

    fn find_unplaced(&self) -> Option<GraphId> {
        if self.movable.is_empty() {
            return None;
        }
        self.foreign().map(|(graph, _)| graph).find(|graph| self.movable.contains(graph))
    }

    /// Memory of graphs that are in here becomes this graph's own.
    fn adopt(&mut self) {
        let (graphs, allocs) = (&self.graphs, &self.allocs);
        // A number that its graph does not have (any more) stays foreign: nothing will be found by it at launch.
        let own = |memory: &mut Memory| {
            if let Memory::Foreign { graph, alloc } = *memory
                && let Some(&(1, base)) = graphs.get(&graph)
                && let Some(at) = alloc.0.checked_add(base)
                && allocs.get(at as usize).is_some_and(|it| it.graph == graph && it.node.is_some())
            {
                *memory = Memory::Own(GraphAllocId(at));
            }
        };
        for node in &mut self.nodes {
            node.accesses.iter_mut().for_each(|access| own(&mut access.memory));
            if let NodeKind::MemFree(memory) = &mut node.kind {
                own(memory);
            }
        }
    }
}
