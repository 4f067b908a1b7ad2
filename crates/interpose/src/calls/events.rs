//! Events: made, recorded, waited for by the host.

use std::ffi::c_uint;

use millpond_core::op::{Mark, What};

use super::read;
use crate::abi::{Code, EXTERNAL, Event, Stream};
use crate::session::At;

/// `CU_EVENT_INTERPROCESS`
const SHARED: c_uint = 4;

/// `cuEventCreate`
pub(crate) unsafe fn create(at: &At, real: impl FnOnce() -> Code, event: *mut Event, flags: c_uint) -> Code {
    at.done(real(), |session| {
        // SAFETY: the caller's place, which was written.
        if let Some(event) = unsafe { read(event) } {
            session.add_event(event, flags & SHARED != 0);
        }
    })
}

/// `cuEventDestroy`: noted before, for the handle may be given out again at once.
pub(crate) unsafe fn destroy(at: &At, real: impl FnOnce() -> Code, event: Event) -> Code {
    at.note(|session| {
        if let Some(event) = session.handles.end_event(event) {
            session.push(What::EventDestroy { event });
        }
    });
    real()
}

/// `cuEventRecord`
pub(crate) unsafe fn record(at: &At, real: impl FnOnce() -> Code, event: Event, stream: Stream) -> Code {
    // SAFETY: the caller's arguments.
    unsafe { record_with_flags(at, real, event, stream, 0) }
}

/// `cuEventRecordWithFlags`
pub(crate) unsafe fn record_with_flags(
    at: &At,
    real: impl FnOnce() -> Code,
    event: Event,
    stream: Stream,
    flags: c_uint,
) -> Code {
    at.done(real(), |session| {
        if session.is_lost(stream) {
            return;
        }
        let (stream, event) = (session.stream(at, stream), session.event(event));
        let external = flags & EXTERNAL != 0;
        session.push(What::EventRecord { event, stream, external, mark: Mark::Completion });
    })
}

/// `cuEventQuery`
pub(crate) unsafe fn query(at: &At, real: impl FnOnce() -> Code, event: Event) -> Code {
    at.done(real(), |session| {
        let event = session.event(event);
        session.push(What::EventQuery { event, is_over: true });
    })
}

/// `cuEventSynchronize`
pub(crate) unsafe fn synchronize(at: &At, real: impl FnOnce() -> Code, event: Event) -> Code {
    at.done(real(), |session| {
        let event = session.event(event);
        session.push(What::EventSynchronize { event });
    })
}

/// `cuEventElapsedTime`: it answers only where both have completed.
pub(crate) unsafe fn elapsed(
    at: &At,
    real: impl FnOnce() -> Code,
    _time: *mut f32,
    first: Event,
    second: Event,
) -> Code {
    at.done(real(), |session| {
        for event in [first, second] {
            let event = session.event(event);
            session.push(What::EventQuery { event, is_over: true });
        }
    })
}
