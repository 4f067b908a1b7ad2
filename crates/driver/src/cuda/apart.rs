//! Calls that must not run at the same time, and that CUDA does not exclude itself.
//!
//! A call on the legacy default stream, and a synchronisation of the context, check every blocking stream for a
//! capture. If another thread begins or ends a capture at the same time, the driver library reads freed memory and the
//! process crashes (R580, CUDA 13.0; a C program of such calls crashes too). So these calls exclude those that begin or
//! end a capture (`legacy-apart`). A call on a stream of the program's excludes them as well: it first checks whether
//! the stream captures, and the answer must hold until the call is made. Captures that the program begins itself are
//! excluded only if they use [`change_capture`]. A call that blocks delays captures: one on a stream whose queue is
//! full, and a synchronisation of the context if the library has no `cuCtxRecordEvent`.

use crate::locks::{self, ReadGuard, RwLock, WriteGuard, read, write};

/// One lock for the process, because several drivers may use one context.
static CAPTURES: RwLock<locks::CudaCaptures, ()> = RwLock::new(());

/// While this exists, no capture begins or ends.
#[derive(Debug)]
pub(super) struct LegacyCall {
    _shared: ReadGuard<'static, ()>,
}

/// While this exists, no call on the legacy default stream and no synchronisation of a context runs.
#[derive(Debug)]
pub(super) struct CaptureCall {
    _alone: WriteGuard<'static, ()>,
}

/// Locks for a call on the legacy default stream or on a stream of the program's, or one that synchronises the context.
pub(super) fn legacy_call() -> LegacyCall {
    LegacyCall { _shared: read(&CAPTURES) }
}

/// Locks for a call that begins or ends a capture.
pub(super) fn capture_call() -> CaptureCall {
    CaptureCall { _alone: write(&CAPTURES) }
}

/// Makes a call of the program's that begins or ends a capture, while this driver runs no call that excludes it. It
/// must not be called from inside a call of this driver.
pub fn change_capture<R>(call: impl FnOnce() -> R) -> R {
    let _apart = capture_call();
    call()
}
