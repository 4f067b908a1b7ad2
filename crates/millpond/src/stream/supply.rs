//! Waiting until a request that found no memory may find some: what a server does that is at its limit.
//!
//! Simple version: wait until something is freed. Departures: what was freed between the refusal and the wait must
//! count, so that each thread keeps how often that had happened when it was refused; what is freed meanwhile must not
//! rest in caches, where only one stream finds it; and memory that was freed before the refusal may be held by work in
//! flight, of whose end no thread is informed, so that the wait looks again and again.
//!
//! Nothing is kept for the one who waits: another thread may be faster, and its next request is refused again.

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

/// How long a wait sleeps between two looks, at first and at most.
const SLEEP_FIRST: Duration = Duration::from_micros(20);
const SLEEP_MAX: Duration = Duration::from_millis(1);

/// Every so many looks a wait asks whether the device is lost.
const LOOKS_FOR_LOSS: u64 = 64;

/// How often a request that would be refused looks whether another stream is still busy. A stream that has its lock for
/// long has either nothing in its cache, as it looks for memory itself, or waits for this very one.
const PATIENCE: u32 = 200;

/// A request has found no memory as yet: while this lives, freed blocks of these pools go to the heap at once.
pub(crate) struct Shortage(Vec<FoundPool>);

impl Shortage {
    pub(crate) fn of(pools: Vec<FoundPool>) -> Self {
        pools.iter().for_each(|pool| pool.bypass_caches(true));
        Self(pools)
    }

    /// What rests in caches goes to the heaps, also what rests on those of busy streams. `own` is the stream whose
    /// lock the caller holds.
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

/// What a device's pools had at a moment.
pub(crate) struct Supply {
    device: u32,
    /// How often memory had come back: blocks to the heaps, limits that were set, memory of graphs and of dropped
    /// pools. A pool that goes leaves its number behind, so that what comes back with it never looks like nothing.
    returned: u64,
    /// The ends of the streams that had not come so far.
    in_flight: Vec<Point>,
}

thread_local! {
    /// At the last look before this thread was refused memory.
    static REFUSED: Cell<Option<Supply>> = const { Cell::new(None) };
}

/// The calling thread is being refused memory, for which it looked after this.
pub(crate) fn note_shortage(before: Supply) {
    // At the end of a thread there is no next request.
    let _ = REFUSED.try_with(|refused| refused.set(Some(before)));
}

impl Context {
    fn returned(&self) -> u64 {
        let gone = self.returned.load(Ordering::Acquire);
        self.pools().iter().fold(gone, |sum, pool| sum.wrapping_add(pool.lock().returned()))
    }

    /// What there is now, to be compared with later.
    pub(crate) fn supply(&self) -> Supply {
        let in_flight = self.chains.poll(&*self.driver).unfinished();
        Supply { device: self.number, returned: self.returned(), in_flight }
    }

    /// Whether the device is lost. It is asked by a wait of a stream for itself, which no device has to run work for.
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

    /// Refuses a device that is lost, where nothing comes back. It is asked by a stream made for that: the program's
    /// own may be captured.
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

    /// Whether memory came back since, or may be moved now.
    fn is_better(&self, before: &Supply) -> bool {
        let completed = |points: &[Point]| {
            let poll = self.chains.poll(&*self.driver);
            points.iter().any(|point| poll.is_over(*point))
        };
        self.returned() != before.returned || completed(&before.in_flight)
    }
}

impl Pool {
    /// Waits until a request that was refused for [lack of memory](crate::Error::OutOfMemory) may be served: until
    /// something of the device's pools or graphs is freed, a limit is set anew, or work that was in flight completes,
    /// so that memory under it can be moved. What happened since this thread's last refusal counts, so that no wakeup
    /// is lost. False where the time is up first.
    ///
    /// Nothing is kept for the caller: it asks again, and may be refused again.
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
    /// The device is lost, so that nothing comes back; the process was forked off.
    pub fn wait_for_memory(&self, timeout: Duration) -> Result<bool> {
        process::refuse_forked()?;
        let context = &self.shared.context;
        let (begun, mut sleep, mut looks) = (Instant::now(), SLEEP_FIRST, 0u64);
        let refused = REFUSED.try_with(Cell::take).ok().flatten().filter(|before| before.device == context.number);
        let before = refused.unwrap_or_else(|| context.supply());
        // What is freed from here on goes to the heaps, where it is seen; what was freed before follows.
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
