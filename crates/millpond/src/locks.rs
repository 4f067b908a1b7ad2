//! How the locks of this crate are taken that threads sleep for.
//!
//! Where another thread panicked under a lock, the next one goes on: what these locks hold is whole at every moment. In
//! a forked process the thread that has a lock may not be there: calls that can be refused were refused before, and the
//! others end the process rather than let it wait for ever.

use std::sync::{
    LockResult, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError, TryLockResult,
};
use std::time::Duration;

use millpond_driver::process;

/// A forked process waits so long for a lock that one of its own threads may have.
const FORKED_PATIENCE: Duration = Duration::from_millis(500);

#[inline]
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    taken(mutex.try_lock()).unwrap_or_else(|| wait(|| mutex.try_lock(), || mutex.lock()))
}

#[inline]
pub(crate) fn read<T: ?Sized>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    taken(lock.try_read()).unwrap_or_else(|| wait(|| lock.try_read(), || lock.read()))
}

#[inline]
pub(crate) fn write<T: ?Sized>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    taken(lock.try_write()).unwrap_or_else(|| wait(|| lock.try_write(), || lock.write()))
}

/// The lock, where it is free this moment.
#[inline]
fn taken<G>(outcome: TryLockResult<G>) -> Option<G> {
    match outcome {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Waits for a lock that another thread has.
#[cold]
fn wait<G>(try_lock: impl FnOnce() -> TryLockResult<G>, lock: impl FnOnce() -> LockResult<G>) -> G {
    if process::is_forked() {
        std::thread::sleep(FORKED_PATIENCE);
        return taken(try_lock()).unwrap_or_else(|| {
            eprintln!("millpond: a forked process uses a device of its parent, which was in use when it forked");
            std::process::abort()
        });
    }
    lock().unwrap_or_else(PoisonError::into_inner)
}
