//! The reasons to refuse a change of a graph.
//!
//! Plain data, with its text. A refused call changes nothing.

use std::fmt;

use super::copy_refused::CopyRefused;
use super::node::{DEPTH_MAX, GraphAllocId, GraphId, NodeId};
use crate::op::{Names, Thing};
use crate::units::Bytes;

pub(super) const TOO_MANY_NODES: &str =
    "the graph has too many nodes, its children's included, or too many that do not come after one another";

/// The reasons to refuse a change of a graph. The graph is unchanged.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum GraphError {
    /// No node of this graph has the number, or it was removed.
    UnknownNode(NodeId),
    /// A dependency or an edge is given twice.
    DuplicateEdge {
        /// The node at which the edge begins.
        from: NodeId,
        /// The node at which it ends.
        to: NodeId,
    },
    /// There is no such edge.
    NoEdge {
        /// The node at which the edge would begin.
        from: NodeId,
        /// The node at which it would end.
        to: NodeId,
    },
    /// The edge would close a cycle.
    Cycle {
        /// The node at which the edge would begin.
        from: NodeId,
        /// The node at which it would end.
        to: NodeId,
    },
    /// No allocation of this graph has the number, or its node was removed.
    UnknownAlloc(GraphAllocId),
    /// An allocation of 0 bytes.
    NoBytes,
    /// The graph has no addresses left: [extend](super::Graph::extend) it by at least this many bytes and try again.
    NoAddresses {
        /// Bytes of addresses, whole granules.
        bytes: u64,
    },
    /// Too many nodes that do not come after one another.
    TooManyNodes,
    /// Larger than the address space.
    TooLarge(u64),
    /// The memory is not an alloc node's: free nodes free memory of alloc nodes only.
    NotGraphMemory,
    /// The graph has a free node for it already.
    FreedAlready {
        /// The allocation.
        alloc: GraphAllocId,
        /// The node that frees it.
        by: NodeId,
        /// Both, with their names and places.
        described: String,
    },
    /// Another node names the memory of the alloc node that was to be removed.
    InUse {
        /// The alloc node.
        node: NodeId,
        /// The node that uses it.
        user: NodeId,
    },
    /// Another graph frees the memory of the alloc node that was to be removed.
    FreedElsewhere {
        /// The alloc node.
        node: NodeId,
        /// The graph that frees it.
        by: GraphId,
    },
    /// Another graph has the free node for the memory, or the graph that allocates it has.
    FreedByOther {
        /// The allocation.
        alloc: GraphAllocId,
        /// The graph that allocates it.
        owner: GraphId,
        /// The graph that frees it.
        by: GraphId,
    },
    /// Memory nodes with fixed addresses would be in two places.
    Copy(Box<CopyRefused>),
    /// Graphs are nested too deeply.
    TooDeep,
    /// Conditional nodes are not supported.
    Conditional,
}

impl GraphError {
    /// Returns the text. `node` returns the name of a node, and `names` has those of graphs.
    pub fn titled(&self, node: impl Fn(NodeId) -> String, names: &Names) -> String {
        let graph = |graph: &GraphId| names.title(Thing::Graph(*graph));
        match self {
            GraphError::UnknownNode(unknown) => format!("{unknown} is not in this graph"),
            GraphError::DuplicateEdge { from, to } => {
                format!("the edge from {} to {} is there already", node(*from), node(*to))
            }
            GraphError::NoEdge { from, to } => format!("there is no edge from {} to {}", node(*from), node(*to)),
            GraphError::Cycle { from, to } => {
                let (from, to) = (node(*from), node(*to));
                format!("an edge from {from} to {to} would close a circle: there is a path from {to} to {from}")
            }
            GraphError::UnknownAlloc(alloc) => format!("{alloc} is not in this graph"),
            GraphError::NoBytes => "an alloc node needs at least 1 byte".to_owned(),
            GraphError::NoAddresses { bytes } => format!("the graph has no addresses left for {}", Bytes(*bytes)),
            GraphError::TooManyNodes => TOO_MANY_NODES.to_owned(),
            GraphError::TooLarge(bytes) => format!("{} are more than there are addresses", Bytes(*bytes)),
            GraphError::NotGraphMemory => "a free node frees memory of an alloc node; this is none".to_owned(),
            GraphError::FreedAlready { described, .. } => described.clone(),
            GraphError::InUse { node: alloc, user } => {
                format!("{} cannot be removed: {} uses its memory", node(*alloc), node(*user))
            }
            GraphError::FreedElsewhere { node: alloc, by } => {
                format!("{} cannot be removed: {} frees its memory", node(*alloc), graph(by))
            }
            GraphError::FreedByOther { alloc, owner, by } if owner == by => {
                format!("{} has a free node for its {alloc} already", graph(by))
            }
            GraphError::FreedByOther { alloc, owner, by } => {
                format!("{} has a free node for {alloc} of {} already", graph(by), graph(owner))
            }
            GraphError::Copy(refused) => refused.sentence(names),
            GraphError::TooDeep => format!("graphs are nested more than {DEPTH_MAX} deep"),
            GraphError::Conditional => {
                "conditional nodes are not supported: launch different graphs, or instantiate one for each branch"
                    .to_owned()
            }
        }
    }
}

impl fmt::Display for GraphError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.titled(|node| node.to_string(), &Names::default()))
    }
}

impl std::error::Error for GraphError {}
