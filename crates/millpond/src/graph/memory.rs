//! Physical memory of all graphs of a device: what core's [`Backing`] decides is done here.
//!
//! Which chunk lies under which launch, and when it may change hands, is decided there; here are the driver's calls,
//! one for each step. Nothing here waits for the device but [`wait`], which is called without any lock.
//!
//! One lock guards it, from where a launch finds its memory bound to where the launch is known to use it: no other
//! launch takes that memory in between. Who frees an output holds that allocation's lock and must not wait for
//! launches, so frees are listed beside it ([`Frees`]) and learned of by the next who takes the lock.

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

/// What the graphs of a device use and reserve, in bytes (CUDA: `cudaDeviceGetGraphMemAttribute`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct GraphMemoryStatistics {
    /// Physical memory bound to the addresses of some graph that is there; falls when memory is trimmed, not when it is
    /// freed.
    pub used_bytes: u64,
    /// The most that was used since the last reset.
    pub used_high_bytes: u64,
    /// Physical memory that is kept for graphs.
    pub reserved_bytes: u64,
    /// The most that was reserved since the last reset.
    pub reserved_high_bytes: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct GraphMemory {
    pub(crate) backing: Backing,
    granularity: u64,
    /// The driver's handle of each chunk.
    raw: Vec<Option<RawChunk>>,
    /// Of each arena the end of the last launch there, of whichever instance.
    lasts: FxHashMap<ArenaKey, Option<Last>>,
}

/// Outputs of launches that were freed, and after which points, until the memory learns of it.
#[derive(Debug, Default)]
pub(crate) struct Frees {
    has_any: AtomicBool,
    list: Biased<ranks::Table, Vec<(Range, Frontier)>>,
}

impl Frees {
    /// To be called before the lock of the allocation is given back: the next launch must not begin another life
    /// before.
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

    /// Learns what was freed.
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

    /// The last launch in an arena.
    #[inline]
    pub(crate) fn last(&self, arena: ArenaKey) -> Option<&Last> {
        self.lasts.get(&arena)?.as_ref()
    }

    /// Where the next launch finds the last one in an arena.
    #[inline]
    pub(crate) fn last_mut(&mut self, arena: ArenaKey) -> &mut Option<Last> {
        self.lasts.entry(arena).or_default()
    }

    /// What [`bind`] returns where there is nothing to bind: the hot half. Waits for nothing; allocations' locks may be
    /// held.
    #[inline]
    pub(crate) fn settled(&self, context: &Context, arenas: &[ArenaKey], knows: &impl Knows) -> Option<Frontier> {
        self.backing.settled(arenas, knows, &Asked(context))
    }

    /// Binds memory to the arenas of a launch by a party that knows `knows`. Returns what the launching stream must be
    /// made to wait for, on the device only: the order learns nothing of it. No allocation's lock may be held: pools
    /// may have to give memory.
    ///
    /// The lock is to be kept until the launch is known to use the memory: else another thread's launch takes it for
    /// idle.
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

    /// A launch was made at `point`: what it freed of earlier ones, and the outputs that nothing was unfreed in the
    /// place of, by their addresses.
    pub(crate) fn launched(&mut self, arenas: &[ArenaKey], point: Point, freed: &[(Range, Point)], made: &[Range]) {
        freed.iter().for_each(|(range, point)| self.backing.freed(*range, *point));
        self.backing.launched(arenas, point, made.iter().copied());
    }

    /// Takes the steps one by one; at the first that fails the rest is forgotten, and nothing is lost.
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

    /// An arena is gone, and all work there has completed.
    pub(crate) fn retire(&mut self, arena: ArenaKey) {
        self.backing.retire(arena);
        self.lasts.remove(&arena);
    }

    /// Gives addresses back that no arena has, with what is mapped there. Whether the system took them.
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

/// A chunk; what pools keep idle may be all it takes.
fn create(context: &Context, bytes: u64) -> millpond_driver::Result<RawChunk> {
    match context.driver.create(bytes) {
        Err(DriverError::OutOfMemory { .. }) => {
            context.pools().iter().for_each(|pool| {
                // What a pool cannot give back now it keeps; the second try says whether it was enough.
                let _ = pool.trim_to(0);
            });
            context.driver.create(bytes)
        }
        other => other,
    }
}

/// Asks the device what has completed, where the order does not say.
struct Asked<'c>(&'c Context);

impl Completed for Asked<'_> {
    #[cold]
    fn is_over(&self, point: Point) -> bool {
        self.0.chains.poll(&*self.0.driver).is_over(point)
    }
}

/// Why a launch is not made.
pub(crate) enum Stopped {
    /// Its memory is bound only once these points have completed: to be [waited for](wait) behind all locks, and tried
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

/// So long a launch waits at first for memory of its own, where it can share.
const PATIENCE: Duration = Duration::from_millis(5);

/// Has the calling thread wait until a launch can be bound. No lock may be held that the work which it waits for could
/// want, so none. Where it can do without it waits for some time only, four times as long each time that this was in
/// vain: that work may itself wait for the calling thread.
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

/// Gives back what nothing needs.
pub(crate) fn trim(context: &Context) -> Result<()> {
    let mut memory = context.graphs.memory();
    let over = context.chains.poll(&*context.driver);
    memory.backing.trim(&over);
    drop(over);
    memory.apply(context)?;
    context.graphs.trim_spare(|range| memory.backing.is_vacant(range) && memory.give_back(context, range));
    Ok(())
}
