//! A graph: nodes, explicit edges, and allocations that have their addresses from the moment their node is made.
//!
//! Every question of order goes to the [`Index`], which grows with the graph. An edge between old nodes or a removal
//! makes it stale, and the next question builds it again. Checks that depend on edges still to come are not here:
//! `validate.rs` makes them at instantiation.
//!
//! More is allowed than in CUDA, where graphs with memory nodes are frozen: nodes and edges can be removed, and graphs
//! with symbolic addresses can be copied, have several instances and be children (`copy`).
//!
//! Invariants: **acyclic**, by construction. **whole**: a refused call changes nothing. **stable**: the number of a
//! node or an allocation always means the same one.

mod nodes;

use std::collections::hash_map::Entry;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::address::Addresses;
use super::edges::{Cycle, Ranks};
use super::error::GraphError;
use super::fault::NodeSite;
use super::index::Index;
use super::node::{Access, DEPTH_MAX, GraphAllocId, GraphId, Label, Memory, NodeId, Origin, Work};
use crate::ids::AllocId;
use crate::op::{Act, Quoted};
use crate::units::Range;
pub use nodes::{Node, NodeKind};

/// The time at which allocations get their addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Addressing {
    /// When the alloc node is made, for good (as in CUDA).
    #[default]
    Fixed,
    /// At each instantiation, all together.
    Symbolic,
}

/// An allocation of a graph.
#[derive(Clone, Debug)]
pub struct GraphAlloc {
    /// Its alloc node.
    pub node: NodeId,
    /// Its size in bytes, as asked for.
    pub bytes: u64,
    /// Its addresses, or `None` if they are symbolic.
    pub range: Option<Range>,
    /// The node of its own graph that frees it.
    pub freed: Option<NodeId>,
}

/// A graph that is being built: see the module.
#[derive(Clone, Debug)]
pub struct Graph {
    pub(super) id: GraphId,
    pub(super) granularity: u64,
    pub(super) addressing: Addressing,
    pub(super) nodes: Vec<Node>,
    pub(super) allocs: Vec<GraphAlloc>,
    ranks: Ranks,
    pub(super) index: Index,
    is_stale: bool,
    /// `true` if an edge or a node was removed that the sharing of addresses may have relied on.
    pub(super) is_shrunk: bool,
    addresses: Addresses,
    /// The free nodes for memory of other graphs.
    foreign_frees: FxHashMap<Memory, NodeId>,
    /// The lifetimes that its nodes name of other graphs' memory, by the allocation and its lifetime outside of graphs.
    pub(super) pins: FxHashMap<(AllocId, u64), (GraphId, GraphAllocId)>,
    /// The graphs with symbolic addresses that are or were contained in it.
    pub(super) movable: SmallVec<[GraphId; 1]>,
    depth: usize,
    /// The number of its nodes because of which it cannot be copied.
    pub(super) fixed_nodes: u32,
}

impl AsMut<Graph> for Graph {
    fn as_mut(&mut self) -> &mut Graph {
        self
    }
}

impl Graph {
    /// Makes an empty graph on a device with this mapping granularity (a power of two, in bytes). `id` comes from the
    /// code that numbers graphs, and names this graph's allocations to other graphs.
    pub fn new(id: GraphId, granularity: u64, addressing: Addressing) -> Self {
        Self {
            id,
            granularity,
            addressing,
            nodes: Vec::new(),
            allocs: Vec::new(),
            ranks: Ranks::default(),
            index: Index::default(),
            is_stale: false,
            is_shrunk: false,
            addresses: Addresses::new(granularity),
            foreign_frees: FxHashMap::default(),
            pins: FxHashMap::default(),
            movable: SmallVec::new(),
            depth: 1,
            fixed_nodes: 0,
        }
    }

    /// Returns its number.
    pub fn id(&self) -> GraphId {
        self.id
    }

    /// Returns the time at which its allocations get their addresses.
    pub fn addressing(&self) -> Addressing {
        self.addressing
    }

    /// Makes a copy with its own number and no addresses.
    pub(super) fn copied(&self, id: GraphId) -> Self {
        Self { id, addresses: Addresses::new(self.granularity), ..self.clone() }
    }

    /// Returns `true` if a node of this kind prevents the graph from being copied.
    fn is_fixed(&self, kind: &NodeKind) -> bool {
        match kind {
            NodeKind::Child(child) => child.fixed_nodes > 0,
            NodeKind::MemAlloc(_) | NodeKind::MemFree(_) => self.addressing == Addressing::Fixed,
            NodeKind::Work(_) => false,
        }
    }

    /// Gives the graph addresses of its own, for as long as it and its instances exist.
    pub fn extend(&mut self, range: Range) {
        self.addresses.extend(range);
    }

    /// Returns the number of node numbers given out, removed nodes included.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns `true` if there was never a node.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns a node, or `None` if no node has the number (any more).
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.index()).filter(|node| !node.is_removed)
    }

    /// Changes the name and place of a node. Does nothing if there is no such node.
    pub fn set_label(&mut self, id: NodeId, label: Label) {
        if let Some(node) = self.nodes.get_mut(id.index()) {
            node.label = label;
        }
    }

    /// Sets the promise of a node to share memory with unordered ones: see [`Node::may_share`].
    pub fn set_may_share(&mut self, id: NodeId, may_share: bool) {
        if let Some(node) = self.nodes.get_mut(id.index()) {
            node.may_share = may_share;
        }
    }

    /// Returns all nodes, sorted by number.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> + '_ {
        let all = self.nodes.iter().enumerate().map(|(at, node)| (NodeId(at as u32), node));
        all.filter(|(_, node)| !node.is_removed)
    }

    /// Returns an allocation, or `None` if none has the number or its node was removed.
    pub fn alloc(&self, id: GraphAllocId) -> Option<&GraphAlloc> {
        self.allocs.get(id.index()).filter(|alloc| !self.nodes[alloc.node.index()].is_removed)
    }

    /// Returns all allocations, sorted by number.
    pub fn allocs(&self) -> impl Iterator<Item = (GraphAllocId, &GraphAlloc)> + '_ {
        let all = self.allocs.iter().enumerate().map(|(at, alloc)| (GraphAllocId(at as u32), alloc));
        all.filter(|(_, alloc)| !self.nodes[alloc.node.index()].is_removed)
    }

    /// Retires the numbers of nodes and allocations that a discarded copy of this graph gave out, so that they are not
    /// used again. (Every allocation has a node, so there are at least as many new nodes.)
    pub fn retire_like(&mut self, copy: &Graph) {
        self.retire(copy.nodes.len(), copy.allocs.len());
    }

    /// Does as [`retire_like`](Self::retire_like), for a copy that no longer exists.
    pub fn retire(&mut self, nodes: usize, allocs: usize) {
        while self.nodes.len() < nodes || self.allocs.len() < allocs {
            let node = self.push(Node::new(NodeKind::Work(Work::Empty), &[], Label::default()), &[]);
            self.nodes[node.index()].is_removed = true;
            if self.allocs.len() < allocs {
                self.allocs.push(GraphAlloc { node, bytes: 0, range: None, freed: None });
            }
        }
    }

    /// Adds a node that neither allocates nor frees, after all of `dependencies`.
    ///
    /// # Errors
    /// A bad dependency; an access to an allocation that this graph does not have.
    pub fn add_work(
        &mut self,
        work: Work,
        dependencies: &[NodeId],
        accesses: &[Access],
        label: Label,
    ) -> Result<NodeId, GraphError> {
        self.check_dependencies(dependencies)?;
        for access in accesses {
            self.check_memory(access.memory)?;
        }
        Ok(self.push(Node::new(NodeKind::Work(work), accesses, label), dependencies))
    }

    /// Adds a mem alloc node (CUDA: `cuGraphAddMemAllocNode`). In a graph with fixed addresses the allocation has its
    /// addresses from now on. They are those of an earlier allocation if the free of that one comes before this node by
    /// edges that exist.
    ///
    /// # Errors
    /// A bad dependency, 0 bytes, or no addresses left ([`extend`](Self::extend) and try again).
    pub fn add_alloc(
        &mut self,
        dependencies: &[NodeId],
        bytes: u64,
        label: Label,
    ) -> Result<(NodeId, GraphAllocId), GraphError> {
        self.check_dependencies(dependencies)?;
        if bytes == 0 {
            return Err(GraphError::NoBytes);
        }
        let rounded = Addresses::rounded(self.granularity, bytes).ok_or(GraphError::TooLarge(bytes))?;
        let alloc = GraphAllocId(self.allocs.len() as u32);
        let mut range = None;
        if self.addressing == Addressing::Fixed {
            self.refresh();
            let index = &self.index;
            let is_before = |free| dependencies.iter().any(|&node| index.reaches_or_is(free, node));
            range = self.addresses.place(alloc, bytes, is_before);
            if range.is_none() {
                return Err(GraphError::NoAddresses { bytes: rounded.max(self.granularity) });
            }
        }
        let node = self.push(Node::new(NodeKind::MemAlloc(alloc), &[], label), dependencies);
        self.allocs.push(GraphAlloc { node, bytes, range, freed: None });
        Ok((node, alloc))
    }

    /// Adds a mem free node (CUDA: `cuGraphAddMemFreeNode`). The caller, who knows all graphs, ensures that only one
    /// graph frees an allocation of another graph.
    ///
    /// # Errors
    /// A bad dependency; memory that is not an alloc node's; a second free of one allocation.
    pub fn add_free(&mut self, dependencies: &[NodeId], memory: Memory, label: Label) -> Result<NodeId, GraphError> {
        self.check_dependencies(dependencies)?;
        self.check_memory(memory)?;
        let node = NodeId(self.nodes.len() as u32);
        match memory {
            Memory::External { .. } => return Err(GraphError::NotGraphMemory),
            Memory::Own(alloc) => {
                self.check_unfreed(alloc)?;
                self.allocs[alloc.index()].freed = Some(node);
                self.addresses.free(alloc, node);
            }
            Memory::Foreign { alloc, .. } => match self.foreign_frees.entry(memory) {
                Entry::Occupied(free) => {
                    let by = *free.get();
                    let described = format!("{alloc} of another graph is freed already, by {}", self.describe(by));
                    return Err(GraphError::FreedAlready { alloc, by, described });
                }
                Entry::Vacant(free) => {
                    free.insert(node);
                }
            },
        }
        Ok(self.push(Node::new(NodeKind::MemFree(memory), &[], label), dependencies))
    }

    /// Adds a whole graph as one node, as it is now. If the child is contained once, this graph's nodes can name its
    /// memory, as [`Memory::Foreign`] with the child's number.
    ///
    /// # Errors
    /// A bad dependency; nesting deeper than [`DEPTH_MAX`].
    pub fn add_child(
        &mut self,
        dependencies: &[NodeId],
        child: Arc<Graph>,
        label: Label,
    ) -> Result<NodeId, GraphError> {
        self.check_dependencies(dependencies)?;
        let depth = self.depth.max(child.depth + 1);
        if depth > DEPTH_MAX {
            return Err(GraphError::TooDeep);
        }
        self.depth = depth;
        let own = (child.addressing == Addressing::Symbolic).then_some(child.id);
        for graph in own.iter().chain(&child.movable) {
            if !self.movable.contains(graph) {
                self.movable.push(*graph);
            }
        }
        Ok(self.push(Node::new(NodeKind::Child(child), &[], label), dependencies))
    }

    /// Returns the child nodes that use an allocation of this graph.
    pub fn children_using(&self, alloc: GraphAllocId) -> impl Iterator<Item = NodeId> + '_ {
        let memory = Memory::Foreign { graph: self.id, alloc };
        let nodes = if self.depth > 1 { &self.nodes[..] } else { &[] };
        let uses = move |node: &Node| matches!(&node.kind, NodeKind::Child(child) if child.uses(memory));
        let using = nodes.iter().enumerate().filter(move |(_, node)| !node.is_removed && uses(node));
        using.map(|(at, _)| NodeId(at as u32))
    }

    /// Returns `true` if a node uses some memory, nodes of child graphs included.
    fn uses(&self, memory: Memory) -> bool {
        self.nodes().any(|(_, node)| match &node.kind {
            NodeKind::Child(child) => child.uses(memory),
            _ => node.accesses.iter().any(|access| access.memory == memory),
        })
    }

    /// Conditional nodes are not supported: always returns an error that says so.
    ///
    /// # Errors
    /// Always.
    pub fn add_conditional(&mut self) -> Result<NodeId, GraphError> {
        Err(GraphError::Conditional)
    }

    /// Adds an edge between two existing nodes.
    ///
    /// # Errors
    /// An unknown node; an edge that exists already or would close a cycle.
    pub fn add_edge(&mut self, from: NodeId, to: NodeId) -> Result<(), GraphError> {
        self.check_node(from)?;
        self.check_node(to)?;
        if self.index.is_full() {
            return Err(GraphError::TooManyNodes);
        }
        if self.nodes[to.index()].before.contains(&from) {
            return Err(GraphError::DuplicateEdge { from, to });
        }
        let node = |node: NodeId| &self.nodes[node.index()];
        let admitted = self.ranks.admit((from, to), |it| node(it).dependencies(), |it| node(it).successors());
        admitted.map_err(|Cycle| GraphError::Cycle { from, to })?;
        self.nodes[to.index()].before.push(from);
        self.nodes[from.index()].after.push(to);
        match self.nodes[to.index()].after.is_empty() && !self.is_stale {
            true => self.index.put_after(to, from),
            false => self.is_stale = true,
        }
        Ok(())
    }

    /// Removes an edge. If two allocations share addresses because of it, instantiation reports that.
    ///
    /// # Errors
    /// There is no such edge.
    pub fn remove_edge(&mut self, from: NodeId, to: NodeId) -> Result<(), GraphError> {
        self.check_node(from)?;
        self.check_node(to)?;
        if !self.nodes[to.index()].before.contains(&from) {
            return Err(GraphError::NoEdge { from, to });
        }
        self.nodes[to.index()].before.retain(|node| *node != from);
        self.nodes[from.index()].after.retain(|node| *node != to);
        (self.is_stale, self.is_shrunk) = (true, true);
        Ok(())
    }

    /// Removes a node and its edges. The nodes before it get no edges to those after it. Returns its kind.
    ///
    /// # Errors
    /// An unknown node; an alloc node whose memory another node uses or frees.
    pub fn remove_node(&mut self, id: NodeId) -> Result<NodeKind, GraphError> {
        let kind = self.node(id).ok_or(GraphError::UnknownNode(id))?.kind.clone();
        match kind {
            NodeKind::MemAlloc(alloc) => {
                self.check_unused(id, alloc)?;
                self.addresses.remove(alloc);
            }
            NodeKind::MemFree(Memory::Own(alloc)) => {
                self.allocs[alloc.index()].freed = None;
                self.addresses.unfree(alloc, id);
            }
            NodeKind::MemFree(memory) => {
                self.foreign_frees.remove(&memory);
            }
            _ => {}
        }
        self.fixed_nodes -= u32::from(self.is_fixed(&kind));
        let node = &mut self.nodes[id.index()];
        node.is_removed = true;
        let (before, after) = (std::mem::take(&mut node.before), std::mem::take(&mut node.after));
        before.iter().for_each(|other| self.nodes[other.index()].after.retain(|node| *node != id));
        after.iter().for_each(|other| self.nodes[other.index()].before.retain(|node| *node != id));
        (self.is_stale, self.is_shrunk) = (true, true);
        Ok(kind)
    }

    /// Returns all nodes, ordered so that every edge goes forward.
    pub fn topological_order(&self) -> Vec<NodeId> {
        self.ranks.order().into_iter().filter(|node| !self.nodes[node.index()].is_removed).collect()
    }

    /// Returns `true` if there is a path from `a` to `b`. There is none from a node to itself, or if one was removed.
    ///
    /// # Panics
    /// If one of them never was a node.
    pub fn reaches(&mut self, a: NodeId, b: NodeId) -> bool {
        self.refresh();
        self.index.reaches(a, b)
    }

    /// Brings the index up to date and returns it.
    pub fn refresh(&mut self) -> &Index {
        if self.is_stale {
            self.rebuild();
        }
        &self.index
    }

    /// Returns the index as of the last [`refresh`](Self::refresh), which must be up to date.
    pub(super) fn index(&self) -> &Index {
        debug_assert!(!self.is_stale, "refreshed before it is asked");
        &self.index
    }

    /// The cold half of [`refresh`](Self::refresh): for edges or nodes that came or went in the middle.
    #[cold]
    fn rebuild(&mut self) {
        let mut index = Index::with_capacity(self.nodes.len());
        self.nodes.iter().for_each(|_| index.push_nowhere());
        for node in self.topological_order() {
            index.place(node, &self.nodes[node.index()].before);
        }
        (self.index, self.is_stale) = (index, false);
    }

    /// Appends a node that was checked.
    fn push(&mut self, mut node: Node, dependencies: &[NodeId]) -> NodeId {
        let id = NodeId(self.nodes.len() as u32);
        node.before = dependencies.into();
        self.fixed_nodes += u32::from(self.is_fixed(&node.kind));
        for dependency in dependencies {
            self.nodes[dependency.index()].after.push(id);
        }
        self.nodes.push(node);
        self.ranks.push();
        match self.is_stale {
            true => self.index.push_nowhere(),
            false => self.index.push(dependencies),
        }
        id
    }

    /// Refuses if the graph already has a free node for an allocation of its own.
    ///
    /// # Errors
    /// [`GraphError::FreedAlready`].
    pub fn check_unfreed(&self, alloc: GraphAllocId) -> Result<(), GraphError> {
        if let Some(by) = self.alloc(alloc).and_then(|alloc| alloc.freed) {
            let node = self.allocs[alloc.index()].node;
            let name = self.node(node).and_then(|node| node.label.name.as_deref());
            let alloc_name = name.map_or_else(|| alloc.to_string(), |name| format!("{} ({alloc})", Quoted(name)));
            let described = format!("{alloc_name} is freed already, by {}", self.describe(by));
            return Err(GraphError::FreedAlready { alloc, by, described });
        }
        Ok(())
    }

    /// Returns the name and place of the node that frees something.
    fn describe(&self, by: NodeId) -> String {
        self.site(by, Act::Free).map_or_else(|| by.to_string(), |site| site.describe())
    }

    /// Returns a node's path, kind, name and place, with one act on memory.
    pub fn site(&self, id: NodeId, act: Act) -> Option<NodeSite> {
        let node = self.node(id)?;
        Some(NodeSite { origin: Origin::from_elem(id, 1), noun: node.kind.noun(), act, label: node.label.clone() })
    }

    /// Does as [`site`](Self::site), for a node that may be in a child: by the numbers of the child nodes around it,
    /// then its own.
    pub fn site_at(&self, path: &[NodeId]) -> Option<NodeSite> {
        let (last, around) = path.split_last()?;
        let within = around.iter().try_fold(self, |graph, child| match &graph.node(*child)?.kind {
            NodeKind::Child(graph) => Some(&**graph),
            _ => None,
        });
        Some(NodeSite { origin: path.into(), ..within?.site(*last, Act::Read)? })
    }
}
