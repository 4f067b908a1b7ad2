//! How a process ends: by `exit`, by `_exit`, by a signal; and how it forks.
//!
//! Handlers of fatal signals are put only where the program has none. They write what a trace still lacks, by a lock
//! that is only tried and without taking memory, and let the signal do what it would have done.

use std::ffi::c_int;
use std::sync::{Once, OnceLock};

/// Signals that end a process that does not handle them, and that leave it time to.
const FATAL: [c_int; 8] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT, libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

/// What is done at the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    /// The process ends.
    pub(crate) finish: fn(),
    /// This is a forked process.
    pub(crate) forget: fn(),
    /// The process crashes; none where that changes nothing.
    pub(crate) save: Option<fn()>,
}

/// Who wants to know.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Who {
    /// What notes operations.
    Noting,
    /// What serves memory.
    Serving,
}

/// By who wants to know.
static ENDS: [OnceLock<End>; 2] = [const { OnceLock::new() }; 2];

fn end(act: impl FnMut(&End)) {
    ENDS.iter().filter_map(OnceLock::get).for_each(act);
}

// SAFETY: a function of the C library that every program has; it keeps the handler that it is given.
unsafe extern "C" {
    safe fn atexit(handler: extern "C" fn()) -> c_int;
}

extern "C" fn at_exit() {
    end(|end| (end.finish)());
}

extern "C" fn in_child() {
    end(|end| (end.forget)());
}

extern "C" fn at_signal(signal: c_int, info: *mut libc::siginfo_t, _context: *mut std::ffi::c_void) {
    end(|end| end.save.into_iter().for_each(|save| save()));
    // SAFETY: what the system hands over.
    let is_fault = unsafe { info.as_ref() }.is_some_and(|info| info.si_code > 0) && signal != libc::SIGABRT;
    if !is_fault || signal == libc::SIGTERM || signal == libc::SIGINT || signal == libc::SIGHUP {
        // The handler is gone by now, so that it ends the process; a fault comes again by itself.
        // SAFETY: a number of a signal.
        unsafe { libc::raise(signal) };
    }
}

/// From now on the end of the process and forks call these functions.
pub(crate) fn watch(who: Who, functions: End) {
    static WATCHED: Once = Once::new();
    // A forked process sets them again, to the same ones.
    let _ = ENDS[who as usize].set(functions);
    WATCHED.call_once(|| {
        // Where the system has no room for a handler the end of the trace is lost, as in a crash.
        let _ = atexit(at_exit);
        // SAFETY: a handler that takes nothing.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
    if functions.save.is_some() {
        FATAL.into_iter().for_each(watch_signal);
    }
}

fn watch_signal(signal: c_int) {
    // SAFETY: a structure of numbers, for which 0 is a value.
    let mut known: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a place for the answer.
    let answer = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut known) };
    if answer != 0 || known.sa_sigaction != libc::SIG_DFL {
        return;
    }
    // SAFETY: as above.
    let mut new: libc::sigaction = unsafe { std::mem::zeroed() };
    new.sa_sigaction = at_signal as *const () as usize;
    new.sa_flags = libc::SA_SIGINFO | libc::SA_RESETHAND | libc::SA_NODEFER | libc::SA_ONSTACK;
    // SAFETY: a handler of that kind.
    unsafe { libc::sigaction(signal, &raw const new, std::ptr::null_mut()) };
}

/// Programs that end so run no handler: their traces are written to the end all the same.
#[cfg(not(test))]
mod exits {
    use super::c_int;

    fn end(status: c_int) -> ! {
        super::end(|end| (end.finish)());
        // SAFETY: it ends the process.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
        std::process::abort()
    }

    #[unsafe(no_mangle)]
    extern "C" fn _exit(status: c_int) -> ! {
        end(status)
    }

    #[unsafe(no_mangle)]
    extern "C" fn _Exit(status: c_int) -> ! {
        end(status)
    }
}
