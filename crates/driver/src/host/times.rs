//! Times of the host device's streams: taken by an item of work when the stream gets to it.
//!
//! Knows no streams. With threads the clock is the machine's. A seeded schedule has no clock of its own: there each
//! item that the device runs counts as a microsecond, so that a program that is run again gets the same times.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::errors::{failed, unknown};
use crate::locks::{Guard, Leaf, Mutex, lock};
use crate::{RawTime, Result};

/// What the device's time is.
#[derive(Debug)]
pub(super) enum Clock {
    /// The machine's, from here.
    Machine(Instant),
    /// How many items ran.
    Items(AtomicU64),
}

impl Clock {
    /// An item runs.
    #[inline]
    pub(super) fn count(&self) {
        if let Clock::Items(items) = self {
            items.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn now(&self) -> Duration {
        match self {
            Clock::Machine(start) => start.elapsed(),
            Clock::Items(items) => Duration::from_micros(items.load(Ordering::Relaxed)),
        }
    }
}

/// A time; empty until the stream gets there.
type Taken = Arc<OnceLock<Duration>>;

/// The times of a device.
#[derive(Debug)]
pub(super) struct Times {
    clock: Arc<Clock>,
    next: AtomicU64,
    taken: Mutex<Leaf, HashMap<RawTime, Taken>>,
}

impl Times {
    pub(super) fn new(clock: Arc<Clock>) -> Self {
        Self { clock, next: AtomicU64::new(1), taken: Mutex::default() }
    }

    /// A time to be taken by the work that `submit` gets.
    pub(super) fn record(&self, submit: impl FnOnce(Box<dyn FnOnce() + Send>) -> Result<()>) -> Result<RawTime> {
        let (taken, clock) = (Taken::default(), Arc::clone(&self.clock));
        let place = Arc::clone(&taken);
        submit(Box::new(move || {
            // It is set once: the work runs once.
            let _ = place.set(clock.now());
        }))?;
        let time = RawTime(self.next.fetch_add(1, Ordering::Relaxed));
        self.lock().insert(time, taken);
        Ok(time)
    }

    pub(super) fn elapsed(&self, from: RawTime, to: RawTime) -> Result<Duration> {
        Ok(self.find(to)?.saturating_sub(self.find(from)?))
    }

    pub(super) fn forget_time(&self, time: RawTime) {
        self.lock().remove(&time);
    }

    fn find(&self, time: RawTime) -> Result<Duration> {
        const CALL: &str = "elapsed";
        let taken = self.lock().get(&time).cloned();
        let taken = taken.ok_or_else(|| unknown(CALL, "time", time.0))?;
        taken.get().copied().ok_or_else(|| failed(CALL, "the work before it has not completed"))
    }

    fn lock(&self) -> Guard<'_, HashMap<RawTime, Taken>> {
        lock(&self.taken)
    }
}
