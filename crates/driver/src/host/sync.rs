//! The primitives of the streams, in one place: `tests/schedules.rs` compiles the streams a second time with a twin of
//! this file, in which a controlled scheduler chooses every interleaving.

use std::sync::PoisonError;
use std::time::Duration;

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
pub(crate) use std::thread::{self, JoinHandle, ThreadId};
pub(crate) use std::thread_local;

/// Takes a lock. No code of a caller runs under a lock of the streams, so the data of a poisoned lock is consistent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sleeps until it is notified, or wakes spuriously.
pub(crate) fn sleep<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Sleeps until it is notified or wakes spuriously, at most for `life`. Returns `true` if that time has passed.
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
