//! Whether any stream may capture: what is allocated in a capture is a node of its graph, and the driver's.
//!
//! Captures begin and end while no call of Millpond's own is made that they could spoil. A stream is asked only while a
//! capture is known to go on. A count that is too high costs a question for each call; it is never too low: a capture
//! counts until its stream is seen to capture no more. What may not happen while anything captures makes captures that
//! begin meanwhile wait ([`while_none`]).

use millpond_driver::locks::{Guard, Leaf, Mutex, lock};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use millpond_driver::cuda::change_capture;

use crate::abi::{Code, Stream};
use crate::ask;
use crate::session::At;

static GOING_ON: AtomicU32 = AtomicU32::new(0);
/// Calls that captures which begin wait for.
static KEPT_OFF: AtomicU32 = AtomicU32::new(0);
/// The streams that began the captures: others take part, and may go before the end.
static ORIGINS: Mutex<Leaf, Vec<Stream>> = Mutex::new(Vec::new());

/// A capture waits no longer than this for such calls: what those wait for may be work that waits for its thread.
const PATIENCE: Duration = Duration::from_secs(1);

fn origins() -> Guard<'static, Vec<Stream>> {
    lock(&ORIGINS)
}

/// Whether any stream may capture.
#[inline]
pub(super) fn may_be() -> bool {
    GOING_ON.load(Ordering::Acquire) > 0
}

/// Whether a stream captures, or the driver refuses to say so and is to refuse the call itself.
#[inline]
pub(super) fn takes(stream: Stream) -> bool {
    may_be() && ask::capture_status(stream).unwrap_or(true)
}

/// The stream as the driver names it on this thread.
#[inline]
pub(super) fn named(at: &At, stream: Stream) -> Stream {
    match stream {
        Stream(0) if at.per_thread => Stream::PER_THREAD,
        Stream(0) => Stream::LEGACY,
        other => other,
    }
}

/// Does something while nothing captures; none where something does.
pub(super) fn while_none<R>(act: impl FnOnce() -> R) -> Option<R> {
    // Counted before the other count is looked at, and the other way round in `begin`: one of two sees the other.
    KEPT_OFF.fetch_add(1, Ordering::SeqCst);
    let done = (GOING_ON.load(Ordering::SeqCst) == 0).then(act);
    KEPT_OFF.fetch_sub(1, Ordering::SeqCst);
    done
}

/// A capture begins: it counts before it can be seen.
pub(crate) fn begin(at: &At, stream: Stream, real: impl Fn() -> Code + Copy) -> Code {
    GOING_ON.fetch_add(1, Ordering::SeqCst);
    if KEPT_OFF.load(Ordering::SeqCst) > 0 {
        let start = Instant::now();
        while KEPT_OFF.load(Ordering::SeqCst) > 0 && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
    let code = change_capture(real);
    match code {
        Code::SUCCESS => origins().push(named(at, stream)),
        _ => drop(GOING_ON.fetch_sub(1, Ordering::AcqRel)),
    }
    code
}

/// The stream is about to be destroyed: what it began to capture is given up, so that its end can be recorded for the
/// last time. A capture that it only takes part in goes on without it.
pub(super) fn give_up(stream: Stream) {
    if may_be() && origins().contains(&stream) && ask::is_capturing(stream) {
        ending(stream, || ask::give_capture_up(stream));
    }
}

/// A capture ends.
pub(crate) fn end(at: &At, stream: Stream, real: impl Fn() -> Code + Copy) -> Code {
    ending(named(at, stream), real)
}

fn ending<R>(stream: Stream, end: impl FnOnce() -> R) -> R {
    let was = ask::capture_status(stream) == Some(true);
    let answer = change_capture(end);
    if was && ask::capture_status(stream) == Some(false) {
        origins().retain(|origin| *origin != stream);
        // What began before this library was there was not counted.
        let _ = GOING_ON.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| count.checked_sub(1));
    }
    answer
}
