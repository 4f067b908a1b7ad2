//! Tracks whether any stream may be capturing, for calls that must not happen during a capture.
//!
//! The count of captures may be too high, which costs a query for each call. It is never too low: a capture counts
//! before it begins, and until its stream is seen not to capture any more. An action that must not happen during a
//! capture makes new captures wait ([`while_none`]).

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

static GOING_ON: AtomicU32 = AtomicU32::new(0);
/// The calls in progress that new captures wait for.
static KEPT_OFF: AtomicU32 = AtomicU32::new(0);

/// The longest time that a new capture waits for such calls: they may themselves wait for work that waits for this
/// thread.
const PATIENCE: Duration = Duration::from_secs(1);

/// Returns `true` if any stream may be capturing.
#[inline]
pub(crate) fn may_be() -> bool {
    GOING_ON.load(Ordering::Acquire) > 0
}

/// Runs `act` while nothing captures; returns `None` if something does.
pub(crate) fn while_none<R>(act: impl FnOnce() -> R) -> Option<R> {
    // This count is raised before the other one is read, and `begin` does it the other way round: at least one side
    // sees the other.
    KEPT_OFF.fetch_add(1, Ordering::SeqCst);
    let done = (GOING_ON.load(Ordering::SeqCst) == 0).then(act);
    KEPT_OFF.fetch_sub(1, Ordering::SeqCst);
    done
}

/// Counts a capture that is about to begin, and waits for calls that must not happen during it.
pub(crate) fn begin() {
    GOING_ON.fetch_add(1, Ordering::SeqCst);
    if KEPT_OFF.load(Ordering::SeqCst) > 0 {
        let start = Instant::now();
        while KEPT_OFF.load(Ordering::SeqCst) > 0 && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// Counts a capture no longer: it has ended, or has not begun.
pub(crate) fn end() {
    // A capture that began before this library was loaded was not counted.
    let _ = GOING_ON.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| count.checked_sub(1));
}
