//! Streams: created, waited for, and their work other than kernels and copies.

use std::ffi::c_uint;

use millpond_core::ids::StreamId;
use millpond_core::op::{Act, StreamRole, Trust, What};
use smallvec::SmallVec;

use crate::abi::{EXTERNAL, Event, Stream, StreamMemOp};
use crate::arguments::Accesses;
use crate::ask;
use crate::session::{At, Session};

impl Session {
    /// Notes that a stream was created.
    pub(crate) fn create_stream(&mut self, stream: Stream, flags: c_uint) {
        let role = if flags & 1 != 0 { StreamRole::NonBlocking } else { StreamRole::Blocking };
        let home = self.current_home();
        self.add_stream(stream, role, home);
    }

    /// Notes that a stream is destroyed.
    pub(crate) fn destroy_stream(&mut self, stream: Stream) {
        let is_captured = !self.captures.is_empty() && ask::is_capturing(stream);
        self.end_stream(stream, is_captured);
    }

    /// Ends the stream that has this handle, if there is one. If a capture began on it, that capture has ended without
    /// a graph. Any other stream of a capture stays part of it until the capture ends.
    pub(crate) fn end_stream(&mut self, stream: Stream, is_captured: bool) {
        let Some((id, _)) = self.handles.streams.remove(&stream) else { return };
        self.handles.last_stream = None;
        let capture = self.captures.remove(&id);
        if capture.is_none() && is_captured {
            return self.leaving.push(id);
        }
        self.push_stream_end(id);
        if let Some(capture) = capture {
            self.drop_capture(capture);
            self.let_streams_go();
        }
    }

    /// Ends a stream. Another stream may get its number.
    pub(crate) fn push_stream_end(&mut self, stream: StreamId) {
        self.push(What::StreamDestroy { stream });
        self.handles.end_stream_number(stream);
    }

    /// Notes that the host has waited for a stream.
    pub(crate) fn synchronize_stream(&mut self, at: &At, stream: Stream) {
        let stream = self.stream(at, stream);
        self.push(What::StreamSynchronize { stream });
    }

    /// Notes that a stream was found idle.
    pub(crate) fn query_stream(&mut self, at: &At, stream: Stream) {
        let stream = self.stream(at, stream);
        self.push(What::StreamQuery { stream, is_idle: true });
    }

    /// Notes that a stream waits for an event.
    pub(crate) fn wait_event(&mut self, at: &At, stream: Stream, event: Event, flags: c_uint) {
        if self.is_lost(at, stream) {
            return;
        }
        let (stream, event) = (self.stream(at, stream), self.event(event));
        let external = flags & EXTERNAL != 0;
        self.push(What::EventWait { event, stream, external });
        self.after_others(event, |event| What::EventWait { event, stream, external: false });
    }

    /// Notes work that uses these bytes, or none.
    pub(crate) fn work(&mut self, at: &At, stream: Stream, uses: &[(u64, u64, Act)]) {
        let launch = |stream, accesses| What::Launch { stream, accesses, trust: Trust::None, name: None };
        self.work_as(at, stream, uses, launch);
    }

    /// Notes a copy, a fill or a wait that the driver itself runs. Such work reaches the memory of all devices.
    pub(crate) fn move_bytes(&mut self, at: &At, stream: Stream, uses: &[(u64, u64, Act)]) {
        self.work_as(at, stream, uses, |stream, accesses| What::Copy { stream, accesses });
    }

    fn work_as(
        &mut self,
        at: &At,
        stream: Stream,
        uses: &[(u64, u64, Act)],
        what: impl FnOnce(StreamId, Accesses) -> What,
    ) {
        if self.is_lost(at, stream) {
            return;
        }
        let mut accesses = SmallVec::new();
        for (from, bytes, act) in uses {
            self.access(*from, *bytes, *act, &mut accesses);
        }
        let stream = self.stream(at, stream);
        self.push(what(stream, accesses));
    }

    /// Notes writes of words by a stream, and its waits for words.
    pub(crate) fn work_on_words(&mut self, at: &At, stream: Stream, ops: &[StreamMemOp]) {
        for op in ops {
            match op.operation {
                1 => self.move_bytes(at, stream, &[(op.at, 4, Act::Read)]),
                2 => self.move_bytes(at, stream, &[(op.at, 4, Act::Write)]),
                4 => self.move_bytes(at, stream, &[(op.at, 8, Act::Read)]),
                5 => self.move_bytes(at, stream, &[(op.at, 8, Act::Write)]),
                _ => {}
            }
        }
    }
}
