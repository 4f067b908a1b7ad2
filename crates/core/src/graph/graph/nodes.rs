//! Nodes: what each is, and its edges as lists of neighbours. A node may be a whole graph.

use std::mem::discriminant;
use std::sync::Arc;

use smallvec::SmallVec;

use super::Graph;
use crate::graph::node::{Access, GraphAllocId, Label, Memory, NodeId, Work};

/// What a node is to the order and to memory (CUDA: `CUgraphNodeType`).
#[derive(Clone, Debug)]
pub enum NodeKind {
    /// What neither allocates nor frees.
    Work(Work),
    /// Makes an allocation.
    MemAlloc(GraphAllocId),
    /// Frees one.
    MemFree(Memory),
    /// A whole graph.
    Child(Arc<Graph>),
}

impl NodeKind {
    /// Whether both are of one type, whatever they are about.
    pub(in crate::graph) fn is_like(&self, other: &NodeKind) -> bool {
        match (self, other) {
            (NodeKind::Work(one), NodeKind::Work(two)) => discriminant(one) == discriminant(two),
            _ => discriminant(self) == discriminant(other),
        }
    }

    /// The kind in words.
    pub fn noun(&self) -> &'static str {
        match self {
            NodeKind::Work(work) => work.noun(),
            NodeKind::MemAlloc(_) => "mem alloc",
            NodeKind::MemFree(_) => "mem free",
            NodeKind::Child(_) => "child graph",
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
