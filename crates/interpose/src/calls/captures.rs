//! Captures: begun, ended, and what operations cannot follow in them.

use std::ffi::c_int;

use millpond_core::ids::StreamId;
use millpond_core::op::{CaptureMode, What};

use super::read;
use crate::abi::{Code, Graph, Stream};
use crate::ask;
use crate::handles::Made;
use crate::session::{At, Session};

impl Session {
    /// Whether a stream captures, be it because it waited for one that does.
    pub(crate) fn is_capturing(&self, stream: StreamId) -> bool {
        if self.captures.is_empty() {
            return false;
        }
        let handle = self.handles.streams.iter().find(|it| it.1.0 == stream).map(|it| *it.0);
        self.captures.contains_key(&stream) || handle.is_some_and(ask::is_capturing)
    }

    /// A capture begins.
    pub(crate) fn begin_capture(&mut self, at: &At, stream: Stream, mode: c_int) {
        let (stream, graph) = (self.stream(at, stream), self.handles.new_graph());
        let mode = match mode {
            0 => CaptureMode::Global,
            1 => CaptureMode::ThreadLocal,
            _ => CaptureMode::Relaxed,
        };
        self.captures.insert(stream, graph);
        self.push(What::CaptureBegin { stream, graph, mode, symbolic: false });
    }

    /// What is captured from now on cannot be followed; where it goes into a graph that is known, that is opaque.
    pub(crate) fn lose_capture(&mut self, call: &'static str, graph: Option<Graph>) {
        self.unsupported(call);
        if let Some(graph) = graph {
            self.handles.obscure(graph);
        }
        self.lost_captures += 1;
    }
}

/// `cuStreamEndCapture`: a capture that was spoilt has ended, too.
pub(crate) unsafe fn end(at: &At, real: impl FnOnce() -> Code, stream: Stream, graph: *mut Graph) -> Code {
    let code = real();
    at.note(|session| {
        let stream = session.stream(at, stream);
        let Some(id) = session.captures.remove(&stream) else {
            session.lost_captures = session.lost_captures.saturating_sub(u32::from(code == Code::SUCCESS));
            return;
        };
        session.push(What::CaptureEnd { stream });
        if session.captures.is_empty() {
            for stream in std::mem::take(&mut session.leaving) {
                session.push(What::StreamDestroy { stream });
            }
        }
        let is_lost = session.captures.is_empty() && std::mem::take(&mut session.lost_captures) > 0;
        // SAFETY: the caller's place, which was written.
        if let (Some(graph), Code::SUCCESS) = (unsafe { read(graph) }, code) {
            // Its nodes have handles that are not known: an edit by hand cannot be said.
            session.handles.name_graph(graph, id, Made { is_opaque: is_lost, has_others: true, ..Made::default() });
        }
    });
    code
}
