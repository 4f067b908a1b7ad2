//! A graph as it is instantiated: child graphs inlined, nodes numbered so that edges go forward.
//!
//! Depends on graphs; does not check the order. If a child has several first or last nodes, an empty node joins the
//! edges, so that two wide children in a row do not need an edge for each pair.
//!
//! Invariants: **forward**: a node's dependencies have lower numbers. **own**: memory of a child graph that is
//! contained once is this graph's own. Allocations of the outermost graph keep their numbers.

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
    /// Its kind; never a child graph.
    pub kind: NodeKind,
    /// Its path.
    pub origin: Origin,
    /// Its accesses to memory.
    pub accesses: SmallVec<[Access; 2]>,
    /// See [`Node::may_share`](super::Node::may_share).
    pub may_share: bool,
    /// Its name and place.
    pub label: Label,
    /// The nodes that it depends on, by direct edges.
    pub dependencies: SmallVec<[NodeId; 2]>,
}

impl FlatNode {
    /// Returns the node's path, kind, name and place, with one act on memory.
    pub fn site(&self, act: Act) -> NodeSite {
        NodeSite { origin: self.origin.clone(), noun: self.kind.noun(), act, label: self.label.clone() }
    }
}

/// An allocation, by its number in the instantiated graph.
#[derive(Clone, Debug)]
pub struct FlatAlloc {
    /// The graph that allocates it.
    pub graph: GraphId,
    /// Its number there.
    pub alloc: GraphAllocId,
    /// Its alloc node, or `None` if that was removed.
    pub node: Option<NodeId>,
    /// Its size in bytes, as asked for.
    pub bytes: u64,
    /// Its addresses, or `None` before symbolic addresses are placed.
    pub range: Option<Range>,
    /// `true` if each instance has an address of its own for it.
    pub is_symbolic: bool,
    /// Its free node in the instantiated graph.
    pub freed: Option<NodeId>,
}

impl FlatAlloc {
    /// Returns `true` if a launch leaves it live.
    pub fn is_output(&self) -> bool {
        self.node.is_some() && self.freed.is_none()
    }
}

/// The most nodes of a graph, those of its children included.
const NODES_MAX: usize = 1 << 22;

/// A graph with its children inlined: see the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Flat {
    pub(super) nodes: Vec<FlatNode>,
    pub(super) allocs: Vec<FlatAlloc>,
    pub(super) index: Index,
    pub(super) granularity: u64,
    /// `true` if allocations may share addresses without a path: something was removed, or there is a child.
    pub(super) is_doubtful: bool,
    /// The lifetimes of other graphs' memory that nodes name, sorted.
    pub(super) pins: Vec<Pin>,
    /// A graph that is contained more than once although there is one name or one address for its memory.
    pub(super) twice: Option<GraphId>,
    /// A graph with symbolic addresses whose memory a node names, and that is not (or no longer) contained here, or
    /// whose alloc node is not.
    pub(super) unplaced: Option<GraphId>,
    movable: SmallVec<[GraphId; 1]>,
    /// The number of times that a graph is contained, and the number of its first allocation.
    graphs: FxHashMap<GraphId, (u32, u32)>,
}

/// Returns `true` if a graph may be contained in another one more than once.
fn may_repeat(graph: &Graph) -> bool {
    match graph.addressing {
        Addressing::Fixed => graph.allocs().next().is_none(),
        // Each copy has its own addresses; but memory that is left live has one name.
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
                // Of several free nodes the first counts here. The check reports that there are several.
                flat.allocs[alloc.index()].freed.get_or_insert(NodeId(at as u32));
            }
        }
        flat
    }

    /// Returns the memory of other graphs that nodes name.
    fn foreign(&self) -> impl Iterator<Item = (GraphId, GraphAllocId)> + '_ {
        let named = self.nodes.iter().flat_map(|node| {
            let freed = if let NodeKind::MemFree(memory) = node.kind { Some(memory) } else { None };
            node.accesses.iter().map(|access| access.memory).chain(freed)
        });
        named.filter_map(
            |memory| if let Memory::Foreign { graph, alloc } = memory { Some((graph, alloc)) } else { None },
        )
    }

    /// Keeps the pins of memory that nodes name. A node that was removed pins nothing.
    fn settle_pins(&mut self) {
        if self.pins.is_empty() {
            return;
        }
        let named: FxHashSet<_> = self.foreign().collect();
        self.pins.retain(|pin| named.contains(&(pin.graph, pin.alloc)));
        self.pins.sort_unstable();
        self.pins.dedup();
    }

    /// Returns `true` if it has too many nodes, or too many unordered ones. It is then incomplete.
    pub(super) fn is_too_large(&self) -> bool {
        self.nodes.len() >= NODES_MAX || self.index.is_full()
    }

    /// Appends all nodes of `graph`. Nodes without dependencies come after `entry`. What comes after the whole graph
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
            // Copied and changed in place: a collection by an iterator takes several times as long.
            let mut dependencies = SmallVec::<[NodeId; 2]>::from_slice(&node.before);
            dependencies.iter_mut().for_each(|before| *before = last[before.index()]);
            if dependencies.is_empty() {
                dependencies.extend_from_slice(entry);
            }
            let mut origin = Origin::from_slice(path);
            origin.push(id);
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

    /// Appends a node that is not a child graph, of a graph whose allocations have numbers from `base` on.
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
        let mut accesses = SmallVec::<[Access; 2]>::from_slice(&node.accesses);
        accesses.iter_mut().for_each(|access| access.memory = own(access.memory));
        let label = node.label.clone();
        self.push(FlatNode { kind, origin, accesses, may_share: node.may_share, label, dependencies })
    }

    /// Inlines a child graph in place of its node. Returns the one node that comes after all of it.
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

    /// Makes the memory of contained graphs this graph's own.
    fn adopt(&mut self) {
        let (graphs, allocs) = (&self.graphs, &self.allocs);
        // A number that its graph does not have (any more) stays foreign: a launch will find nothing by it.
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
