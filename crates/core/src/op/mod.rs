//! Every operation that a program can make, as data: the input of the checker and of traces.
//!
//! An [`Op`] has the host thread that called, the place in the source, and [`What`] was called. Nothing here is
//! judged or checked. No operation holds a text: names are numbers into a table ([`Names`]). Most operations own no
//! heap memory; a launch with more than two accesses does.
//!
//! The recorder chooses the numbers: they are small, and are used again where the documentation says so. Code that
//! reads operations from a file must expect any numbers, in any order.
//!
//! | file | contents |
//! |---|---|
//! | `place` | the place of an operation in the source, and the names of things |
//! | `memory` | accesses to memory, and the names of memory |
//! | `node` | nodes that a program adds to a graph by hand |
//! | `at_once` | the operations that a capture may forbid |
//! | `quoted` | names in messages |

mod aliased;
mod at_once;
mod memory;
mod node;
mod place;
mod quoted;

use smallvec::SmallVec;

pub use aliased::{aliased_with, find_aliased};
pub use memory::{Access, Act, Memory, Part, Reach, Space};
pub use node::{CaptureMode, NodeOp};
pub use place::{Name, Names, Place, Thing};
pub use quoted::{Quoted, Visible};

use crate::ids::{DeviceId, EventId, ExecId, GraphId, HostId, NodeId, PoolId, ProcessId, StreamId, TicketId};

/// One operation of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Op {
    /// The thread that called.
    pub host: HostId,
    /// The place of the call in the source.
    pub place: Place,
    /// The call.
    pub what: What,
}

/// The relation of a stream that a program creates to the legacy default stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamKind {
    /// Ordered with it both ways (CUDA: `cudaStreamDefault`).
    Blocking,
    /// Not ordered with it (CUDA: `cudaStreamNonBlocking`).
    NonBlocking,
}

/// The relation of a stream to the default streams.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum StreamRole {
    /// Ordered with the legacy default stream both ways (CUDA: `cudaStreamDefault`).
    #[default]
    Blocking,
    /// Not ordered with it (CUDA: `cudaStreamNonBlocking`).
    NonBlocking,
    /// The calling thread's default stream (CUDA: `cudaStreamPerThread`), a blocking one.
    PerThread,
    /// The legacy default stream of the device (CUDA: `cudaStreamLegacy`).
    Legacy,
}

impl From<StreamKind> for StreamRole {
    fn from(kind: StreamKind) -> Self {
        match kind {
            StreamKind::Blocking => StreamRole::Blocking,
            StreamKind::NonBlocking => StreamRole::NonBlocking,
        }
    }
}

/// The kind of a record of an event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum EventKind {
    /// All work before the record has completed.
    #[default]
    Completion,
    /// Work before it has reached some point of its own (CUDA: programmatic and launch completion events). It orders
    /// nothing.
    Progress,
    /// As [`Completion`](Self::Completion), for a host that asks how far the stream is, or waits for it: the program
    /// recorded nothing, and it is not counted among the stream's operations.
    Asked,
}

/// The part of an operation's order that is believed without a check, because the program says so.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Trust {
    /// Nothing: the order is checked.
    #[default]
    None,
    /// Unordered uses of the same memory are of different bytes.
    Races,
    /// The operation comes after everything that it must come after.
    Order,
}

/// A call of the program, with CUDA's name for it if there is one.
#[derive(Clone, PartialEq, Eq, Debug)]
// For a new variant, the compiler only asks for its code in a trace. `ARCHITECTURE.md` lists the other places.
#[non_exhaustive]
pub enum What {
    /// The calling thread belongs to another process, which begins now. All other threads belong to process 0.
    HostStart {
        /// Its process.
        process: ProcessId,
    },
    /// The process of `to` learned what the calling thread's process knows, through a message that is not recorded.
    /// Threads of one process share their knowledge without this.
    Tell {
        /// A thread of the process that learned.
        to: HostId,
    },
    /// A stream is created, or a default stream is used for the first time (`cudaStreamCreateWithFlags`).
    StreamCreate {
        /// Its number, used again only long after the stream's end.
        stream: StreamId,
        /// Its relation to the default streams.
        role: StreamRole,
        /// Its device.
        device: DeviceId,
    },
    /// A stream is destroyed; its work goes on (`cudaStreamDestroy`).
    StreamDestroy {
        /// The stream.
        stream: StreamId,
    },
    /// The program gives a stream a name.
    StreamName {
        /// The stream.
        stream: StreamId,
        /// The name.
        name: Name,
    },
    /// The host waited for a stream (`cudaStreamSynchronize`).
    StreamSynchronize {
        /// The stream.
        stream: StreamId,
    },
    /// The host queried whether a stream is idle (`cudaStreamQuery`).
    StreamQuery {
        /// The stream.
        stream: StreamId,
        /// The answer. `true` orders like a synchronisation.
        is_idle: bool,
    },
    /// The host waited for all of its process's streams of all devices (`cudaDeviceSynchronize` on each).
    DeviceSynchronize,
    /// The host waited for all of its process's streams of one device (`cudaDeviceSynchronize`).
    SynchronizeDevice {
        /// The device.
        device: DeviceId,
    },
    /// An event is created (`cudaEventCreate`).
    EventCreate {
        /// Its number. It is used again after the event is destroyed.
        event: EventId,
        /// Its device.
        device: DeviceId,
        /// `true` if other processes may use it (`cudaEventInterprocess`).
        shared: bool,
    },
    /// An event is destroyed; waits for it that were already made stay (`cudaEventDestroy`).
    EventDestroy {
        /// The event.
        event: EventId,
    },
    /// An event takes over the present record of another one, and its own record is dropped.
    EventCopy {
        /// The event.
        event: EventId,
        /// The other one.
        from: EventId,
    },
    /// An event is recorded on a stream; its earlier record is dropped (`cudaEventRecord`).
    EventRecord {
        /// The event.
        event: EventId,
        /// The stream.
        stream: StreamId,
        /// In a capture: a node that records the event at each launch (`cudaEventRecordExternal`).
        external: bool,
        /// The kind of the record.
        kind: EventKind,
    },
    /// Later work of a stream waits for the event's latest record. Without a record it is not a wait
    /// (`cudaStreamWaitEvent`).
    EventWait {
        /// The event.
        event: EventId,
        /// The stream.
        stream: StreamId,
        /// In a capture: a node that waits at each launch (`cudaEventWaitExternal`).
        external: bool,
    },
    /// Later work of a stream comes after all work so far of another, although the program did not ask for it: a
    /// missing edge, added after it was reported.
    Follow {
        /// The stream.
        stream: StreamId,
        /// The other one. It may be destroyed already.
        after: StreamId,
    },
    /// The host waited for an event (`cudaEventSynchronize`).
    EventSynchronize {
        /// The event.
        event: EventId,
    },
    /// The host queried whether an event has completed (`cudaEventQuery`).
    EventQuery {
        /// The event.
        event: EventId,
        /// The answer. `true` orders like a synchronisation.
        is_over: bool,
    },
    /// A pool is created (`cudaMemPoolCreate`).
    PoolCreate {
        /// Its number. It is never used again.
        pool: PoolId,
        /// `true` if its memory can be exported to other processes.
        exportable: bool,
        /// The device of its memory, if known.
        device: Option<DeviceId>,
    },
    /// A device other than the pool's gets access to all memory of the pool, or loses it (`cudaMemPoolSetAccess`).
    PoolAccess {
        /// The pool.
        pool: PoolId,
        /// The device.
        device: DeviceId,
        /// The access that it has from now on.
        reach: Reach,
    },
    /// A device gets access to all immediate allocations of another one, or loses it (`cudaDeviceEnablePeerAccess`,
    /// `cudaDeviceDisablePeerAccess`). Copies need no such access.
    PeerAccess {
        /// The device that has the memory.
        owner: DeviceId,
        /// The device that may use it.
        device: DeviceId,
        /// `true` if it may use the memory from now on.
        is_enabled: bool,
    },
    /// A pool is destroyed; its live allocations stay (`cudaMemPoolDestroy`).
    PoolDestroy {
        /// The pool.
        pool: PoolId,
    },
    /// An allocation in stream order (`cudaMallocAsync`). On a captured stream, an alloc node.
    Alloc {
        /// Its name.
        memory: Memory,
        /// Its pool.
        pool: PoolId,
        /// The stream.
        stream: StreamId,
        /// Its size.
        bytes: u64,
        /// The program's name for it.
        name: Option<Name>,
    },
    /// An immediate allocation (`cudaMalloc`, `cudaMallocHost`).
    AllocNow {
        /// Its name.
        memory: Memory,
        /// The kind of memory.
        space: Space,
        /// Its size.
        bytes: u64,
        /// The program's name for it.
        name: Option<Name>,
    },
    /// The program gives an allocation a name, or another one.
    SetName {
        /// The memory.
        memory: Memory,
        /// The name.
        name: Name,
    },
    /// A free in stream order (`cudaFreeAsync`). On a captured stream, a free node.
    Free {
        /// The memory.
        memory: Memory,
        /// The stream.
        stream: StreamId,
        /// The part of its order that is believed.
        trust: Trust,
    },
    /// An immediate free, or an unmap (`cudaFree`, `cudaFreeHost`, `cuMemUnmap`).
    FreeNow {
        /// The memory.
        memory: Memory,
    },
    /// The owner drops its buffer: the memory is free after everything declared so far. This is always right, waits
    /// for nothing and orders nothing.
    Drop {
        /// The memory.
        memory: Memory,
    },
    /// Work of a stream that uses memory: a kernel, a fill, a host function. On a captured stream, a node.
    Launch {
        /// The stream.
        stream: StreamId,
        /// Its accesses. It may read and write the same bytes.
        accesses: SmallVec<[Access; 2]>,
        /// The part of its order that is believed.
        trust: Trust,
        /// The program's name for it.
        name: Option<Name>,
    },
    /// A stream copies bytes, whose source and target must not overlap, or sets them (`cudaMemcpyAsync`,
    /// `cudaMemsetAsync`). On a captured stream, a node.
    Copy {
        /// The stream.
        stream: StreamId,
        /// Its reads and writes.
        accesses: SmallVec<[Access; 2]>,
    },
    /// The calling thread itself uses memory now.
    HostAccess {
        /// Its accesses.
        accesses: SmallVec<[Access; 2]>,
    },
    /// An empty graph is created (`cudaGraphCreate`).
    GraphCreate {
        /// Its number. It is never used again.
        graph: GraphId,
        /// `true` if each instance has addresses of its own. Otherwise all instances use the graph's, and only one at
        /// a time can exist.
        symbolic: bool,
    },
    /// A node is added (`cudaGraphAdd...Node`). It gets the next number of its graph.
    GraphNode {
        /// The graph.
        graph: GraphId,
        /// The node.
        node: Box<NodeOp>,
        /// The nodes that it comes after.
        after: SmallVec<[NodeId; 2]>,
        /// The program's name for it.
        name: Option<Name>,
    },
    /// An edge is added (`cudaGraphAddDependencies`).
    GraphEdge {
        /// The graph.
        graph: GraphId,
        /// The node that comes first.
        from: NodeId,
        /// The node that comes after it.
        to: NodeId,
    },
    /// An edge is removed (`cudaGraphRemoveDependencies`).
    GraphEdgeRemove {
        /// The graph.
        graph: GraphId,
        /// One end.
        from: NodeId,
        /// The other.
        to: NodeId,
    },
    /// A node is removed with its edges (`cudaGraphDestroyNode`).
    GraphNodeRemove {
        /// The graph.
        graph: GraphId,
        /// The node.
        node: NodeId,
    },
    /// A graph is copied (`cudaGraphClone`).
    GraphClone {
        /// The original.
        graph: GraphId,
        /// The copy.
        copy: GraphId,
    },
    /// The memory of an alloc node gets a name of its own in a copy of its graph. Without this, the copy's memory has
    /// the original's name.
    CopyName {
        /// The copy.
        graph: GraphId,
        /// The copy's name for the memory so far.
        node: Memory,
        /// Its name from now on.
        memory: Memory,
    },
    /// A graph is destroyed; its instances stay (`cudaGraphDestroy`).
    GraphDestroy {
        /// The graph.
        graph: GraphId,
    },
    /// From now on, work of the stream becomes nodes of a new graph (`cudaStreamBeginCapture`). Other streams join
    /// the capture when they wait for events recorded in it.
    CaptureBegin {
        /// The stream, the capture's origin.
        stream: StreamId,
        /// The number that the graph will have.
        graph: GraphId,
        /// The threads to which it forbids unsafe calls.
        mode: CaptureMode,
        /// As for [`What::GraphCreate`].
        symbolic: bool,
    },
    /// From now on, work of the stream becomes nodes of an existing graph (`cudaStreamBeginCaptureToGraph`). If the
    /// capture fails, the graph is as it was before, but the numbers of the captured nodes are not used again.
    CaptureToGraph {
        /// The stream, the capture's origin.
        stream: StreamId,
        /// The graph. Until the capture ends, nothing else uses it.
        graph: GraphId,
        /// The nodes that the first captured ones come after.
        after: SmallVec<[NodeId; 2]>,
        /// The threads to which it forbids unsafe calls.
        mode: CaptureMode,
    },
    /// Sets the calling thread's mode: which captures forbid it unsafe calls from now on. A thread begins with the
    /// global mode (`cudaThreadExchangeStreamCaptureMode`).
    CaptureModeExchange {
        /// The thread's mode.
        mode: CaptureMode,
    },
    /// The capture that began on the stream ends, and its graph exists (`cudaStreamEndCapture`).
    CaptureEnd {
        /// The stream.
        stream: StreamId,
    },
    /// The capture that began on the stream is abandoned: it makes no graph, and an existing graph is as it was
    /// before.
    CaptureAbandon {
        /// The stream.
        stream: StreamId,
    },
    /// A graph is checked and instantiated (`cudaGraphInstantiate`).
    Instantiate {
        /// The graph.
        graph: GraphId,
        /// The number of the instance. It is never used again.
        exec: ExecId,
        /// `true` if a launch frees the memory that the launch before left unfreed.
        auto_free_on_launch: bool,
    },
    /// An instance takes over the nodes of a graph of the same shape (`cudaGraphExecUpdate`).
    ExecUpdate {
        /// The instance.
        exec: ExecId,
        /// The graph.
        graph: GraphId,
    },
    /// An instance is launched (`cudaGraphLaunch`).
    GraphLaunch {
        /// The instance.
        exec: ExecId,
        /// The stream.
        stream: StreamId,
    },
    /// An instance's memory is bound on a stream, which comes after the instance's earlier launches
    /// (`cudaGraphUpload`).
    GraphUpload {
        /// The instance.
        exec: ExecId,
        /// The stream.
        stream: StreamId,
    },
    /// The allocation that the latest launch of an instance made at an alloc node gets a name of its own.
    Take {
        /// The instance.
        exec: ExecId,
        /// The name of the alloc node's memory.
        node: Memory,
        /// The new name of this allocation.
        memory: Memory,
    },
    /// An instance is destroyed; its launches go on, and memory that they left unfreed stays live
    /// (`cudaGraphExecDestroy`).
    ExecDestroy {
        /// The instance.
        exec: ExecId,
    },
    /// Memory is exported to other processes.
    Export {
        /// The memory.
        memory: Memory,
        /// The number of the ticket.
        ticket: TicketId,
    },
    /// The calling thread's process imports memory, which it then frees like memory of its own.
    Import {
        /// The ticket.
        ticket: TicketId,
        /// The importer's name for the memory.
        memory: Memory,
    },
}

impl What {
    /// Returns the stream that it is an operation of, or concerns.
    pub fn stream(&self) -> Option<StreamId> {
        match *self {
            What::StreamCreate { stream, .. }
            | What::StreamDestroy { stream }
            | What::StreamName { stream, .. }
            | What::StreamSynchronize { stream }
            | What::StreamQuery { stream, .. }
            | What::EventRecord { stream, .. }
            | What::EventWait { stream, .. }
            | What::Follow { stream, .. }
            | What::Alloc { stream, .. }
            | What::Free { stream, .. }
            | What::Launch { stream, .. }
            | What::Copy { stream, .. }
            | What::CaptureBegin { stream, .. }
            | What::CaptureToGraph { stream, .. }
            | What::CaptureEnd { stream }
            | What::CaptureAbandon { stream }
            | What::GraphLaunch { stream, .. }
            | What::GraphUpload { stream, .. } => Some(stream),
            _ => None,
        }
    }
}

/// A source of operations, one after the other: a litmus program, a trace on disk, a recorder.
pub trait Ops {
    /// The reason why reading failed.
    type Error;

    /// Returns the next operation, or `None` at the end.
    ///
    /// # Errors
    /// If it cannot be read. Nothing follows then.
    fn next_op(&mut self) -> Result<Option<Op>, Self::Error>;

    /// Returns the texts that the operations so far refer to.
    fn names(&self) -> &Names;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_small() {
        // Millions of operations are copied through queues: they fit in two cache lines.
        assert!(size_of::<Op>() <= 128, "{} bytes", size_of::<Op>());
    }
}
