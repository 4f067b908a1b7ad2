//! An instantiated graph: checked, with all its addresses, ready to be launched again and again.
//!
//! Knows what a launch may do and what it leaves behind; nothing of streams, of what nodes run, and of what became of
//! what launches left. First a [`Draft`], which says what is wrong and how many bytes of addresses are still needed;
//! then the [`Exec`].
//!
//! Invariants: **snapshot**: changes of the graph do not reach an instance. **flat-cost**: what a launch asks here does
//! not grow with the graph.

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

/// Why a graph was not instantiated.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Its order is wrong; at least one fault, no more than [`FAULTS_MAX`](super::FAULTS_MAX).
    #[error("{}", .0.first().map(|fault| fault.sentence(&Names::default())).unwrap_or_default())]
    Faults(Vec<GraphFault>),
    /// Its allocations pass the address space.
    #[error("the allocations of the graph are more than there are addresses")]
    TooLarge,
    /// With its children it has too many nodes, or too many that do not come after one another.
    #[error("{TOO_MANY_NODES}")]
    TooManyNodes,
    /// A graph that leaves memory is in it twice: that memory has one name.
    #[error("{0} leaves memory and is in this graph more than once: that memory has one name")]
    ChildTwice(GraphId),
    /// A node names memory of a graph whose addresses each instance finds, and that is not in this one (any more), or
    /// whose alloc node is not.
    #[error("{0} has addresses in each of its instances only, and a node names memory of it that is not in this graph")]
    Unplaced(GraphId),
}

/// Why an instance was not updated from a graph (CUDA: `cudaGraphExecUpdateResult`).
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpdateRefused {
    /// Another number of nodes, or other edges: the first node that differs.
    #[error("the graphs differ in their edges, at {0}")]
    Topology(NodeId),
    /// A node is of another kind.
    #[error("{0} is of another kind")]
    NodeType(NodeId),
    /// A memory node has other parameters.
    #[error("{0} allocates or frees other memory")]
    Parameters(NodeId),
}

/// A graph found right, before it has all its addresses.
#[derive(Debug)]
pub struct Draft {
    flat: Flat,
    summary: Summary,
    placed: Placed,
}

impl Draft {
    /// As [`Exec::outdated`], of an instance that it becomes.
    pub fn outdated(&self) -> Option<Pin> {
        outdated(&self.flat.pins, &self.flat.allocs)
    }

    /// Puts child graphs in place, checks the order, and places what has no addresses.
    ///
    /// # Errors
    /// What is wrong with the graph.
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

    /// Bytes of addresses, whole granules, that the instance needs for its own: 0 where all are fixed.
    pub fn room(&self) -> u64 {
        self.placed.room
    }

    /// The instance. `base` is where [`room`](Self::room) bytes were reserved for it, a multiple of the granularity.
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
    /// A node of its instances, by its number there, as a person finds it again. Puts child graphs in place for that.
    #[cold]
    pub fn flat_site(&self, node: NodeId, act: Act) -> Option<NodeSite> {
        Some(Flat::new(self).nodes.get(node.index())?.site(act))
    }

    /// As [`flat_site`](Self::flat_site), of the node that did a last act to some of these bytes.
    #[cold]
    pub fn last_act_site(&self, last: &LastAct, part: Part) -> Option<NodeSite> {
        let nodes = Flat::new(self).nodes;
        Some(nodes.get(last.doer(&nodes, part).index())?.site(last.act))
    }
}

/// An instantiated graph: see the module. Its node and allocation numbers are its own; edges go from lower node numbers
/// to higher. Allocations of the graph it was made from have the same numbers in both, nodes where no node was removed,
/// no edge added later and no child graph is in it ([`FlatNode::origin`] tells in any case).
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
    /// All nodes, each after all it depends on.
    pub fn nodes(&self) -> &[FlatNode] {
        &self.nodes
    }

    /// All allocations; all that have an alloc node have addresses.
    pub fn allocs(&self) -> &[FlatAlloc] {
        &self.allocs
    }

    /// Which node comes before which.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// What the outside sees.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// What it names of other graphs' memory by one life.
    pub fn pins(&self) -> &[Pin] {
        &self.pins
    }

    /// The lives of one allocation that it names: each launch must find all of them there, so one at most.
    pub fn pins_of(&self, graph: GraphId, alloc: GraphAllocId) -> &[Pin] {
        let of = |pin: &Pin| (pin.graph, pin.alloc);
        let from = self.pins.partition_point(|pin| of(pin) < (graph, alloc));
        let many = self.pins[from..].partition_point(|pin| of(pin) == (graph, alloc));
        &self.pins[from..from + many]
    }

    /// A life that a node names and that each launch would make anew: its graph is in here.
    pub fn outdated(&self) -> Option<Pin> {
        outdated(&self.pins, &self.allocs)
    }

    /// The allocations that a launch leaves unfreed.
    pub fn outputs(&self) -> &[GraphAllocId] {
        &self.outputs
    }

    /// Whether a launch frees what earlier ones left.
    pub fn auto_free_on_launch(&self) -> bool {
        self.auto_free_on_launch
    }

    /// The address ranges that need memory, whole granules, rising and apart: and whether an output lies in each.
    pub fn cover(&self) -> Vec<(Range, bool)> {
        // Where allocations begin and end, in granules: how many more there are from there on, and how many outputs.
        let mut edges: Vec<(u64, i64, i64)> = Vec::new();
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

    /// The addresses of all allocations, rising and apart.
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

    /// Takes over what nodes do and say from a graph of the same shape (CUDA: `cudaGraphExecUpdate`). Addresses, and
    /// what is live there, stay.
    ///
    /// # Errors
    /// The first node in which they differ; the instance is as before.
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

    /// Whether it can be [updated](Self::update) so.
    ///
    /// # Errors
    /// The first node in which they differ.
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

/// A life that a node names and that each launch would make anew: its graph is in there.
fn outdated(pins: &[Pin], allocs: &[FlatAlloc]) -> Option<Pin> {
    let is_own = |pin: &&Pin| allocs.iter().any(|it| (it.graph, it.alloc) == (pin.graph, pin.alloc));
    pins.iter().find(is_own).copied()
}
