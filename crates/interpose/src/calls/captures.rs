//! Captures: their begin, their end, and calls that operations cannot follow in them.

use std::ffi::c_int;

use millpond_core::ids::{DeviceId, StreamId};
use millpond_core::op::{CaptureMode, EventKind, Memory, What};

use super::read;
use crate::abi::{Code, Graph, Stream};
use crate::ask;
use crate::handles::{Made, Outside};
use crate::session::captures::Capture;
use crate::session::{At, Session};

impl Session {
    /// Notes that a capture begins.
    pub(crate) fn begin_capture(&mut self, at: &At, handle: Stream, mode: c_int) {
        let (stream, graph) = (self.stream(at, handle), self.handles.new_graph());
        let mode = mode_of(mode);
        let number = ask::capture_number(at.own(handle));
        self.captures.insert(stream, Capture { graph: Some(graph), ..Self::new_capture(number) });
        self.push(What::CaptureBegin { stream, graph, mode, symbolic: false });
    }

    /// Notes that a capture into an existing graph begins. From now on operations cannot describe that graph.
    pub(crate) fn begin_capture_into(&mut self, at: &At, handle: Stream, graph: Graph) {
        self.unsupported("cuStreamBeginCaptureToGraph");
        self.handles.obscure(graph);
        let (stream, number) = (self.stream(at, handle), ask::capture_number(at.own(handle)));
        self.captures.insert(stream, Capture { is_lost: true, ..Self::new_capture(number) });
    }

    /// Marks the stream's capture as one that cannot be followed from now on.
    pub(crate) fn lose_capture(&mut self, at: &At, handle: Stream) {
        self.unsupported("cuStreamUpdateCaptureDependencies");
        let stream = self.stream(at, handle);
        let origin = self.origin(at, stream, handle);
        if let Some(capture) = origin.and_then(|origin| self.captures.get_mut(&origin)) {
            capture.is_lost = true;
        }
    }

    /// Joins the member streams of a capture to its origin. The driver has ended the capture early, without a graph. In
    /// the operations the capture still goes on, and its end would be an error if streams were not joined.
    fn join_all(&mut self, members: Vec<StreamId>, origin: StreamId) {
        for stream in members {
            let event = self.handles.new_unnamed_event();
            self.push(What::EventCreate { event, device: DeviceId(ask::current_device() as u32), shared: false });
            self.push(What::EventRecord { event, stream, external: false, kind: EventKind::Completion });
            self.push(What::EventWait { event, stream: origin, external: false });
            self.handles.end_unnamed_event(event);
            self.push(What::EventDestroy { event });
        }
    }

    /// Returns the other streams of an invalid capture.
    fn members_of_spoilt(&mut self, at: &At, handle: Stream) -> Vec<StreamId> {
        let origin = self.stream(at, handle);
        if !ask::is_capture_spoilt(at.own(handle)) {
            return Vec::new();
        }
        let others = self.handles.streams.iter().filter(|(_, it)| it.0 != origin && !self.captures.contains_key(&it.0));
        others.filter(|(handle, _)| ask::is_capture_spoilt(**handle)).map(|(_, it)| it.0).collect()
    }

    fn end_capture(&mut self, stream: StreamId, members: Vec<StreamId>, made: Option<Graph>) {
        let Some(capture) = self.captures.remove(&stream) else { return };
        match (capture.graph, made) {
            (Some(graph), Some(handle)) => {
                self.push(What::CaptureEnd { stream });
                let is_left = |it: &Memory| self.index.entry(*it).is_some_and(|entry| entry.is_allocated);
                let left: Vec<Memory> = capture.memory.iter().copied().filter(is_left).collect();
                // It exists from the first launch on.
                left.iter().for_each(|memory| self.index.set_allocated(*memory, false));
                let outside = Outside { left, pointed_at: capture.pointed_at };
                // The handles of its nodes are not known, so edits by hand cannot be followed.
                let made = Made { is_opaque: capture.is_lost, has_others: true, outside, ..Made::default() };
                self.name_graph(handle, graph, made);
            }
            (Some(graph), None) => {
                self.join_all(members, stream);
                self.push(What::CaptureEnd { stream });
                self.push(What::GraphDestroy { graph });
                self.drop_capture(capture);
            }
            (None, _) => {}
        }
        self.let_streams_go();
    }
}

fn mode_of(mode: c_int) -> CaptureMode {
    match mode {
        0 => CaptureMode::Global,
        1 => CaptureMode::ThreadLocal,
        _ => CaptureMode::Relaxed,
    }
}

/// `cuThreadExchangeStreamCaptureMode`: the real call writes the previous mode to the same address.
pub(crate) unsafe fn exchange_mode(at: &At, real: impl FnOnce() -> Code, mode: *mut c_int) -> Code {
    // SAFETY: the caller's place.
    let wanted = unsafe { read(mode) }.map(mode_of);
    let code = real();
    at.done(code, |session| wanted.into_iter().for_each(|mode| session.set_mode(mode)))
}

/// `cuStreamEndCapture`: an invalid capture ends, too.
pub(crate) unsafe fn end(at: &At, real: impl FnOnce() -> Code, stream: Stream, graph: *mut Graph) -> Code {
    let members = at.note(|session| session.members_of_spoilt(at, stream));
    let code = real();
    at.settle(|session| {
        // Nothing ends if the call fails and the capture goes on: on another thread than the one that began it, say.
        if code != Code::SUCCESS && ask::is_capturing(at.own(stream)) {
            return;
        }
        // SAFETY: the caller's place, which was written.
        let made = unsafe { read(graph) }.filter(|_| code == Code::SUCCESS);
        let stream = session.stream(at, stream);
        session.end_capture(stream, members, made);
    });
    code
}
