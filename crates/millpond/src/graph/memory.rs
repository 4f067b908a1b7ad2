//! The physical memory of all graphs of a device. Core's [`Backing`] decides; this file acts.
//!
//! `Backing` decides which chunk is under which launch, and when a chunk may go to another one. Here are the driver's
//! calls, one for each step. Nothing here waits for the device except [`wait`], which is called without any lock.
//!
//! One lock guards it, from the time when a launch finds its memory bound until the launch is recorded as a user of it,
//! so that no other launch takes that memory in between. A thread that frees an output holds that allocation's lock and
//! must not wait for launches. So frees are listed beside the memory ([`Frees`]), and the next thread that takes the
//! lock learns of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use millpond_core::graph::{ArenaKey, Backing, BackingStep, Blocked};
use millpond_core::ids::{ChunkId, Point};
use millpond_core::order::{Completed, Knows};
use millpond_core::pool::Frontier;
use millpond_core::units::Range;
use millpond_driver::locks::Biased;
use millpond_driver::{Driver, DriverError, RawChunk, RawStream};
use rustc_hash::FxHashMap;

use super::last::Last;
use crate::names::error::{Error, Result};
use crate::pool::shell;
use crate::state::context::Context;
use crate::sync::ranks;

/// The memory that the graphs of a device use and reserve, in bytes (CUDA: `cudaDeviceGetGraphMemAttribute`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct GraphMemoryStatistics {
    /// Physical memory bound to addresses of at least one existing graph. A trim reduces it; a free does not.
    pub used_bytes: u64,
    /// The most bytes used since the last reset.
    pub used_high_bytes: u64,
    /// Physical memory held for graphs.
    pub reserved_bytes: u64,
    /// The most bytes reserved since the last reset.
    pub reserved_high_bytes: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct GraphMemory {
    pub(crate) backing: Backing,
    granularity: u64,
    /// The driver's handle of each chunk.
    raw: Vec<Option<RawChunk>>,
    /// The end of the last launch in each arena, by any instance.
    lasts: FxHashMap<ArenaKey, Option<Last>>,
}

/// The outputs of launches that were freed, and the points after which they are free, until the memory learns of them.
#[derive(Debug, Default)]
pub(crate) struct Frees {
    has_any: AtomicBool,
    list: Biased<ranks::Table, Vec<(Range, Frontier)>>,
}

impl Frees {
    /// Adds a free. Call this while the allocation is locked: no launch may begin another lifetime before.
    pub(crate) fn push(&self, range: Range, after: Frontier) {
        let mut list = self.list.lock();
        list.push((range, after));
        self.has_any.store(true, Ordering::Release);
    }
}

impl GraphMemory {
    pub(crate) fn new(granularity: u64) -> Self {
        Self { backing: Backing::new(granularity), granularity, raw: Vec::new(), lasts: FxHashMap::default() }
    }

    /// Learns of the listed frees.
    #[inline]
    pub(crate) fn learn_frees(&mut self, frees: &Frees) {
        if frees.has_any.load(Ordering::Acquire) {
            self.take_in(frees);
        }
    }

    #[cold]
    fn take_in(&mut self, frees: &Frees) {
        let mut list = frees.list.lock();
        frees.has_any.store(false, Ordering::Relaxed);
        list.drain(..).for_each(|(range, after)| self.backing.freed(range, after));
    }

    /// Returns the last launch in an arena.
    #[inline]
    pub(crate) fn last(&self, arena: ArenaKey) -> Option<&Last> {
        self.lasts.get(&arena)?.as_ref()
    }

    /// Returns the place of the last launch in an arena, for an update.
    #[inline]
    pub(crate) fn last_mut(&mut self, arena: ArenaKey) -> &mut Option<Last> {
        self.lasts.entry(arena).or_default()
    }

    /// Returns the result of [`bind`](Self::bind) if there is nothing to bind: the hot half. Waits for nothing. Locks
    /// of allocations may be held.
    #[inline]
    pub(crate) fn settled(&self, context: &Context, arenas: &[ArenaKey], knows: &impl Knows) -> Option<Frontier> {
        self.backing.settled(arenas, knows, &Asked(context))
    }

    /// Binds memory to the arenas of a launch, for a launching stream that knows `knows`. Returns the points that the
    /// stream must wait for, on the device only: they add nothing to the order. No allocation's lock may be held,
    /// because pools may have to give memory.
    ///
    /// Keep the lock until the launch is recorded as a user of the memory. Otherwise another thread's launch takes it
    /// for idle.
    pub(crate) fn bind(
        &mut self,
        context: &Context,
        arenas: &[ArenaKey],
        knows: &impl Knows,
    ) -> std::result::Result<Frontier, Stopped> {
        let over = context.chains.poll(&*context.driver);
        let bound = self.backing.bind(arenas, knows, &over);
        drop(over);
        let waits = bound.map_err(Stopped::Blocked)?;
        self.apply(context)?;
        Ok(waits)
    }

    /// Records a launch at `point`: the earlier outputs that it freed, and the addresses of its outputs where nothing
    /// was unfreed before.
    pub(crate) fn launched(&mut self, arenas: &[ArenaKey], point: Point, freed: &[(Range, Point)], made: &[Range]) {
        freed.iter().for_each(|(range, point)| self.backing.freed(*range, *point));
        self.backing.launched(arenas, point, made.iter().copied());
    }

    /// Takes the steps one by one. If one fails, the rest is discarded, and nothing is lost.
    fn apply(&mut self, context: &Context) -> Result<()> {
        while let Some(step) = self.backing.next_step().cloned() {
            if let Err(error) = self.step(context, step) {
                self.backing.failed();
                return Err(error.into());
            }
            self.backing.applied();
        }
        Ok(())
    }

    fn step(&mut self, context: &Context, step: BackingStep) -> millpond_driver::Result<()> {
        match step {
            BackingStep::Create { chunk } => {
                let raw = create(context, self.granularity)?;
                if self.raw.len() <= chunk.index() {
                    self.raw.resize(chunk.index() + 1, None);
                }
                self.raw[chunk.index()] = Some(raw);
                Ok(())
            }
            BackingStep::Map { chunk, at, .. } => {
                shell::map_graph_chunk(context, self.raw_of(chunk)?, at, self.granularity)
            }
            BackingStep::Unmap { at, .. } => shell::unmap_graph_chunk(context, at, self.granularity),
            BackingStep::Destroy { chunk } => {
                context.driver.destroy(self.raw_of(chunk)?)?;
                self.raw[chunk.index()] = None;
                Ok(())
            }
        }
    }

    fn raw_of(&self, chunk: ChunkId) -> millpond_driver::Result<RawChunk> {
        let unknown =
            || DriverError::UnknownHandle { call: "map", what: "chunk of the graphs", handle: chunk.0.into() };
        self.raw.get(chunk.index()).copied().flatten().ok_or_else(unknown)
    }

    /// Removes an arena that is gone and whose work has completed.
    pub(crate) fn retire(&mut self, arena: ArenaKey) {
        self.backing.retire(arena);
        self.lasts.remove(&arena);
    }

    /// Gives addresses that no arena has back to the system, with the memory mapped there. Returns `true` on success.
    pub(crate) fn give_back(&mut self, context: &Context, range: Range) -> bool {
        let is_vacant = self.backing.vacate(range) || (self.apply(context).is_ok() && self.backing.vacate(range));
        is_vacant && shell::unreserve_graph_addresses(context, range).is_ok()
    }

    pub(crate) fn statistics(&self) -> GraphMemoryStatistics {
        let statistics = self.backing.statistics();
        GraphMemoryStatistics {
            used_bytes: statistics.used,
            used_high_bytes: statistics.used_high,
            reserved_bytes: statistics.reserved,
            reserved_high_bytes: statistics.reserved_high,
        }
    }
}

/// Makes a chunk. If memory runs out, trims the pools and tries again.
fn create(context: &Context, bytes: u64) -> millpond_driver::Result<RawChunk> {
    match context.driver.create(bytes) {
        Err(DriverError::OutOfMemory { .. }) => {
            context.pools().iter().for_each(|pool| {
                // A pool keeps what it cannot give back now. The second try shows if the rest is enough.
                let _ = pool.trim_to(0);
            });
            context.driver.create(bytes)
        }
        other => other,
    }
}

/// Queries the device for completion if the order does not decide it.
struct Asked<'c>(&'c Context);

impl Completed for Asked<'_> {
    #[cold]
    fn is_over(&self, point: Point) -> bool {
        self.0.chains.poll(&*self.0.driver).is_over(point)
    }
}

/// The reasons not to make a launch.
pub(crate) enum Stopped {
    /// Its memory can be bound only once these points have completed. [Wait for them](wait) without any lock, and try
    /// again.
    Blocked(Blocked),
    Refused(Error),
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Self {
        Stopped::Refused(error)
    }
}

impl From<DriverError> for Stopped {
    fn from(error: DriverError) -> Self {
        Stopped::Refused(error.into())
    }
}

/// The first limit of a launch's wait for memory of its own, if it could share instead.
const PATIENCE: Duration = Duration::from_millis(5);

/// Blocks the calling thread until a launch can be bound. No lock may be held, because the work that it waits for could
/// need it. If the launch can do without, the wait has a limit, four times as long after each wait in vain: that work
/// may itself wait for the calling thread.
pub(crate) fn wait(context: &Context, blocked: &Blocked) -> Result<()> {
    let driver = &*context.driver;
    let Some(in_vain) = blocked.in_vain else {
        return Ok(context.chains.each(&blocked.after, |chain| chain.block(driver))?);
    };
    let until = Instant::now() + PATIENCE * 4u32.saturating_pow(in_vain);
    while Instant::now() < until && !blocked.after.is_over(&context.chains.poll(driver)) {
        std::thread::sleep(Duration::from_micros(50));
    }
    Ok(())
}

/// Makes a stream wait, on the device only.
pub(crate) fn follow(context: &Context, raw: RawStream, waits: &Frontier) -> millpond_driver::Result<()> {
    let driver = &*context.driver;
    context.chains.each(waits, |chain| chain.wait(driver, raw))
}

/// Gives unneeded memory back.
pub(crate) fn trim(context: &Context) -> Result<()> {
    let mut memory = context.graphs.memory();
    let over = context.chains.poll(&*context.driver);
    memory.backing.trim(&over);
    drop(over);
    memory.apply(context)?;
    context.graphs.trim_spare(|range| memory.backing.is_vacant(range) && memory.give_back(context, range));
    Ok(())
}
