//! Streams: made, waited for, and work on them that is no kernel and no copy.

use std::ffi::c_uint;

use millpond_core::ids::StreamId;
use millpond_core::op::{Act, StreamRole, Trust, What};
use smallvec::SmallVec;

use crate::abi::{EXTERNAL, Event, Stream, StreamMemOp};
use crate::arguments::Accesses;
use crate::ask;
use crate::session::{At, Session};

impl Session {
    /// A stream was made.
    pub(crate) fn create_stream(&mut self, stream: Stream, flags: c_uint) {
        let role = if flags & 1 != 0 { StreamRole::NonBlocking } else { StreamRole::Blocking };
        let home = self.current_home();
        self.add_stream(stream, role, home);
    }

    /// A stream is destroyed.
    pub(crate) fn destroy_stream(&mut self, stream: Stream) {
        let is_captured = !self.captures.is_empty() && ask::is_capturing(stream);
        self.end_stream(stream, is_captured);
    }

    /// What has a handle of a stream is gone, if there is any. With the stream that a capture began on that has ended,
    /// without a graph; another stream of it is a part of it until it ends.
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

    /// A stream is gone: another may have its number.
    pub(crate) fn push_stream_end(&mut self, stream: StreamId) {
        self.push(What::StreamDestroy { stream });
        self.handles.end_stream_number(stream);
    }

    /// The host has waited for a stream.
    pub(crate) fn synchronize_stream(&mut self, at: &At, stream: Stream) {
        let stream = self.stream(at, stream);
        self.push(What::StreamSynchronize { stream });
    }

    /// A stream was found to have nothing to do.
    pub(crate) fn query_stream(&mut self, at: &At, stream: Stream) {
        let stream = self.stream(at, stream);
        self.push(What::StreamQuery { stream, is_idle: true });
    }

    /// A stream waits for an event.
    pub(crate) fn wait_event(&mut self, at: &At, stream: Stream, event: Event, flags: c_uint) {
        if self.is_lost(at, stream) {
            return;
        }
        let (stream, event) = (self.stream(at, stream), self.event(event));
        let external = flags & EXTERNAL != 0;
        self.push(What::EventWait { event, stream, external });
        self.after_others(event, |event| What::EventWait { event, stream, external: false });
    }

    /// Work that uses these bytes, or none.
    pub(crate) fn work(&mut self, at: &At, stream: Stream, uses: &[(u64, u64, Act)]) {
        let launch = |stream, accesses| What::Launch { stream, accesses, trust: Trust::None, name: None };
        self.work_as(at, stream, uses, launch);
    }

    /// Copies, fills and waits of the driver's own, which reach the memory of all devices.
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

    /// Words that a stream writes or waits for.
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
