//! What becomes of the process as a whole: it ends, and it forks. Knows nothing of devices.
//!
//! A forked process has one thread, that which forked: locks that others held are held for ever, threads that served
//! devices are not there, and mappings of shared memory are still the parent's memory. So nothing of the library can be
//! used there, and everything that could wait, or change what is shared, asks [`is_forked`] first. What is hot does
//! not: in the new process the thread has lost the number by which it owns locks, so that every
//! [`BiasedLock`](crate::BiasedLock) lock is taken by its slow way, which asks.

mod forked;

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

pub use forked::{is_forked, refuse_forked};

use crate::Result;
use crate::biased_lock_sync::{can_stop_all, forget_thread_number};

/// A function that the system calls. It must not panic.
pub type Handler = extern "C" fn();

// SAFETY: functions of the C library that every program has, with its types; they keep the handlers they are given.
unsafe extern "C" {
    safe fn atexit(handler: Handler) -> c_int;
    safe fn _exit(status: c_int) -> !;
    safe fn pthread_atfork(before: Option<Handler>, parent: Option<Handler>, child: Option<Handler>) -> c_int;
}

/// A device is about to be opened: refused in a forked process.
///
/// What a lock needs before it can have an owner is asked for here. In a process with threads the system takes
/// milliseconds for it, once, and the first lock that gets an owner does so in an allocation or a free.
pub(crate) fn open_device() -> Result<()> {
    refuse_forked()?;
    // Without it locks have no owners.
    let _ = can_stop_all();
    Ok(())
}

/// Has `handler` called when the process ends by `exit`, or `main` returns. Whether it will be.
pub fn at_exit(handler: Handler) -> bool {
    atexit(handler) == 0
}

/// Tells the threads of the process apart: no number is given twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ThreadNumber(u64);

/// The calling thread's. Unlike [`std::thread::current`] it is there until the thread's very end, also for destructors
/// of the system's own values for threads, which run when those of Rust are gone.
pub fn this_thread() -> ThreadNumber {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local!(static OWN: Cell<u64> = const { Cell::new(0) });
    OWN.with(|own| {
        if own.get() == 0 {
            own.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        ThreadNumber(own.get())
    })
}

/// Held by a thread of a device while it runs work. In a process that the work forked the drop ends that process: what
/// comes next in the thread's queue is the parent's, and the thread is the only one and has nothing to return to.
pub(crate) struct EndsIfForked;

impl Drop for EndsIfForked {
    #[inline]
    fn drop(&mut self) {
        if is_forked() {
            _exit(c_int::from(std::thread::panicking()));
        }
    }
}

/// From now on a process that is forked from this one knows it, and calls the handler before `fork` returns there. Only
/// the first call counts.
pub fn watch_forks(in_child: Handler) {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // Where the system has no room for a handler forked processes are as they were.
        let _ = pthread_atfork(None, None, Some(mark_child));
        let _ = pthread_atfork(None, None, Some(in_child));
    });
}

/// In the new process, before `fork` returns there.
extern "C" fn mark_child() {
    forked::set();
    forget_thread_number();
}
