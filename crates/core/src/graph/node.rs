//! What a graph is made of: numbers, kinds of nodes, and what a node says of the memory it uses.
//!
//! Plain data; knows no edges and no graph. What a node runs (a closure, a copy's addresses) is not here: whoever
//! builds the graph keeps it in a table of its own by [`NodeId`].

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::ids::id;
use crate::ids::{AllocId, DeviceId, StreamId};
pub use crate::ids::{GraphId, NodeId};
use crate::op::{Act, Part, Place};

id! {
    /// An allocation of one graph, made by one of its mem alloc nodes: dense, counted from 0, not used again.
    GraphAllocId(u32), "graph allocation "
}
id! {
    /// An event that outlives graphs, as its owner counts them.
    EventKey(u64), "event "
}

/// The memory that a node uses or frees.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Memory {
    /// An allocation of the node's own graph.
    Own(GraphAllocId),
    /// An allocation of another graph (or of a child graph): which of its lives is meant is known at launch only.
    Foreign {
        /// Whose.
        graph: GraphId,
        /// Which of its allocations.
        alloc: GraphAllocId,
    },
    /// One life of an allocation outside all graphs.
    External {
        /// Its number on its device.
        id: AllocId,
        /// Which of its lives.
        generation: u64,
    },
}

/// What a node does to memory: [`Act::Read`] or [`Act::Write`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// The memory.
    pub memory: Memory,
    /// Read or write; anything else is taken for a write.
    pub act: Act,
    /// Which bytes of it.
    pub part: Part,
}

impl Access {
    /// An access to all bytes of the memory.
    pub fn whole(memory: Memory, act: Act) -> Self {
        Access { memory, act, part: Part::WHOLE }
    }

    /// What it does: a read, or else a write.
    pub(super) fn kind(&self) -> Act {
        if self.act == Act::Read { Act::Read } else { Act::Write }
    }
}

/// What a person calls a node, and where it was made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Label {
    /// A name, if it was given one.
    pub name: Option<Arc<str>>,
    /// The line that made it.
    pub place: Place,
    /// The stream that it was captured on; none where it was added by hand.
    pub stream: Option<StreamId>,
    /// The device that does it, where that is known: wherever the graph is launched, a node stays on the device that it
    /// was captured on.
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
}

impl Work {
    /// The kind in words.
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

/// Where a node comes from: its number in the outermost graph; for a node of a child graph the number of the child node
/// there, then the number in the child, and so on.
pub type Origin = SmallVec<[NodeId; 1]>;

/// How deep graphs may be nested.
pub const DEPTH_MAX: usize = 64;
