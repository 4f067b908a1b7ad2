//! The end of the process, and its forks. Knows nothing of devices.
//!
//! A forked process has one thread, the one that forked. Locks that other threads held are held for ever, the threads
//! of devices do not exist, and mappings of shared memory are still the parent's memory. So the library cannot be used
//! there, and all code that could wait, or change shared memory, calls [`is_forked`] first. Hot code does not call it:
//! in the new process the thread has lost the number by which it owns locks, so that every
//! [`BiasedLock`](crate::BiasedLock) is taken on its slow path, which calls [`is_forked`].

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

// SAFETY: functions of the C library, which every program has, with their types; they keep the handlers that they are
// given.
unsafe extern "C" {
    safe fn atexit(handler: Handler) -> c_int;
    safe fn _exit(status: c_int) -> !;
    safe fn pthread_atfork(before: Option<Handler>, parent: Option<Handler>, child: Option<Handler>) -> c_int;
}

/// Called before a device is opened: refuses in a forked process.
///
/// It also registers for `membarrier`, which locks need before they can have an owner. In a process with threads the
/// system takes milliseconds for this, once. Otherwise the first lock that gets an owner would do it, in an allocation
/// or a free.
pub(crate) fn open_device() -> Result<()> {
    refuse_forked()?;
    // Without it locks have no owners.
    let _ = can_stop_all();
    Ok(())
}

/// Registers `handler`, which is called when the process ends by `exit` or `main` returns. Returns `false` if the
/// system refuses.
pub fn at_exit(handler: Handler) -> bool {
    atexit(handler) == 0
}

/// A number that distinguishes the threads of the process; it is never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ThreadNumber(u64);

/// Returns the calling thread's number. Unlike [`std::thread::current`], it works until the very end of the thread,
/// also in destructors of the system's own thread-specific values, which run after those of Rust.
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

/// Held by a thread of a device while it runs work. If the work forked, the drop ends the new process: the next items
/// in the thread's queue belong to the parent, and the thread is the only one and has no caller to return to.
pub(crate) struct EndsIfForked;

impl Drop for EndsIfForked {
    #[inline]
    fn drop(&mut self) {
        if is_forked() {
            _exit(c_int::from(std::thread::panicking()));
        }
    }
}

/// Marks processes that are forked from this one from now on as forked, and calls the handler there before `fork`
/// returns. Only the first call has an effect.
pub fn watch_forks(in_child: Handler) {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // If the system has no room for a handler, forked processes are not marked.
        let _ = pthread_atfork(None, None, Some(mark_child));
        let _ = pthread_atfork(None, None, Some(in_child));
    });
}

/// Runs in the new process, before `fork` returns there.
extern "C" fn mark_child() {
    forked::set();
    forget_thread_number();
}
