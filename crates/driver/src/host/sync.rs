//! The primitives that the streams are built of, in one place: `tests/schedules.rs` compiles the streams a second time
//! over a twin of this file, in which a controlled scheduler chooses every interleaving.

use std::sync::PoisonError;
use std::time::Duration;

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
pub(crate) use std::thread::{self, JoinHandle, ThreadId};
pub(crate) use std::thread_local;

/// Locks. No code of a caller runs under a lock of the streams, so a poisoned one holds whole data.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sleeps until notified (or for no reason).
pub(crate) fn sleep<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Sleeps until notified (or for no reason), or for `life`; whether it was for `life`.
pub(crate) fn sleep_for<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    life: Duration,
) -> (MutexGuard<'a, T>, bool) {
    let (guard, timeout) = condvar.wait_timeout(guard, life).unwrap_or_else(PoisonError::into_inner);
    (guard, timeout.timed_out())
}

/// Starts a named thread.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(body)
}
