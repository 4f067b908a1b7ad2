//! Waiting until a request that found no memory may succeed, for servers that run at their memory limit.
//!
//! Simple version: wait until something is freed. Departures: memory that was freed between the refusal and the wait
//! must count, so each thread keeps how often memory had come back when it was refused. Memory that is freed during the
//! wait must not stay in caches, where only one stream finds it. And memory that was freed before the refusal may be
//! held by work in flight, whose end notifies no thread, so the wait polls.
//!
//! Nothing is reserved for the waiting thread: another thread may be faster, and its next request is then refused
//! again.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use millpond_core::ids::Point;
use millpond_core::order::Completed;
use millpond_driver::{Driver, DriverError, RawStream, StreamFlags, process};

use crate::names::error::{Error, Result};
use crate::pool::handle::Pool;
use crate::state::context::Context;
use crate::state::context::FoundPool;
use crate::state::stream::{State, StreamShared};

/// The time that a wait sleeps between two polls: at first, and at most.
const SLEEP_FIRST: Duration = Duration::from_micros(20);
const SLEEP_MAX: Duration = Duration::from_millis(1);

/// A wait checks for a lost device once in this many polls.
const LOOKS_FOR_LOSS: u64 = 64;

/// The number of times that a request about to be refused tries the lock of a busy stream. A stream that holds its lock
/// for long either has nothing in its cache, because it looks for memory itself, or waits for this very stream.
const PATIENCE: u32 = 200;

/// A request that has found no memory yet: while this lives, freed blocks of these pools go to the heap at once.
pub(crate) struct Shortage(Vec<FoundPool>);

impl Shortage {
    pub(crate) fn of(pools: Vec<FoundPool>) -> Self {
        pools.iter().for_each(|pool| pool.bypass_caches(true));
        Self(pools)
    }

    /// Moves the blocks in all caches to the heaps, also those of busy streams. `own` is the stream whose lock the
    /// caller holds.
    pub(crate) fn drain(&self, mut own: Option<(&StreamShared, &mut State)>) {
        for pool in &self.0 {
            pool.drain_caches(own.as_mut().map(|(stream, state)| (*stream, &mut **state)), PATIENCE);
        }
    }
}

impl Drop for Shortage {
    fn drop(&mut self) {
        self.0.iter().for_each(|pool| pool.bypass_caches(false));
    }
}

/// The state of a device's memory at one moment, to compare a later one with.
pub(crate) struct Supply {
    device: u32,
    /// The number of times that memory had come back: blocks to the heaps, limits that were set, memory of graphs and
    /// of dropped pools. A dropped pool leaves its number behind, so that memory that comes back with it is not missed.
    returned: u64,
    /// The ends of the streams that had not completed.
    in_flight: Vec<Point>,
}

thread_local! {
    /// The state that this thread saw last before it was refused memory.
    static REFUSED: Cell<Option<Supply>> = const { Cell::new(None) };
}

/// Records that the calling thread is refused memory. `before` is the state before its search.
pub(crate) fn note_shortage(before: Supply) {
    // A thread that is ending makes no further request.
    let _ = REFUSED.try_with(|refused| refused.set(Some(before)));
}

impl Context {
    fn returned(&self) -> u64 {
        let gone = self.returned.load(Ordering::Acquire);
        self.pools().iter().fold(gone, |sum, pool| sum.wrapping_add(pool.lock().returned()))
    }

    /// Returns the present state, to compare a later one with.
    pub(crate) fn supply(&self) -> Supply {
        let in_flight = self.chains.poll(&*self.driver).unfinished();
        Supply { device: self.number, returned: self.returned(), in_flight }
    }

    /// Returns the error if the device is lost. It makes a stream wait for its own event, which needs no work of the
    /// device.
    #[cold]
    pub(crate) fn lost_for(&self, stream: RawStream) -> Option<Error> {
        let driver = &*self.driver;
        let waited = driver.record(stream).and_then(|event| {
            let waited = driver.wait(stream, event);
            driver.forget(event);
            waited
        });
        waited.err().filter(|error| matches!(error, DriverError::Lost { .. })).map(Error::from)
    }

    /// Refuses a lost device, where no memory comes back. It asks on a new stream, because the program's own streams
    /// may be captured.
    #[cold]
    fn refuse_lost(&self) -> Result<()> {
        let lost = match self.driver.open_stream(StreamFlags::default()) {
            Ok(raw) => {
                let lost = self.lost_for(raw);
                let _ = self.driver.close_stream(raw);
                lost
            }
            Err(error) => Some(error).filter(|error| matches!(error, DriverError::Lost { .. })).map(Error::from),
        };
        lost.map_or(Ok(()), Err)
    }

    /// Returns `true` if memory has come back since `before`, or may be moved now.
    fn is_better(&self, before: &Supply) -> bool {
        let completed = |points: &[Point]| {
            let poll = self.chains.poll(&*self.driver);
            points.iter().any(|point| poll.is_over(*point))
        };
        self.returned() != before.returned || completed(&before.in_flight)
    }
}

impl Pool {
    /// Waits until a request that was refused for [lack of memory](crate::Error::OutOfMemory) may succeed: until memory
    /// of the device's pools or graphs is freed, a pool's limit is set, or work in flight completes, so that memory
    /// under it can be moved. Everything since this thread's last refusal counts, so no wakeup is lost. Returns `false`
    /// if the timeout ends first.
    ///
    /// Nothing is reserved for the caller: it must ask again, and may be refused again.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use millpond::{Buffer, Device, Error, HostConfig, MIB, Pool, PoolConfig, Result, Stream};
    /// fn alloc_or_wait(stream: &Stream, pool: &Pool, len: usize) -> Result<Buffer<u8>> {
    ///     loop {
    ///         match stream.alloc(pool, len) {
    ///             Err(Error::OutOfMemory(_)) if pool.wait_for_memory(Duration::from_secs(5))? => {}
    ///             done => return done,
    ///         }
    ///     }
    /// }
    /// # fn main() -> Result<()> {
    /// let device = Device::host(HostConfig::default())?;
    /// let pool = device.pool(PoolConfig::default().max_bytes(4 * MIB))?;
    /// let (one, other) = (device.stream()?, device.stream()?);
    /// let x = alloc_or_wait(&one, &pool, 4 << 20)?;
    /// std::thread::scope(|threads| {
    ///     threads.spawn(|| alloc_or_wait(&other, &pool, 4 << 20).unwrap());
    ///     one.free(x)
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns an error if the device is lost, because no memory comes back then, or if the process is a forked child.
    pub fn wait_for_memory(&self, timeout: Duration) -> Result<bool> {
        process::refuse_forked()?;
        let context = &self.shared.context;
        let (begun, mut sleep, mut looks) = (Instant::now(), SLEEP_FIRST, 0u64);
        let refused = REFUSED.try_with(Cell::take).ok().flatten().filter(|before| before.device == context.number);
        let before = refused.unwrap_or_else(|| context.supply());
        // From here on freed blocks go to the heaps, where they are seen. The blocks in the caches follow.
        let shortage = Shortage::of(context.pools());
        shortage.drain(None);
        while !context.is_better(&before) {
            let Some(left) = timeout.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) else {
                return Ok(false);
            };
            looks += 1;
            if looks % LOOKS_FOR_LOSS == 0 {
                context.refuse_lost()?;
            }
            std::thread::sleep(sleep.min(left));
            sleep = (2 * sleep).min(SLEEP_MAX);
        }
        drop(shortage);
        Ok(true)
    }
}
