//! What is said: to standard error at once, and to the command that started the program, by a file for each process.
//!
//! The command reads those files when the program has ended, and sums them up. Nothing here writes to standard output.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::sync::OnceLock;

/// Says something on standard error, in one piece. A pipe without a reader is no signal to the program.
pub(crate) fn say(text: &str) {
    without_pipe_signal(|| write(text));
}

/// Does something during which a broken pipe is an error and no signal.
#[expect(clippy::multiple_unsafe_ops_per_block, reason = "places of one function are handed over, for one reason")]
fn without_pipe_signal(act: impl FnOnce()) {
    // SAFETY: structures of numbers, for which 0 is a value.
    let (mut pipe, mut before, mut pending): (libc::sigset_t, libc::sigset_t, libc::sigset_t) =
        unsafe { std::mem::zeroed() };
    // SAFETY: places of this function.
    let is_pending = unsafe {
        libc::sigemptyset(&raw mut pipe);
        libc::sigaddset(&raw mut pipe, libc::SIGPIPE);
        libc::sigpending(&raw mut pending);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const pipe, &raw mut before);
        libc::sigismember(&raw const pending, libc::SIGPIPE) == 1
    };
    act();
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: as above. What came by the write is taken back; what was there before stays.
    unsafe {
        if !is_pending {
            libc::sigtimedwait(&raw const pipe, std::ptr::null_mut(), &raw const at_once);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
    }
}

fn write(text: &str) {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        // SAFETY: bytes that live long enough; an error ends it.
        let written = unsafe { libc::write(libc::STDERR_FILENO, rest.as_ptr().cast(), rest.len()) };
        match usize::try_from(written) {
            Ok(written) if written > 0 => rest = &rest[written..],
            _ => return,
        }
    }
}

/// The folder for reports, if the command waits for any.
fn folder() -> Option<&'static OsString> {
    static FOLDER: OnceLock<Option<OsString>> = OnceLock::new();
    FOLDER.get_or_init(|| std::env::var_os("MILLPOND_INTERPOSE_REPORT")).as_ref()
}

/// Adds lines to the report of this process.
pub(crate) fn add(lines: &str) {
    let Some(folder) = folder() else { return };
    let path = std::path::Path::new(folder).join(std::process::id().to_string());
    // A command that is gone wants no report.
    if let Ok(mut file) = File::options().append(true).create(true).open(path) {
        let _ = file.write_all(lines.as_bytes());
    }
}
