//! The library's own writes: messages to standard error, traces and reports to files.
//!
//! A failed write is only an error of that write: it does not panic (`eprintln!` does if standard error is closed or
//! full), and raises no signal that would end the program. Does not know the content.

use std::fmt::Display;
use std::io;
use std::mem::MaybeUninit;

use rustix::io::Errno;

/// Signals that the system raises for a failed write, besides its error: a pipe without a reader, and a file at its
/// limit (`RLIMIT_FSIZE`).
const RAISED: [libc::c_int; 2] = [libc::SIGPIPE, libc::SIGXFSZ];

/// Writes a line to standard error, in one write if the system accepts that. Text that cannot be written is lost.
///
/// It takes no lock, so that a forked process can write why it ends.
pub fn say(text: impl Display) {
    let line = format!("{text}\n");
    without_signals(|| {
        let mut rest = line.as_bytes();
        while !rest.is_empty() {
            match rustix::io::write(io::stderr(), rest) {
                Ok(written) if written > 0 => rest = &rest[written..],
                Err(Errno::INTR) => {}
                _ => return,
            }
        }
    });
}

/// Calls a function that writes. A pipe without a reader and a file at its limit are errors of the write; their signals
/// do not reach the program. It allocates no memory and may be called in a signal handler.
pub fn without_signals<R>(write: impl FnOnce() -> R) -> R {
    let raised = set(&RAISED);
    let before = pending();
    let mask = change_mask(libc::SIG_BLOCK, &raised);
    let written = write();
    let after = pending();
    // Signals that were pending before belong to the program.
    for signal in RAISED.into_iter().filter(|signal| has(&after, *signal) && !has(&before, *signal)) {
        take_pending(&set(&[signal]));
    }
    change_mask(libc::SIG_SETMASK, &mask);
    written
}

fn set(signals: &[libc::c_int]) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the place is valid for a set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for signal in signals {
        // SAFETY: the set was made empty.
        unsafe { libc::sigaddset(set.as_mut_ptr(), *signal) };
    }
    // SAFETY: it was made empty, and then changed by the system's own functions.
    unsafe { set.assume_init() }
}

fn has(set: &libc::sigset_t, signal: libc::c_int) -> bool {
    // SAFETY: the set is valid.
    unsafe { libc::sigismember(set, signal) == 1 }
}

/// Returns the signals that are pending for the calling thread.
fn pending() -> libc::sigset_t {
    let mut pending = set(&[]);
    // SAFETY: the place is valid for the answer.
    unsafe { libc::sigpending(&raw mut pending) };
    pending
}

/// Changes the signal mask of the calling thread, and returns the previous one.
fn change_mask(how: libc::c_int, by: &libc::sigset_t) -> libc::sigset_t {
    let mut before = set(&[]);
    // SAFETY: both are valid: a set, and a place for the answer.
    unsafe { libc::pthread_sigmask(how, by, &raw mut before) };
    before
}

/// Removes a signal that is pending for the calling thread.
fn take_pending(signals: &libc::sigset_t) {
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both are valid: a set and a time; no information about the signal is requested.
    unsafe { libc::sigtimedwait(signals, std::ptr::null_mut(), &raw const at_once) };
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use super::{has, pending, set, take_pending, without_signals};

    /// By default the signal ends the process. Rust's runtime ignores the signal at start; the test restores that
    /// setting.
    #[test]
    fn a_pipe_without_a_reader_is_an_error() {
        // SAFETY: the disposition of C programs, restored below; no other test of this binary depends on it.
        let former = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let (reader, mut writer) = std::io::pipe().unwrap();
        drop(reader);
        let error = without_signals(|| writer.write_all(b"x")).unwrap_err();
        // SAFETY: the former disposition.
        unsafe { libc::signal(libc::SIGPIPE, former) };
        assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
        assert!(!has(&pending(), libc::SIGPIPE));
    }

    #[test]
    fn a_signal_that_waits_for_the_program_still_does() {
        let limit = set(&[libc::SIGXFSZ]);
        let mask = super::change_mask(libc::SIG_BLOCK, &limit);
        // SAFETY: a signal to this thread, which blocks it.
        unsafe { libc::raise(libc::SIGXFSZ) };
        let _ = without_signals(|| File::open("/dev/null"));
        assert!(has(&pending(), libc::SIGXFSZ));
        take_pending(&limit);
        super::change_mask(libc::SIG_SETMASK, &mask);
    }
}
