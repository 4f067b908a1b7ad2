//! The nodes that a program adds to a graph by hand.
//!
//! Plain data. Nodes of a graph are numbered from 0 in the order in which they are added; captured work gets the next
//! numbers.

use smallvec::SmallVec;

use super::memory::{Access, Memory};
use crate::ids::{EventId, GraphId};

/// The work of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodeOp {
    /// A kernel.
    Kernel(SmallVec<[Access; 2]>),
    /// A copy of bytes.
    Copy(SmallVec<[Access; 2]>),
    /// Bytes set to one value.
    Fill(SmallVec<[Access; 2]>),
    /// A function on the host.
    HostFunction(SmallVec<[Access; 2]>),
    /// No work: a place where edges meet.
    Empty,
    /// Records an event that work outside the graph can wait for.
    EventRecord(EventId),
    /// Waits for an event that is recorded outside the graph.
    EventWait(EventId),
    /// Makes an allocation, which `memory` names from here on.
    Alloc {
        /// Its name.
        memory: Memory,
        /// Its size.
        bytes: u64,
    },
    /// Frees the allocation of an alloc node.
    Free(Memory),
    /// A whole graph, as it is at this moment.
    Child(GraphId),
}

/// The threads to which a capture forbids [unsafe calls](super::What::unsafe_call) while it runs. As the mode of a
/// thread: the captures that forbid them to the thread (CUDA: `cudaStreamCaptureMode`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum CaptureMode {
    /// Forbids them to every thread. As a thread's mode: its own captures that are not relaxed, and other threads'
    /// global ones.
    #[default]
    Global,
    /// Forbids them to the thread that began it. As a thread's mode: its own captures that are not relaxed.
    ThreadLocal,
    /// Forbids them to no thread, and any thread may end the capture. As a thread's mode: none.
    Relaxed,
}
