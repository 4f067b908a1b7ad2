//! What a program puts into a graph by hand, node by node.
//!
//! Plain data. Nodes of a graph are numbered as they are added, from 0; captured work gets the next numbers.

use smallvec::SmallVec;

use super::memory::{Access, Memory};
use crate::ids::{EventId, GraphId};

/// What a node does.
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
    /// Nothing: a place where edges meet.
    Empty,
    /// Records an event that the outside can wait for.
    EventRecord(EventId),
    /// Waits for an event that the outside records.
    EventWait(EventId),
    /// Makes an allocation; from here on `memory` names it.
    Alloc {
        /// Its name.
        memory: Memory,
        /// Its size.
        bytes: u64,
    },
    /// Frees an allocation of an alloc node.
    Free(Memory),
    /// A whole graph, as it is now.
    Child(GraphId),
}

/// To which threads a capture forbids [unsafe calls](super::What::unsafe_call) while it goes on; and, of a thread,
/// which captures forbid them to it (CUDA: `cudaStreamCaptureMode`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum CaptureMode {
    /// To every thread. Of a thread: its own captures that are not relaxed, and other threads' global ones.
    #[default]
    Global,
    /// To the thread that began it. Of a thread: its own captures that are not relaxed.
    ThreadLocal,
    /// To none; and any thread may end it. Of a thread: none.
    Relaxed,
}
