//! Calls that CUDA does not keep apart itself.
//!
//! A call on the legacy stream, and one that synchronises the context, asks every blocking stream whether it captures.
//! Where another thread begins or ends a capture meanwhile, the driver library reads freed memory and the process ends
//! (R580, CUDA 13.0; a C program of such calls does too). So the one kind of call excludes the other (`legacy-apart`).
//! What the program calls itself is not seen here. A call that blocks delays captures until it is done: one on a legacy
//! stream whose queue is full, and a synchronisation of the context where its work cannot be marked instead.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// One for the process, for several drivers may be of one context.
static CAPTURES: RwLock<()> = RwLock::new(());

/// While this lives no capture begins or ends.
#[derive(Debug)]
pub(super) struct LegacyCall {
    _shared: RwLockReadGuard<'static, ()>,
}

/// While this lives nothing is called on the legacy stream, and no context is synchronised.
#[derive(Debug)]
pub(super) struct CaptureCall {
    _alone: RwLockWriteGuard<'static, ()>,
}

/// For a call on the legacy stream, or one that synchronises the context.
pub(super) fn legacy_call() -> LegacyCall {
    LegacyCall { _shared: CAPTURES.read().unwrap_or_else(PoisonError::into_inner) }
}

/// For a call that begins or ends a capture.
pub(super) fn capture_call() -> CaptureCall {
    CaptureCall { _alone: CAPTURES.write().unwrap_or_else(PoisonError::into_inner) }
}
