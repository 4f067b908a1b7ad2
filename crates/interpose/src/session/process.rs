//! The session when the process forks, crashes, ends, or closes libraries.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use millpond_core::op::Place;
use millpond_driver::locks::{Guard, lock};

use super::{PROCESS, SESSION, Session, THREADS, session};
use crate::entry::thunk::{Inside, is_inside};
use crate::place::Places;
use crate::sink::Sink;

/// Starts anew in a forked process: the parent's session stays the parent's.
pub(super) fn forget() {
    SESSION.store(std::ptr::null_mut(), Ordering::Release);
    THREADS.store(0, Ordering::Relaxed);
    PROCESS.fetch_add(1, Ordering::Relaxed);
}

/// Lets `forget` forget return addresses, because code may be unloaded.
pub(crate) fn forget_code(forget: impl FnOnce(&mut Places)) {
    let at = SESSION.load(Ordering::Acquire);
    // A thread inside a wrapper may hold the lock, or may be running the driver's own code.
    if at.is_null() || is_inside() {
        return;
    }
    // SAFETY: a session is never freed.
    let mut session = lock(unsafe { &*at });
    if session.process == std::process::id() {
        forget(&mut session.places);
    }
}

/// Returns the session, unless another thread holds it for too long: a process may end at any point.
fn patiently(looks: u32) -> Option<Guard<'static, Session>> {
    let at = SESSION.load(Ordering::Acquire);
    if at.is_null() {
        return None;
    }
    for look in 0..looks {
        if look > 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        // SAFETY: a session is never freed.
        if let Some(session) = unsafe { &*at }.try_lock() {
            return Some(session);
        }
    }
    None
}

/// Finishes the session when the process ends.
pub(super) fn finish() {
    let _inside = Inside::enter();
    let Some(mut session) = patiently(200) else { return };
    // A process that shares this one's memory (vfork) ends for itself.
    if session.process == std::process::id() {
        // A panic in here does not reach the program.
        let _ = catch_unwind(AssertUnwindSafe(|| session.finish()));
    }
}

/// Writes the trace before another program replaces this one.
pub(super) fn leave() {
    if let Some(mut session) = patiently(200)
        && session.process == std::process::id()
        && let Sink::Trace(trace) = &mut session.sink
    {
        trace.leave();
    }
}

/// Writes the trace when the process crashes.
pub(super) fn save() {
    if let Some(mut session) = patiently(1)
        && session.process == std::process::id()
        && let Sink::Trace(trace) = &mut session.sink
    {
        trace.save();
    }
}

/// Notes something outside of any call of the program.
pub(crate) fn note_apart(act: impl FnOnce(&mut Session)) {
    let Some(mut session) = session() else { return };
    let _ = catch_unwind(AssertUnwindSafe(|| {
        session.host = session.this_host();
        (session.place, session.note) = (Place::Unknown, None);
        act(&mut session);
        session.stop_where_numbers_end();
    }));
}
