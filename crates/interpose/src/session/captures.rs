//! Open captures: the stream that began each, the graph that it makes, and the memory allocated in it.

use millpond_core::ids::{GraphId, StreamId};
use millpond_core::op::{CaptureMode, Memory, What};

use rustc_hash::FxHashSet;

use super::{At, Session};
use crate::abi::Stream;
use crate::ask;
use crate::index::Entry;

/// The number of void addresses that are remembered.
const VOID: usize = 1 << 16;

/// An open capture.
#[derive(Debug)]
pub(crate) struct Capture {
    /// The driver's number of the capture.
    pub(crate) number: Option<u64>,
    /// The graph that it makes; `None` if it captures into an existing graph.
    pub(crate) graph: Option<GraphId>,
    /// `true` once a call has made it impossible for operations to follow it.
    pub(crate) is_lost: bool,
    /// The memory that was allocated in it.
    pub(crate) memory: Vec<Memory>,
    /// As in [`Outside`](crate::handles::Outside).
    pub(crate) pointed_at: FxHashSet<Memory>,
}

impl Session {
    /// Returns a capture that begins in the current call.
    pub(crate) fn new_capture(number: Option<u64>) -> Capture {
        Capture { number, graph: None, is_lost: false, memory: Vec::new(), pointed_at: FxHashSet::default() }
    }

    /// Hands on an operation that the driver has accepted: then no capture forbids it, whatever is known of the capture
    /// modes. A capture may have begun while the call waited.
    #[cold]
    pub(super) fn push_while_capturing(&mut self, what: What) {
        let host = self.host;
        if what.unsafe_call().is_some() || matches!(what, What::SynchronizeDevice { .. }) {
            self.host = host.returned();
        }
        self.hand_on(what);
        self.host = host;
    }

    /// Sets the current thread's capture mode for calls that captures may forbid.
    pub(crate) fn set_mode(&mut self, mode: CaptureMode) {
        self.push(What::CaptureModeExchange { mode });
    }

    /// Hands on an operation that the driver has refused because of an open capture. If some capture cannot be
    /// followed, the reason is not known, and nothing is handed on.
    pub(crate) fn push_refused(&mut self, what: Option<What>) {
        if !self.captures.is_empty() && !self.captures.values().any(|capture| capture.is_lost) {
            what.into_iter().for_each(|what| self.hand_on(what));
        }
    }

    /// Returns the stream that began the capture that a stream is in. The stream may be in it because it waited for a
    /// capturing stream.
    pub(crate) fn origin(&self, at: &At, stream: StreamId, handle: Stream) -> Option<StreamId> {
        if self.captures.is_empty() || self.captures.contains_key(&stream) {
            return self.captures.contains_key(&stream).then_some(stream);
        }
        let handle = at.own(handle);
        if !ask::is_capturing(handle) {
            return None;
        }
        let number = ask::capture_number(handle);
        let is_it = |it: &(&StreamId, &Capture)| number.is_some() && it.1.number == number;
        let found = self.captures.iter().find(is_it);
        // If the driver does not tell the number, any capture is taken: mostly there is only one.
        found.or_else(|| self.captures.iter().next()).map(|it| *it.0)
    }

    /// As [`origin`](Self::origin), by the stream's handle.
    #[cold]
    pub(crate) fn origin_of(&mut self, at: &At, handle: Stream) -> Option<StreamId> {
        let stream = self.stream(at, handle);
        self.origin(at, stream, handle)
    }

    /// Returns `true` if the stream's work goes into a capture that operations cannot follow.
    #[inline]
    pub(crate) fn is_lost(&mut self, at: &At, handle: Stream) -> bool {
        !self.captures.is_empty() && self.is_in_lost(at, handle)
    }

    #[cold]
    fn is_in_lost(&mut self, at: &At, handle: Stream) -> bool {
        if !self.captures.values().any(|capture| capture.is_lost) {
            return false;
        }
        self.origin_of(at, handle).is_some_and(|origin| self.captures[&origin].is_lost)
    }

    /// Drops a capture that ended without a graph. Its allocations never happened. The driver may give their addresses
    /// out again, and a free of them that the driver refuses does not free other memory there.
    pub(crate) fn drop_capture(&mut self, capture: Capture) {
        for memory in capture.memory {
            if let Some(entry) = self.index.entry(memory).copied().filter(|entry| entry.is_live) {
                self.note_void(&entry);
                self.index.free(memory);
                self.index.forget(memory);
            }
        }
    }

    /// Notes that an alloc node's memory has lost its addresses without a free.
    pub(crate) fn note_void(&mut self, entry: &Entry) {
        if self.void.len() >= VOID {
            self.void.clear();
        }
        self.void.insert(entry.start);
    }

    /// Ends streams that were destroyed during captures, once all captures have ended.
    pub(crate) fn let_streams_go(&mut self) {
        if self.captures.is_empty() {
            for stream in std::mem::take(&mut self.leaving) {
                self.push_stream_end(stream);
            }
        }
    }
}
