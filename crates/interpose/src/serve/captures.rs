//! Whether any stream may capture: what is allocated in a capture is a node of its graph, and the driver's.
//!
//! Captures begin and end while no call of Millpond's own is made that they could spoil. A stream is asked only while a
//! capture is known to go on. A count that is too high costs a question for each call; it is never too low: a capture
//! counts until its stream is seen to capture no more.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use millpond_driver::cuda::change_capture;

use crate::abi::{Code, Graph, GraphNode, Stream};
use crate::ask;
use crate::session::At;

static GOING_ON: AtomicU32 = AtomicU32::new(0);

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

/// It counts before it can be seen.
fn beginning(real: impl Fn() -> Code + Copy) -> Code {
    GOING_ON.fetch_add(1, Ordering::AcqRel);
    let code = change_capture(real);
    if code != Code::SUCCESS {
        GOING_ON.fetch_sub(1, Ordering::AcqRel);
    }
    code
}

/// `cuStreamBeginCapture`, as it was before it had modes.
pub(crate) unsafe fn begin_global(_at: &At, real: impl Fn() -> Code + Copy, _stream: Stream) -> Code {
    beginning(real)
}

/// `cuStreamBeginCapture`
pub(crate) unsafe fn begin(_at: &At, real: impl Fn() -> Code + Copy, _stream: Stream, _mode: c_int) -> Code {
    beginning(real)
}

/// `cuStreamBeginCaptureToGraph`
pub(crate) unsafe fn begin_to_graph(
    _at: &At,
    real: impl Fn() -> Code + Copy,
    _stream: Stream,
    _graph: Graph,
    _after: *const GraphNode,
    _edges: *const c_void,
    _count: usize,
    _mode: c_int,
) -> Code {
    beginning(real)
}

/// `cuStreamEndCapture`
pub(crate) unsafe fn end(at: &At, real: impl Fn() -> Code + Copy, stream: Stream, _graph: *mut Graph) -> Code {
    ending(named(at, stream), real)
}

/// The stream is about to be destroyed: what it captures is given up, so that it can be marked for the last time.
pub(super) fn give_up(stream: Stream) {
    if may_be() && ask::is_capturing(stream) {
        ending(stream, || ask::give_capture_up(stream));
    }
}

fn ending<R>(stream: Stream, end: impl FnOnce() -> R) -> R {
    let was = ask::capture_status(stream) == Some(true);
    let answer = change_capture(end);
    if was && ask::capture_status(stream) == Some(false) {
        // What began before this library was there was not counted.
        let _ = GOING_ON.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| count.checked_sub(1));
    }
    answer
}
