//! The contract: what a device must be able to do, and what its caller promises.
//!
//! Object-safe, `u64` handles, no associated types. Whose job is what: the caller (the `millpond` crate) has
//! already decided that a call is right in the order of the program; a driver checks nothing about order and keeps
//! no policy. An error of a driver means that the system refused (memory exhausted, device lost) or that a handle
//! is unknown; after an error the state is as before the call.
//!
//! Terms: a *range* is reserved virtual memory; a *chunk* is physical memory, mapped whole (offset 0, its full size) at
//! one or several places; an *event* is a position in a stream's work, and completes when all work before it has.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use crate::errors::without::{FILES_TO_READ, GRAPHS, HOST_MEMORY, PEERS, SHARING, TIMES};
use crate::errors::{DriverError, Result};
use crate::graphs::{Node, RawExec, RawGraph};
use crate::peers::{Fence, HeldMemory, Peer, PeerAccess};
use crate::tap::contract;

/// A physical chunk (CUDA: `CUmemGenericAllocationHandle`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RawChunk(pub u64);

/// A stream (CUDA: `CUstream`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RawStream(pub u64);

/// A position in the work of a stream (CUDA: a recorded `CUevent`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RawEvent(pub u64);

/// The time at which a stream got somewhere (CUDA: a recorded `CUevent` with timing).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RawTime(pub u64);

/// The name of an event in other processes of the machine (CUDA: `CUipcEventHandle`).
pub type EventHandle = [u8; 64];

/// What a device is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Properties {
    /// Its name, for people.
    pub name: String,
    /// Physical memory in bytes that chunks can be made of.
    pub total_bytes: u64,
    /// Chunks are multiples of this many bytes and are mapped at multiples of it; a power of two.
    pub granularity: u64,
    /// Whether closures run as the device's kernels, on its memory. Where not, [`Work::Run`] is a host function.
    pub runs_closures: bool,
    /// Whether device addresses are memory that closures can touch.
    pub has_memory: bool,
    /// Whether [`Work::Protect`] is understood.
    pub can_protect: bool,
}

/// What messages call a stream: as its owner says when a message is made, since it may get its name after it is opened.
#[derive(Clone, Copy)]
pub struct Label {
    /// The owner's numbers of the device and the stream.
    pub numbers: (u32, u32),
    /// What the owner calls that stream.
    pub title: fn(u32, u32) -> String,
}

impl Default for Label {
    fn default() -> Self {
        Self { numbers: (0, 0), title: |_, stream| format!("stream {stream}") }
    }
}

/// A stream by its number.
impl From<u32> for Label {
    fn from(stream: u32) -> Self {
        Self { numbers: (0, stream), ..Self::default() }
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (device, stream) = self.numbers;
        f.write_str(&(self.title)(device, stream))
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Label({})", self.numbers.1)
    }
}

/// How a stream is opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamFlags {
    /// What messages call it; not a key.
    pub label: Label,
    /// What foreign work in default streams means to it.
    pub tie: Tie,
    /// Whose work goes first where the device cannot run all: lower numbers do, 0 is usual (CUDA:
    /// `cuStreamCreateWithPriority`, which takes the nearest number that the device knows). A wish, and no order.
    pub priority: i32,
}

/// What a stream is to the device's own default streams, for the sake of foreign work in them. Millpond makes the ties
/// between its own streams itself, so that a device without foreign work need not look at this.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Tie {
    /// Nothing (CUDA: `CU_STREAM_NON_BLOCKING`).
    #[default]
    Free,
    /// The legacy default stream comes after it and before it (CUDA: `CU_STREAM_DEFAULT`).
    Blocking,
    /// It is the legacy default stream (CUDA: `CU_STREAM_LEGACY`).
    Legacy,
    /// It is the calling thread's default stream, and work is submitted to it by that thread only (CUDA:
    /// `CU_STREAM_PER_THREAD`).
    PerThread,
}

/// What the device may do with mapped bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Any access faults.
    None,
    /// Reads and writes.
    ReadWrite,
}

/// A closure that the host device runs as a kernel.
pub type Task = Box<dyn FnOnce() + Send>;

/// Which sides of a copy are device memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyKind {
    /// Host to device (CUDA: `cuMemcpyHtoDAsync`).
    HostToDevice,
    /// Device to host (CUDA: `cuMemcpyDtoHAsync`).
    DeviceToHost,
    /// Device to device (CUDA: `cuMemcpyDtoDAsync`).
    DeviceToDevice,
}

/// One item of a stream's work.
pub enum Work {
    /// Run a closure at this point of the stream: a kernel of the host device, elsewhere a host function (CUDA:
    /// `cuLaunchHostFunc`), which must not call the device, nor own what does when it is dropped, nor wait for other
    /// host functions.
    Run(Task),
    /// Copy bytes between ranges that do not overlap.
    Copy {
        /// First destination address.
        to: u64,
        /// First source address.
        from: u64,
        /// How many bytes.
        bytes: u64,
        /// Which sides are device memory.
        kind: CopyKind,
    },
    /// Copy bytes to device memory, and keep them for as long as that takes (CUDA: `cuMemcpyHtoDAsync`).
    Upload {
        /// First destination address.
        to: u64,
        /// The bytes.
        from: Arc<Vec<u8>>,
    },
    /// Set each byte (CUDA: `cuMemsetD8Async`).
    Fill {
        /// First address.
        at: u64,
        /// How many bytes.
        bytes: u64,
        /// The value of each.
        value: u8,
    },
    /// Change, at this point of the stream, what may be done with mapped bytes: a guard against stray accesses.
    /// `at` and `bytes` are multiples of 4096. Only where [`Properties::can_protect`] says so.
    Protect {
        /// First address.
        at: u64,
        /// How many bytes.
        bytes: u64,
        /// What is allowed from this point on.
        access: Access,
    },
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::Run(_) => f.write_str("Run"),
            Work::Copy { to, from, bytes, kind } => write!(f, "Copy {kind:?} {bytes} B {from:#x} -> {to:#x}"),
            Work::Upload { to, from } => write!(f, "Upload {} B to {to:#x}", from.len()),
            Work::Fill { at, bytes, value } => write!(f, "Fill {bytes} B at {at:#x} with {value:#04x}"),
            Work::Protect { at, bytes, access } => write!(f, "Protect {bytes} B at {at:#x} as {access:?}"),
        }
    }
}

// Beside its function a line has `[kind: size]` for taps, and `= refusal` for devices without such a call (`tap.rs`).
contract! {
    /// A device: the calls that Millpond needs of it.
    ///
    /// All methods can be called from several threads at once. None waits for a stream's work but [`block_on`], and on
    /// CUDA a copy whose host side is pageable memory.
    ///
    /// [`block_on`]: Driver::block_on
    ///
    /// # Safety
    /// Where [`Properties::runs_closures`] is true, mapped addresses are memory of this process from a successful
    /// [`map`](Driver::map) until [`unmap`](Driver::unmap), a stream's work runs one item after the other, and not
    /// before the events that it was made to wait for have completed: callers make slices of that memory. What
    /// [`alloc_host`](Driver::alloc_host) answers is initialised, aligned memory of that size which is the caller's
    /// alone until [`free_host`](Driver::free_host), or the end of the device; and an event has completed only once no
    /// copy before it reads or writes host memory any more.
    pub unsafe trait Driver: (Send + Sync + fmt::Debug);

    /// What the device is.
    fn properties(&self) -> Properties;

    /// Reserves `bytes` of virtual addresses, a multiple of the granularity (CUDA: `cuMemAddressReserve`).
    /// Costs no memory. Where there are no more, the error is [`DriverError::OutOfAddresses`]: fewer may be had.
    [Reserve: bytes] fn reserve(&self, bytes: u64) -> Result<u64>;

    /// Gives a reservation back (CUDA: `cuMemAddressFree`).
    ///
    /// # Safety
    /// Nothing is mapped in it and nothing uses an address of it any more.
    [Unreserve: bytes] unsafe fn unreserve(&self, at: u64, bytes: u64) -> Result<()>;

    /// Makes a chunk of `bytes`, a multiple of the granularity (CUDA: `cuMemCreate`).
    [Create: bytes] fn create(&self, bytes: u64) -> Result<RawChunk>;

    /// Releases a chunk (CUDA: `cuMemRelease`). Its memory goes back to the system once its last mapping is gone.
    [Destroy] fn destroy(&self, chunk: RawChunk) -> Result<()>;

    /// Whether chunks can be handed to other processes: [`create_shareable`](Driver::create_shareable),
    /// [`export`](Driver::export) and [`import`](Driver::import) are there.
    fn can_share(&self) -> bool { false }

    /// Makes a chunk that can be handed to other processes (CUDA: `cuMemCreate` with
    /// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`). It takes up to one file descriptor; other chunks take none.
    [Create: bytes] fn create_shareable(&self, bytes: u64) -> Result<RawChunk> = SHARING;

    /// Another holder of a shareable chunk's memory, as a file to be sent to another process (CUDA:
    /// `cuMemExportToShareableHandle`).
    [Export] fn export(&self, chunk: RawChunk) -> Result<OwnedFd> = SHARING;

    /// As [`export`](Driver::export), for a process that is to read only: the file does not let its holder write.
    [Export] fn export_to_read(&self, chunk: RawChunk) -> Result<OwnedFd> = FILES_TO_READ;

    /// A chunk of memory that another device exported, which must have exactly `bytes` (CUDA:
    /// `cuMemImportFromShareableHandle`). The size is a stranger's word: the driver checks it, here or when the chunk
    /// is mapped. The memory lives until its last holder in any process lets go.
    [Import: bytes] fn import(&self, file: OwnedFd, bytes: u64) -> Result<RawChunk> = SHARING;

    /// As [`import`](Driver::import), to be mapped readable only.
    [Import: bytes] fn import_to_read(&self, file: OwnedFd, bytes: u64) -> Result<RawChunk> = SHARING;

    /// Maps a whole chunk at `at`, readable and writable (CUDA: `cuMemMap` and `cuMemSetAccess`). A chunk may be
    /// mapped at several places at once.
    ///
    /// # Safety
    /// `at..at + bytes` lies in a reservation and nothing is mapped there; `bytes` is the chunk's size.
    [Map: bytes] unsafe fn map(&self, chunk: RawChunk, at: u64, bytes: u64) -> Result<()>;

    /// Takes one mapping away (CUDA: `cuMemUnmap`). `at` and `bytes` are those of a [`map`](Driver::map).
    ///
    /// # Safety
    /// All work that uses the range through this mapping has completed.
    [Unmap: bytes] unsafe fn unmap(&self, at: u64, bytes: u64) -> Result<()>;

    /// Memory of this process for copies, of at least one byte, aligned to 512 B and initialised: the device reads and
    /// writes it while the program goes on (CUDA: `cuMemHostAlloc`). A device may have none to give.
    [AllocHost: bytes] fn alloc_host(&self, bytes: u64) -> Result<u64> = HOST_MEMORY;

    /// Gives host memory back (CUDA: `cuMemFreeHost`, which may wait for all work of the device).
    ///
    /// # Safety
    /// `at` is of [`alloc_host`](Driver::alloc_host), for the last time, and nothing uses the memory any more.
    [FreeHost] unsafe fn free_host(&self, at: u64) -> Result<()> = HOST_MEMORY;

    /// Who the device is to other devices of the process; none where it can have nothing to do with them.
    fn peer(&self) -> Option<Peer> { None }

    /// Who counts the captures of several devices together, so that those of one forbid unsafe calls on all (CUDA: the
    /// driver library, by the name that it was opened by); none where they are a matter of the device alone.
    fn counts_captures(&self) -> Option<&str> { None }

    /// Whether work of another device could use this one's memory, were it let (CUDA: `cuDeviceCanAccessPeer`).
    [LetIn] fn can_let(&self, peer: Peer) -> Result<bool> { Ok(false) }

    /// From now on work of these devices may do that much with mapped bytes (CUDA: `cuMemSetAccess` with a description
    /// for each). `at` and `bytes` are those of a [`map`](Driver::map), and unmapping ends it. What is taken away no
    /// work in flight of that device uses.
    [LetIn: bytes] fn let_in(&self, at: u64, bytes: u64, peers: &[(Peer, PeerAccess)]) -> Result<()> = PEERS;

    /// Whoever holds this keeps the device's memory where it is. For [`keep`](Driver::keep).
    fn held_memory(&self) -> Option<HeldMemory> { None }

    /// Work of this device uses memory of another: that is kept until it is [let go](Driver::let_go), or all work of
    /// this one has completed.
    fn keep(&self, memory: HeldMemory) {}

    /// No work of this device uses memory any more that it [keeps](Driver::keep).
    fn let_go(&self, memory: &HeldMemory) {}

    /// An event of this device, for [`wait_foreign`](Driver::wait_foreign) of another.
    fn fence(&self, event: RawEvent) -> Result<Fence> = PEERS;

    /// Makes later work of `stream` wait for an event of another device (CUDA: `cuStreamWaitEvent`). Where that device
    /// is lost, this one is.
    [Wait] fn wait_foreign(&self, stream: RawStream, fence: &Fence) -> Result<()> = PEERS;

    /// Opens a stream (CUDA: `cuStreamCreate`).
    [OpenStream] fn open_stream(&self, flags: StreamFlags) -> Result<RawStream>;

    /// Takes over a stream that foreign code made, by the handle that it has there (CUDA: a `CUstream`). It is closed
    /// as any other, and goes on to live where it was made.
    ///
    /// # Safety
    /// It is an open stream of this device, until [`close_stream`](Driver::close_stream).
    [OpenStream] unsafe fn adopt_stream(&self, native: u64) -> Result<RawStream> {
        Err(DriverError::UnknownHandle { call: "adopt_stream", what: "foreign stream", handle: native })
    }

    /// The handle that foreign code knows an open stream by (CUDA: a `CUstream`); none where there is no foreign code.
    fn native_stream(&self, stream: RawStream) -> Option<u64> { None }

    /// Whether foreign code is capturing the stream, or that is not known. In one whose handle foreign code has no
    /// event is recorded meanwhile, and it is not made to wait nor given work: [`DriverError::Captured`].
    fn is_captured(&self, stream: RawStream) -> bool { false }

    /// Records an event after all work that the device has, in whatever stream and by whomever (CUDA:
    /// `cuCtxRecordEvent`, for the primary context; where the library does not have it, this waits for that context).
    /// Not while any stream captures. None where the device has no work but this driver's.
    [Record] fn record_all(&self) -> Result<Option<RawEvent>> { Ok(None) }

    /// Closes a stream; work already in it still runs (CUDA: `cuStreamDestroy`). Its events stay valid.
    [CloseStream] fn close_stream(&self, stream: RawStream) -> Result<()>;

    /// Appends work to a stream. It is taken out of `work` where the call succeeds, and left there where it fails: the
    /// caller drops it where it holds no locks, since dropping a closure runs its owner's code. `None` does nothing.
    ///
    /// # Safety
    /// Every address that the work touches is mapped until it has completed, and no other work that is not ordered
    /// with it touches the same bytes in a conflicting way. Host memory of a [`Work::Copy`] lives until then, too.
    [Submit] unsafe fn submit(&self, stream: RawStream, work: &mut Option<Work>) -> Result<()>;

    /// Records an event after a stream's present work (CUDA: `cuEventRecord`). It may be one that was returned before:
    /// each return is forgotten once.
    [Record] fn record(&self, stream: RawStream) -> Result<RawEvent>;

    /// As [`record`](Driver::record), for who only wants to ask how far the stream is: no work is ordered by it.
    /// Refused where the device has no such event, as for the default stream of another thread: what stands for that
    /// one is the legacy default stream, whose events order all streams that it ties.
    [Record] fn record_apart(&self, stream: RawStream) -> Result<RawEvent> { self.record(stream) }

    /// Makes later work of `stream` wait for an event (CUDA: `cuStreamWaitEvent`).
    [Wait] fn wait(&self, stream: RawStream, event: RawEvent) -> Result<()>;

    /// Whether the work before the event has completed (CUDA: `cuEventQuery`).
    [IsOver] fn is_over(&self, event: RawEvent) -> Result<bool>;

    /// As [`is_over`](Driver::is_over), but does nothing to bring a yes about: it is asked under locks of the caller,
    /// where no work may run. Only a device whose `is_over` runs work has to say more than that does.
    [IsOver] fn peek(&self, event: RawEvent) -> Result<bool> { self.is_over(event) }

    /// Waits on the calling thread until the work before the event has completed (CUDA: `cuEventSynchronize`).
    [BlockOn] fn block_on(&self, event: RawEvent) -> Result<()>;

    /// The program has let a stream go; the caller holds no lock. A device whose work runs only where a thread waits
    /// runs here what is left once no stream is open: that work may own what keeps the device.
    fn settle(&self) {}

    /// Forgets an event that is not used any more (CUDA: it is used again). Unknown events are ignored.
    [Forget] fn forget(&self, event: RawEvent);

    /// Takes the time at which the stream's present work will have completed (CUDA: `cuEventRecord` of an event with
    /// timing). Events recorded after this cover it.
    [Record] fn record_time(&self, stream: RawStream) -> Result<RawTime> = TIMES;

    /// How long after `from` the work before `to` had completed; zero where that was first (CUDA:
    /// `cuEventElapsedTime`). Events that cover both have completed. A device without a clock of its own counts one
    /// microsecond for each item of work that it ran.
    [IsOver] fn elapsed(&self, from: RawTime, to: RawTime) -> Result<Duration> = TIMES;

    /// Forgets a time that is not used any more. Unknown ones are ignored.
    [Forget] fn forget_time(&self, time: RawTime) {}

    /// As [`record`](Driver::record), with a name by which other processes can open it until it is forgotten (CUDA: an
    /// event made with `CU_EVENT_INTERPROCESS` and recorded this once, and `cuIpcGetEventHandle`). Whoever gave the
    /// name away forgets the event after all who opened it did. A device without such events refuses.
    [Export] fn export_event(&self, stream: RawStream) -> Result<(RawEvent, EventHandle)> = SHARING;

    /// Opens an event of another process (CUDA: `cuIpcOpenEventHandle`). A stranger's name is checked. A process cannot
    /// open its own. Where the process that made it is killed before it has completed, it may never be.
    [Import] fn import_event(&self, name: &EventHandle) -> Result<RawEvent> = SHARING;

    /// Whether there are graphs of the device's own: the calls below. Where not, they refuse.
    fn has_graphs(&self) -> bool { false }

    /// Makes a graph that can be launched (CUDA: `cuGraphCreate`, `cuGraphAdd...Node`, `cuGraphInstantiate`). It keeps
    /// what the nodes own until it is destroyed and its launches have completed, also where the device goes first;
    /// captured graphs are copied.
    ///
    /// # Safety
    /// As for [`submit`](Driver::submit), at each launch.
    [Instantiate] unsafe fn instantiate(&self, nodes: &[Node]) -> Result<RawExec> = GRAPHS;

    /// Brings what the device needs to run a graph there, ahead of a launch in this stream (CUDA: `cuGraphUpload`).
    [UploadGraph] fn upload(&self, exec: RawExec, stream: RawStream) -> Result<()> = GRAPHS;

    /// Launches a graph as one piece of a stream's work, after its launches before (CUDA: `cuGraphLaunch`).
    ///
    /// # Safety
    /// Every address that its nodes touch is mapped until it has completed, and no other work that is not ordered
    /// with the launch touches the same bytes in a conflicting way.
    [LaunchGraph] unsafe fn launch(&self, exec: RawExec, stream: RawStream) -> Result<()> = GRAPHS;

    /// Destroys a graph; launches in flight still run (CUDA: `cuGraphExecDestroy`).
    [DestroyExec] fn destroy_exec(&self, exec: RawExec) -> Result<()> = GRAPHS;

    /// From now on what reaches the stream, by whatever way, is kept and not done (CUDA: `cuStreamBeginCapture`).
    /// Events of the stream stand for what it had before; it is not made to wait and runs no closures meanwhile.
    [BeginCapture] fn begin_capture(&self, stream: RawStream) -> Result<()> = GRAPHS;

    /// Ends a capture: what reached the stream meanwhile; none where that is nothing (CUDA: `cuStreamEndCapture`).
    /// Where the device refuses because of what was captured, the capture has ended as well, and asking again says so.
    [EndCapture] fn end_capture(&self, stream: RawStream) -> Result<Option<RawGraph>> = GRAPHS;

    /// Destroys what was captured; graphs made of it stay (CUDA: `cuGraphDestroy`).
    [DestroyGraph] fn destroy_graph(&self, graph: RawGraph) -> Result<()> = GRAPHS;
}
