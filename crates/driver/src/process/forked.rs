//! The mark of a process that was forked from one that used the library.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::{DriverError, Result};

static IS_FORKED: AtomicBool = AtomicBool::new(false);

/// Marks this process as forked.
pub(super) fn set() {
    IS_FORKED.store(true, Ordering::Relaxed);
}

/// Returns `true` if this process was forked from one that used the library.
#[inline]
pub fn is_forked() -> bool {
    IS_FORKED.load(Ordering::Relaxed)
}

/// Returns an error if the process was forked from one that used the library.
///
/// # Errors
/// [`DriverError::Lost`], with this reason.
#[inline]
pub fn refuse_forked() -> Result<()> {
    if is_forked() { Err(forked()) } else { Ok(()) }
}

#[cold]
fn forked() -> DriverError {
    let reason = "this process was forked from the one that opened it, and it stays with that: use no device after a \
                  fork, or exec a program that opens its own";
    DriverError::Lost { reason: reason.into() }
}
