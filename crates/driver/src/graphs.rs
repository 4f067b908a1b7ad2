//! Graphs as the contract has them: the nodes of a device's graph.
//!
//! Knows work and edges, but no streams. A device need not have graphs:
//! [`Driver::has_graphs`](crate::Driver::has_graphs). Nodes work on memory that exists; none allocates.

use std::fmt;
use std::sync::Arc;

/// The work of a stream during a capture (CUDA: the `CUgraph` that `cuStreamEndCapture` returns).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RawGraph(pub u64);

/// An executable graph (CUDA: `CUgraphExec`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RawExec(pub u64);

/// A closure that every launch runs on the host, one launch after the other.
pub type Repeated = Arc<dyn Fn() + Send + Sync>;

/// The work of a node at each launch.
#[derive(Clone)]
pub enum NodeWork {
    /// Does nothing: edges meet here (CUDA: an empty node).
    Nothing,
    /// Runs a closure, under the rules of [`Work::Run`](crate::Work::Run) (CUDA: a host node).
    Run(Repeated),
    /// Copies between ranges of device memory that do not overlap.
    Copy {
        /// First destination address.
        to: u64,
        /// First source address.
        from: u64,
        /// The number of bytes; at least one.
        bytes: u64,
    },
    /// Copies bytes that the graph keeps to device memory.
    Upload {
        /// First destination address.
        to: u64,
        /// The bytes; at least one.
        from: Arc<Vec<u8>>,
    },
    /// Sets each byte.
    Fill {
        /// First address.
        at: u64,
        /// The number of bytes; at least one.
        bytes: u64,
        /// The value of each byte.
        value: u8,
    },
    /// Runs a captured graph as one node (CUDA: a child graph node).
    Captured(RawGraph),
}

impl fmt::Debug for NodeWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NodeWork::Nothing => f.write_str("Nothing"),
            NodeWork::Run(_) => f.write_str("Run"),
            NodeWork::Copy { to, from, bytes } => write!(f, "Copy {bytes} B {from:#x} -> {to:#x}"),
            NodeWork::Upload { to, from } => write!(f, "Upload {} B to {to:#x}", from.len()),
            NodeWork::Fill { at, bytes, value } => write!(f, "Fill {bytes} B at {at:#x} with {value:#04x}"),
            NodeWork::Captured(graph) => write!(f, "Captured {graph:?}"),
        }
    }
}

/// A node of a graph that is to be made.
#[derive(Clone, Debug)]
pub struct Node {
    /// The node's work.
    pub work: NodeWork,
    /// The nodes that it comes after, by their positions in the list: each is before this one.
    pub after: Vec<u32>,
}
