//! Why a change of a graph is refused.
//!
//! Plain data, in words. A refused call changes nothing.

use super::node::{DEPTH_MAX, GraphAllocId, GraphId, NodeId};
use crate::units::Bytes;

pub(super) const TOO_MANY_NODES: &str =
    "the graph has too many nodes, its children's included, or too many that do not come after one another";

/// Why a change of a graph was refused. The graph is as before.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// No node of this graph has the number, or it was removed.
    #[error("{0} is not in this graph")]
    UnknownNode(NodeId),
    /// A dependency or an edge is given twice.
    #[error("the edge from {from} to {to} is there already")]
    DuplicateEdge {
        /// One end.
        from: NodeId,
        /// The other.
        to: NodeId,
    },
    /// There is no such edge.
    #[error("there is no edge from {from} to {to}")]
    NoEdge {
        /// One end.
        from: NodeId,
        /// The other.
        to: NodeId,
    },
    /// The edge would close a circle.
    #[error("an edge from {from} to {to} would close a circle: there is a path from {to} to {from}")]
    Cycle {
        /// One end.
        from: NodeId,
        /// The other.
        to: NodeId,
    },
    /// No allocation of this graph has the number, or its node was removed.
    #[error("{0} is not in this graph")]
    UnknownAlloc(GraphAllocId),
    /// An allocation of 0 bytes.
    #[error("an alloc node needs at least 1 byte")]
    NoBytes,
    /// The graph's addresses are used up: [extend](super::Graph::extend) it by at least this many bytes and try again.
    #[error("the graph has no addresses left for {}", Bytes(*.bytes))]
    NoAddresses {
        /// Bytes of addresses, whole granules.
        bytes: u64,
    },
    /// Too many nodes beside each other.
    #[error("{TOO_MANY_NODES}")]
    TooManyNodes,
    /// Larger than the address space.
    #[error("{} are more than there are addresses", Bytes(*.0))]
    TooLarge(u64),
    /// Free nodes free memory of alloc nodes only.
    #[error("a free node frees memory of an alloc node; this is none")]
    NotGraphMemory,
    /// The graph has a free node for it already.
    #[error("{described}")]
    FreedAlready {
        /// The allocation.
        alloc: GraphAllocId,
        /// By whom.
        by: NodeId,
        /// Both with their names and places.
        described: String,
    },
    /// Another node names the memory of the alloc node that was to be removed.
    #[error("{node} cannot be removed: {user} uses its memory")]
    InUse {
        /// The alloc node.
        node: NodeId,
        /// Who uses it.
        user: NodeId,
    },
    /// Another graph frees the memory of the alloc node that was to be removed.
    #[error("{node} cannot be removed: {by} frees its memory")]
    FreedElsewhere {
        /// The alloc node.
        node: NodeId,
        /// Who frees it.
        by: GraphId,
    },
    /// Graphs are nested too deeply.
    #[error("graphs are nested more than {DEPTH_MAX} deep")]
    TooDeep,
    /// Conditional nodes are not built.
    #[error("conditional nodes are not supported: launch different graphs, or instantiate one for each branch")]
    Conditional,
}
