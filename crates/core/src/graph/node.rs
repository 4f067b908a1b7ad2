//! What a graph is made of: numbers, kinds of nodes, and what a node says of the memory it uses.
//!
//! Plain data; knows no edges. What a node runs (a closure, a copy's addresses) is not here: whoever builds the graph
//! keeps it in a table of its own by [`NodeId`].

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use super::graph::Graph;
use crate::ids::{AllocId, StreamId};
pub use crate::ids::{GraphId, NodeId};
use crate::op::{Act, Part, Place};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($raw:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name(pub $raw);

        impl $name {
            /// The number as an index into a table.
            #[inline]
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

number! {
    /// An allocation of one graph, made by one of its mem alloc nodes: dense, counted from 0, not used again.
    GraphAllocId(u32), "graph allocation "
}
number! {
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
}

impl From<&str> for Label {
    fn from(name: &str) -> Self {
        Label { name: Some(name.into()), ..Label::default() }
    }
}

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
    pub(super) before: SmallVec<[NodeId; 2]>,
    pub(super) after: SmallVec<[NodeId; 2]>,
    pub(super) is_removed: bool,
}

impl Node {
    /// A node without edges.
    pub(super) fn new(kind: NodeKind, accesses: &[Access], label: Label) -> Self {
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
