//! Physical memory of all graphs of a device: what core's [`Backing`] decides is done here.
//!
//! Which chunk lies under which launch, and when it may change hands, is decided there; here are the driver's calls,
//! one for each step, and the waiting, which is done without any lock that work of the device may need.

use std::sync::MutexGuard;

use millpond_core::graph::{ArenaKey, Backing, BackingStep};
use millpond_core::ids::{ChunkId, Point};
use millpond_core::order::Knows;
use millpond_core::pool::Frontier;
use millpond_core::units::Range;
use millpond_driver::{Driver, DriverError, RawChunk, RawStream};

use crate::Device;
use crate::context::{Context, lock};
use crate::error::Result;
use crate::shell;

/// What the graphs of a device use and reserve, in bytes (CUDA: `cudaDeviceGetGraphMemAttribute`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct GraphMemoryStatistics {
    /// Physical memory bound to the addresses of some graph; falls when memory is trimmed, not when it is freed.
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
}

impl GraphMemory {
    pub(crate) fn new(granularity: u64) -> Self {
        Self { backing: Backing::new(granularity), granularity, raw: Vec::new() }
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

    /// Takes every mapping of an arena away; all work is over. Whether that is done.
    pub(crate) fn close(&mut self, context: &Context, arena: ArenaKey) -> bool {
        self.backing.close(arena) || (self.apply(context).is_ok() && self.backing.close(arena))
    }

    fn statistics(&self) -> GraphMemoryStatistics {
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

/// What [`bind`] returns where there is nothing to bind: the hot half, with the binding locked. Waits for nothing;
/// allocations' locks may be held.
#[inline]
pub(crate) fn settled(context: &Context, arenas: &[ArenaKey], knows: &impl Knows) -> Option<Frontier> {
    let memory = lock(&context.graphs.memory);
    memory.backing.settled(arenas, knows, &context.chains.poll(&*context.driver))
}

/// Binds memory to the arenas of a launch by somebody who knows `knows`. Returns what the launching stream must be made
/// to wait for, on the device only: the order learns nothing of it. May wait for the device: no allocation's lock may
/// be held.
///
/// The guard is to be kept until the launch is known to use the memory: else another thread's launch takes it for idle.
pub(crate) fn bind<'c>(
    context: &'c Context,
    arenas: &[ArenaKey],
    knows: &impl Knows,
) -> Result<(Frontier, MutexGuard<'c, ()>)> {
    loop {
        let binding = lock(&context.graphs.binding);
        let mut memory = lock(&context.graphs.memory);
        let over = context.chains.poll(&*context.driver);
        let bound = memory.backing.bind(arenas, knows, &over);
        drop(over);
        match bound {
            Ok(waits) => return memory.apply(context).map(|()| (waits, binding)),
            Err(blocked) => {
                // Not under the locks: work that is waited for may drop what has memory here.
                drop(memory);
                drop(binding);
                let driver = &*context.driver;
                context.chains.each(&blocked.after, |chain| chain.block(driver))?;
            }
        }
    }
}

/// Makes a stream wait, on the device only.
pub(crate) fn follow(context: &Context, raw: RawStream, waits: &Frontier) -> millpond_driver::Result<()> {
    let driver = &*context.driver;
    context.chains.each(waits, |chain| chain.wait(driver, raw))
}

/// Gives back what nothing needs.
pub(crate) fn trim(context: &Context) -> Result<()> {
    let _binding = lock(&context.graphs.binding);
    let mut memory = lock(&context.graphs.memory);
    let over = context.chains.poll(&*context.driver);
    memory.backing.trim(&over);
    drop(over);
    memory.apply(context)
}

impl Context {
    /// The memory of an allocation that a launch left live is free after these points.
    pub(crate) fn graph_memory_freed(&self, range: Range, after: Frontier) {
        lock(&self.graphs.memory).backing.freed(range, after);
    }

    /// A launch (or upload) was made at `point`: earlier outputs freed by it, and the new ones, by their addresses.
    pub(crate) fn graph_memory_launched(
        &self,
        arenas: &[ArenaKey],
        point: Point,
        freed: &[(Range, Point)],
        made: &[Range],
    ) {
        let mut memory = lock(&self.graphs.memory);
        freed.iter().for_each(|(range, point)| memory.backing.freed(*range, *point));
        if !arenas.is_empty() {
            memory.backing.launched(arenas, point, made.iter().copied());
        }
    }
}

impl Device {
    /// What its graphs use and reserve, apart from all pools (CUDA: `cudaDeviceGetGraphMemAttribute`).
    pub fn graph_memory(&self) -> GraphMemoryStatistics {
        lock(&self.context().graphs.memory).statistics()
    }

    /// Sets both high marks to the current values (CUDA: `cudaDeviceSetGraphMemAttribute`).
    pub fn reset_graph_memory_high(&self) {
        let mut memory = lock(&self.context().graphs.memory);
        memory.backing.reset_used_high();
        memory.backing.reset_reserved_high();
    }

    /// Gives graph memory back that no unfreed allocation and no launch in flight needs (CUDA:
    /// `cudaDeviceGraphMemTrim`). The next launch binds anew.
    ///
    /// # Errors
    /// The device refused; what was given back before stays so.
    pub fn trim_graph_memory(&self) -> Result<()> {
        trim(self.context())
    }
}
