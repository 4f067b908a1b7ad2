//! A device: what streams and pools are made of (CUDA: a device with its primary context).
//!
//! The handle, how devices are opened, and what concerns a device as a whole. Every kind of device is the same type.

use std::collections::HashMap;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;

use bytemuck::Pod;
use millpond_core::check::{Act, Use};
use millpond_core::ids::{Point, PoolId, Slot, StreamId};
use millpond_core::order::{Base, Chain, Knows, Slots, StreamKind};
use millpond_core::pool::Frontier;
use millpond_core::units::{GIB, Range, round_up};
use millpond_driver::{
    CallCounts, Counting, Driver, HostDriver, Light, Properties, RawStream, SimDriver, StreamFlags, Tie,
};

use crate::allocation::{Origin, Owned, freed_fault, site, violation};
use crate::config::{DeviceConfig, HostConfig, PoolConfig, SimConfig};
use crate::context::{Context, Legacy, lock};
use crate::ended::Ended;
use crate::error::{Invalid, Refused, Result};
use crate::event::Mark;
use crate::graph::{Graphs, free_in_graph};
use crate::hosts::{Hosts, Told};
use crate::pool::{Pool, PoolShared, Uses};
use crate::progress::{Chains, Progress};
use crate::serve::not_launched;
use crate::share::{Sharing, check_free, free_import};
use crate::stream::{Keep, Role, State, Stream, StreamShared};
use crate::tracing::Tracer;
use crate::{Buffer, peers};

/// A pool's addresses, as a multiple of the memory that it may have: addresses are cheap, and room keeps blocks apart.
const ADDRESSES_PER_BYTE: u64 = 8;
/// No pool has fewer addresses.
const ADDRESSES_MIN: u64 = 64 * GIB;

/// Tells the devices of a process apart. From 1 on: a stream that is named without a device is of the one at hand.
static NEXT_DEVICE: AtomicU32 = AtomicU32::new(1);

/// A device. Clones name the same device; streams, pools and buffers keep it alive.
#[derive(Clone, Debug)]
pub struct Device {
    shared: Arc<DeviceShared>,
}

impl Drop for DeviceShared {
    fn drop(&mut self) {
        self.context.graphs.forget_orphans();
        self.context.forget_imports();
    }
}

#[derive(Debug)]
struct DeviceShared {
    context: Arc<Context>,
    /// The pool that the device came with.
    default_pool: Pool,
    /// The pool that unnamed allocations come from.
    current_pool: Mutex<Pool>,
    legacy: Stream,
    per_thread: Mutex<HashMap<ThreadId, Stream>>,
}

impl Device {
    /// A host device: streams are real queues served by threads, memory is real memory; no GPU is needed.
    ///
    /// # Errors
    /// The system refused, or a setting cannot be had.
    pub fn host(config: HostConfig) -> Result<Device> {
        let (driver, device) = config.split();
        Self::with_driver(Arc::new(HostDriver::new(driver)?), device)
    }

    /// A simulated device: calls are counted, memory is never touched, closures are not run.
    ///
    /// # Errors
    /// A setting cannot be had.
    pub fn sim(config: SimConfig) -> Result<Device> {
        let (driver, device) = config.split();
        Self::with_driver(Arc::new(SimDriver::new(driver)), device)
    }

    /// A device of any kind.
    ///
    /// # Errors
    /// The driver refused to open the default stream or to reserve addresses.
    pub fn with_driver(driver: Arc<dyn Driver>, config: DeviceConfig) -> Result<Device> {
        let number = NEXT_DEVICE.fetch_add(1, Ordering::Relaxed);
        let properties = driver.properties();
        let context = Arc::new(Context {
            number,
            graphs: Graphs::new(properties.granularity),
            properties,
            driver: Arc::new(Counting::new(driver)),
            hosts: Hosts::new(number, config.host_threads),
            has_met: AtomicBool::new(false),
            chains: Chains::default(),
            slots: Mutex::new(Slots::beside(peers::numbers())),
            streams: Mutex::default(),
            pools: std::sync::RwLock::default(),
            legacy: Legacy { is_used: AtomicBool::new(false), ..Legacy::default() },
            ended: Ended::default(),
            staging: Mutex::default(),
            closing: Mutex::default(),
            share: Sharing::default(),
            tracer: Tracer::of(config.trace, config.host_threads),
            violations: config.violations,
            next_stream: AtomicU32::new(0),
            next_pool: AtomicU32::new(0),
            next_alloc: AtomicU32::new(0),
        });
        peers::enter(&context);
        let legacy = open_stream(&context, Role::Legacy, Tie::Legacy)?;
        let default_pool = open_pool(&context, PoolConfig::default())?;
        let current_pool = Mutex::new(default_pool.clone());
        let per_thread = Mutex::default();
        Ok(Device { shared: Arc::new(DeviceShared { context, default_pool, current_pool, legacy, per_thread }) })
    }

    /// What the device is.
    pub fn properties(&self) -> &Properties {
        &self.shared.context.properties
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.shared.context
    }

    /// How often each driver call was made.
    pub fn driver_calls(&self) -> CallCounts {
        self.shared.context.driver.counts()
    }

    /// Opens a stream that is ordered with the legacy default stream (CUDA: `cudaStreamCreate`).
    ///
    /// # Errors
    /// The driver refused.
    pub fn stream(&self) -> Result<Stream> {
        self.stream_of(StreamKind::Blocking)
    }

    /// Opens a stream that is not ordered with the legacy default stream (CUDA: `cudaStreamNonBlocking`).
    ///
    /// # Errors
    /// The driver refused.
    pub fn non_blocking_stream(&self) -> Result<Stream> {
        self.stream_of(StreamKind::NonBlocking)
    }

    fn stream_of(&self, kind: StreamKind) -> Result<Stream> {
        let tie = if kind == StreamKind::Blocking { Tie::Blocking } else { Tie::Free };
        open_stream(&self.shared.context, Role::Ordinary(kind), tie)
    }

    /// A stream over one that the driver gets by `open`.
    pub(crate) fn stream_over(&self, kind: StreamKind, keep: Option<Keep>, open: OpenStream<'_>) -> Result<Stream> {
        enlist_stream(&self.shared.context, Role::Ordinary(kind), keep, open)
    }

    /// The legacy default stream: its work comes after everything in all blocking streams, and their later work after
    /// it (CUDA: `cudaStreamLegacy`, stream 0).
    pub fn legacy_stream(&self) -> Stream {
        self.shared.legacy.clone()
    }

    /// The calling thread's own default stream, a blocking one (CUDA: `cudaStreamPerThread`). On CUDA other threads can
    /// record it and wait for it, but not submit to it: the driver has no name for it there.
    ///
    /// # Errors
    /// The driver refused to open it.
    pub fn per_thread_stream(&self) -> Result<Stream> {
        let mut streams = lock(&self.shared.per_thread);
        if let Some(stream) = streams.get(&std::thread::current().id()) {
            return Ok(stream.clone());
        }
        let stream = open_stream(&self.shared.context, Role::Ordinary(StreamKind::Blocking), Tie::PerThread)?;
        streams.insert(std::thread::current().id(), stream.clone());
        Ok(stream)
    }

    /// Makes a pool (CUDA: `cudaMemPoolCreate`).
    ///
    /// # Errors
    /// [`Invalid::Setting`] for a setting that cannot be had; the driver refused to reserve addresses.
    pub fn pool(&self, config: PoolConfig) -> Result<Pool> {
        open_pool(&self.shared.context, config)
    }

    /// The pool that the device came with (CUDA: `cudaDeviceGetDefaultMemPool`).
    pub fn default_pool(&self) -> Pool {
        self.shared.default_pool.clone()
    }

    /// The device's current pool, at first its default one (CUDA: `cudaDeviceGetMemPool`).
    pub fn current_pool(&self) -> Pool {
        lock(&self.shared.current_pool).clone()
    }

    /// Makes a pool the current one and gives back the one before (CUDA: `cudaDeviceSetMemPool`).
    ///
    /// # Errors
    /// [`Invalid::OtherDevice`] for a pool of another device.
    pub fn set_current_pool(&self, pool: &Pool) -> Result<Pool> {
        if pool.shared.context.number != self.shared.context.number {
            return Err(Invalid::OtherDevice { what: pool.id().to_string(), with: "the device".into() }.into());
        }
        Ok(std::mem::replace(&mut *lock(&self.shared.current_pool), pool.clone()))
    }

    /// Waits until all work of all streams is over, closed ones too (CUDA: `cudaDeviceSynchronize`).
    ///
    /// # Errors
    /// The device is lost.
    #[track_caller]
    pub fn synchronize(&self) -> Result<()> {
        let context = &self.shared.context;
        context.graphs.refuse_in_capture("synchronize")?;
        context.close_rest()?;
        let mut ends = context.ended.open();
        for shared in context.streams() {
            let state = shared.state.lock();
            // Looking at the legacy stream ties the others to it: it is let alone while nothing of ours is in it.
            let is_bare = shared.role == Role::Legacy && !context.legacy.is_used.load(Ordering::Acquire);
            if !state.is_closed && !is_bare {
                let mark = Mark::new(context.driver.mark(shared.raw)?, &context.driver);
                ends.push((state.chain.snapshot(), Arc::new(mark)));
            }
        }
        let mut waited = Ok(());
        for (_, mark) in &ends {
            waited = waited.and(context.driver.block_on(mark.raw));
        }
        waited?;
        context.synchronized(ends.iter().map(|(snapshot, _)| snapshot));
        context.hear_of_ended();
        if let Some(tracer) = &context.tracer {
            tracer.synchronized(context.streams().iter().map(|stream| stream.id), Location::caller());
        }
        Ok(())
    }

    /// Frees a buffer at once, without a stream (CUDA: `cudaFree` of stream-ordered memory). Nothing waits: the host
    /// must have synchronised with everything that uses it.
    ///
    /// # Errors
    /// A violation, with the buffer, where the host was not told that some use is over.
    #[track_caller]
    pub fn free<T: Pod>(&self, buffer: Buffer<T>) -> std::result::Result<(), Refused<T>> {
        let caller = Location::caller();
        let (owned, len) = buffer.into_owned();
        let Some(owned) = owned else { return Ok(()) };
        self.free_now(&owned, caller).map_err(|error| Refused { error, buffer: Buffer::new(Some(owned), len) })
    }

    /// Frees memory at once by its address (CUDA: `cudaFree`). Null is fine and has no effect.
    ///
    /// # Errors
    /// [`Invalid::Pointer`] where it is not the start of a live allocation; a violation as for [`free`](Self::free).
    #[track_caller]
    pub fn free_address(&self, address: u64) -> Result<()> {
        let caller = Location::caller();
        if address == 0 {
            return Ok(());
        }
        let owned = PoolShared::find_on(&self.shared.context, address)?;
        self.free_now(&owned, caller)
    }

    fn free_now(&self, owned: &Owned, caller: &'static Location<'static>) -> Result<()> {
        match self.free_now_once(owned, caller) {
            Err(error) if error.is_abroad() => {
                self.shared.context.settle_shares();
                self.free_now_once(owned, caller)
            }
            done => done,
        }
    }

    fn free_now_once(&self, owned: &Owned, caller: &'static Location<'static>) -> Result<()> {
        let Owned { allocation, generation, .. } = owned;
        if allocation.device != self.shared.context.number {
            return Err(allocation.elsewhere(self.name().to_string()));
        }
        self.shared.context.graphs.refuse_in_capture("free")?;
        if let Origin::Captured(_) = allocation.origin {
            return Err(not_launched(allocation));
        }
        let mut base = self.shared.context.hosts.base();
        let mut life = allocation.life();
        let later = site(Act::Free, StreamId::HOST, 0, caller);
        let mut checked = match life.freed {
            Some(free) => Err(freed_fault(free, Act::Free)),
            None if life.generation != *generation => Err(freed_fault(life.history.born(), Act::Free)),
            None => check_free(allocation, &life, &Host(&base)),
        };
        if checked.is_err() && life.freed.is_none() && self.shared.context.hear_abroad() {
            base = self.shared.context.hosts.base();
            checked = check_free(allocation, &life, &Host(&base));
        }
        if let Err(fault) = checked {
            let Use { point, site } = fault.earlier;
            let is_node = self.shared.context.chains.find(point.slot).is_some_and(|it| it.is_of_launches());
            let known =
                (!is_node && !base.covers(point)).then(|| base.seen(point.slot).saturating_sub(point.seq - site.op));
            return Err(violation(allocation.subject(&life), fault, later, known).into());
        }
        life.freed = Some(Use { point: life.history.born().point, site: later });
        if let Some(tracer) = &self.shared.context.tracer {
            tracer.free_now(allocation.id, *generation, caller);
        }
        if allocation.is_import() {
            free_import(allocation, life, None);
            return Ok(());
        }
        let Origin::Pool(pool) = &allocation.origin else {
            free_in_graph(allocation, life, Frontier::EMPTY);
            return Ok(());
        };
        let bytes = life.bytes;
        drop(life);
        let mut heap = pool.lock();
        heap.give_back(Arc::clone(allocation), Frontier::EMPTY, None::<&Chain>);
        heap.count_used(-(bytes as i64));
        drop(heap);
        pool.trim_if_destroyed();
        Ok(())
    }

    /// Writes what the device's trace holds so far, if it is traced: a crash after this loses none of it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flush_trace(&self) -> std::io::Result<()> {
        self.shared.context.tracer.as_ref().map_or(Ok(()), |tracer| tracer.flush())
    }

    /// What the calling thread knows, for another thread to [`hear`](Self::hear).
    pub fn tell(&self) -> Told {
        let context = &self.shared.context;
        Told { base: context.hosts.base(), traced: context.tracer.as_ref().map(|tracer| tracer.told()) }
    }

    /// The calling thread has heard from another, by a channel, a lock or a join: what that one knew then, this one
    /// knows now. Only needed with [`HostThreads::Separate`](crate::HostThreads::Separate).
    pub fn hear(&self, told: &Told) {
        self.shared.context.hosts.hear(told);
        if let (Some(tracer), Some(from)) = (&self.shared.context.tracer, told.traced) {
            tracer.heard(from);
        }
    }
}

/// The host as somebody who stands in the order: after everything that it was told.
struct Host<'a>(&'a Base);

impl Knows for Host<'_> {
    fn slot(&self) -> Slot {
        Slot(u32::MAX)
    }

    fn covers(&self, point: Point) -> bool {
        self.0.covers(point)
    }
}

/// What gets a stream from the driver, given its number.
pub(crate) type OpenStream<'a> = &'a dyn Fn(&Context, StreamId) -> millpond_driver::Result<RawStream>;

fn open_stream(context: &Arc<Context>, role: Role, tie: Tie) -> Result<Stream> {
    enlist_stream(context, role, None, &|context, id| context.driver.open_stream(StreamFlags { label: id.0, tie }))
}

fn enlist_stream(context: &Arc<Context>, role: Role, keep: Option<Keep>, open: OpenStream<'_>) -> Result<Stream> {
    let id = StreamId(context.next_stream.fetch_add(1, Ordering::Relaxed));
    let raw = open(context, id)?;
    let base = context.hosts.base();
    // Held until the chain is listed: slots are dense in that list.
    let mut slots = lock(&context.slots);
    let (slot, seq) = slots.open(|point| base.covers(point));
    let chain = Chain::new(slot, seq, base);
    let progress = Arc::new(Progress::new(raw, chain.seq()));
    context.chains.insert(slot, Arc::clone(&progress));
    drop(slots);
    let shared = Arc::new_cyclic(|me| StreamShared {
        id,
        slot,
        raw,
        role,
        context: Arc::clone(context),
        progress,
        me: me.clone(),
        state: Light::new(State::new(chain)),
    });
    lock(&context.streams).push(Arc::downgrade(&shared));
    if let Some(tracer) = &context.tracer {
        tracer.stream(id, role);
    }
    Ok(Stream::new(shared, keep))
}

fn open_pool(context: &Arc<Context>, config: PoolConfig) -> Result<Pool> {
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
    let memory = match config.max_bytes {
        0 => context.properties.total_bytes,
        limit => limit.min(context.properties.total_bytes),
    };
    let core = config.to_core(granularity)?;
    let addresses = memory.saturating_mul(ADDRESSES_PER_BYTE).max(ADDRESSES_MIN);
    let addresses = round_up(addresses, granularity).unwrap_or(ADDRESSES_MIN);
    let start = context.driver.reserve(addresses)?;
    let id = PoolId(context.next_pool.fetch_add(1, Ordering::Relaxed));
    let range = Range::new(start, addresses);
    let shared = Arc::new(PoolShared::new(id, Arc::clone(context), core, Uses { guard, shareable }, range));
    let mut pools = context.pools.write().unwrap_or_else(PoisonError::into_inner);
    pools.retain(|pool| pool.strong_count() > 0);
    pools.push(Arc::downgrade(&shared));
    if let Some(tracer) = &context.tracer {
        tracer.pool(id, shareable);
    }
    Ok(Pool::new(shared))
}
