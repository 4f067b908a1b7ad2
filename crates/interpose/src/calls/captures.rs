//! Captures: begun, ended, and what operations cannot follow in them.

use std::ffi::{c_int, c_uint, c_void};

use millpond_core::ids::StreamId;
use millpond_core::op::{CaptureMode, What};

use super::read;
use crate::abi::{Code, Graph, GraphNode, Stream};
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
}

/// `cuStreamBeginCapture`, as it was before it had modes.
pub(crate) unsafe fn begin_global(at: &At, real: impl FnOnce() -> Code, stream: Stream) -> Code {
    // SAFETY: the caller's arguments.
    unsafe { begin(at, real, stream, 0) }
}

/// `cuStreamBeginCapture`
pub(crate) unsafe fn begin(at: &At, real: impl FnOnce() -> Code, stream: Stream, mode: c_int) -> Code {
    at.done(real(), |session| {
        let (stream, graph) = (session.stream(at, stream), session.handles.new_graph());
        let mode = match mode {
            0 => CaptureMode::Global,
            1 => CaptureMode::ThreadLocal,
            _ => CaptureMode::Relaxed,
        };
        session.captures.insert(stream, graph);
        session.push(What::CaptureBegin { stream, graph, mode, symbolic: false });
    })
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
        let is_lost = session.captures.is_empty() && std::mem::take(&mut session.lost_captures) > 0;
        // SAFETY: the caller's place, which was written.
        if let (Some(graph), Code::SUCCESS) = (unsafe { read(graph) }, code) {
            // Its nodes have handles that are not known: an edit by hand cannot be said.
            session.handles.name_graph(graph, id, Made { is_opaque: is_lost, ..Made::default() });
        }
    });
    code
}

/// `cuStreamBeginCaptureToGraph`
pub(crate) unsafe fn begin_to_graph(
    at: &At,
    real: impl FnOnce() -> Code,
    _stream: Stream,
    graph: Graph,
    _after: *const GraphNode,
    _edges: *const c_void,
    _count: usize,
    _mode: c_int,
) -> Code {
    at.done(real(), |session| {
        session.unsupported("cuStreamBeginCaptureToGraph");
        session.handles.obscure(graph);
        session.lost_captures += 1;
    })
}

/// `cuStreamUpdateCaptureDependencies`
pub(crate) unsafe fn update(
    at: &At,
    real: impl FnOnce() -> Code,
    _stream: Stream,
    _nodes: *const GraphNode,
    _count: usize,
    _flags: c_uint,
) -> Code {
    at.done(real(), |session| {
        session.unsupported("cuStreamUpdateCaptureDependencies");
        session.lost_captures += 1;
    })
}

/// `cuStreamUpdateCaptureDependencies_v2`
pub(crate) unsafe fn update_v2(
    at: &At,
    real: impl FnOnce() -> Code,
    stream: Stream,
    nodes: *const GraphNode,
    _edges: *const c_void,
    count: usize,
    flags: c_uint,
) -> Code {
    // SAFETY: the caller's arguments.
    unsafe { update(at, real, stream, nodes, count, flags) }
}
