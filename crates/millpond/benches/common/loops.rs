//! The loops that are timed.

use std::error::Error;
use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Builder;
use std::time::{Duration, Instant};

use millpond::{Buffer, Device, Pool, PoolConfig, Stream};

/// The result of a measurement, or the reason why there is none.
pub(crate) type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The value that a thread waits for: `GO`, or `STOP` if not all threads could be started.
const GO: usize = 1;
const STOP: usize = 2;

/// Makes a pool that keeps its memory.
pub(crate) fn keeping(device: &Device) -> millpond::Result<Pool> {
    device.pool(PoolConfig::default().release_threshold(u64::MAX))
}

/// Allocates and frees on one stream.
#[inline]
pub(crate) fn pair(stream: &Stream, pool: &Pool, bytes: usize) -> millpond::Result<()> {
    let buffer: Buffer<u8> = stream.alloc(pool, bytes)?;
    stream.free(black_box(buffer)).map_err(|refused| refused.error)
}

/// Allocates on one stream, passes the buffer on by an event, and frees it on another.
#[inline]
pub(crate) fn hand_over(left: &Stream, right: &Stream, pool: &Pool, bytes: usize) -> millpond::Result<()> {
    let buffer: Buffer<u8> = left.alloc(pool, bytes)?;
    right.wait(&left.record()?)?;
    right.free(buffer).map_err(|refused| refused.error)
}

/// Returns the time of `calls` calls.
#[inline]
pub(crate) fn timed<E>(calls: u32, mut call: impl FnMut() -> Result<(), E>) -> Result<Duration, E> {
    let start = Instant::now();
    for _ in 0..calls {
        call()?;
    }
    Ok(start.elapsed())
}

/// Returns the middle one of some numbers, or 0 if there are none.
pub(crate) fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(0.0)
}

/// Runs calls on several threads at the same time. Returns the time of the slowest thread. Each thread makes its own
/// closure, which returns the time of a number of calls.
pub(crate) fn threads<C: FnMut(u32) -> Outcome<Duration>>(
    count: usize,
    calls: u32,
    make: impl Fn() -> Outcome<C> + Sync,
) -> Outcome<Duration> {
    let (ready, signal) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let run = || {
        let arrives = Arrives(&ready);
        let made = make().and_then(|mut call| call(1).map(|_| call));
        drop(arrives);
        while signal.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        match signal.load(Ordering::Acquire) {
            GO => made?(calls),
            _ => Ok(Duration::ZERO),
        }
    };
    std::thread::scope(|scope| {
        let started: Result<Vec<_>, _> = (0..count).map(|_| Builder::new().spawn_scoped(scope, run)).collect();
        while started.is_ok() && ready.load(Ordering::Acquire) < count {
            std::thread::yield_now();
        }
        signal.store(if started.is_ok() { GO } else { STOP }, Ordering::Release);
        let mut slowest = Duration::ZERO;
        for thread in started? {
            slowest = slowest.max(thread.join().map_err(|_| "a thread of the measurement panicked")??);
        }
        Ok(slowest)
    })
}

/// Counts a thread as arrived at the start, even if it panics.
struct Arrives<'a>(&'a AtomicUsize);

impl Drop for Arrives<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}
