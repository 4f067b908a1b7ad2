//! Captures that go on: which stream began each, what it makes, and what memory it has.

use millpond_core::ids::{GraphId, HostId, StreamId};
use millpond_core::op::{CaptureMode, Memory, What};

use rustc_hash::FxHashSet;

use super::{At, Session};
use crate::abi::Stream;
use crate::ask;
use crate::index::Entry;

/// So many addresses of memory that never was are remembered.
const VOID: usize = 1 << 16;

/// A capture that goes on.
#[derive(Debug)]
pub(crate) struct Capture {
    /// What the driver calls it.
    pub(crate) number: Option<u64>,
    /// The graph that it makes; none where it goes into one that is there.
    pub(crate) graph: Option<GraphId>,
    /// Whether operations cannot follow it, from some call on.
    pub(crate) is_lost: bool,
    /// What was allocated in it.
    pub(crate) memory: Vec<Memory>,
    /// As of [`Outside`](crate::handles::Outside).
    pub(crate) pointed_at: FxHashSet<Memory>,
    pub(crate) mode: CaptureMode,
    /// The thread that began it.
    pub(crate) thread: HostId,
}

impl Session {
    /// A capture that begins in the call at hand.
    pub(crate) fn new_capture(&self, number: Option<u64>, mode: CaptureMode) -> Capture {
        let (memory, pointed_at, thread) = (Vec::new(), FxHashSet::default(), self.host);
        Capture { number, graph: None, is_lost: false, memory, pointed_at, mode, thread }
    }

    /// Hands an operation on that the driver has done: no capture forbids it then, whatever is known of their modes. A
    /// call that waits by the way is allowed where a synchronisation is not.
    #[cold]
    pub(super) fn push_while_capturing(&mut self, what: What) {
        if what.unsafe_call().is_none() || !self.are_forbidden() {
            return self.hand_on(what);
        }
        let mode = self.modes.get(&self.host).copied().unwrap_or_default();
        self.hand_on(What::CaptureModeExchange { mode: CaptureMode::Relaxed });
        self.hand_on(what);
        self.hand_on(What::CaptureModeExchange { mode });
    }

    /// Captures forbid the thread at hand calls that act at once by another mode from now on.
    pub(crate) fn set_mode(&mut self, mode: CaptureMode) {
        match mode {
            CaptureMode::Global => drop(self.modes.remove(&self.host)),
            other => drop(self.modes.insert(self.host, other)),
        }
        self.push(What::CaptureModeExchange { mode });
    }

    /// Whether some capture forbids the thread such calls.
    fn are_forbidden(&self) -> bool {
        let mode = self.modes.get(&self.host).copied().unwrap_or_default();
        self.captures.values().any(|capture| match (mode, capture.mode) {
            (CaptureMode::Relaxed, _) | (_, CaptureMode::Relaxed) => false,
            (CaptureMode::Global, CaptureMode::Global) => true,
            _ => capture.thread == self.host,
        })
    }

    /// Hands an operation on that the driver has refused, for a capture goes on. Where that is not followed it is not
    /// known why.
    pub(crate) fn push_refused(&mut self, what: Option<What>) {
        if !self.captures.is_empty() && !self.captures.values().any(|capture| capture.is_lost) {
            what.into_iter().for_each(|what| self.hand_on(what));
        }
    }

    /// Where the capture began that a stream is in, be it because it waited for one that captures.
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
        // A driver that cannot be asked has one at a time, mostly.
        found.or_else(|| self.captures.iter().next()).map(|it| *it.0)
    }

    /// Where the capture began that a stream is in, by its handle.
    #[cold]
    pub(crate) fn origin_of(&mut self, at: &At, handle: Stream) -> Option<StreamId> {
        let stream = self.stream(at, handle);
        self.origin(at, stream, handle)
    }

    /// Whether a stream's work goes into a capture that operations cannot follow.
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

    /// A capture has ended without a graph. What was allocated in it never was: its addresses are other memory's as
    /// soon as the driver gives them out again, and a free of them that the driver refuses is not a free of that.
    pub(crate) fn drop_capture(&mut self, capture: Capture) {
        for memory in capture.memory {
            if let Some(entry) = self.index.entry(memory).copied().filter(|entry| entry.is_live) {
                self.note_void(&entry);
                self.index.free(memory);
                self.index.forget(memory);
            }
        }
    }

    /// Memory of an alloc node lost its place without a free.
    pub(crate) fn note_void(&mut self, entry: &Entry) {
        if self.void.len() >= VOID {
            self.void.clear();
        }
        self.void.insert(entry.start);
    }

    /// Streams that were destroyed in captures are gone, once all of those have ended.
    pub(crate) fn let_streams_go(&mut self) {
        if self.captures.is_empty() {
            for stream in std::mem::take(&mut self.leaving) {
                self.push_stream_end(stream);
            }
        }
    }
}
