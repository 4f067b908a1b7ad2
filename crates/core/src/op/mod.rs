//! Everything a program can do, as data: the input of the checker and of traces.
//!
//! An [`Op`] says who did it (a host thread), where it stands in the source, and [`What`] it is. Nothing here is right
//! or wrong yet, and nothing is checked. No operation holds a text: names are numbers into a table ([`Names`]). Most
//! operations own no memory; a launch of more than two accesses does.
//!
//! Numbers are the recorder's: small, and given out again where it says so. Whoever reads operations from a file must
//! expect any numbers at all, in any order.
//!
//! | file | one law |
//! |---|---|
//! | `place` | where it stands, and what things are called |
//! | `memory` | what is done to memory, and how memory is named |
//! | `node` | what is put into a graph by hand |
//! | `at_once` | which operations a capture may forbid |
//! | `quoted` | how names stand in messages |

mod aliased;
mod at_once;
mod memory;
mod node;
mod place;
mod quoted;

use smallvec::SmallVec;

pub use aliased::find_aliased;
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
    /// Where that stands in the source.
    pub place: Place,
    /// What it called.
    pub what: What,
}

/// How a stream that a program makes stands to the legacy default stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamKind {
    /// Ordered with it both ways (CUDA: `cudaStreamDefault`).
    Blocking,
    /// Not ordered with it (CUDA: `cudaStreamNonBlocking`).
    NonBlocking,
}

/// How a stream stands to the default streams.
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

/// What an event stands for.
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

/// What is believed of the order of an operation, because the program says so.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Trust {
    /// Nothing: it is checked.
    #[default]
    None,
    /// Uses of the same memory that are not in order with its own are of other bytes.
    Races,
    /// It comes after all that it has to come after.
    Order,
}

/// What an operation is. CUDA's name for it is given where it has one.
#[derive(Clone, PartialEq, Eq, Debug)]
// For a new one the compiler asks for its code in a trace only: `ARCHITECTURE.md` says where else it belongs.
#[non_exhaustive]
pub enum What {
    /// The calling thread is that of another process, which begins. All threads that are not named so are of process 0.
    HostStart {
        /// Its process.
        process: ProcessId,
    },
    /// The process of `to` learned what the calling thread's process knows, by a message that is not seen here. Threads
    /// of one process know the same without it.
    Tell {
        /// A thread of the process that learned.
        to: HostId,
    },
    /// A stream is made, or a default stream used for the first time (`cudaStreamCreateWithFlags`).
    StreamCreate {
        /// Its number: counted up, never used again.
        stream: StreamId,
        /// What it is to default streams.
        role: StreamRole,
        /// The device that it is of.
        device: DeviceId,
    },
    /// A stream ends; its work goes on (`cudaStreamDestroy`).
    StreamDestroy {
        /// The stream.
        stream: StreamId,
    },
    /// The program gives a stream a name.
    StreamName {
        /// The stream.
        stream: StreamId,
        /// What it is called.
        name: Name,
    },
    /// The host waited for a stream (`cudaStreamSynchronize`).
    StreamSynchronize {
        /// The stream.
        stream: StreamId,
    },
    /// The host asked whether a stream is idle (`cudaStreamQuery`).
    StreamQuery {
        /// The stream.
        stream: StreamId,
        /// The answer: yes orders like a synchronisation.
        is_idle: bool,
    },
    /// The host waited for all of its process's streams of all devices (`cudaDeviceSynchronize` on each).
    DeviceSynchronize,
    /// The host waited for all of its process's streams of one device (`cudaDeviceSynchronize`).
    SynchronizeDevice {
        /// The device.
        device: DeviceId,
    },
    /// An event is made (`cudaEventCreate`).
    EventCreate {
        /// Its number; given out again after its end.
        event: EventId,
        /// The device that it is of.
        device: DeviceId,
        /// Whether other processes may use it (`cudaEventInterprocess`).
        shared: bool,
    },
    /// An event ends; what waited for it still waits (`cudaEventDestroy`).
    EventDestroy {
        /// The event.
        event: EventId,
    },
    /// An event stands for what another one stands for now; what it recorded before is forgotten.
    EventCopy {
        /// The event.
        event: EventId,
        /// The other one.
        from: EventId,
    },
    /// An event is recorded on a stream; what it recorded before is forgotten (`cudaEventRecord`).
    EventRecord {
        /// The event.
        event: EventId,
        /// The stream.
        stream: StreamId,
        /// In a capture: a node that records the event at each launch (`cudaEventRecordExternal`).
        external: bool,
        /// What it stands for.
        kind: EventKind,
    },
    /// Later work of a stream waits for the event's latest record; none is not a wait (`cudaStreamWaitEvent`).
    EventWait {
        /// The event.
        event: EventId,
        /// The stream.
        stream: StreamId,
        /// In a capture: a node that waits at each launch (`cudaEventWaitExternal`).
        external: bool,
    },
    /// Later work of a stream comes after all work so far of another, which the program did not ask for: an edge that
    /// was missing, put in after it was reported.
    Follow {
        /// The stream.
        stream: StreamId,
        /// The other one; it may have ended.
        after: StreamId,
    },
    /// The host waited for an event (`cudaEventSynchronize`).
    EventSynchronize {
        /// The event.
        event: EventId,
    },
    /// The host asked whether an event has completed (`cudaEventQuery`).
    EventQuery {
        /// The event.
        event: EventId,
        /// The answer: yes orders like a synchronisation.
        is_over: bool,
    },
    /// A pool is made (`cudaMemPoolCreate`).
    PoolCreate {
        /// Its number, never used again.
        pool: PoolId,
        /// Whether its memory can be exported to other processes.
        exportable: bool,
        /// The device that its memory is of, where that is known.
        device: Option<DeviceId>,
    },
    /// A device other than the pool's gets access to all memory of the pool, or loses it (`cudaMemPoolSetAccess`).
    PoolAccess {
        /// The pool.
        pool: PoolId,
        /// The device.
        device: DeviceId,
        /// What it may do from now on.
        reach: Reach,
    },
    /// A device gets access to all memory that exists at once on another one, or loses it
    /// (`cudaDeviceEnablePeerAccess`, `cudaDeviceDisablePeerAccess`). Copies need none.
    PeerAccess {
        /// The device that has the memory.
        owner: DeviceId,
        /// The device that may use it.
        device: DeviceId,
        /// Whether it may from now on.
        is_enabled: bool,
    },
    /// A pool ends; what was allocated from it lives on (`cudaMemPoolDestroy`).
    PoolDestroy {
        /// The pool.
        pool: PoolId,
    },
    /// Memory exists from this point of a stream on (`cudaMallocAsync`); on a captured stream an alloc node.
    Alloc {
        /// Its name.
        memory: Memory,
        /// Its pool.
        pool: PoolId,
        /// The stream.
        stream: StreamId,
        /// Its size.
        bytes: u64,
        /// What the program calls it.
        name: Option<Name>,
    },
    /// Memory exists at once (`cudaMalloc`, `cudaMallocHost`).
    AllocNow {
        /// Its name.
        memory: Memory,
        /// Who has it.
        space: Space,
        /// Its size.
        bytes: u64,
        /// What the program calls it.
        name: Option<Name>,
    },
    /// The program gives memory a name (again).
    SetName {
        /// The memory.
        memory: Memory,
        /// What it is called.
        name: Name,
    },
    /// Memory is free from this point of a stream on (`cudaFreeAsync`); on a captured stream a free node.
    Free {
        /// The memory.
        memory: Memory,
        /// The stream.
        stream: StreamId,
        /// What is believed.
        trust: Trust,
    },
    /// Memory is free, or unmapped, at once (`cudaFree`, `cudaFreeHost`, `cuMemUnmap`).
    FreeNow {
        /// The memory.
        memory: Memory,
    },
    /// The owner lets go: the memory is free after everything declared so far. Always right, waits for nothing, orders
    /// nothing.
    Drop {
        /// The memory.
        memory: Memory,
    },
    /// Work of a stream that uses memory: a kernel, a fill, a host function; on a captured stream a node.
    Launch {
        /// The stream.
        stream: StreamId,
        /// What it does to which memory. It may read and write the same bytes.
        accesses: SmallVec<[Access; 2]>,
        /// What is believed.
        trust: Trust,
        /// What the program calls it.
        name: Option<Name>,
    },
    /// A stream copies bytes, whose source and target must not overlap, or sets them (`cudaMemcpyAsync`,
    /// `cudaMemsetAsync`); on a captured stream a node.
    Copy {
        /// The stream.
        stream: StreamId,
        /// What it reads and what it writes.
        accesses: SmallVec<[Access; 2]>,
    },
    /// The calling thread itself uses memory, now.
    HostAccess {
        /// What it does to which memory.
        accesses: SmallVec<[Access; 2]>,
    },
    /// An empty graph (`cudaGraphCreate`).
    GraphCreate {
        /// Its number, never used again.
        graph: GraphId,
        /// Whether each instance has addresses of its own. Otherwise all have the graph's, and one at a time can live.
        symbolic: bool,
    },
    /// A node is added (`cudaGraphAdd...Node`). It has the next number of its graph.
    GraphNode {
        /// The graph.
        graph: GraphId,
        /// What the node is.
        node: Box<NodeOp>,
        /// The nodes that it comes after.
        after: SmallVec<[NodeId; 2]>,
        /// What the program calls it.
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
    /// A copy of a graph (`cudaGraphClone`).
    GraphClone {
        /// The original.
        graph: GraphId,
        /// The copy.
        copy: GraphId,
    },
    /// The memory of an alloc node has a name of its own in a copy of its graph. Otherwise a copy's goes by the
    /// original's name.
    CopyName {
        /// The copy.
        graph: GraphId,
        /// What the copy has called the memory so far.
        node: Memory,
        /// What it calls it from now on.
        memory: Memory,
    },
    /// A graph ends; its instances live on (`cudaGraphDestroy`).
    GraphDestroy {
        /// The graph.
        graph: GraphId,
    },
    /// From now on work of the stream becomes nodes of a new graph (`cudaStreamBeginCapture`). Other streams join by
    /// waiting for events recorded in the capture.
    CaptureBegin {
        /// The stream, the capture's origin.
        stream: StreamId,
        /// The number that the graph will have.
        graph: GraphId,
        /// To which threads it forbids unsafe calls.
        mode: CaptureMode,
        /// As for [`What::GraphCreate`].
        symbolic: bool,
    },
    /// From now on work of the stream becomes nodes of a graph that is there (`cudaStreamBeginCaptureToGraph`). Unless
    /// the capture ends well the graph is as before, and numbers of its nodes are not given again.
    CaptureToGraph {
        /// The stream, the capture's origin.
        stream: StreamId,
        /// The graph. Until the capture ends it is used by nothing else.
        graph: GraphId,
        /// The nodes that the first captured ones come after.
        after: SmallVec<[NodeId; 2]>,
        /// To which threads it forbids unsafe calls.
        mode: CaptureMode,
    },
    /// From now on captures forbid unsafe calls to the calling thread as this mode says; a thread begins with the
    /// global one (`cudaThreadExchangeStreamCaptureMode`).
    CaptureModeExchange {
        /// The thread's mode.
        mode: CaptureMode,
    },
    /// The capture that began on the stream ends; its graph is there (`cudaStreamEndCapture`).
    CaptureEnd {
        /// The stream.
        stream: StreamId,
    },
    /// The capture that began on the stream comes to nothing: no graph is made of it, and one that was there is as
    /// before.
    CaptureAbandon {
        /// The stream.
        stream: StreamId,
    },
    /// A graph is checked and made ready for launches (`cudaGraphInstantiate`).
    Instantiate {
        /// The graph.
        graph: GraphId,
        /// The number of the instance, never used again.
        exec: ExecId,
        /// Whether a launch frees what the launch before left unfreed.
        auto_free_on_launch: bool,
    },
    /// An instance takes over what the nodes of a graph of the same shape do (`cudaGraphExecUpdate`).
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
    /// An instance's memory is bound on a stream, which comes after its launches before (`cudaGraphUpload`).
    GraphUpload {
        /// The instance.
        exec: ExecId,
        /// The stream.
        stream: StreamId,
    },
    /// The life that the latest launch of an instance began at an alloc node gets a name of its own.
    Take {
        /// The instance.
        exec: ExecId,
        /// The name of the alloc node's memory.
        node: Memory,
        /// The new name of this life.
        memory: Memory,
    },
    /// An instance ends; its launches go on, and what they left unfreed lives (`cudaGraphExecDestroy`).
    ExecDestroy {
        /// The instance.
        exec: ExecId,
    },
    /// Memory is offered to other processes.
    Export {
        /// The memory.
        memory: Memory,
        /// The number of the offer.
        ticket: TicketId,
    },
    /// The calling thread's process takes an offer; it frees what it took like memory of its own.
    Import {
        /// The offer.
        ticket: TicketId,
        /// The importer's name for the memory.
        memory: Memory,
    },
}

impl What {
    /// The stream that it is an operation of, or is about.
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

/// A program, operation by operation: a litmus program, a trace on disk, a recorder.
pub trait Ops {
    /// Why it cannot be read on.
    type Error;

    /// The next operation; none at the end.
    ///
    /// # Errors
    /// Where it cannot be read: nothing follows then.
    fn next_op(&mut self) -> Result<Option<Op>, Self::Error>;

    /// The texts that the operations so far name.
    fn names(&self) -> &Names;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_small() {
        // Millions of them are copied through queues: less than two cache lines.
        assert!(size_of::<Op>() <= 128, "{} bytes", size_of::<Op>());
    }
}
