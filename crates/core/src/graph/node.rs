//! The parts of a graph: numbers, kinds of nodes, and a node's accesses to memory.
//!
//! Plain data; depends on no edges and no graph. What a node runs (a closure, a copy's addresses) is not here: the code
//! that builds the graph keeps it in its own table by [`NodeId`].

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::ids::id;
use crate::ids::{AllocId, DeviceId, StreamId};
pub use crate::ids::{GraphId, NodeId};
use crate::op::{Act, Part, Place};

id! {
    /// An allocation of one graph, made by one of its mem alloc nodes: dense, counted from 0, never used again.
    GraphAllocId(u32), "graph allocation "
}
id! {
    /// An event that outlives graphs, numbered by its owner.
    EventKey(u64), "event "
}

/// The memory that a node uses or frees.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Memory {
    /// An allocation of the node's own graph.
    Own(GraphAllocId),
    /// An allocation of another graph (or of a child graph). Its lifetime is known at launch only.
    Foreign {
        /// The graph that allocates it.
        graph: GraphId,
        /// The allocation in that graph.
        alloc: GraphAllocId,
    },
    /// One lifetime of an allocation outside all graphs.
    External {
        /// Its number on its device.
        id: AllocId,
        /// The number of its lifetime.
        generation: u64,
    },
}

/// An access of a node to memory: [`Act::Read`] or [`Act::Write`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// The memory.
    pub memory: Memory,
    /// Read or write; any other act counts as a write.
    pub act: Act,
    /// The bytes.
    pub part: Part,
}

impl Access {
    /// Makes an access to all bytes of the memory.
    pub fn whole(memory: Memory, act: Act) -> Self {
        Access { memory, act, part: Part::WHOLE }
    }

    /// Returns read or write.
    pub(super) fn kind(&self) -> Act {
        if self.act == Act::Read { Act::Read } else { Act::Write }
    }
}

/// The name of a node, and the place where it was made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Label {
    /// The name, if it was given one.
    pub name: Option<Arc<str>>,
    /// The line that made it.
    pub place: Place,
    /// The stream that it was captured on, or `None` if it was not captured.
    pub stream: Option<StreamId>,
    /// The device that runs it, if known. A node stays on the device that it was captured on, wherever the graph is
    /// launched.
    pub device: Option<DeviceId>,
}

impl From<&str> for Label {
    fn from(name: &str) -> Self {
        Label { name: Some(name.into()), ..Label::default() }
    }
}

/// A kind of node that neither allocates nor frees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// A kernel.
    Kernel,
    /// A copy.
    Copy,
    /// A memset.
    Memset,
    /// A host function.
    HostFunction,
    /// An empty node: it only joins edges.
    Empty,
    /// Records an event that streams outside the graph can wait for.
    EventRecord(EventKey),
    /// Waits for an event that is recorded outside the graph.
    EventWait(EventKey),
}

impl Work {
    /// Returns the name of the kind.
    pub fn noun(self) -> &'static str {
        match self {
            Work::Kernel => "kernel",
            Work::Copy => "copy",
            Work::Memset => "memset",
            Work::HostFunction => "host function",
            Work::Empty => "empty node",
            Work::EventRecord(_) => "event record",
            Work::EventWait(_) => "event wait",
        }
    }
}

/// The path of a node: its number in the outermost graph. For a node of a child graph, the number of the child node
/// there, then the number in the child, and so on.
pub type Origin = SmallVec<[NodeId; 1]>;

/// The most levels of nested graphs.
pub const DEPTH_MAX: usize = 64;
