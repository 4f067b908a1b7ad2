//! The contract: what a device must be able to do, and what its caller promises.
//!
//! Object-safe, `u64` handles, no associated types. Whose job is what: the caller (the `millpond` crate) has
//! already decided that a call is right in the order of the program; a driver checks nothing about order and keeps
//! no policy. An error of a driver means that the system refused (memory exhausted, device lost) or that a handle
//! is unknown; after an error the state is as before the call.
//!
//! Terms: a *range* is reserved virtual memory; a *chunk* is physical memory, mapped whole (offset 0, its full
//! size) at one or several places; a *mark* is a position in a stream's work, over once all work before it is over.

use std::fmt;

/// Result of a driver call.
pub type Result<T> = std::result::Result<T, DriverError>;

/// A physical chunk (CUDA: `CUmemGenericAllocationHandle`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RawChunk(pub u64);

/// A stream (CUDA: `CUstream`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RawStream(pub u64);

/// A position in the work of a stream (CUDA: a recorded `CUevent`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RawMark(pub u64);

/// What a device is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Properties {
    /// Its name, for people.
    pub name: String,
    /// Physical memory in bytes that chunks can be made of.
    pub total_bytes: u64,
    /// Chunks are multiples of this many bytes and are mapped at multiples of it; a power of two.
    pub granularity: u64,
    /// Whether [`Work::Run`] is understood, that is, whether closures run as the device's kernels.
    pub runs_closures: bool,
    /// Whether device addresses are memory that closures can touch.
    pub has_memory: bool,
    /// Whether [`Work::Protect`] is understood.
    pub can_protect: bool,
}

/// How a stream is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamFlags {
    /// A name for diagnostics; not a key.
    pub label: u32,
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
    /// Run a closure on the device's side (a kernel of the host device, a host function elsewhere).
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
            Work::Fill { at, bytes, value } => write!(f, "Fill {bytes} B at {at:#x} with {value:#04x}"),
            Work::Protect { at, bytes, access } => write!(f, "Protect {bytes} B at {at:#x} as {access:?}"),
        }
    }
}

/// Why a driver call failed. The caller's state and the device's are as before the call.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// The system has no more physical memory for a chunk (CUDA: `CUDA_ERROR_OUT_OF_MEMORY`).
    #[error("{call}: the device has no {bytes} B of physical memory left")]
    OutOfMemory {
        /// The call that failed.
        call: &'static str,
        /// What it asked for.
        bytes: u64,
    },
    /// The handle names nothing (any more).
    #[error("{call}: no {what} with handle {handle:#x}")]
    UnknownHandle {
        /// The call that failed.
        call: &'static str,
        /// The kind of thing.
        what: &'static str,
        /// The handle given.
        handle: u64,
    },
    /// The system refused for another reason.
    #[error("{call}: {reason}")]
    Failed {
        /// The call that failed.
        call: &'static str,
        /// The system's reason.
        reason: String,
    },
    /// A kernel faulted or panicked; nothing more will run on this device.
    #[error("the device is lost: {reason}")]
    Lost {
        /// What happened first.
        reason: String,
    },
}

/// A device: the calls that Millpond needs of it.
///
/// All methods can be called from several threads at once. None waits for a stream's work but [`block_on`].
///
/// [`block_on`]: Driver::block_on
///
/// # Safety
/// Where [`Properties::runs_closures`] is true, mapped addresses are memory of this process from a successful
/// [`map`](Driver::map) until [`unmap`](Driver::unmap), a stream's work runs one item after the other, and not before
/// the marks that it was made to wait for are over: callers make slices of that memory.
pub unsafe trait Driver: Send + Sync + fmt::Debug {
    /// What the device is.
    fn properties(&self) -> Properties;

    /// Reserves `bytes` of virtual addresses, a multiple of the granularity (CUDA: `cuMemAddressReserve`).
    /// Costs no memory.
    fn reserve(&self, bytes: u64) -> Result<u64>;

    /// Gives a reservation back (CUDA: `cuMemAddressFree`).
    ///
    /// # Safety
    /// Nothing is mapped in it and nothing uses an address of it any more.
    unsafe fn unreserve(&self, at: u64, bytes: u64) -> Result<()>;

    /// Makes a chunk of `bytes`, a multiple of the granularity (CUDA: `cuMemCreate`).
    fn create(&self, bytes: u64) -> Result<RawChunk>;

    /// Releases a chunk (CUDA: `cuMemRelease`). Its memory goes back to the system once its last mapping is gone.
    fn destroy(&self, chunk: RawChunk) -> Result<()>;

    /// Maps a whole chunk at `at`, readable and writable (CUDA: `cuMemMap` and `cuMemSetAccess`). A chunk may be
    /// mapped at several places at once.
    ///
    /// # Safety
    /// `at..at + bytes` lies in a reservation and nothing is mapped there; `bytes` is the chunk's size.
    unsafe fn map(&self, chunk: RawChunk, at: u64, bytes: u64) -> Result<()>;

    /// Takes one mapping away (CUDA: `cuMemUnmap`). `at` and `bytes` are those of a [`map`](Driver::map).
    ///
    /// # Safety
    /// All work that uses the range through this mapping is over.
    unsafe fn unmap(&self, at: u64, bytes: u64) -> Result<()>;

    /// Opens a stream (CUDA: `cuStreamCreate` with `CU_STREAM_NON_BLOCKING`; ties to the legacy default stream are
    /// made above).
    fn open_stream(&self, flags: StreamFlags) -> Result<RawStream>;

    /// Closes a stream; work already in it still runs (CUDA: `cuStreamDestroy`). Its marks stay valid.
    fn close_stream(&self, stream: RawStream) -> Result<()>;

    /// Appends work to a stream. It is taken out of `work` where the call succeeds, and left there where it fails: the
    /// caller drops it where it holds no locks, since dropping a closure runs its owner's code. `None` does nothing.
    ///
    /// # Safety
    /// Every address that the work touches is mapped until the work is over, and no other work that is not ordered
    /// with it touches the same bytes in a conflicting way. Host memory of a copy lives until then, too.
    unsafe fn submit(&self, stream: RawStream, work: &mut Option<Work>) -> Result<()>;

    /// Marks the end of a stream's present work (CUDA: `cuEventRecord`).
    fn mark(&self, stream: RawStream) -> Result<RawMark>;

    /// Makes later work of `stream` wait for a mark (CUDA: `cuStreamWaitEvent`).
    fn wait(&self, stream: RawStream, mark: RawMark) -> Result<()>;

    /// Whether the work before the mark is over (CUDA: `cuEventQuery`).
    fn is_over(&self, mark: RawMark) -> Result<bool>;

    /// As [`is_over`](Driver::is_over), but does nothing to bring a yes about: it is asked under locks of the caller,
    /// where no work may run. Only a device whose `is_over` runs work has to say more than that does.
    fn peek(&self, mark: RawMark) -> Result<bool> {
        self.is_over(mark)
    }

    /// Waits on the calling thread until the work before the mark is over (CUDA: `cuEventSynchronize`).
    fn block_on(&self, mark: RawMark) -> Result<()>;

    /// Forgets a mark that is not used any more (CUDA: gives the event back). Unknown marks are ignored.
    fn forget(&self, mark: RawMark);
}
