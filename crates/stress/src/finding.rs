//! Findings: a finding is printed and ends the process. The parent process shrinks the program.

use std::io::Write;
use std::panic::PanicHookInfo;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The exit status of a process with a finding.
pub const FOUND: i32 = 10;

/// The message of kernels that panic on purpose.
pub const MEANT: &str = "a kernel that is meant to panic";

/// Prints a finding and ends the process.
pub fn finding(what: &str) -> ! {
    let _ = writeln!(std::io::stderr().lock(), "finding: {what}");
    std::process::exit(FOUND)
}

/// Makes every panic a finding, except those of kernels that panic on purpose.
pub fn watch_panics() {
    std::panic::set_hook(Box::new(|panic: &PanicHookInfo<'_>| {
        if panic.payload().downcast_ref::<&str>() != Some(&MEANT) {
            let trace = std::backtrace::Backtrace::force_capture();
            finding(&format!("{panic}\n{trace}"));
        }
    }));
}

/// Locks a mutex. It is never poisoned, because a thread that panics ends the process.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
