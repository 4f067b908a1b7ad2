//! The contract: the calls of a device, and the promises of its caller.
//!
//! The trait is object-safe: `u64` handles, no associated types. The caller (the `millpond` crate) has already decided
//! that a call is right in the order of the program. A driver checks nothing about order and keeps no policy. An error
//! of a driver means that the system refused (memory exhausted, device lost) or that a handle is unknown. After an
//! error the state is as before the call.
//!
//! Terms: a *range* is reserved virtual memory; a *chunk* is physical memory, mapped whole (offset 0, its full size) at
//! one or several places; an *event* is a position in a stream's work, and completes when all work before it has
//! completed.

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

/// A time stamp in a stream's work (CUDA: a recorded `CUevent` with timing).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RawTime(pub u64);

/// The name of an event in other processes of the machine (CUDA: `CUipcEventHandle`).
pub type EventHandle = [u8; 64];

/// The properties of a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Properties {
    /// The device's name, for messages.
    pub name: String,
    /// Bytes of physical memory from which chunks can be made.
    pub total_bytes: u64,
    /// Chunks are multiples of this many bytes and are mapped at multiples of it; a power of two.
    pub granularity: u64,
    /// `true` if closures run as the device's kernels, on its memory. If not, [`Work::Run`] is a host function.
    pub runs_closures: bool,
    /// `true` if device addresses are memory that closures can access.
    pub has_memory: bool,
    /// `true` if the device implements [`Work::Protect`].
    pub can_protect: bool,
}

/// The memory of a device at one moment, whoever uses it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryInfo {
    /// The bytes that chunks can still be made of, if others make none.
    pub free_bytes: u64,
    /// All bytes.
    pub total_bytes: u64,
}

/// The name of a stream in messages. The owner is asked for it when a message is made, because a stream may get its
/// name after it is opened.
#[derive(Clone, Copy)]
pub struct Label {
    /// The owner's numbers of the device and the stream.
    pub numbers: (u32, u32),
    /// Returns the owner's name of the stream.
    pub title: fn(u32, u32) -> String,
}

impl Default for Label {
    fn default() -> Self {
        Self { numbers: (0, 0), title: |_, stream| format!("stream {stream}") }
    }
}

/// Names a stream by its number.
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

/// The settings of a new stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamFlags {
    /// The stream's name in messages; not a key.
    pub label: Label,
    /// The stream's order with foreign work in default streams.
    pub tie: Tie,
    /// The stream's priority: if the device cannot run all work at once, work with a lower number goes first. 0 is
    /// usual (CUDA: `cuStreamCreateWithPriority`, which takes the nearest number that the device supports). A hint: it
    /// orders nothing.
    pub priority: i32,
}

/// The relation of a stream to the device's own default streams, because of foreign work in them. Millpond orders its
/// own streams itself, so a device without foreign work may ignore this.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Tie {
    /// No relation (CUDA: `CU_STREAM_NON_BLOCKING`).
    #[default]
    Free,
    /// The legacy default stream and this stream wait for each other (CUDA: `CU_STREAM_DEFAULT`).
    Blocking,
    /// The stream is the legacy default stream (CUDA: `CU_STREAM_LEGACY`).
    Legacy,
    /// The stream is the calling thread's default stream, and only that thread submits work to it (CUDA:
    /// `CU_STREAM_PER_THREAD`).
    PerThread,
}

/// The device's access to mapped bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Any access faults.
    None,
    /// Reads and writes are allowed.
    ReadWrite,
}

/// A closure that the host device runs as a kernel.
pub type Task = Box<dyn FnOnce() + Send>;

/// The sides of a copy that are device memory.
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
    /// Runs a closure at this point of the stream. It is a kernel of the host device, and a host function elsewhere
    /// (CUDA: `cuLaunchHostFunc`). A host function must not call the device, must not own anything that calls it when
    /// dropped, and must not wait for other host functions.
    Run(Task),
    /// Copies bytes between ranges that do not overlap.
    Copy {
        /// First destination address.
        to: u64,
        /// First source address.
        from: u64,
        /// The number of bytes.
        bytes: u64,
        /// The sides that are device memory.
        kind: CopyKind,
    },
    /// Copies bytes to device memory, and keeps them until that has completed (CUDA: `cuMemcpyHtoDAsync`).
    Upload {
        /// First destination address.
        to: u64,
        /// The bytes.
        from: Arc<Vec<u8>>,
    },
    /// Sets each byte (CUDA: `cuMemsetD8Async`).
    Fill {
        /// First address.
        at: u64,
        /// The number of bytes.
        bytes: u64,
        /// The value of each byte.
        value: u8,
    },
    /// Changes the access to mapped bytes at this point of the stream: a guard against stray accesses. `at` and `bytes`
    /// are multiples of 4096. Only for devices with [`Properties::can_protect`].
    Protect {
        /// First address.
        at: u64,
        /// The number of bytes.
        bytes: u64,
        /// The access that is allowed from this point on.
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

// A line has `[kind: size]` before its function, for taps, and `= refusal` after it, for devices without the call
// (`tap.rs`).
contract! {
    /// A device: the calls that Millpond needs.
    ///
    /// All methods can be called from several threads at once. None waits for a stream's work, except [`block_on`] and,
    /// on CUDA, a copy whose host side is pageable memory.
    ///
    /// [`block_on`]: Driver::block_on
    ///
    /// # Safety
    /// If [`Properties::runs_closures`] is true, callers make slices of mapped memory. So mapped addresses are memory
    /// of this process from a successful [`map`](Driver::map) until [`unmap`](Driver::unmap), and a stream's work runs
    /// one item after the other, each only after the events that it was made to wait for have completed.
    /// [`alloc_host`](Driver::alloc_host) returns initialised, aligned memory of the requested size, which belongs to
    /// the caller alone until [`free_host`](Driver::free_host) or the end of the device. An event has completed only
    /// once no copy before it reads or writes host memory any more.
    pub unsafe trait Driver: (Send + Sync + fmt::Debug);

    /// Returns the properties of the device.
    fn properties(&self) -> Properties;

    /// Returns how full the device is, by this process and others (CUDA: `cuMemGetInfo`), or `None` if it does not say.
    /// A device with a limit of its own counts that, too. Nothing is promised: others may take memory at any time.
    fn memory_info(&self) -> Option<MemoryInfo> { None }

    /// Reserves `bytes` of virtual addresses, a multiple of the granularity (CUDA: `cuMemAddressReserve`). Costs no
    /// memory. If the process has no such range left, the error is [`DriverError::OutOfAddresses`]: a smaller one may
    /// exist.
    [Reserve: bytes] fn reserve(&self, bytes: u64) -> Result<u64>;

    /// Frees a reservation (CUDA: `cuMemAddressFree`).
    ///
    /// # Safety
    /// Nothing is mapped in it, and nothing uses one of its addresses any more.
    [Unreserve: bytes] unsafe fn unreserve(&self, at: u64, bytes: u64) -> Result<()>;

    /// Makes a chunk of `bytes`, a multiple of the granularity (CUDA: `cuMemCreate`).
    [Create: bytes] fn create(&self, bytes: u64) -> Result<RawChunk>;

    /// Releases a chunk (CUDA: `cuMemRelease`). Its memory is returned to the system once its last mapping is gone.
    [Destroy] fn destroy(&self, chunk: RawChunk) -> Result<()>;

    /// Returns `true` if chunks can be shared with other processes: the device has
    /// [`create_shareable`](Driver::create_shareable), [`export`](Driver::export) and [`import`](Driver::import).
    fn can_share(&self) -> bool { false }

    /// Makes a chunk that can be shared with other processes (CUDA: `cuMemCreate` with
    /// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`). It takes at most one file descriptor; other chunks take none.
    [Create: bytes] fn create_shareable(&self, bytes: u64) -> Result<RawChunk> = SHARING;

    /// Exports a shareable chunk's memory as a file that another process can import (CUDA:
    /// `cuMemExportToShareableHandle`). The file keeps the memory alive.
    [Export] fn export(&self, chunk: RawChunk) -> Result<OwnedFd> = SHARING;

    /// As [`export`](Driver::export), for a process that may only read: the file does not let its holder write.
    [Export] fn export_to_read(&self, chunk: RawChunk) -> Result<OwnedFd> = FILES_TO_READ;

    /// Imports memory that another device exported as a chunk, which must have exactly `bytes` (CUDA:
    /// `cuMemImportFromShareableHandle`). The size comes from another process and is not trusted: the driver checks it,
    /// here or when the chunk is mapped. The memory lives until its last holder in any process releases it.
    [Import: bytes] fn import(&self, file: OwnedFd, bytes: u64) -> Result<RawChunk> = SHARING;

    /// As [`import`](Driver::import), for a chunk that is mapped readable only.
    [Import: bytes] fn import_to_read(&self, file: OwnedFd, bytes: u64) -> Result<RawChunk> = SHARING;

    /// Maps a whole chunk at `at`, readable and writable (CUDA: `cuMemMap` and `cuMemSetAccess`). A chunk may be
    /// mapped at several places at once.
    ///
    /// # Safety
    /// `at..at + bytes` lies in a reservation and nothing is mapped there; `bytes` is the chunk's size.
    [Map: bytes] unsafe fn map(&self, chunk: RawChunk, at: u64, bytes: u64) -> Result<()>;

    /// Unmaps one mapping (CUDA: `cuMemUnmap`). `at` and `bytes` are those of a [`map`](Driver::map).
    ///
    /// # Safety
    /// All work that uses the range through this mapping has completed.
    [Unmap: bytes] unsafe fn unmap(&self, at: u64, bytes: u64) -> Result<()>;

    /// Allocates memory of this process for copies, at least one byte, aligned to 512 B and initialised. The device
    /// reads and writes it while the program continues (CUDA: `cuMemHostAlloc`). A device may not have such memory.
    [AllocHost: bytes] fn alloc_host(&self, bytes: u64) -> Result<u64> = HOST_MEMORY;

    /// Frees host memory (CUDA: `cuMemFreeHost`, which may wait for all work of the device).
    ///
    /// # Safety
    /// `at` is an address that [`alloc_host`](Driver::alloc_host) returned, it is freed once, and nothing uses the
    /// memory any more.
    [FreeHost] unsafe fn free_host(&self, at: u64) -> Result<()> = HOST_MEMORY;

    /// Returns the identity of the device for other devices of the process, or `None` if it cannot have access to them.
    fn peer(&self) -> Option<Peer> { None }

    /// Returns the name under which the captures of several devices are counted together, so that a capture on one
    /// forbids unsafe calls on all (CUDA: the driver library, by the name that it was opened by). `None` if captures
    /// concern this device alone.
    fn counts_captures(&self) -> Option<&str> { None }

    /// Returns `true` if work of another device could use this one's memory, once access is granted (CUDA:
    /// `cuDeviceCanAccessPeer`).
    [LetIn] fn can_let(&self, peer: Peer) -> Result<bool> { Ok(false) }

    /// Sets the access of work of these devices to mapped bytes (CUDA: `cuMemSetAccess` with a description for each).
    /// `at` and `bytes` are those of a [`map`](Driver::map), and unmapping ends the access. Access is
    /// revoked only if no work in flight of that device uses it.
    [LetIn: bytes] fn let_in(&self, at: u64, bytes: u64, peers: &[(Peer, PeerAccess)]) -> Result<()> = PEERS;

    /// Returns a value that keeps the device's memory in place, for [`keep`](Driver::keep).
    fn held_memory(&self) -> Option<HeldMemory> { None }

    /// Keeps memory of another device that work of this device uses, until it is [let go](Driver::let_go) or all work
    /// of this device has completed.
    fn keep(&self, memory: HeldMemory) {}

    /// Releases memory that this device [keeps](Driver::keep): no work of it uses that memory any more.
    fn let_go(&self, memory: &HeldMemory) {}

    /// Returns an event of this device in the form that [`wait_foreign`](Driver::wait_foreign) of another device takes.
    fn fence(&self, event: RawEvent) -> Result<Fence> = PEERS;

    /// Makes later work of `stream` wait for an event of another device (CUDA: `cuStreamWaitEvent`). If that device is
    /// lost, this one is lost too.
    [Wait] fn wait_foreign(&self, stream: RawStream, fence: &Fence) -> Result<()> = PEERS;

    /// Opens a stream (CUDA: `cuStreamCreate`).
    [OpenStream] fn open_stream(&self, flags: StreamFlags) -> Result<RawStream>;

    /// Adopts a stream that foreign code made, by its native handle (CUDA: a `CUstream`). It is closed like any other,
    /// and foreign code's stream stays open.
    ///
    /// # Safety
    /// The handle is an open stream of this device, until [`close_stream`](Driver::close_stream).
    [OpenStream] unsafe fn adopt_stream(&self, native: u64) -> Result<RawStream> {
        Err(DriverError::UnknownHandle { call: "adopt_stream", what: "foreign stream", handle: native })
    }

    /// Returns the native handle of an open stream (CUDA: a `CUstream`), or `None` if the device has no foreign code.
    fn native_stream(&self, stream: RawStream) -> Option<u64> { None }

    /// Returns `true` if foreign code is capturing the stream, or if that is not known. While foreign code captures a
    /// stream whose native handle it has, that stream records no events, cannot be made to wait and takes no work:
    /// [`DriverError::Captured`].
    fn is_captured(&self, stream: RawStream) -> bool { false }

    /// Records an event after all work of the device, in any stream and from any code (CUDA: `cuCtxRecordEvent` for the
    /// primary context; if the library does not have it, this waits for that context). Not while any stream captures.
    /// `None` if the device has no work except this driver's.
    [Record] fn record_all(&self) -> Result<Option<RawEvent>> { Ok(None) }

    /// Closes a stream; work already in it still runs (CUDA: `cuStreamDestroy`). Its events remain valid.
    [CloseStream] fn close_stream(&self, stream: RawStream) -> Result<()>;

    /// Appends work to a stream. On success the work is taken out of `work`. On failure it stays there, and the caller
    /// drops it while it holds no locks, because dropping a closure runs its owner's code. `None` does nothing.
    ///
    /// # Safety
    /// Every address that the work touches is mapped until it has completed, and no other work that is not ordered
    /// with it touches the same bytes in a conflicting way. Host memory of a [`Work::Copy`] lives until then, too.
    [Submit] unsafe fn submit(&self, stream: RawStream, work: &mut Option<Work>) -> Result<()>;

    /// Records an event after a stream's present work (CUDA: `cuEventRecord`). It may return an event that it returned
    /// before: each return is forgotten once.
    [Record] fn record(&self, stream: RawStream) -> Result<RawEvent>;

    /// As [`record`](Driver::record), for an event that is only queried: no work is made to wait for it. Refused if the
    /// device has no such event, as for the default stream of another thread: the legacy default stream stands for that
    /// one, and its events order all streams that synchronise with it.
    [Record] fn record_apart(&self, stream: RawStream) -> Result<RawEvent> { self.record(stream) }

    /// Makes later work of `stream` wait for an event (CUDA: `cuStreamWaitEvent`).
    [Wait] fn wait(&self, stream: RawStream, event: RawEvent) -> Result<()>;

    /// Returns `true` if the work before the event has completed (CUDA: `cuEventQuery`).
    [IsOver] fn is_over(&self, event: RawEvent) -> Result<bool>;

    /// As [`is_over`](Driver::is_over), but runs no work to complete the event: it is called under locks of the caller,
    /// where no work may run. Only a device whose `is_over` runs work needs its own implementation.
    [IsOver] fn peek(&self, event: RawEvent) -> Result<bool> { self.is_over(event) }

    /// Waits on the calling thread until the work before the event has completed (CUDA: `cuEventSynchronize`).
    [BlockOn] fn block_on(&self, event: RawEvent) -> Result<()>;

    /// Tells the device that the program has dropped a stream; the caller holds no lock. A device whose work runs only
    /// while a thread waits runs the remaining work here once no stream is open, because that work may own references
    /// that keep the device alive.
    fn settle(&self) {}

    /// Forgets an event that is not used any more (CUDA: the event is reused). Unknown events are ignored.
    [Forget] fn forget(&self, event: RawEvent);

    /// Records the time at which the stream's present work completes (CUDA: `cuEventRecord` of an event with timing).
    /// Events recorded after this cover it.
    [Record] fn record_time(&self, stream: RawStream) -> Result<RawTime> = TIMES;

    /// Returns the time from the completion of the work before `from` to the completion of the work before `to`; zero
    /// if `to` was first (CUDA: `cuEventElapsedTime`). Events that cover both have completed. A device without its own
    /// clock counts one microsecond for each item of work that it ran.
    [IsOver] fn elapsed(&self, from: RawTime, to: RawTime) -> Result<Duration> = TIMES;

    /// Forgets a time that is not used any more. Unknown times are ignored.
    [Forget] fn forget_time(&self, time: RawTime) {}

    /// As [`record`](Driver::record), with a name by which other processes can open the event until it is forgotten
    /// (CUDA: an event that is created with `CU_EVENT_INTERPROCESS` and recorded once, and `cuIpcGetEventHandle`). The
    /// exporter forgets the event after all importers have forgotten it. A device without such events refuses.
    [Export] fn export_event(&self, stream: RawStream) -> Result<(RawEvent, EventHandle)> = SHARING;

    /// Opens an event of another process (CUDA: `cuIpcOpenEventHandle`). The name is checked, because it comes from
    /// another process. A process cannot open its own events. If the process that made it is killed before the event
    /// has completed, the event may never complete.
    [Import] fn import_event(&self, name: &EventHandle) -> Result<RawEvent> = SHARING;

    /// Returns `true` if the device has graphs of its own, which are the calls below. Otherwise they refuse.
    fn has_graphs(&self) -> bool { false }

    /// Makes an executable graph (CUDA: `cuGraphCreate`, `cuGraphAdd...Node`, `cuGraphInstantiate`). It keeps what the
    /// nodes own until it is destroyed and its launches have completed, also if the device is dropped first. Captured
    /// graphs are copied.
    ///
    /// # Safety
    /// As for [`submit`](Driver::submit), at each launch.
    [Instantiate] unsafe fn instantiate(&self, nodes: &[Node]) -> Result<RawExec> = GRAPHS;

    /// Uploads the resources of a graph to the device, ahead of a launch in this stream (CUDA: `cuGraphUpload`).
    [UploadGraph] fn upload(&self, exec: RawExec, stream: RawStream) -> Result<()> = GRAPHS;

    /// Launches a graph as one item of a stream's work, after its earlier launches (CUDA: `cuGraphLaunch`).
    ///
    /// # Safety
    /// Every address that its nodes touch is mapped until it has completed, and no other work that is not ordered
    /// with the launch touches the same bytes in a conflicting way.
    [LaunchGraph] unsafe fn launch(&self, exec: RawExec, stream: RawStream) -> Result<()> = GRAPHS;

    /// Destroys a graph; launches in flight still run (CUDA: `cuGraphExecDestroy`).
    [DestroyExec] fn destroy_exec(&self, exec: RawExec) -> Result<()> = GRAPHS;

    /// Begins a capture: from now on, work that reaches the stream by any way is kept and not done (CUDA:
    /// `cuStreamBeginCapture`). Events of the stream stand for its work before the capture. Until the capture ends, the
    /// stream is not made to wait and runs no closures.
    [BeginCapture] fn begin_capture(&self, stream: RawStream) -> Result<()> = GRAPHS;

    /// Ends a capture and returns the captured graph, or `None` if nothing was captured (CUDA: `cuStreamEndCapture`).
    /// If the device refuses because of the captured work, the capture has ended as well, and a second call says so.
    [EndCapture] fn end_capture(&self, stream: RawStream) -> Result<Option<RawGraph>> = GRAPHS;

    /// Destroys a captured graph; executable graphs made of it stay valid (CUDA: `cuGraphDestroy`).
    [DestroyGraph] fn destroy_graph(&self, graph: RawGraph) -> Result<()> = GRAPHS;
}
