//! What hangs ends its test program instead of the patience of who runs it.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Runs a body that must come to its end: the process is aborted where that takes longer than any machine needs.
#[track_caller]
pub(crate) fn ends<R>(body: impl FnOnce() -> R) -> R {
    let (over, watch) = channel::<()>();
    let caller = std::panic::Location::caller();
    let watchdog = std::thread::spawn(move || {
        if watch.recv_timeout(Duration::from_secs(60)) == Err(RecvTimeoutError::Timeout) {
            eprintln!("the test at {caller} hangs");
            std::process::abort();
        }
    });
    let result = body();
    drop(over);
    let _ = watchdog.join();
    result
}
