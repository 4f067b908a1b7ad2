//! A test that hangs is aborted, so that nobody has to wait for it.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Runs a body that must end. Aborts the process if it takes longer than any machine needs.
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
