//! A device, on which streams and pools are made (CUDA: a device with its primary context).
//!
//! The handle, the ways to open a device, and the operations on a device as a whole. Every kind of device is the same
//! type.

use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use millpond_core::check::Place;
use millpond_core::ids::{PoolId, StreamId};
use millpond_core::op::{StreamKind, StreamRole};
use millpond_core::order::Chain;
use millpond_core::units::{GIB, MIB, Range, round_up};
use millpond_driver::locks::{Mutex, lock};
use millpond_driver::process::ThreadNumber;
use millpond_driver::{
    CallCounts, Counting, Driver, DriverError, HostDriver, Label, Properties, RawStream, StreamFlags, Tie, process,
};

use crate::clock::chains::Chains;
use crate::clock::hosts::{self, Epoch};
use crate::clock::progress::Progress;
use crate::graph::Graphs;
use crate::names::config::{DeviceConfig, GRAIN, HostConfig, PoolConfig, StreamConfig, check_memory, check_schedule};
use crate::names::error::{Invalid, Result};
use crate::names::stream_names;
use crate::pool::handle::Pool;
use crate::share::Sharing;
use crate::state::context::Context;
use crate::state::in_flight::Keep;
use crate::state::in_flight::{Everything, InFlight};
use crate::state::peers;
use crate::state::pool::{PoolShared, Uses};
use crate::state::stream::{State, StateLock, StreamShared, Submitters};
use crate::stream::default_streams::Legacy;
use crate::stream::handle::Stream;
use crate::sync::ranks;
use crate::trace::tracer::Tracer;

/// The size of a pool's address range, as a multiple of the memory that the pool may have. Addresses are cheap, and
/// room keeps blocks apart.
const ADDRESSES_PER_BYTE: u64 = 8;
/// The smallest address range that a pool asks for.
const ADDRESSES_MIN: u64 = GIB;
/// Each time that a device has this many more pools, the next ones ask for half of that, but not for less than their
/// memory.
const POOLS_A_HALVING: usize = 64;
/// If the system grants fewer addresses, a pool asks for half as many, and so on down to this.
const ADDRESSES_LEAST: u64 = 64 * MIB;

/// The number of the next device of the process. It is counted from 1, because a stream without a device's number is of
/// the device at hand. Messages count from 0.
static NEXT_DEVICE: AtomicU32 = AtomicU32::new(1);

/// A device. Clones name the same device. Streams, pools and buffers keep it alive.
///
/// ```
/// # use millpond::{Device, HostConfig};
/// # fn main() -> millpond::Result<()> {
/// let device = Device::host(HostConfig::default())?;
/// let stream = device.stream()?;
/// let x = stream.alloc::<u32>(&device.default_pool(), 4)?;
/// stream.memset(x.write(), 0)?;
/// stream.free(x)?;
/// device.synchronize()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Device {
    shared: Arc<DeviceShared>,
}

impl Drop for DeviceShared {
    fn drop(&mut self) {
        if process::is_forked() {
            return;
        }
        self.context.graphs.forget_orphans();
        self.context.forget_imports();
        if let Some(tracer) = &self.context.tracer {
            // Objects that still hold the device may hold it for ever. What cannot be written is lost, as in a crash.
            let _ = tracer.flush();
        }
    }
}

#[derive(Debug)]
struct DeviceShared {
    context: Arc<Context>,
    /// The pool that the device came with.
    default_pool: Pool,
    /// The pool that unnamed allocations come from.
    current_pool: Mutex<ranks::Table, Pool>,
    legacy: Stream,
    per_thread: Mutex<ranks::Table, HashMap<ThreadNumber, Stream>>,
}

/// The devices on which a thread has a default stream. These streams are closed when the thread ends.
struct PerThread {
    thread: ThreadNumber,
    devices: Vec<Weak<DeviceShared>>,
}

thread_local! {
    static PER_THREAD: RefCell<PerThread> =
        RefCell::new(PerThread { thread: process::this_thread(), devices: Vec::new() });
}

impl Drop for PerThread {
    fn drop(&mut self) {
        if process::is_forked() {
            return;
        }
        for device in self.devices.iter().filter_map(Weak::upgrade) {
            let stream = lock(&device.per_thread).remove(&self.thread);
            drop(stream);
        }
    }
}

impl Device {
    /// Opens a host device. Its streams are real queues served by threads, and its memory is real memory. It needs no
    /// GPU.
    ///
    /// # Errors
    /// Returns an error if the system refuses or a setting is not possible.
    pub fn host(config: HostConfig) -> Result<Device> {
        let (driver, device) = config.split();
        let least = if driver.memory { rustix::param::page_size() as u64 } else { GRAIN };
        check_memory(least, driver.granularity, driver.total_bytes)?;
        check_schedule(driver.schedule)?;
        Self::with_driver(Arc::new(HostDriver::new(driver)?), device)
    }

    /// Opens a device of any kind.
    ///
    /// # Errors
    /// Returns an error if the driver refuses to open the default stream or to reserve addresses, if pools cannot be
    /// made of memory with its [`Properties`], or if the trace of the settings has had 254 devices.
    pub fn with_driver(driver: Arc<dyn Driver>, config: DeviceConfig) -> Result<Device> {
        process::refuse_forked()?;
        let properties = driver.properties();
        check_memory(GRAIN, properties.granularity, properties.total_bytes)?;
        let number = Context::next_number(&NEXT_DEVICE, "devices")?;
        let tracer = Tracer::of(number, driver.counts_captures().is_none(), config.trace)?;
        let context = Arc::new(Context {
            number,
            graphs: Graphs::new(number, properties.granularity, driver.counts_captures()),
            properties,
            driver: Arc::new(Counting::new(driver)),
            epoch: Epoch::new(),
            has_met: AtomicBool::new(false),
            chains: Chains::new(peers::numbers()),
            in_flight: InFlight::default(),
            pools: Mutex::default(),
            legacy: Legacy::default(),
            closing: Mutex::default(),
            returned: AtomicU64::default(),
            guests: Mutex::default(),
            retired: Mutex::default(),
            share: Sharing::default(),
            tracer,
            violations: config.violations,
            stream_numbers: Arc::default(),
            next_pool: AtomicU32::new(0),
            alloc_numbers: Arc::default(),
        });
        peers::enter(&context);
        let legacy = open_stream(&context, StreamRole::Legacy, tied(Tie::Legacy))?;
        // At least one chunk, however large the device's chunks are.
        let mut config = PoolConfig::default();
        config.chunk_bytes_max = config.chunk_bytes_max.max(context.properties.granularity);
        let default_pool = open_pool(&context, config, false)?;
        let current_pool = Mutex::new(default_pool.clone());
        let per_thread = Mutex::default();
        Ok(Device { shared: Arc::new(DeviceShared { context, default_pool, current_pool, legacy, per_thread }) })
    }

    /// Returns the properties of the device.
    pub fn properties(&self) -> &Properties {
        &self.shared.context.properties
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.shared.context
    }

    /// Returns how often each driver call was made.
    pub fn driver_calls(&self) -> CallCounts {
        self.shared.context.driver.counts()
    }

    /// Opens a stream that is ordered with the legacy default stream (CUDA: `cudaStreamCreate`).
    ///
    /// If more than a thousand streams of the device are closed that the host has not synchronised with, the new stream
    /// comes after the one of them that was closed first. So a program that never waits keeps nothing for each stream.
    ///
    /// # Errors
    /// Returns an error if the driver refuses.
    pub fn stream(&self) -> Result<Stream> {
        self.stream_with(StreamConfig::default())
    }

    /// Opens a stream that is not ordered with the legacy default stream (CUDA: `cudaStreamNonBlocking`).
    ///
    /// # Errors
    /// Returns an error if the driver refuses.
    pub fn non_blocking_stream(&self) -> Result<Stream> {
        self.stream_with(StreamConfig::default().kind(StreamKind::NonBlocking))
    }

    /// Opens a stream with settings (CUDA: `cudaStreamCreateWithPriority`).
    ///
    /// # Errors
    /// Returns an error if the driver refuses.
    pub fn stream_with(&self, config: StreamConfig) -> Result<Stream> {
        let tie = if config.kind == StreamKind::Blocking { Tie::Blocking } else { Tie::Free };
        let flags = StreamFlags { tie, priority: config.priority, ..StreamFlags::default() };
        open_stream(&self.shared.context, config.kind.into(), flags)
    }

    /// Opens a stream over one that the driver gets by `open`.
    pub(crate) fn stream_over(&self, kind: StreamKind, keep: Option<Keep>, open: OpenStream<'_>) -> Result<Stream> {
        let stream = enlist_stream(&self.shared.context, kind.into(), keep, open)?;
        stream.shared.share();
        Ok(stream)
    }

    /// Returns the legacy default stream. Its work comes after everything in all blocking streams, and their later work
    /// comes after it (CUDA: `cudaStreamLegacy`, stream 0).
    pub fn legacy_stream(&self) -> Stream {
        self.shared.legacy.clone()
    }

    /// Returns the calling thread's own default stream, which is a blocking stream (CUDA: `cudaStreamPerThread`). On
    /// CUDA other threads can record it and wait for it, but cannot submit to it, because the driver has no name for it
    /// there. It is closed when the thread has ended and no handle is left.
    ///
    /// # Errors
    /// Returns an error if the driver refuses to open it.
    pub fn per_thread_stream(&self) -> Result<Stream> {
        process::refuse_forked()?;
        let thread = process::this_thread();
        let known = lock(&self.shared.per_thread).get(&thread).cloned();
        if let Some(stream) = known {
            return Ok(stream);
        }
        let stream = open_stream(&self.shared.context, StreamRole::Blocking, tied(Tie::PerThread))?;
        let device = Arc::downgrade(&self.shared);
        // In a thread whose thread-local values are gone, no thread would close the stream. So it is the caller's
        // alone.
        let _ = PER_THREAD.try_with(|own| {
            let devices = &mut own.borrow_mut().devices;
            devices.retain(|device| device.strong_count() > 0);
            devices.push(device);
            let former = lock(&self.shared.per_thread).insert(thread, stream.clone());
            // After the lock is released: the last handle closes its stream.
            drop(former);
        });
        Ok(stream)
    }

    /// Creates a pool (CUDA: `cudaMemPoolCreate`).
    ///
    /// # Errors
    /// Returns [`Invalid::Setting`] for a setting that is not possible, and an error if the driver refuses to reserve
    /// addresses. If a capture forbids the call ([`begin_capture_in`](Stream::begin_capture_in)), the call is refused
    /// and the capture is invalid.
    pub fn pool(&self, config: PoolConfig) -> Result<Pool> {
        let is_apart = config.shareable;
        make_pool(&self.shared.context, config, is_apart)
    }

    /// As [`pool`](Self::pool), for a shareable pool whose allocations lie beside each other on chunks as large as they
    /// may be, as in any pool, and serve again after a lease. Small allocations then take less memory. **A process that
    /// imports one can read and write everything on the same chunks, now and later**.
    ///
    /// # Errors
    /// As for [`pool`](Self::pool).
    pub fn pool_sharing_chunks(&self, config: PoolConfig) -> Result<Pool> {
        make_pool(&self.shared.context, config, false)
    }

    /// Returns the device's default pool (CUDA: `cudaDeviceGetDefaultMemPool`).
    pub fn default_pool(&self) -> Pool {
        self.shared.default_pool.clone()
    }

    /// Returns the device's current pool, at first its default pool (CUDA: `cudaDeviceGetMemPool`).
    pub fn current_pool(&self) -> Pool {
        lock(&self.shared.current_pool).clone()
    }

    /// Makes a pool the current one and returns the previous one (CUDA: `cudaDeviceSetMemPool`).
    ///
    /// # Errors
    /// Returns [`Invalid::OtherDevice`] for a pool of another device.
    pub fn set_current_pool(&self, pool: &Pool) -> Result<Pool> {
        process::refuse_forked()?;
        if pool.shared.context.number != self.shared.context.number {
            return Err(Invalid::OtherDevice { what: pool.shared.titled(), with: self.name().to_string() }.into());
        }
        Ok(std::mem::replace(&mut *lock(&self.shared.current_pool), pool.clone()))
    }

    /// Waits until all work of all streams has completed, also of closed ones (CUDA: `cudaDeviceSynchronize`).
    ///
    /// # Errors
    /// Returns an error if the device is lost, or if a stream captures, in any mode. That capture is invalid then.
    #[track_caller]
    pub fn synchronize(&self) -> Result<()> {
        process::refuse_forked()?;
        let context = &self.shared.context;
        context.graphs.refuse_synchronize().inspect_err(|error| {
            let place = Place::Source(Location::caller());
            Tracer::refused(context.tracer.as_ref(), error, |tracer| tracer.synchronize_refused(place));
        })?;
        let Everything { live, ended: mut ends } = context.everything()?;
        for shared in live {
            let mut state = shared.state.lock();
            // A record in the legacy stream orders the others with it, so it is left out while none of our work is in
            // it.
            if shared.role == StreamRole::Legacy && !context.legacy.is_used.load(Ordering::Acquire) {
                continue;
            }
            match state.is_closed {
                true => ends.extend(context.end_of(&shared)?.map(|event| (state.chain.snapshot(), event))),
                false => ends.push(shared.record_for_host(&mut state)?),
            }
        }
        let mut waited = Ok(());
        for (snapshot, event) in &ends {
            waited = waited.and(context.driver.block_on(event.raw)).and(context.block_on_side_work(snapshot));
        }
        waited?;
        let place = Place::Source(Location::caller());
        context.synchronized(ends.iter().map(|(snapshot, _)| snapshot), |tracer| tracer.synchronized(place));
        context.in_flight.sweep(&hosts::base());
        context.free_retired();
        context.chains.sweep();
        Ok(())
    }

    /// Writes out what the device's trace holds so far, if the device is traced. A crash after this loses none of it.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn flush_trace(&self) -> std::io::Result<()> {
        self.shared.context.tracer.as_ref().map_or(Ok(()), |tracer| tracer.flush())
    }
}

/// Gets a stream from the driver, given the number of the stream.
pub(crate) type OpenStream<'a> = &'a dyn Fn(&Context, StreamId) -> millpond_driver::Result<RawStream>;

fn open_stream(context: &Arc<Context>, role: StreamRole, flags: StreamFlags) -> Result<Stream> {
    enlist_stream(context, role, None, &|context, id| {
        let title = |device, stream| stream_names::title(device, StreamId(stream));
        context.driver.open_stream(StreamFlags { label: Label { numbers: (context.number, id.0), title }, ..flags })
    })
}

/// Returns the flags of a stream that the device itself opens.
fn tied(tie: Tie) -> StreamFlags {
    StreamFlags { tie, ..StreamFlags::default() }
}

fn enlist_stream(context: &Arc<Context>, role: StreamRole, keep: Option<Keep>, open: OpenStream<'_>) -> Result<Stream> {
    process::refuse_forked()?;
    let number = context.stream_numbers.take()?;
    let id = number.id;
    if number.is_again {
        stream_names::forget(context.number, id);
    }
    let raw = open(context, id)?;
    let base = hosts::base();
    let known = context.chains.open().indices().open_known(|point| base.covers(point));
    let (chain, ended) = match known {
        Some((index, seq)) => (Chain::new(index, seq, base), None),
        None => context.begin_chain(raw, base),
    };
    let index = chain.last().chain;
    let progress = Arc::new(match &ended {
        None => Progress::new(raw, chain.seq()),
        Some(ended) => Progress::after(ended, raw, chain.seq()),
    });
    context.chains.open().list(index, Arc::clone(&progress));
    let shared = Arc::new_cyclic(|me| StreamShared {
        stream_index: context.in_flight.enter(me.clone(), Arc::clone(&progress)),
        id,
        _number: number,
        chain: index,
        raw,
        role,
        submitters: Submitters::default(),
        context: Arc::clone(context),
        progress,
        me: me.clone(),
        state: StateLock::new(State::new(chain)),
    });
    if let Some(ended) = ended {
        context.in_flight.succeed(&ended);
    }
    if let Some(tracer) = &context.tracer {
        tracer.stream(id, role);
    }
    Ok(Stream::new(shared, keep))
}

/// Makes a pool for the program, which a capture may forbid. The default pool is not made by this.
fn make_pool(context: &Arc<Context>, config: PoolConfig, is_apart: bool) -> Result<Pool> {
    process::refuse_forked()?;
    if let Err(error) = context.graphs.refuse_unsafe("pool") {
        if let Some(tracer) = &context.tracer {
            let id = PoolId(Context::next_number(&context.next_pool, "pools")?);
            Tracer::refused(Some(tracer), &error, |tracer| tracer.pool(id, config.shareable, true));
        }
        return Err(error);
    }
    open_pool(context, config, is_apart)
}

fn open_pool(context: &Arc<Context>, config: PoolConfig, is_apart: bool) -> Result<Pool> {
    let granularity = context.properties.granularity;
    let guard = config.guard;
    if guard && !context.properties.can_protect {
        let reason =
            format!("the device `{}` cannot change what may be done with mapped bytes", context.properties.name);
        return Err(Invalid::Setting { setting: "guard", reason }.into());
    }
    if config.shareable && !context.driver.can_share() {
        let reason = format!("the device `{}` cannot hand memory to other processes", context.properties.name);
        return Err(Invalid::Setting { setting: "shareable", reason }.into());
    }
    let shareable = config.shareable;
    let total = context.properties.total_bytes;
    let memory = config.max_bytes.map_or(total, |limit| limit.min(total));
    let core = config.to_core(granularity, is_apart)?;
    let id = PoolId(Context::next_number(&context.next_pool, "pools")?);
    let range = reserve_addresses(context, memory)?;
    let uses = Uses { guard, shareable, is_apart };
    let shared = Arc::new(PoolShared::new(id, Arc::clone(context), core, uses, range));
    lock(&context.pools).insert(id, Arc::downgrade(&shared));
    if let Some(tracer) = &context.tracer {
        tracer.pool(id, shareable, false);
    }
    Ok(Pool::new(shared))
}

/// Reserves addresses for a pool that may have `memory` bytes.
fn reserve_addresses(context: &Context, memory: u64) -> Result<Range> {
    let granularity = context.properties.granularity;
    let pools = lock(&context.pools).len();
    let multiple = (ADDRESSES_PER_BYTE >> (pools / POOLS_A_HALVING).min(8)).max(1);
    let round = |bytes| round_up(bytes, granularity);
    let mut bytes = round(memory.saturating_mul(multiple).max(ADDRESSES_MIN)).unwrap_or(1 << 63);
    let least = round(ADDRESSES_LEAST.min(memory)).unwrap_or(granularity);
    loop {
        match context.driver.reserve(bytes) {
            Err(DriverError::OutOfAddresses { .. }) if bytes > least => {
                bytes = round(bytes / 2).unwrap_or(least).max(least);
            }
            outcome => return Ok(Range::new(outcome?, bytes)),
        }
    }
}
