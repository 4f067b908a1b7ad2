//! The host device: real virtual memory and real threads, on a machine without a GPU.
//!
//! Kernels are closures, streams run concurrently, and memory is mapped and released in chunks, so a program's order is
//! right or wrong here as it is on a GPU. The device keeps a GPU's rules even if the machine would allow more (a chunk
//! is mapped whole, in granules of 2 MiB by default).
//!
//! This file joins `memory`, `streams` and `times`, which do not know each other: it runs the items of streams on
//! addresses.
//!
//! Invariants: `memory-outlives-work`: the workers hold the memory, so it is unmapped after the last item of work, also
//! if work itself drops the device.

mod memory;
mod os;
mod streams;
mod sync;
#[cfg(test)]
mod tests;
mod times;

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use memory::Memory;
use millpond_core::units::{GIB, MIB};
use streams::{EventFence, Execute, Packed, Refusal, Streams, is_worker};
pub use streams::{STREAMS_MAX, Schedule, WORKERS_MAX, drop_after_item, is_in_item};
use times::{Clock, Times};

use crate::errors::without::PEERS;
use crate::errors::{failed, unknown};
use crate::pages::Pages;
use crate::peers::{Borrowed, keep, let_go};
use crate::tap::hand_on;
use crate::{
    Access, Driver, DriverError, Fence, HeldMemory, MemoryInfo, Peer, PeerAccess, Properties, RawChunk, RawEvent,
    RawStream, RawTime, Result, StreamFlags, Work, process,
};

/// The settings of a host device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostConfig {
    /// The device's memory in bytes: the most that its chunks may have together. It may be more than the machine has,
    /// because memory costs nothing until it is touched. If a program touches more than the machine has, the system
    /// ends it, like any program.
    pub total_bytes: u64,
    /// Chunks are multiples of this many bytes and are mapped at multiples of it: a power of two, and at least a page.
    pub granularity: u64,
    /// The threads that run work.
    pub schedule: Schedule,
    /// `false` for a device without memory. Its addresses name no memory: copies and fills do nothing, closures run but
    /// have no device memory, nothing can be shared, and `total_bytes` may be any number.
    pub memory: bool,
}

impl Default for HostConfig {
    /// 64 GiB in granules of 2 MiB, as on a GPU; work runs in parallel.
    fn default() -> Self {
        Self { total_bytes: 64 * GIB, granularity: 2 * MIB, schedule: Schedule::Parallel, memory: true }
    }
}

/// The time after which an idle worker ends: longer than the pauses of a busy program.
const WORKER_IDLE_LIFE: Duration = Duration::from_secs(2);

/// The unit of [`Work::Protect`] in the contract. On machines with larger pages the call is not supported.
const PROTECT_BYTES: u64 = 4096;

/// The host device.
///
/// The drop waits until all work is done, and releases all memory. If work of any host device drops the last reference,
/// the drop does not wait, and the memory is released after the work.
///
/// A closure that panics loses the device: no further work begins, queued work is dropped, and calls that need
/// completed work return [`DriverError::Lost`] with the message of the panic. A call that names an event returns this
/// error only once no work of the event's stream runs any more, so that the memory of lost work can be released.
///
/// A closure that blocks on an event which comes after itself gets an error, whether the event is in its own stream or
/// in another stream of the device that waits for it.
pub struct HostDriver {
    config: HostConfig,
    memory: Arc<Memory>,
    streams: Arc<Streams<Executor>>,
    times: Times,
    /// INVARIANT: memory-outlives-work.
    pages: Arc<Pages>,
    /// Memory of other devices that work of this one uses. INVARIANT: memory-outlives-work.
    borrowed: Arc<Borrowed>,
}

impl HostDriver {
    /// Opens a device. A process may have several; they do not know each other.
    ///
    /// # Errors
    /// The granularity is not a power of two of at least a page, the system refuses a file or a thread, or this process
    /// was forked from one that had a device.
    pub fn new(config: HostConfig) -> Result<Self> {
        process::open_device()?;
        let least = if config.memory { page_bytes() } else { 1 };
        if !config.granularity.is_power_of_two() || config.granularity < least {
            let reason = format!("a granularity of {} B is not a power of two of at least a page", config.granularity);
            return Err(failed("open", reason));
        }
        let memory = Arc::new(match config.memory {
            true => Memory::new(config.granularity, config.total_bytes)?,
            false => Memory::none(config.granularity, config.total_bytes),
        });
        let borrowed = Arc::<Borrowed>::default();
        let clock = Arc::new(match config.schedule {
            Schedule::Parallel => Clock::Machine(Instant::now()),
            Schedule::Seeded(_) | Schedule::AtOnce | Schedule::AtWait => Clock::Items(AtomicU64::new(0)),
        });
        let pages = Arc::<Pages>::default();
        let held = (Arc::clone(&memory), Arc::clone(&pages), Arc::clone(&borrowed));
        let executor = Executor { clock: Arc::clone(&clock), has_memory: config.memory, _held: held };
        let streams = Streams::new(executor, config.schedule, WORKER_IDLE_LIFE)
            .map_err(|error| failed("open", no_thread(&error)))?;
        Ok(Self { config, memory, streams, times: Times::new(clock), pages, borrowed })
    }

    /// Returns the bytes of all chunks that are not destroyed or are still mapped.
    pub fn used_bytes(&self) -> u64 {
        self.memory.used_bytes()
    }

    /// Returns the bytes of the machine's memory that the chunks occupy: the bytes that were touched.
    ///
    /// # Errors
    /// The system does not report it.
    pub fn resident_bytes(&self) -> Result<u64> {
        self.memory.resident_bytes()
    }

    /// Returns `true` if the device works together with other devices: it has memory, and waits for other devices do
    /// not block a thread.
    fn has_peers(&self) -> bool {
        self.config.memory && self.config.schedule != Schedule::AtOnce
    }

    /// Returns the number of threads that run work, idle ones included. About [`WORKERS_MAX`] at most, more only if
    /// they wait for each other, and none unless the schedule is [`Schedule::Parallel`].
    pub fn workers(&self) -> usize {
        self.streams.workers()
    }
}

impl fmt::Debug for HostDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostDriver").field("config", &self.config).field("streams", &self.streams).finish()
    }
}

impl Drop for HostDriver {
    fn drop(&mut self) {
        self.streams.end();
    }
}

// SAFETY: chunks are mapped memory of this process (`memory.rs`), and streams run their work in order and wait for
// events (`streams`).
unsafe impl Driver for HostDriver {
    fn properties(&self) -> Properties {
        let name = match self.config.schedule {
            Schedule::Parallel => "host".to_owned(),
            Schedule::Seeded(seed) => format!("host, seed {seed}"),
            Schedule::AtOnce => "host, at once".to_owned(),
            Schedule::AtWait => "host, at waits".to_owned(),
        };
        Properties {
            name,
            total_bytes: self.config.total_bytes,
            granularity: self.config.granularity,
            runs_closures: true,
            has_memory: self.config.memory,
            can_protect: page_bytes() == PROTECT_BYTES,
        }
    }

    hand_on! {
        memory => {
            fn memory_info(&self) -> Option<MemoryInfo>;
            fn reserve(&self, bytes: u64) -> Result<u64>;
            unsafe fn unreserve(&self, at: u64, bytes: u64) -> Result<()>;
            fn create(&self, bytes: u64) -> Result<RawChunk>;
            fn destroy(&self, chunk: RawChunk) -> Result<()>;
            fn can_share(&self) -> bool;
            fn create_shareable(&self, bytes: u64) -> Result<RawChunk>;
            fn export(&self, chunk: RawChunk) -> Result<OwnedFd>;
            fn export_to_read(&self, chunk: RawChunk) -> Result<OwnedFd>;
            fn import(&self, file: OwnedFd, bytes: u64) -> Result<RawChunk>;
            fn import_to_read(&self, file: OwnedFd, bytes: u64) -> Result<RawChunk>;
            unsafe fn map(&self, chunk: RawChunk, at: u64, bytes: u64) -> Result<()>;
            unsafe fn unmap(&self, at: u64, bytes: u64) -> Result<()>;
        }
        pages => {
            fn alloc_host(&self, bytes: u64) -> Result<u64>;
            unsafe fn free_host(&self, at: u64) -> Result<()>;
        }
        times => {
            fn elapsed(&self, from: RawTime, to: RawTime) -> Result<Duration>;
            fn forget_time(&self, time: RawTime);
        }
        streams => {
            fn settle(&self);
        }
    }

    fn peer(&self) -> Option<Peer> {
        self.has_peers().then_some(Peer::Host)
    }

    fn can_let(&self, peer: Peer) -> Result<bool> {
        Ok(self.has_peers() && peer == Peer::Host)
    }

    /// All threads of the process can access all its memory.
    fn let_in(&self, _at: u64, _bytes: u64, peers: &[(Peer, PeerAccess)]) -> Result<()> {
        match peers.iter().find(|(peer, _)| *peer != Peer::Host) {
            None => Ok(()),
            Some((peer, _)) => Err(failed("let_in", format!("{peer:?} cannot use memory of a host device"))),
        }
    }

    fn held_memory(&self) -> Option<HeldMemory> {
        self.config.memory.then(|| self.memory.clone() as HeldMemory)
    }

    fn keep(&self, memory: HeldMemory) {
        keep(&self.borrowed, memory);
    }

    fn let_go(&self, memory: &HeldMemory) {
        let_go(&self.borrowed, memory);
    }

    fn fence(&self, event: RawEvent) -> Result<Fence> {
        self.peek(event).map_err(|_| unknown("fence", "event", event.0))?;
        Ok(Fence::Host(Arc::new(EventFence { streams: Arc::clone(&self.streams), event: Packed(event.0) })))
    }

    fn wait_foreign(&self, stream: RawStream, fence: &Fence) -> Result<()> {
        if !self.has_peers() {
            return Err(failed("wait_foreign", PEERS));
        }
        let Fence::Host(fence) = fence else {
            return Err(failed("wait_foreign", "streams of a host device wait for host devices only"));
        };
        self.streams
            .wait_foreign(Packed(stream.0), Arc::clone(fence))
            .map_err(|why| explain("wait_foreign", stream.0, why))
    }

    fn open_stream(&self, flags: StreamFlags) -> Result<RawStream> {
        let stream = self.streams.open(flags.label);
        stream.map(|stream| RawStream(stream.0)).map_err(|why| explain("open_stream", 0, why))
    }

    fn close_stream(&self, stream: RawStream) -> Result<()> {
        self.streams.close(Packed(stream.0)).map_err(|why| explain("close_stream", stream.0, why))
    }

    unsafe fn submit(&self, stream: RawStream, work: &mut Option<Work>) -> Result<()> {
        if let Some(Work::Protect { at, bytes, .. }) = work
            && !(*at | *bytes).is_multiple_of(PROTECT_BYTES)
        {
            return Err(failed("submit", format!("{work:?}: not in multiples of {PROTECT_BYTES} B")));
        }
        self.streams.submit(Packed(stream.0), work).map_err(|why| explain("submit", stream.0, why))
    }

    #[inline]
    fn record(&self, stream: RawStream) -> Result<RawEvent> {
        let event = self.streams.record(Packed(stream.0));
        event.map(|event| RawEvent(event.0)).map_err(|why| explain("record", stream.0, why))
    }

    fn wait(&self, stream: RawStream, event: RawEvent) -> Result<()> {
        self.streams.wait(Packed(stream.0), Packed(event.0)).map_err(|why| match why {
            Refusal::UnknownEvent => explain("wait", event.0, why),
            _ => explain("wait", stream.0, why),
        })
    }

    #[inline]
    fn is_over(&self, event: RawEvent) -> Result<bool> {
        self.streams.is_over(Packed(event.0)).map_err(|why| explain("is_over", event.0, why))
    }

    fn peek(&self, event: RawEvent) -> Result<bool> {
        self.streams.peek(Packed(event.0)).map_err(|why| explain("peek", event.0, why))
    }

    fn block_on(&self, event: RawEvent) -> Result<()> {
        self.streams.block_on(Packed(event.0)).map_err(|why| explain("block_on", event.0, why))
    }

    /// Events are numbers, so nothing is kept for them.
    fn forget(&self, _event: RawEvent) {}

    fn record_time(&self, stream: RawStream) -> Result<RawTime> {
        let submit = |task| self.streams.submit(Packed(stream.0), &mut Some(Work::Run(task)));
        self.times.record(|task| submit(task).map_err(|why| explain("record_time", stream.0, why)))
    }
}

/// Runs the items of streams.
struct Executor {
    clock: Arc<Clock>,
    has_memory: bool,
    /// INVARIANT: memory-outlives-work.
    _held: (Arc<Memory>, Arc<Pages>, Arc<Borrowed>),
}

impl Execute for Executor {
    type Item = Work;

    fn execute(&self, work: Work) -> std::result::Result<(), String> {
        self.clock.count();
        match work {
            Work::Run(task) => {
                let _ends = is_worker().then_some(process::EndsIfForked);
                task();
            }
            _ if !self.has_memory => {}
            // It makes no difference here which sides are device memory.
            Work::Copy { to, from, bytes, kind: _ } => {
                let (to, from) = (pointer(to), pointer(from).cast_const());
                // Programs that make CUDA's own calls may copy between overlapping bytes; other code reports that.
                // SAFETY: by the promise of `submit` both ranges are mapped (or host memory that lives) until now, and
                // no unordered work conflicts.
                unsafe { std::ptr::copy(from, to, bytes as usize) };
            }
            // SAFETY: as above, from bytes that the work keeps.
            Work::Upload { to, from } => unsafe { pointer(to).copy_from_nonoverlapping(from.as_ptr(), from.len()) },
            // SAFETY: as above, for one range.
            Work::Fill { at, bytes, value } => unsafe { pointer(at).write_bytes(value, bytes as usize) },
            Work::Protect { at, bytes, access } => {
                let allowed = access == Access::ReadWrite;
                // SAFETY: whole pages (checked at submission), mapped and used by ordered work only, by the promise of
                // `submit`.
                unsafe { os::protect(at, bytes as usize, allowed) }
                    .map_err(|error| format!("{bytes} B at {at:#x}: {}", memory::refusal("protect", error)))?;
            }
        }
        Ok(())
    }
}

/// Cold: the message for the system's refusal of a thread.
#[cold]
fn no_thread(error: &std::io::Error) -> String {
    format!(
        "the system refuses a thread, and a device needs at least one: {error} (the limits are RLIMIT_NPROC, \
         `ulimit -u`, and the control group's pids.max; each takes addresses, too: RLIMIT_AS, `ulimit -v`)"
    )
}

fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// Returns a device address as a pointer. Device addresses are machine addresses, exposed when they were reserved (or
/// by the owner of host memory).
fn pointer(at: u64) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(at as usize)
}

/// Cold: the contract's error for a refusal of the streams.
#[cold]
fn explain(call: &'static str, handle: u64, why: Refusal) -> DriverError {
    match why {
        Refusal::UnknownStream => unknown(call, "stream", handle),
        Refusal::UnknownEvent => unknown(call, "event", handle),
        Refusal::Full => failed(call, format!("{STREAMS_MAX} streams are open")),
        Refusal::Stuck => DriverError::Deadlock { call },
        Refusal::Spent => failed(call, why.to_string()),
        Refusal::Lost(reason) => DriverError::Lost { reason },
    }
}
