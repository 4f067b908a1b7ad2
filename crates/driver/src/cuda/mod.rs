//! CUDA devices: memory from the virtual memory calls, streams and events of the driver API, in the primary context.
//!
//! The driver library is loaded at run time, so that one binary runs with and without it. This file joins `memory` and
//! `streams`, which do not know each other: it submits the items of streams.
//!
//! | module | one line |
//! |---|---|
//! | [`abi`] | types and numbers of the driver API |
//! | `config` | the number of the device, and limits |
//! | `table` | the library and its functions |
//! | `gpu` | the primary context; the meaning of result codes |
//! | `memory`, `streams`, `events` | as in the contract |
//! | `ends` | the last event of each stream, which is returned again |
//! | `ipc` | interprocess events |
//! | `graphs` | graphs of the device |
//! | `submit` | items of work as calls of the library |
//! | `times` | events with timing |
//! | `uploads` | host bytes that copies in flight read |
//! | `pinned` | host memory for copies |
//! | [`survey`] | a description of CUDA on this machine |

pub mod abi;
mod apart;
mod config;
mod ends;
mod events;
mod gpu;
mod graphs;
mod ipc;
mod memory;
mod pinned;
mod streams;
mod submit;
pub mod survey;
mod table;
mod times;
mod uploads;

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use abi::{Code, Event};
pub use apart::change_capture;
pub use config::CudaConfig;
use events::Events;
use gpu::Gpu;
use graphs::Graphs;
use memory::Memory;
use pinned::Pinned;
use streams::{Held, Streams};
use submit::{submit_bytes, submit_task};
use table::Api;
pub use table::LIBRARY_VARIABLE;
use times::Times;
use uploads::Upload;

use crate::errors::failed;
use crate::locks::{Leaf, Mutex};
use crate::peers::{keep, let_go};
use crate::tap::hand_on;
use crate::{
    Driver, EventHandle, Fence, HeldMemory, MemoryInfo, Node, Peer, PeerAccess, Properties, RawChunk, RawEvent,
    RawExec, RawGraph, RawStream, RawTime, Result, StreamFlags, Work, process,
};

/// The most streams, events and graphs of a device that can exist at once, of each.
const PLACES_MAX: u32 = 1 << 20;

/// A CUDA device.
///
/// It uses the device's primary context, which other code in the process may use too. A thread's current context is
/// unchanged, but a thread without one keeps the primary context of device 0, which the runtime library would use
/// there.
///
/// Closures run as host functions: see [`Work::Run`] for their restrictions. A closure that panics loses the device for
/// this driver. Work that is queued in a lost context never runs, and its closures are leaked.
///
/// The drop waits for the context only if memory is still mapped, host memory is not freed, or a copy still reads host
/// bytes.
pub struct CudaDriver {
    // Dropped in this order: graphs, events and streams before the memory that their work uses.
    graphs: Option<Graphs>,
    uploads: UntilIdle<Upload>,
    events: Events,
    times: Times,
    streams: Streams,
    borrowed: UntilIdle<HeldMemory>,
    pinned: Pinned,
    memory: Arc<Memory>,
    gpu: Arc<Gpu>,
    name: String,
    total_bytes: u64,
}

impl CudaDriver {
    /// Opens a device.
    ///
    /// # Errors
    /// The library or one of its functions is missing, the device does not exist, or it has no virtual memory calls;
    /// the error says which.
    pub fn new(config: CudaConfig) -> Result<Self> {
        const CALL: &str = "open CUDA";
        process::open_device()?;
        let api = Api::load(config.library.as_deref())?;
        let gpu = Arc::new(Gpu::new(api, config.ordinal)?);
        let name = survey::name(&gpu.api, gpu.device)?;
        if survey::attribute(&gpu.api, gpu.device, abi::attribute::VIRTUAL_MEMORY)? == 0 {
            return Err(failed(CALL, format!("`{name}` has no virtual memory calls")));
        }
        let total_bytes = survey::total_bytes(&gpu.api, gpu.device)?;
        let total_bytes = config.limit_bytes.map_or(total_bytes, |limit| limit.min(total_bytes));
        let (memory, streams) = (Arc::new(Memory::new(gpu.clone(), total_bytes)?), Streams::new(gpu.clone()));
        let borrowed = UntilIdle::new(gpu.clone());
        let pinned = Pinned::new(gpu.clone());
        let graphs = gpu.api.graphs.map(|table| Graphs::new(gpu.clone(), table));
        let (uploads, events, times) = (UntilIdle::new(gpu.clone()), Events::new(gpu.clone()), Times::new(gpu.clone()));
        Ok(Self { graphs, uploads, events, times, streams, borrowed, pinned, memory, gpu, name, total_bytes })
    }

    /// Returns the bytes of all chunks of this driver that are not destroyed or are still mapped.
    pub fn used_bytes(&self) -> u64 {
        self.memory.used_bytes()
    }
}

impl CudaDriver {
    /// Returns a stream that does not capture, to submit something to it.
    fn hold_busy(&self, call: &'static str, stream: RawStream) -> Result<Busy<'_>> {
        Ok(Busy { held: self.streams.hold_idle(call, stream)?, events: &self.events })
    }

    /// # Safety
    /// As of `Driver::submit`; the bytes of an upload live until the work has completed.
    unsafe fn submit_work(&self, stream: RawStream, work: &mut Option<Work>) -> Result<()> {
        const CALL: &str = "submit";
        if matches!(work, Some(Work::Protect { .. })) {
            return Err(failed(CALL, "CUDA does not change protection in stream order"));
        }
        let held = match work {
            Some(Work::Run(_)) => self.streams.hold_idle(CALL, stream)?,
            _ => self.streams.hold_to_submit(CALL, stream)?,
        };
        let stream = &Busy { held, events: &self.events }.held;
        self.gpu.check_lost()?;
        let entered = self.streams.enter(CALL, stream)?;
        let code = match work.take() {
            None => Code::SUCCESS,
            Some(Work::Run(task)) => {
                let (code, refused) = submit_task(entered.table, stream.native, task, &self.gpu.lost);
                *work = refused.map(Work::Run);
                code
            }
            Some(other) => {
                // SAFETY: the caller's promise is passed on.
                let code = unsafe { submit_bytes(entered.table, stream.native, &other) };
                *work = (code != Code::SUCCESS).then_some(other);
                code
            }
        };
        entered.check(CALL, code)
    }

    fn graphs(&self, call: &'static str) -> Result<&Graphs> {
        self.graphs.as_ref().ok_or_else(|| failed(call, "the driver library has no graphs"))
    }
}

/// A stream to which work is submitted while this exists: the stream's last event does not cover that work.
struct Busy<'a> {
    held: Held<'a>,
    events: &'a Events,
}

impl Drop for Busy<'_> {
    #[inline]
    fn drop(&mut self) {
        self.held.end.into_iter().for_each(|end| end.note(self.events));
    }
}

/// Objects that work of the context may use. They are dropped once no work of the context runs any more. If that cannot
/// be waited for, they stay until the process ends.
struct UntilIdle<T> {
    gpu: Arc<Gpu>,
    used: Mutex<Leaf, Vec<T>>,
}

impl<T> UntilIdle<T> {
    fn new(gpu: Arc<Gpu>) -> Self {
        Self { gpu, used: Mutex::default() }
    }
}

impl<T> Drop for UntilIdle<T> {
    fn drop(&mut self) {
        let used = std::mem::take(self.used.get_mut());
        if !used.is_empty() && !self.gpu.synchronize() {
            std::mem::forget(used);
        }
    }
}

impl fmt::Debug for CudaDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaDriver").field("name", &self.name).field("gpu", &self.gpu).finish_non_exhaustive()
    }
}

// SAFETY: `runs_closures` is false, so there is no promise about memory.
unsafe impl Driver for CudaDriver {
    fn properties(&self) -> Properties {
        Properties {
            name: self.name.clone(),
            total_bytes: self.total_bytes,
            granularity: self.memory.granularity,
            runs_closures: false,
            has_memory: false,
            can_protect: false,
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
            fn import(&self, file: OwnedFd, bytes: u64) -> Result<RawChunk>;
            unsafe fn map(&self, chunk: RawChunk, at: u64, bytes: u64) -> Result<()>;
            unsafe fn unmap(&self, at: u64, bytes: u64) -> Result<()>;
        }
        pinned => {
            fn alloc_host(&self, bytes: u64) -> Result<u64>;
            unsafe fn free_host(&self, at: u64) -> Result<()>;
        }
        events => {
            #[inline]
            fn is_over(&self, event: RawEvent) -> Result<bool>;
            fn block_on(&self, event: RawEvent) -> Result<()>;
            fn forget(&self, event: RawEvent);
        }
        times => {
            fn elapsed(&self, from: RawTime, to: RawTime) -> Result<Duration>;
            fn forget_time(&self, time: RawTime);
        }
    }

    fn peer(&self) -> Option<Peer> {
        Some(Peer::Cuda(self.gpu.device))
    }

    fn counts_captures(&self) -> Option<&str> {
        Some(&self.gpu.api.name)
    }

    fn can_let(&self, peer: Peer) -> Result<bool> {
        match peer {
            Peer::Cuda(device) => self.memory.can_let(device),
            _ => Ok(false),
        }
    }

    fn let_in(&self, at: u64, bytes: u64, peers: &[(Peer, PeerAccess)]) -> Result<()> {
        let devices = peers.iter().map(|&(peer, access)| match peer {
            Peer::Cuda(device) => Ok((device, access)),
            other => Err(failed("let_in", format!("{other:?} cannot use memory of a CUDA device"))),
        });
        self.memory.let_in(at, bytes, &devices.collect::<Result<Vec<_>>>()?)
    }

    fn held_memory(&self) -> Option<HeldMemory> {
        Some(self.memory.clone())
    }

    fn keep(&self, memory: HeldMemory) {
        keep(&self.borrowed.used, memory);
    }

    fn let_go(&self, memory: &HeldMemory) {
        let_go(&self.borrowed.used, memory);
    }

    fn fence(&self, event: RawEvent) -> Result<Fence> {
        Ok(Fence::Event(self.events.native(event)?.0))
    }

    fn wait_foreign(&self, stream: RawStream, fence: &Fence) -> Result<()> {
        const CALL: &str = "wait_foreign";
        let Fence::Event(event) = *fence else {
            return Err(failed(CALL, "streams of a CUDA device wait for CUDA devices only"));
        };
        let stream = &self.hold_busy(CALL, stream)?.held;
        self.gpu.check_lost()?;
        let entered = self.streams.enter(CALL, stream)?;
        // SAFETY: the event belongs to another driver of the process, and the caller keeps it; the stream is held.
        entered.check(CALL, unsafe { (entered.table.wait_event)(stream.native, Event(event), 0) })
    }

    fn open_stream(&self, flags: StreamFlags) -> Result<RawStream> {
        self.streams.open(flags)
    }

    unsafe fn adopt_stream(&self, native: u64) -> Result<RawStream> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.streams.adopt(native) }
    }

    fn native_stream(&self, stream: RawStream) -> Option<u64> {
        self.streams.hand_out("native_stream", stream).ok().map(|native| native.0 as u64)
    }

    fn is_captured(&self, stream: RawStream) -> bool {
        self.streams.is_foreign_captured("is_captured", stream).unwrap_or(true)
    }

    fn record_all(&self) -> Result<Option<RawEvent>> {
        if let Some(table) = &self.gpu.api.all {
            return self.events.record_all(table).map(Some);
        }
        const CALL: &str = "record_all";
        let entered = self.gpu.enter(CALL)?;
        entered.check(CALL, entered.synchronize())?;
        self.events.record(self.streams.stand_in()?).map(Some)
    }

    fn close_stream(&self, stream: RawStream) -> Result<()> {
        self.streams.close(stream, &self.events)
    }

    unsafe fn submit(&self, stream: RawStream, work: &mut Option<Work>) -> Result<()> {
        let bytes = if let Some(Work::Upload { from, .. }) = work { Some(from.clone()) } else { None };
        // SAFETY: the caller's promise is passed on, and the bytes of an upload are kept.
        unsafe { self.submit_work(stream, work) }?;
        if let Some(bytes) = bytes {
            uploads::add(&self.uploads.used, &self.events, (self.record(stream).ok(), bytes));
        }
        Ok(())
    }

    fn record(&self, stream: RawStream) -> Result<RawEvent> {
        const CALL: &str = "record";
        let stream = self.streams.hold_to_record(CALL, stream)?;
        if let Some(end) = stream.end {
            return end.record(&self.events, stream.native);
        }
        let event = self.events.record(stream.native)?;
        // Another thread may have begun to capture the stream after the check. Then the record is a node, and a query
        // of its event would invalidate the capture.
        self.streams.check_captured(CALL, &stream).inspect_err(|_| self.events.forget(event))?;
        Ok(event)
    }

    fn record_apart(&self, stream: RawStream) -> Result<RawEvent> {
        drop(self.streams.hold("record_apart", stream)?);
        self.record(stream)
    }

    fn wait(&self, stream: RawStream, event: RawEvent) -> Result<()> {
        let stream = self.streams.hold_idle("wait", stream)?;
        self.gpu.check_lost()?;
        if self.events.is_known_over(event) {
            return Ok(());
        }
        let wait = || self.events.wait(&self.streams.enter("wait", &stream)?, stream.native, event);
        stream.end.map_or_else(wait, |end| end.wait(&self.events, event, wait))
    }

    fn record_time(&self, stream: RawStream) -> Result<RawTime> {
        const CALL: &str = "record_time";
        let held = self.streams.hold_to_record(CALL, stream)?;
        // Earlier events do not cover it.
        let stream = &Busy { held, events: &self.events }.held;
        self.gpu.check_lost()?;
        let time = self.times.record(stream.native)?;
        // As in `record`.
        self.streams.check_captured(CALL, stream).inspect_err(|_| self.times.forget_time(time))?;
        Ok(time)
    }

    fn export_event(&self, stream: RawStream) -> Result<(RawEvent, EventHandle)> {
        let stream = self.streams.hold_to_record("export_event", stream)?;
        self.events.ipc.export(stream.native)
    }

    fn import_event(&self, name: &EventHandle) -> Result<RawEvent> {
        self.events.ipc.import(name)
    }

    fn has_graphs(&self) -> bool {
        self.graphs.is_some()
    }

    unsafe fn instantiate(&self, nodes: &[Node]) -> Result<RawExec> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.graphs("instantiate")?.instantiate(nodes) }
    }

    fn upload(&self, exec: RawExec, stream: RawStream) -> Result<()> {
        let stream = &self.hold_busy("upload", stream)?.held;
        self.graphs("upload")?.upload(exec, stream.native, self.streams.context(stream))
    }

    unsafe fn launch(&self, exec: RawExec, stream: RawStream) -> Result<()> {
        let stream = &self.hold_busy("launch", stream)?.held;
        // SAFETY: the caller's promise is passed on.
        unsafe { self.graphs("launch")?.launch(exec, stream.native, self.streams.context(stream)) }
    }

    fn destroy_exec(&self, exec: RawExec) -> Result<()> {
        self.graphs("destroy_exec")?.destroy_exec(exec)
    }

    fn begin_capture(&self, stream: RawStream) -> Result<()> {
        let graphs = self.graphs("begin_capture")?;
        self.gpu.check_lost()?;
        let stand_in = self.streams.stand_in()?;
        let before = self.record(stream)?;
        let entered = self.gpu.enter("begin_capture");
        let ordered = entered.and_then(|entered| self.events.wait(&entered, stand_in, before));
        self.events.forget(before);
        ordered?;
        self.streams.begin_capture(stream, stand_in, |native| graphs.begin_capture(native))
    }

    fn end_capture(&self, stream: RawStream) -> Result<Option<RawGraph>> {
        let graphs = self.graphs("end_capture")?;
        self.streams.end_capture(stream, |native| graphs.end_capture(native))
    }

    fn destroy_graph(&self, graph: RawGraph) -> Result<()> {
        self.graphs("destroy_graph")?.destroy_graph(graph)
    }
}
