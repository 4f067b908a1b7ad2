//! Nodes: the kind of each, and its edges as lists of neighbours. A node may be a whole graph.

use std::mem::discriminant;
use std::sync::Arc;

use smallvec::SmallVec;

use super::Graph;
use crate::graph::node::{Access, GraphAllocId, Label, Memory, NodeId, Work};

/// The kind of a node (CUDA: `CUgraphNodeType`).
#[derive(Clone, Debug)]
pub enum NodeKind {
    /// A node that neither allocates nor frees.
    Work(Work),
    /// A mem alloc node.
    MemAlloc(GraphAllocId),
    /// A mem free node.
    MemFree(Memory),
    /// A child graph.
    Child(Arc<Graph>),
}

impl NodeKind {
    /// Returns `true` if both have the same type, with any parameters.
    pub(in crate::graph) fn is_like(&self, other: &NodeKind) -> bool {
        match (self, other) {
            (NodeKind::Work(one), NodeKind::Work(two)) => discriminant(one) == discriminant(two),
            _ => discriminant(self) == discriminant(other),
        }
    }

    /// Returns the name of the kind.
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
    /// Its kind.
    pub kind: NodeKind,
    /// Its accesses to memory.
    pub accesses: SmallVec<[Access; 2]>,
    /// `true` if the node promises to touch other bytes than an unordered node that uses the same allocation. Two such
    /// nodes are accepted; otherwise they would be a race.
    pub may_share: bool,
    /// Its name and place.
    pub label: Label,
    pub(in crate::graph) before: SmallVec<[NodeId; 2]>,
    pub(in crate::graph) after: SmallVec<[NodeId; 2]>,
    pub(in crate::graph) is_removed: bool,
}

impl Node {
    /// Makes a node without edges.
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

    /// Returns the nodes that it depends on, by direct edges.
    pub fn dependencies(&self) -> &[NodeId] {
        &self.before
    }

    /// Returns the nodes that depend on it, by direct edges.
    pub fn successors(&self) -> &[NodeId] {
        &self.after
    }
}
