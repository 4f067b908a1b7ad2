//! What the caller's handles and pointers name, and what is kept with each. No call of `millpond.h` is here.

use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) mod alloc_nodes;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod graph;
pub(crate) mod handle;
pub(crate) mod pointers;
pub(crate) mod pool;
pub(crate) mod stream;

/// Locks a mutex of this crate; what these locks hold is whole at every moment.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
