//! Tracks whether any stream may be capturing. Memory that is allocated in a capture is a node of the capture's graph,
//! and the driver's.
//!
//! Captures begin and end only while Millpond makes no driver call that must not run at the same time
//! ([`change_capture`]). A stream's capture state is asked only while some capture is known to go on. The count of
//! captures may be too high, which costs a query for each call. It is never too low: a capture counts until its stream
//! is seen not to capture any more. An action that must not happen during a capture makes new captures wait
//! ([`while_none`]).

use millpond_driver::locks::{Guard, Leaf, Mutex, lock};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use millpond_driver::cuda::change_capture;

use crate::abi::{Code, Stream};
use crate::ask;
use crate::limit;
use crate::session::At;

static GOING_ON: AtomicU32 = AtomicU32::new(0);
/// The calls in progress that new captures wait for.
static KEPT_OFF: AtomicU32 = AtomicU32::new(0);
/// The streams that began the captures. Other streams only take part, and may be destroyed before the end.
static ORIGINS: Mutex<Leaf, Vec<Stream>> = Mutex::new(Vec::new());

/// The longest time that a new capture waits for such calls: they may themselves wait for work that waits for this
/// thread.
const PATIENCE: Duration = Duration::from_secs(1);

fn origins() -> Guard<'static, Vec<Stream>> {
    lock(&ORIGINS)
}

/// Returns `true` if any stream may be capturing.
#[inline]
pub(super) fn may_be() -> bool {
    GOING_ON.load(Ordering::Acquire) > 0
}

/// Returns `true` if a stream captures, or if the driver does not say: the driver then has to refuse the call itself.
#[inline]
pub(super) fn takes(stream: Stream) -> bool {
    may_be() && ask::capture_status(stream).unwrap_or(true)
}

/// Returns the handle by which the driver names the stream on this thread.
#[inline]
pub(super) fn named(at: &At, stream: Stream) -> Stream {
    match stream {
        Stream(0) if at.per_thread => Stream::PER_THREAD,
        Stream(0) => Stream::LEGACY,
        other => other,
    }
}

/// Runs `act` while nothing captures; returns `None` if something does.
pub(super) fn while_none<R>(act: impl FnOnce() -> R) -> Option<R> {
    // This count is raised before the other one is read, and `begin` does it the other way round: at least one side
    // sees the other.
    KEPT_OFF.fetch_add(1, Ordering::SeqCst);
    let done = (GOING_ON.load(Ordering::SeqCst) == 0).then(act);
    KEPT_OFF.fetch_sub(1, Ordering::SeqCst);
    done
}

/// Begins a capture. It is counted before it can be seen.
pub(crate) fn begin(at: &At, stream: Stream, real: impl Fn() -> Code + Copy) -> Code {
    GOING_ON.fetch_add(1, Ordering::SeqCst);
    if KEPT_OFF.load(Ordering::SeqCst) > 0 {
        let start = Instant::now();
        while KEPT_OFF.load(Ordering::SeqCst) > 0 && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    limit::set_capturing(true);
    let code = change_capture(real);
    match code {
        Code::SUCCESS => origins().push(named(at, stream)),
        _ => drop(GOING_ON.fetch_sub(1, Ordering::AcqRel)),
    }
    limit::set_capturing(may_be());
    code
}

/// Prepares for the destruction of a stream: a capture that began on it is given up, so that an event can be recorded
/// on it for the last time. A capture that it only takes part in goes on without it.
pub(super) fn give_up(stream: Stream) {
    if may_be() && origins().contains(&stream) && ask::is_capturing(stream) {
        ending(stream, || ask::give_capture_up(stream));
    }
}

/// Ends a capture.
pub(crate) fn end(at: &At, stream: Stream, real: impl Fn() -> Code + Copy) -> Code {
    ending(named(at, stream), real)
}

fn ending<R>(stream: Stream, end: impl FnOnce() -> R) -> R {
    let was = ask::capture_status(stream) == Some(true);
    let answer = change_capture(end);
    if was && ask::capture_status(stream) == Some(false) {
        origins().retain(|origin| *origin != stream);
        // A capture that began before this library was loaded was not counted.
        let _ = GOING_ON.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| count.checked_sub(1));
    }
    limit::set_capturing(may_be());
    answer
}
