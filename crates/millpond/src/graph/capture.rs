//! Captures in progress: a stream's calls become nodes of a graph (CUDA: `cudaStreamBeginCapture`).
//!
//! Which stream belongs to which capture, and what is refused, is decided by core's `Captures`; here its graphs get
//! what their nodes do. A stream that captures has its epoch at 0, so that every operation takes the cold half of
//! `enter` and finds its [`Session`]: streams that do not capture pay nothing. Locks: a stream's state, then the
//! recording, then graph-wide tables; no allocation's lock is held meanwhile.

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use millpond_core::check::Place;
use millpond_core::graph::{
    Access as NodeAccess, Addressing, CaptureError as Refusal, CaptureId, CaptureMode, Captures, GraphAllocId, Memory,
    NodeId, Uses,
};
use millpond_core::ids::StreamId;
use millpond_core::op::StreamRole;
use millpond_core::order::default_streams::Standing;
use millpond_driver::locks::{BiasedGuard, lock};
use millpond_driver::{RawGraph, process};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::body::{Body, Resolved};
use super::build::Graph;
use super::registry::Graphs;
use crate::names::error::{Error, Result};
use crate::names::graph_error::{CaptureError, GraphError};
use crate::names::{shadow, stream_names};
use crate::state::access::Access;
use crate::state::aliased::Job;
use crate::state::context::Context;
use crate::state::session::{CapturedAt, Session};
use crate::state::stream::State;
use crate::stream::handle::Stream;
use crate::stream::payload::Payload;
use crate::sync::garbage::{Garbage, Held};

/// A graph that is being captured.
#[derive(Debug)]
struct Open {
    session: Arc<Session>,
    body: Body,
    /// What its nodes did to memory.
    uses: Uses,
}

/// All captures of a device in progress.
#[derive(Debug)]
pub(crate) struct Recording {
    /// The number of their device.
    device: u32,
    captures: Captures,
    open: FxHashMap<CaptureId, Open>,
}

/// A capture that a node is added to.
pub(crate) struct Adding<'a> {
    pub(crate) body: &'a mut Body,
    pub(crate) session: &'a Arc<Session>,
    /// What the node comes after.
    pub(crate) tails: &'a [NodeId],
    uses: &'a Uses,
}

impl Adding<'_> {
    /// Refuses a node that would use memory in a wrong order, with both sides.
    pub(crate) fn check_uses(
        &mut self,
        accesses: &[NodeAccess],
        may_share: bool,
        noun: &'static str,
        place: Place,
    ) -> Result<()> {
        let label = self.body.label(place);
        let checked = self.uses.check(&mut self.body.core, self.tails, accesses, may_share, noun, &label);
        checked.map_err(|fault| GraphError::faults(self.body, &[*fault]).into())
    }

    /// Refuses a free node that would be in a wrong order, with both sides.
    pub(crate) fn check_free(&mut self, memory: Memory, place: Place) -> Result<()> {
        let label = self.body.label(place);
        let checked = self.uses.check_free(&mut self.body.core, self.tails, memory, &label);
        checked.map_err(|fault| GraphError::faults(self.body, &[*fault]).into())
    }
}

impl CapturedAt {
    /// The host asks for an event that is an edge.
    pub(crate) fn refuse(&self) -> Error {
        let mut recording = lock(&self.session.context.graphs.captures);
        match recording.captures.check_event(&self.event) {
            Err(error) => rule(recording.device, error),
            Ok(()) => CaptureError::Uncapturable { call: "event" }.into(),
        }
    }
}

fn rule(device: u32, error: Refusal) -> Error {
    match error {
        Refusal::Graph(error) => error.into(),
        rule => {
            let text = rule.titled(|stream| stream_names::title(device, stream));
            CaptureError::Rule { rule, text }.into()
        }
    }
}

/// A number for the calling thread.
fn thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local!(static OWN: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
    OWN.with(|own| *own)
}

impl Recording {
    pub(super) fn new(device: u32) -> Self {
        Self { device, captures: Captures::new(), open: FxHashMap::default() }
    }

    /// Adds a node to the graph that `stream` is captured into, after its tails.
    pub(crate) fn operate<R>(
        &mut self,
        stream: StreamId,
        add: impl FnOnce(&mut Adding<'_>) -> Result<(NodeId, R)>,
    ) -> Result<R> {
        let (id, tails) = self.captures.after(stream).map_err(|error| rule(self.device, error))?;
        let Open { body, session, uses } = self.open.get_mut(&id).expect("every capture has its graph's body");
        body.captures_on(stream);
        let (node, result) = add(&mut Adding { body, session, tails, uses })?;
        uses.added(&mut body.core, node);
        session.nodes.store(body.core.len() as u32, Ordering::Relaxed);
        self.captures.added(stream, node);
        Ok(result)
    }

    /// Finds the memory of accesses on a stream that is captured.
    pub(crate) fn resolve<A: Access>(&mut self, stream: StreamId, accesses: &A, job: Job) -> Result<Resolved> {
        let (id, _) = self.captures.after(stream).map_err(|error| rule(self.device, error))?;
        let Open { body, session, .. } = self.open.get_mut(&id).expect("every capture has its graph's body");
        // Of a child graph: what a capture adds has its addresses at once.
        body.resolve(accesses, job, || Err(GraphError::SymbolicCapture(session.id).into()))
    }

    /// A capture has ended. What its nodes own is garbage, unless it becomes a graph.
    fn take_out<'g>(&mut self, capture: CaptureId, garbage: &'g Garbage) -> Option<Held<'g, Open>> {
        self.open.remove(&capture).map(|open| garbage.hold(open))
    }

    /// What a node does is known now. Where that went wrong the capture is invalid.
    fn keep(&mut self, session: &Session, node: NodeId, seen: Result<Payload>) -> Result<()> {
        match (seen, self.open.get_mut(&session.capture)) {
            (Ok(payload), Some(open)) => open.body.keep(node, payload),
            // The capture has ended: no caller wants it.
            (Ok(_), None) => {}
            (Err(error), _) => {
                self.captures.invalidate(session.capture);
                return Err(error);
            }
        }
        Ok(())
    }

    /// A stream is closed: the capture that began on it, if any did.
    fn abandon<'g>(&mut self, stream: StreamId, garbage: &'g Garbage) -> Option<Held<'g, Open>> {
        let id = self.captures.abandon(stream)?;
        self.take_out(id, garbage)
    }

    /// An event at the tails of a captured stream.
    pub(crate) fn record(&mut self, stream: StreamId) -> Result<CapturedAt> {
        match self.captures.record(stream) {
            Some(Ok(event)) => {
                let session = Arc::clone(&self.open[&event.capture].session);
                Ok(CapturedAt { session, event })
            }
            Some(Err(error)) => Err(rule(self.device, error)),
            None => Err(rule(self.device, Refusal::NotCapturing(stream))),
        }
    }

    /// A stream waits for a captured event, and joins that capture.
    pub(crate) fn wait(&mut self, stream: (StreamId, StreamRole), at: &CapturedAt) -> Result<()> {
        let graph = self.open.get_mut(&at.event.capture).map(|open| &mut open.body.core);
        self.captures.wait(stream, &at.event, graph).map_err(|error| rule(self.device, error))
    }

    /// A stream waits for an event from outside.
    pub(crate) fn wait_outside(&mut self, stream: StreamId) -> Result<()> {
        self.captures.wait_outside(stream).map_err(|error| rule(self.device, error))
    }

    /// A stream is synchronised or asked.
    fn check_stream(&mut self, stream: StreamId, call: &'static str) -> Result<()> {
        self.captures.check_stream(stream, call).map_err(|error| rule(self.device, error))
    }

    /// The calling thread makes an unsafe call; its mode is the global one.
    fn check_unsafe(&mut self, call: &'static str) -> Result<()> {
        self.captures.check_unsafe((thread(), CaptureMode::Global), call).map_err(|error| rule(self.device, error))
    }

    /// The legacy default stream would come after the blocking streams.
    fn check_legacy(&mut self, is_blocking: impl Fn(StreamId) -> bool) -> Result<()> {
        self.captures.check_legacy(is_blocking).map_err(|error| rule(self.device, error))
    }
}

impl Graphs {
    /// Refuses a synchronisation of the device while there is a capture; that is invalid then.
    #[inline]
    pub(crate) fn refuse_synchronize(&self) -> Result<()> {
        let check = |captures: &mut Captures| captures.check_synchronize(|_| true, "synchronize");
        self.if_capturing(|recording| check(&mut recording.captures).map_err(|error| rule(recording.device, error)))
    }

    /// A stream is closed, whose state is locked: a capture that began on it has ended.
    #[cold]
    pub(crate) fn abandon<'g>(&self, stream: StreamId, _: &mut BiasedGuard<'g, State>, garbage: &'g Garbage) {
        let mut recording = lock(&self.captures);
        let ended = recording.abandon(stream, garbage);
        drop(recording);
        if let Some(open) = &ended {
            self.open.fetch_sub(1, Ordering::AcqRel);
            open.session.is_open.store(false, Ordering::Release);
            self.leave_captured(&open.session);
        }
    }

    /// Refuses a call that waits for a stream or asks about it, while it captures or a capture forbids unsafe calls.
    pub(crate) fn refuse_to_ask(&self, stream: StreamId, call: &'static str) -> Result<()> {
        self.if_capturing(|recording| {
            recording.check_stream(stream, call)?;
            recording.check_unsafe(call)
        })
    }

    /// Refuses what a captured stream cannot do; its capture is invalid then.
    pub(crate) fn refuse_captured(&self, stream: StreamId, call: &'static str) -> Result<()> {
        self.if_capturing(|recording| recording.check_stream(stream, call))
    }

    /// Refuses an unsafe call of the calling thread, while a capture forbids those; that is invalid then.
    pub(crate) fn refuse_unsafe(&self, call: &'static str) -> Result<()> {
        self.if_capturing(|recording| recording.check_unsafe(call))
    }

    /// The legacy default stream is used: no blocking stream may be capturing.
    pub(crate) fn refuse_legacy_use(&self, context: &Context) -> Result<()> {
        self.if_capturing(|recording| {
            let streams = context.streams();
            let blocking = |id| streams.iter().any(|it| it.id == id && it.role.standing() == Standing::Tied);
            recording.check_legacy(blocking)
        })
    }

    /// What a captured stream's window has seen is what a node does.
    pub(crate) fn keep_seen(&self, session: &Session, node: NodeId, seen: Result<Option<RawGraph>>) -> Result<()> {
        let seen = seen.map(|graph| Payload::seen(&session.context, graph));
        lock(&self.captures).keep(session, node, seen)
    }

    #[inline]
    fn if_capturing(&self, check: impl FnOnce(&mut Recording) -> Result<()>) -> Result<()> {
        if self.open.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        process::refuse_forked()?;
        check(&mut lock(&self.captures))
    }
}

/// Acts on the graph of a capture that goes on; none where it has ended.
fn with_open<R>(session: &Session, act: impl FnOnce(&mut Body, &mut Uses) -> R) -> Option<R> {
    let mut recording = lock(&session.context.graphs.captures);
    let open = recording.open.get_mut(&session.capture)?;
    Some(act(&mut open.body, &mut open.uses))
}

/// A buffer of a capture's memory was dropped: a free node after all its uses. Where the capture has ended it stays
/// live.
pub(crate) fn drop_captured(session: &Arc<Session>, alloc: GraphAllocId) {
    with_open(session, |body, uses| {
        let memory = Memory::Own(alloc);
        let mut after: SmallVec<[NodeId; 4]> = uses.last(memory).chain(body.core.children_using(alloc)).collect();
        after.sort_unstable();
        after.dedup();
        if after.is_empty() {
            after.extend(body.core.alloc(alloc).map(|alloc| alloc.node));
        }
        // A second free node is refused, and the drop has nothing to do then.
        if let Ok(free) = body.add_free(&after, memory, Place::Unknown) {
            if let Some(tracer) = session.tracer() {
                tracer.captured_drop(session.id, alloc);
            }
            uses.added(&mut body.core, free);
            session.nodes.store(body.core.len() as u32, Ordering::Relaxed);
        }
    });
}

/// A buffer of a capture's memory gets a name: its alloc node has it.
pub(crate) fn name_captured(session: &Arc<Session>, alloc: GraphAllocId, name: &Arc<str>) {
    with_open(session, |body, _| body.name_alloc(alloc, name));
}

impl Stream {
    /// Begins a capture: from now on what is done on this stream becomes nodes of a graph, and is not done
    /// (CUDA: `cudaStreamBeginCapture`, global mode).
    ///
    /// Streams that wait for an event recorded on this one join; they must be waited for before the end. Memory
    /// allocated in the capture belongs to the graph: freed or dropped in the capture it gets a free node, else it
    /// outlives the graph's launch and is [taken](crate::graph::Launch::take) from it.
    ///
    /// # Errors
    /// The stream captures already, or is the legacy default stream.
    #[track_caller]
    pub fn begin_capture(&self) -> Result<()> {
        self.begin_capture_in(CaptureMode::Global)
    }

    /// As [`begin_capture`](Self::begin_capture), in a mode: which threads' unsafe calls are refused meanwhile, and
    /// whether another thread may end it (CUDA: `cudaStreamCaptureMode`). Unsafe are synchronisations and queries of
    /// streams and events, pinned memory, immediate frees, new pools and instances: the capture does not see them, and
    /// is invalid then.
    ///
    /// # Errors
    /// As for [`begin_capture`](Self::begin_capture).
    #[track_caller]
    pub fn begin_capture_in(&self, mode: CaptureMode) -> Result<()> {
        process::refuse_forked()?;
        let (shared, caller) = (&self.shared, Location::caller());
        shared.context.graphs.check_numbers()?;
        self.begin(Body::to_capture(&shared.context, Addressing::Fixed), None, mode, caller).map(drop)
    }

    /// Begins a capture, of a new graph or behind some nodes of one that is there.
    pub(super) fn begin(
        &self,
        body: Body,
        after: Option<&[NodeId]>,
        mode: CaptureMode,
        caller: &'static Location<'static>,
    ) -> Result<Arc<Session>> {
        let (shared, graph) = (&self.shared, body.core.id());
        self.try_begin(body, after, mode, caller).inspect_err(|error| {
            shared.note_refused(error, |tracer| tracer.capture_begun(shared.id, (graph, after), mode, caller));
        })
    }

    fn try_begin(
        &self,
        mut body: Body,
        after: Option<&[NodeId]>,
        mode: CaptureMode,
        caller: &'static Location<'static>,
    ) -> Result<Arc<Session>> {
        let shared = &self.shared;
        let mut state = shared.state.lock();
        let _ = shared.enter_to_begin(&mut state)?;
        let graphs = &shared.context.graphs;
        let id = body.core.id();
        let mut uses = Uses::default();
        for node in body.core.topological_order() {
            uses.added(&mut body.core, node);
        }
        let mut recording = lock(&graphs.captures);
        let (who, tails) = ((shared.id, shared.role), after.unwrap_or_default());
        let begun = recording.captures.begin(who, &mut body.core, tails, thread(), mode);
        let capture = begun.map_err(|error| rule(recording.device, error))?;
        let context = Arc::clone(&shared.context);
        let (is_open, nodes, allocs) = (AtomicBool::new(true), AtomicU32::new(0), AtomicU32::new(0));
        let session = Arc::new(Session { id, capture, context, is_open, nodes, allocs });
        if let Some(tracer) = session.tracer() {
            tracer.capture_begun(shared.id, (id, after), mode, caller);
        }
        recording.open.insert(capture, Open { session: Arc::clone(&session), body, uses });
        graphs.open.fetch_add(1, Ordering::AcqRel);
        state.capture = Some(Arc::clone(&session));
        state.epoch = 0;
        Ok(session)
    }

    /// Ends the capture that began on this stream (CUDA: `cudaStreamEndCapture`). The capture has ended whatever comes
    /// back, but where this stream did not begin it.
    ///
    /// # Errors
    /// A side stream was not joined, with its leaf; the capture is invalid; this stream did not begin one.
    #[track_caller]
    pub fn end_capture(&self) -> Result<Graph> {
        let (shared, caller) = (&self.shared, Location::caller());
        self.try_end_capture(caller)
            .inspect_err(|(error, is_traced)| {
                if !is_traced {
                    shared.note_refused(error, |tracer| tracer.capture_ended(shared.id, caller));
                }
            })
            .map_err(|(error, _)| error)
    }

    /// Ends a capture, or says why not, and whether that is in the trace.
    fn try_end_capture(&self, caller: &'static Location<'static>) -> std::result::Result<Graph, (Error, bool)> {
        let not_yet = |error| (error, false);
        process::refuse_forked().map_err(|error| not_yet(error.into()))?;
        let shared = &self.shared;
        let garbage = Garbage::default();
        let mut state = shared.state.lock();
        // Where that is refused the capture is invalid, and its end says why.
        let seen = shared.close_window(&mut state);
        let graphs = &shared.context.graphs;
        let mut recording = lock(&graphs.captures);
        let number = recording.device;
        let ended = recording.captures.end(shared.id, thread()).map_err(|error| not_yet(rule(number, error)))?;
        let open = recording.take_out(ended.capture, &garbage);
        drop(recording);
        let mut open = open.expect("every capture has its graph's body");
        graphs.open.fetch_sub(1, Ordering::AcqRel);
        open.session.is_open.store(false, Ordering::Release);
        graphs.leave_captured(&open.session);
        state.capture = None;
        // The end of an invalid capture is its end.
        let joined = ended.check(&mut open.body.core);
        let is_refused = !matches!(joined, Err(Refusal::Invalidated(_)));
        let made = seen.and_then(|()| joined.map_err(|error| rule(number, error)));
        if let Some(tracer) = open.session.tracer() {
            let error = made.as_ref().err().filter(|_| is_refused);
            shadow::judged(error, || tracer.capture_ended(shared.id, caller));
        }
        drop(state);
        made.map_err(|error| (error, true))?;
        let mut body = open.take().body;
        body.captured();
        Ok(Graph { body: Arc::new(body) })
    }

    /// Captures what `record` does on this stream: the graph, and what `record` returns.
    ///
    /// # Errors
    /// What `record` returns, or as for [`end_capture`](Self::end_capture). The capture has ended in any case.
    #[track_caller]
    pub fn capture<R>(&self, record: impl FnOnce(&Stream) -> Result<R>) -> Result<(Graph, R)> {
        self.begin_capture()?;
        self.record_until_end(record, |_| ())
    }

    /// As [`capture`](Self::capture), of one that has begun. `look` sees how it ends, whatever is made of that.
    #[track_caller]
    pub(super) fn record_until_end<R>(
        &self,
        record: impl FnOnce(&Stream) -> Result<R>,
        look: impl FnOnce(&Result<Graph>),
    ) -> Result<(Graph, R)> {
        let recorded = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| record(self)));
        let ended = self.end_capture();
        look(&ended);
        match recorded {
            Ok(recorded) => recorded.and_then(|recorded| Ok((ended?, recorded))),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}
