//! An instantiated graph: checked, with all its addresses, ready to be launched repeatedly.
//!
//! Decides what a launch may do and what it leaves live. Depends on no streams, not on what nodes run, and not on what
//! happens later to memory that launches leave. A [`Draft`] comes first: it reports the faults of the graph and the
//! bytes of addresses that are still needed. The [`Exec`] is made from it.
//!
//! Invariants: **snapshot**: changes of the graph do not affect an instance. **flat-cost**: the cost of what a launch
//! asks here does not grow with the graph.

use super::error::TOO_MANY_NODES;
use super::fault::{GraphFault, NodeSite};
use super::flat::{Flat, FlatAlloc, FlatNode};
use super::graph::{Graph, NodeKind};
use super::index::Index;
use super::node::{GraphAllocId, GraphId, NodeId};
use super::pins::Pin;
use super::place::{Placed, place};
use super::summary::{LastAct, Summary};
use super::validate::validate;
use crate::op::{Act, Names, Part};
use crate::units::Range;

/// The reasons to refuse an instantiation.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The order of the nodes is wrong: at least one fault, at most [`FAULTS_MAX`](super::FAULTS_MAX).
    #[error("{}", .0.first().map(|fault| fault.sentence(&Names::default())).unwrap_or_default())]
    Faults(Vec<GraphFault>),
    /// The allocations are larger than the address space.
    #[error("the allocations of the graph are more than there are addresses")]
    TooLarge,
    /// The graph and its children have too many nodes, or too many that do not come after one another.
    #[error("{TOO_MANY_NODES}")]
    TooManyNodes,
    /// A graph that leaves memory live is contained more than once. There is one name for that memory.
    #[error("{0} leaves memory and is in this graph more than once: that memory has one name")]
    ChildTwice(GraphId),
    /// A node names memory of a graph with symbolic addresses, and that graph or its alloc node is not (or no longer)
    /// in this graph.
    #[error("{0} has addresses in each of its instances only, and a node names memory of it that is not in this graph")]
    Unplaced(GraphId),
}

/// The reasons to refuse an update of an instance from a graph (CUDA: `cudaGraphExecUpdateResult`).
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateRefused {
    /// The number of nodes or the edges differ. The value is the first node that differs.
    #[error("the graphs differ in their edges, at {0}")]
    Topology(NodeId),
    /// A node has another kind.
    #[error("{0} is of another kind")]
    NodeType(NodeId),
    /// A memory node has other parameters.
    #[error("{0} allocates or frees other memory")]
    Parameters(NodeId),
}

/// A checked graph that does not have all its addresses yet.
#[derive(Debug)]
pub struct Draft {
    flat: Flat,
    summary: Summary,
    placed: Placed,
}

impl Draft {
    /// Does as [`Exec::outdated`], for the instance that this draft becomes.
    pub fn outdated(&self) -> Option<Pin> {
        outdated(&self.flat.pins, &self.flat.allocs)
    }

    /// Inlines child graphs, checks the order, and plans addresses for the allocations that have none.
    ///
    /// # Errors
    /// The faults of the graph, or another [`Refusal`].
    pub fn new(graph: &Graph) -> Result<Self, Refusal> {
        let flat = Flat::new(graph);
        if flat.is_too_large() {
            return Err(Refusal::TooManyNodes);
        }
        let (lives, faults) = validate(&flat);
        if !faults.is_empty() {
            return Err(Refusal::Faults(faults));
        }
        if let Some(graph) = flat.twice {
            return Err(Refusal::ChildTwice(graph));
        }
        if let Some(graph) = flat.unplaced {
            return Err(Refusal::Unplaced(graph));
        }
        let summary = Summary::new(&flat, &lives);
        let placed = place(&flat).ok_or(Refusal::TooLarge)?;
        Ok(Self { flat, summary, placed })
    }

    /// Returns the bytes of addresses that the instance needs for itself, in whole granules. 0 if all addresses are
    /// fixed.
    pub fn room(&self) -> u64 {
        self.placed.room
    }

    /// Makes the instance. `base` is the address at which [`room`](Self::room) bytes were reserved for it, a multiple
    /// of the granularity.
    pub fn instantiate(self, base: u64, auto_free_on_launch: bool) -> Exec {
        let Draft { mut flat, summary, placed } = self;
        for (alloc, range) in placed.ranges {
            flat.allocs[alloc.index()].range = Some(Range::new(base + range.start, range.bytes));
        }
        let Flat { nodes, allocs, index, granularity, pins, .. } = flat;
        let outputs =
            (0..allocs.len()).filter(|&at| allocs[at].is_output()).map(|at| GraphAllocId(at as u32)).collect();
        Exec { nodes, allocs, index, granularity, summary, pins, outputs, auto_free_on_launch }
    }
}

impl Graph {
    /// Returns the kind, name and place of a node of this graph's instances, by its number there. Inlines child graphs
    /// for that.
    #[cold]
    pub fn flat_site(&self, node: NodeId, act: Act) -> Option<NodeSite> {
        Some(Flat::new(self).nodes.get(node.index())?.site(act))
    }

    /// Does as [`flat_site`](Self::flat_site), for the node whose last act `last` is, on some of the bytes of `part`.
    #[cold]
    pub fn last_act_site(&self, last: &LastAct, part: Part) -> Option<NodeSite> {
        let nodes = Flat::new(self).nodes;
        Some(nodes.get(last.doer(&nodes, part).index())?.site(last.act))
    }
}

/// An instantiated graph: see the module. Its nodes and allocations have numbers of their own, and edges go from lower
/// node numbers to higher. Allocations of the outermost graph keep their numbers. So do nodes, if no node was removed,
/// no edge was added later and there is no child graph. [`FlatNode::origin`] has the graph's number in any case.
#[derive(Debug)]
pub struct Exec {
    nodes: Vec<FlatNode>,
    allocs: Vec<FlatAlloc>,
    index: Index,
    granularity: u64,
    summary: Summary,
    pins: Vec<Pin>,
    outputs: Vec<GraphAllocId>,
    auto_free_on_launch: bool,
}

impl Exec {
    /// Returns all nodes, each after all nodes that it depends on.
    pub fn nodes(&self) -> &[FlatNode] {
        &self.nodes
    }

    /// Returns all allocations. Those with an alloc node have addresses.
    pub fn allocs(&self) -> &[FlatAlloc] {
        &self.allocs
    }

    /// Returns the index, which decides if one node comes before another.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Returns what a launch requires of, and leaves to, the operations outside the graph.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Returns the lifetimes of other graphs' memory that its nodes name.
    pub fn pins(&self) -> &[Pin] {
        &self.pins
    }

    /// Returns the lifetimes of one allocation that its nodes name. Each launch must find all of them live, so a launch
    /// is possible only if there is at most one.
    pub fn pins_of(&self, graph: GraphId, alloc: GraphAllocId) -> &[Pin] {
        let of = |pin: &Pin| (pin.graph, pin.alloc);
        let from = self.pins.partition_point(|pin| of(pin) < (graph, alloc));
        let many = self.pins[from..].partition_point(|pin| of(pin) == (graph, alloc));
        &self.pins[from..from + many]
    }

    /// Returns a lifetime that a node names although each launch would begin another: its graph is contained here.
    pub fn outdated(&self) -> Option<Pin> {
        outdated(&self.pins, &self.allocs)
    }

    /// Returns the allocations that a launch leaves live.
    pub fn outputs(&self) -> &[GraphAllocId] {
        &self.outputs
    }

    /// Returns `true` if a launch frees the outputs of earlier launches.
    pub fn auto_free_on_launch(&self) -> bool {
        self.auto_free_on_launch
    }

    /// Returns the address ranges that need memory, in whole granules, sorted and disjoint, each with `true` if an
    /// output is in it.
    pub fn cover(&self) -> Vec<(Range, bool)> {
        // The granules at which allocations begin and end, with the change of the number of allocations and of outputs.
        let mut edges: Vec<(u64, i64, i64)> = Vec::with_capacity(2 * self.allocs.len());
        for alloc in self.allocs.iter().filter(|alloc| alloc.node.is_some()) {
            let Some(range) = alloc.range else { continue };
            let outputs = i64::from(alloc.is_output());
            edges.push((range.start / self.granularity, 1, outputs));
            edges.push((range.end().div_ceil(self.granularity), -1, -outputs));
        }
        edges.sort_unstable_by_key(|&(granule, ..)| granule);
        let mut cover: Vec<(Range, bool)> = Vec::new();
        let (mut from, mut all, mut outputs) = (0, 0, 0);
        for (granule, more, more_outputs) in edges {
            let between = Range::between(from * self.granularity, granule * self.granularity);
            if all > 0 && !between.is_empty() {
                match cover.last_mut() {
                    Some((range, same)) if range.end() == between.start && *same == (outputs > 0) => {
                        range.bytes += between.bytes;
                    }
                    _ => cover.push((between, outputs > 0)),
                }
            }
            (from, all, outputs) = (granule, all + more, outputs + more_outputs);
        }
        cover
    }

    /// Returns the addresses of all allocations, sorted and disjoint.
    pub fn addresses(&self) -> Vec<Range> {
        let mut ranges: Vec<Range> =
            self.allocs.iter().filter(|alloc| alloc.node.is_some()).filter_map(|alloc| alloc.range).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        let mut apart: Vec<Range> = Vec::new();
        for range in ranges {
            match apart.last_mut() {
                Some(last) if last.end() >= range.start => {
                    *last = Range::between(last.start, last.end().max(range.end()));
                }
                _ => apart.push(range),
            }
        }
        apart
    }

    /// Takes the nodes and the summary over from a graph of the same shape (CUDA: `cudaGraphExecUpdate`). Addresses
    /// stay, and so does the memory that is live there.
    ///
    /// # Errors
    /// The first node that differs. The instance is unchanged then.
    pub fn update(&mut self, draft: Draft) -> Result<(), UpdateRefused> {
        self.check_update(&draft)?;
        for (old, new) in self.allocs.iter_mut().zip(draft.flat.allocs) {
            *old = FlatAlloc { range: old.range, ..new };
        }
        self.nodes = draft.flat.nodes;
        self.summary = draft.summary;
        self.pins = draft.flat.pins;
        Ok(())
    }

    /// Checks that it can be [updated](Self::update) from this draft.
    ///
    /// # Errors
    /// The first node that differs.
    pub fn check_update(&self, draft: &Draft) -> Result<(), UpdateRefused> {
        let (old, new) = (&self.nodes, &draft.flat.nodes);
        for (at, (old, new)) in old.iter().zip(new).enumerate() {
            let node = NodeId(at as u32);
            if !old.kind.is_like(&new.kind) {
                return Err(UpdateRefused::NodeType(node));
            }
            if old.dependencies != new.dependencies {
                return Err(UpdateRefused::Topology(node));
            }
            let is_same = match (&old.kind, &new.kind) {
                (NodeKind::MemAlloc(old), NodeKind::MemAlloc(new)) => {
                    let (old, new) = (&self.allocs[old.index()], &draft.flat.allocs[new.index()]);
                    let is_there = old.is_symbolic || old.range == new.range;
                    (old.bytes, old.alloc, old.is_symbolic) == (new.bytes, new.alloc, new.is_symbolic) && is_there
                }
                (NodeKind::MemFree(old), NodeKind::MemFree(new)) => old == new,
                _ => true,
            };
            if !is_same {
                return Err(UpdateRefused::Parameters(node));
            }
        }
        if old.len() != new.len() || self.allocs.len() != draft.flat.allocs.len() {
            return Err(UpdateRefused::Topology(NodeId(old.len().min(new.len()) as u32)));
        }
        Ok(())
    }
}

/// Returns a lifetime that a node names although each launch would begin another: its graph is contained here.
fn outdated(pins: &[Pin], allocs: &[FlatAlloc]) -> Option<Pin> {
    let is_own = |pin: &&Pin| allocs.iter().any(|it| (it.graph, it.alloc) == (pin.graph, pin.alloc));
    pins.iter().find(is_own).copied()
}
