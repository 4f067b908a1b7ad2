//! Calls that CUDA does not keep apart itself.
//!
//! A call on the legacy default stream, and one that synchronises the context, asks every blocking stream whether it
//! captures. Where another thread begins or ends a capture meanwhile, the driver library reads freed memory and the
//! process ends (R580, CUDA 13.0; a C program of such calls does too). So the one kind of call excludes the other
//! (`legacy-apart`). A call on a stream of the program's asks first whether that captures: it excludes the other kind,
//! too, so that the answer holds until the call is made. What the program calls itself is seen only where it comes by
//! way of [`change_capture`]. A call that blocks delays captures until it is done: one on a stream whose queue is full,
//! and a synchronisation of the context where its work cannot be marked instead.

use crate::locks::{self, ReadGuard, RwLock, WriteGuard, read, write};

/// One for the process, for several drivers may be of one context.
static CAPTURES: RwLock<locks::CudaCaptures, ()> = RwLock::new(());

/// While this lives no capture begins or ends.
#[derive(Debug)]
pub(super) struct LegacyCall {
    _shared: ReadGuard<'static, ()>,
}

/// While this lives nothing is called on the legacy default stream, and no context is synchronised.
#[derive(Debug)]
pub(super) struct CaptureCall {
    _alone: WriteGuard<'static, ()>,
}

/// For a call on the legacy default stream or a stream of the program's, or one that synchronises the context.
pub(super) fn legacy_call() -> LegacyCall {
    LegacyCall { _shared: read(&CAPTURES) }
}

/// For a call that begins or ends a capture.
pub(super) fn capture_call() -> CaptureCall {
    CaptureCall { _alone: write(&CAPTURES) }
}

/// Makes a call of the program's that begins or ends a capture, apart from all calls of this driver that it could spoil
/// or be spoilt by. It must not come from inside a call of this driver.
pub fn change_capture<R>(call: impl FnOnce() -> R) -> R {
    let _apart = capture_call();
    call()
}
