//! Nodes: what each is, and its edges as lists of neighbours. A node may be a whole graph.

use std::sync::Arc;

use smallvec::SmallVec;

use super::Graph;
use crate::graph::node::{Access, EventKey, GraphAllocId, Label, Memory, NodeId, Work};

/// What a node is to the order and to memory (CUDA: `CUgraphNodeType`).
#[derive(Clone, Debug)]
pub enum NodeKind {
    /// A kernel.
    Kernel,
    /// A copy of bytes.
    Copy,
    /// Bytes set to one value.
    Memset,
    /// A function that runs on the host.
    HostFunction,
    /// Nothing: a place where edges meet.
    Empty,
    /// Records an event that the outside can wait for.
    EventRecord(EventKey),
    /// Waits for an event that the outside records.
    EventWait(EventKey),
    /// Makes an allocation.
    MemAlloc(GraphAllocId),
    /// Frees one.
    MemFree(Memory),
    /// A whole graph.
    Child(Arc<Graph>),
}

impl NodeKind {
    /// The kind in words.
    pub fn noun(&self) -> &'static str {
        match self {
            NodeKind::Kernel => "kernel",
            NodeKind::Copy => "copy",
            NodeKind::Memset => "memset",
            NodeKind::HostFunction => "host function",
            NodeKind::Empty => "empty node",
            NodeKind::EventRecord(_) => "event record",
            NodeKind::EventWait(_) => "event wait",
            NodeKind::MemAlloc(_) => "mem alloc",
            NodeKind::MemFree(_) => "mem free",
            NodeKind::Child(_) => "child graph",
        }
    }
}

impl From<Work> for NodeKind {
    fn from(work: Work) -> Self {
        match work {
            Work::Kernel => NodeKind::Kernel,
            Work::Copy => NodeKind::Copy,
            Work::Memset => NodeKind::Memset,
            Work::HostFunction => NodeKind::HostFunction,
            Work::Empty => NodeKind::Empty,
            Work::EventRecord(event) => NodeKind::EventRecord(event),
            Work::EventWait(event) => NodeKind::EventWait(event),
        }
    }
}

/// One node, with its edges as lists of neighbours.
#[derive(Clone, Debug)]
pub struct Node {
    /// What it is.
    pub kind: NodeKind,
    /// What it does to memory.
    pub accesses: SmallVec<[Access; 2]>,
    /// Whether it promises that where it and an unordered node use one allocation they touch different bytes. Two such
    /// nodes are let pass where others would be a race.
    pub may_share: bool,
    /// For people.
    pub label: Label,
    pub(in crate::graph) before: SmallVec<[NodeId; 2]>,
    pub(in crate::graph) after: SmallVec<[NodeId; 2]>,
    pub(in crate::graph) is_removed: bool,
}

impl Node {
    /// A node without edges.
    pub(in crate::graph) fn new(kind: NodeKind, accesses: &[Access], label: Label) -> Self {
        Node {
            kind,
            accesses: accesses.iter().copied().collect(),
            may_share: false,
            label,
            before: SmallVec::new(),
            after: SmallVec::new(),
            is_removed: false,
        }
    }

    /// The nodes that it depends on, as the edges say.
    pub fn dependencies(&self) -> &[NodeId] {
        &self.before
    }

    /// The nodes that depend on it, as the edges say.
    pub fn successors(&self) -> &[NodeId] {
        &self.after
    }
}
