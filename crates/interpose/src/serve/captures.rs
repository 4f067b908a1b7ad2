//! The captures of streams. Memory that is allocated in a capture is a node of the capture's graph, and the driver's.
//!
//! Captures begin and end only while Millpond makes no driver call that must not run at the same time
//! ([`change_capture`]). A stream's capture state is asked only while some capture is known to go on (`capturing`).

use millpond_driver::locks::{Guard, Leaf, Mutex, lock};

use millpond_driver::cuda::change_capture;

use crate::abi::{Code, Stream};
use crate::ask;
use crate::capturing::{self, may_be};
use crate::session::At;

/// The streams that began the captures. Other streams only take part, and may be destroyed before the end.
static ORIGINS: Mutex<Leaf, Vec<Stream>> = Mutex::new(Vec::new());

fn origins() -> Guard<'static, Vec<Stream>> {
    lock(&ORIGINS)
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

/// Begins a capture. It is counted before it can be seen.
pub(crate) fn begin(at: &At, stream: Stream, real: impl Fn() -> Code + Copy) -> Code {
    capturing::begin();
    let code = change_capture(real);
    match code {
        Code::SUCCESS => origins().push(named(at, stream)),
        _ => capturing::end(),
    }
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
        capturing::end();
    }
    answer
}
