//! The captures of streams. Memory that is allocated in a capture is a node of the capture's graph, and the driver's.
//!
//! Captures begin and end only while Millpond makes no driver call that must not run at the same time
//! ([`change_capture`]). A stream's capture state is asked only while some capture is known to go on (`capturing`).

use millpond_driver::locks::{Guard, Leaf, Mutex, lock};

use millpond_driver::cuda::change_capture;

use crate::abi::{Code, Context, Stream};
use crate::ask;
use crate::capturing::{self, may_be};
use crate::session::At;

/// The streams that began the captures, with their contexts. Other streams only take part, and may be destroyed before
/// the end.
static ORIGINS: Mutex<Leaf, Vec<(Stream, Context)>> = Mutex::new(Vec::new());

fn origins() -> Guard<'static, Vec<(Stream, Context)>> {
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
    let stream = named(at, stream);
    let of_stream = if stream.0 <= Stream::PER_THREAD.0 { None } else { ask::context_of(stream) };
    let context = of_stream.or_else(ask::current_context).unwrap_or_default();
    capturing::begin();
    let code = change_capture(real);
    match code {
        Code::SUCCESS => origins().push((stream, context)),
        _ => capturing::end(),
    }
    code
}

/// Prepares for the destruction of a stream: a capture that began on it is given up, so that an event can be recorded
/// on it for the last time. A capture that it only takes part in goes on without it.
pub(super) fn give_up(stream: Stream) {
    if may_be() && origins().iter().any(|it| it.0 == stream) && ask::is_capturing(stream) {
        ending(stream, || ask::give_capture_up(stream));
    }
}

/// Ends a capture.
pub(crate) fn end(at: &At, stream: Stream, real: impl Fn() -> Code + Copy) -> Code {
    ending(named(at, stream), real)
}

/// Notes that a context has ended, and its captures with it.
pub(super) fn lose(context: Context) {
    let mut origins = origins();
    let gone = origins.extract_if(.., |origin| origin.1 == context).count();
    drop(origins);
    (0..gone).for_each(|_| capturing::end());
}

fn ending<R>(stream: Stream, end: impl FnOnce() -> R) -> R {
    let was = ask::capture_status(stream) == Some(true);
    let answer = change_capture(end);
    if was && ask::capture_status(stream) == Some(false) {
        origins().retain(|origin| origin.0 != stream);
        capturing::end();
    }
    answer
}
