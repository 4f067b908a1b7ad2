//! The session in a process that forks, crashes, ends, or closes libraries.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use millpond_core::op::Place;
use millpond_driver::locks::{Guard, lock};

use super::{PROCESS, SESSION, Session, THREADS, session};
use crate::entry::thunk::{Inside, is_inside};
use crate::sink::Sink;

/// In a forked process: what the parent had is the parent's.
pub(super) fn forget() {
    SESSION.store(std::ptr::null_mut(), Ordering::Release);
    THREADS.store(0, Ordering::Relaxed);
    PROCESS.fetch_add(1, Ordering::Relaxed);
}

/// Code may go, that of the object at this address above all: no return address is known any more.
pub(crate) fn forget_code(base: Option<usize>) {
    let at = SESSION.load(Ordering::Acquire);
    // A thread that is inside may hold the lock, or be the driver's own affair.
    if at.is_null() || is_inside() {
        return;
    }
    // SAFETY: a session is never given back.
    let mut session = lock(unsafe { &*at });
    if session.process == std::process::id() {
        session.places.forget_code(base);
    }
}

/// The session, unless another thread holds it for long: a process may end in the middle of anything.
fn patiently(looks: u32) -> Option<Guard<'static, Session>> {
    let at = SESSION.load(Ordering::Acquire);
    if at.is_null() {
        return None;
    }
    for look in 0..looks {
        if look > 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        // SAFETY: a session is never given back.
        if let Some(session) = unsafe { &*at }.try_lock() {
            return Some(session);
        }
    }
    None
}

/// The process ends.
pub(super) fn finish() {
    let _inside = Inside::enter();
    let Some(mut session) = patiently(200) else { return };
    // What shares the memory of another process (vfork) ends for itself.
    if session.process == std::process::id() {
        // What goes wrong in here is no matter of the program.
        let _ = catch_unwind(AssertUnwindSafe(|| session.finish()));
    }
}

/// Another program is about to take the place of this one.
pub(super) fn leave() {
    if let Some(mut session) = patiently(200)
        && session.process == std::process::id()
        && let Sink::Trace(trace) = &mut session.sink
    {
        trace.leave();
    }
}

/// The process crashes.
pub(super) fn save() {
    if let Some(mut session) = patiently(1)
        && session.process == std::process::id()
        && let Sink::Trace(trace) = &mut session.sink
    {
        trace.save();
    }
}

/// Notes something that no call of the program's is at hand for.
pub(crate) fn note_apart(act: impl FnOnce(&mut Session)) {
    let Some(mut session) = session() else { return };
    let _ = catch_unwind(AssertUnwindSafe(|| {
        session.host = session.this_host();
        (session.place, session.note) = (Place::Unknown, None);
        act(&mut session);
        session.stop_where_numbers_end();
    }));
}
