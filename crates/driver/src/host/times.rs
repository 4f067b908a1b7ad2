//! Times of the host device's streams: an item of work takes the time when the stream reaches it.
//!
//! Knows no streams. With threads the clock is the machine's. A seeded schedule counts each item that the device runs
//! as a microsecond, so that a program gets the same times each time it runs.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::errors::{failed, unknown};
use crate::locks::{Guard, Leaf, Mutex, lock};
use crate::{RawTime, Result};

/// The clock of a device.
#[derive(Debug)]
pub(super) enum Clock {
    /// The machine's clock, from this instant.
    Machine(Instant),
    /// The number of items that ran.
    Items(AtomicU64),
}

impl Clock {
    /// Counts an item.
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

/// A time; empty until the stream reaches it.
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

    /// Returns a time that the submitted work takes. `submit` gets that work.
    pub(super) fn record(&self, submit: impl FnOnce(Box<dyn FnOnce() + Send>) -> Result<()>) -> Result<RawTime> {
        let (taken, clock) = (Taken::default(), Arc::clone(&self.clock));
        let place = Arc::clone(&taken);
        submit(Box::new(move || {
            // It is set once, because the work runs once.
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
