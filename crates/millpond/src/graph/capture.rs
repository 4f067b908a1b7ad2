//! Captures in progress: a stream's calls become nodes of a graph (CUDA: `cudaStreamBeginCapture`).
//!
//! Core's `Captures` decides which stream belongs to which capture and what is refused. Here the nodes of the graphs
//! get their work. A capturing stream has its epoch at 0, so that every operation takes the cold half of `enter` and
//! finds its [`Session`]. Streams that do not capture pay nothing. Locks are taken in this order: a stream's state, the
//! recording, graph-wide tables. No allocation's lock is held meanwhile.

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use millpond_core::check::{Act, Finding, Place, Side, Site};
use millpond_core::graph::{
    self as core_graph, Access as NodeAccess, Addressing, Caller, CaptureError as Refusal, CaptureMode, Captures,
    Graph as CoreGraph, GraphAllocId, GraphId, Memory, NodeId, Uses,
};
use millpond_core::ids::StreamId;
use millpond_core::op::StreamRole;
use millpond_core::order::default_streams::Standing;
use millpond_driver::locks::{BiasedGuard, Guard, Mutex, lock};
use millpond_driver::{RawGraph, process};

use super::body::{Body, Resolved};
use super::build::Graph;
use super::registry::Graphs;
use crate::names::error::{Error, Invalid, Result};
use crate::names::{shadow, stream_names};
use crate::state::access::Access;
use crate::state::aliased::Job;
use crate::state::context::Context;
use crate::state::session::{CapturedAt, Ends, Session};
use crate::state::stream::State;
use crate::stream::handle::Stream;
use crate::stream::payload::Payload;
use crate::sync::garbage::Garbage;
use crate::sync::ranks;

/// A graph that a capture builds.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) session: Arc<Session>,
    pub(crate) body: Body,
}

impl Open {
    /// Counts the nodes so far. Their names are not used again, even if the capture makes no graph.
    fn count_nodes(&self) {
        self.session.nodes.store(self.body.core.len() as u32, Ordering::Relaxed);
    }
}

impl AsMut<CoreGraph> for Open {
    fn as_mut(&mut self) -> &mut CoreGraph {
        &mut self.body.core
    }
}

/// All captures in progress of a device.
#[derive(Debug)]
pub(crate) struct Recording {
    /// The number of their device.
    device: u32,
    captures: Captures<Open>,
}

/// The captures in progress that are counted for several devices together.
static TOGETHER: Mutex<ranks::Table, Vec<Counted>> = Mutex::new(Vec::new());

/// The name of the counter, and the captures of one device.
type Counted = (Arc<str>, Arc<Mutex<ranks::Captures, Recording>>);
/// The number of entries in [`TOGETHER`].
static OPEN_TOGETHER: AtomicUsize = AtomicUsize::new(0);

/// A capture that a node is added to.
pub(crate) type Adding<'a> = core_graph::Adding<'a, Open>;

/// Refuses a node that would use memory in a wrong order, with both sides.
pub(crate) fn check_uses(
    adding: &mut Adding<'_>,
    accesses: &[NodeAccess],
    may_share: bool,
    noun: &'static str,
    place: Place,
) -> Result<()> {
    let label = adding.graph.body.label(place);
    let checked = adding.check(accesses, may_share, noun, &label);
    checked.map_err(|fault| adding.graph.body.wrong(&[*fault]))
}

/// Refuses a free node that would be in a wrong order, with both sides.
pub(crate) fn check_free(adding: &mut Adding<'_>, memory: Memory, place: Place) -> Result<()> {
    let label = adding.graph.body.label(place);
    let checked = adding.check_free(memory, &label);
    checked.map_err(|fault| adding.graph.body.wrong(&[*fault]))
}

impl CapturedAt {
    /// Refuses a call of the host on an event that was recorded in a capture.
    pub(crate) fn refuse(&self, caller: &'static Location<'static>) -> Error {
        let mut recording = lock(&self.session.context.graphs.captures);
        match recording.captures.check_event(&self.event) {
            Err(error) => recording.refused(error, StreamId::HOST, Place::Source(caller)),
            Ok(()) => Invalid::Uncapturable { call: "event" }.into(),
        }
    }
}

/// Makes the error for a call of a stream or the host that a capture refuses. `begun` is the begin of that capture.
#[cold]
fn rule(device: u32, error: Refusal, begun: Option<Site>, (stream, place): (StreamId, Place)) -> Error {
    if let Refusal::Graph(error) = error {
        return error.into();
    }
    let side = |site: Site, verb: &str| Side { verb: verb.to_owned(), act: None, ..stream_names::side(device, site) };
    let begun = begun.map(|begun| side(begun, "captured"));
    let mut finding = Finding::of_capture(&error, |stream| stream_names::title(device, stream), begun);
    // If its place is unknown, the refused call stands in the sentence only.
    if place != Place::Unknown {
        finding = finding.at(side(Site { act: Act::Read, stream, op: 0, place }, "refused"));
    }
    finding.into()
}

/// Returns `true` if a call is refused because the capture is invalid already.
fn is_invalidated(error: &Error) -> bool {
    error.violation().is_some_and(|it| it.code == Some(901))
}

/// Returns the calling thread. A device has the captures of its own driver.
fn calling() -> Caller {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local!(static OWN: u64 = NEXT.fetch_add(1, Ordering::Relaxed));
    Caller { driver: 0, thread: OWN.with(|own| *own) }
}

impl Recording {
    pub(super) fn new(device: u32) -> Self {
        Self { device, captures: Captures::default() }
    }

    /// Makes the error for a call of a stream or the host that a capture refuses.
    #[cold]
    fn refused(&self, error: Refusal, stream: StreamId, place: Place) -> Error {
        let capture = error.capture(&self.captures, stream);
        let begun = capture.and_then(|capture| self.captures.begun(capture));
        rule(self.device, error, begun, (stream, place))
    }

    /// Adds a node to the graph that `stream` is captured into, after the stream's tails.
    pub(crate) fn operate<R>(
        &mut self,
        stream: StreamId,
        place: Place,
        add: impl FnOnce(&mut Adding<'_>) -> Result<(NodeId, R)>,
    ) -> Result<R> {
        let added = self.captures.add(stream, |adding| {
            adding.graph.body.captures_on(stream);
            let added = add(adding)?;
            adding.graph.count_nodes();
            Ok(added)
        });
        added.map_err(|error| self.refused(error, stream, place))?
    }

    /// Finds the memory of the accesses of an operation on a captured stream.
    pub(crate) fn resolve<A: Access>(
        &mut self,
        stream: StreamId,
        accesses: &A,
        job: Job,
        place: Place,
    ) -> Result<Resolved> {
        // Of a child graph: what a capture adds has its addresses at once.
        let later = stream_names::side(self.device, Site { act: Act::Read, stream, op: 0, place });
        let symbolic = |owner: GraphId| Finding::symbolic(&owner.to_string()).at(later.clone());
        let resolved = self.captures.with(stream, |adding| {
            adding.graph.body.resolve(accesses, job, place, |owner| Err(symbolic(owner).into()))
        });
        resolved.map_err(|error| self.refused(error, stream, place))?
    }

    /// Refuses to end the capture of a closure except at the end of that closure, whose caller gets the graph.
    fn check_end(&self, stream: StreamId, of_closure: Option<&Arc<Session>>) -> Result<()> {
        let Some(open) = self.captures.of(stream).and_then(|capture| self.captures.graph(capture)) else {
            return Ok(());
        };
        let ends_with = Some(&open.session).filter(|session| session.ends == Ends::WithClosure);
        if ends_with.map(Arc::as_ptr) != of_closure.map(Arc::as_ptr) {
            return Err(Invalid::EndsWithClosure { stream: stream_names::title(self.device, stream) }.into());
        }
        Ok(())
    }

    /// Keeps the payload of a node, which is known now. An error invalidates the capture.
    fn keep(&mut self, session: &Session, node: NodeId, seen: Result<Payload>) -> Result<()> {
        match (seen, self.captures.graph_mut(session.capture)) {
            (Ok(payload), Some((open, _))) => open.body.keep(node, payload),
            // The capture has ended: no caller wants it.
            (Ok(_), None) => {}
            (Err(error), _) => {
                self.captures.invalidate(session.capture);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Records an event at the tails of a captured stream.
    pub(crate) fn record(&mut self, stream: StreamId, place: Place) -> Result<CapturedAt> {
        match self.captures.record(stream) {
            Some(Ok(event)) => {
                let open = self.captures.graph(event.capture).expect("the event's capture goes on");
                Ok(CapturedAt { session: Arc::clone(&open.session), event })
            }
            Some(Err(error)) => Err(self.refused(error, stream, place)),
            None => Err(self.refused(Refusal::NotCapturing(stream), stream, place)),
        }
    }

    /// Makes a stream wait for a captured event, and join that capture.
    pub(crate) fn wait(&mut self, stream: (StreamId, StreamRole), at: &CapturedAt, place: Place) -> Result<()> {
        let waited = self.captures.wait(stream, &at.event);
        waited.map_err(|error| self.refused(error, stream.0, place))
    }

    /// Makes a stream wait for an event from outside of captures.
    pub(crate) fn wait_outside(&mut self, stream: StreamId, place: Place) -> Result<()> {
        let waited = self.captures.wait_outside(stream);
        waited.map_err(|error| self.refused(error, stream, place))
    }

    /// Checks a synchronisation or query of a stream.
    fn check_stream(&mut self, stream: StreamId, call: &'static str) -> Result<()> {
        let checked = self.captures.check_stream(stream, call);
        checked.map_err(|error| self.refused(error, stream, Place::Unknown))
    }

    /// Checks an unsafe call of the calling thread, whose mode is global.
    fn check_unsafe(&mut self, call: &'static str) -> Result<()> {
        let checked = self.captures.check_unsafe((calling(), CaptureMode::Global), call);
        checked.map_err(|error| self.refused(error, StreamId::HOST, Place::Unknown))
    }

    /// Checks a use of the legacy default stream, which would come after the blocking streams.
    fn check_legacy(&mut self, is_blocking: impl Fn(StreamId) -> bool) -> Result<()> {
        let checked = self.captures.check_legacy(is_blocking);
        checked.map_err(|error| self.refused(error, StreamId::HOST, Place::Unknown))
    }
}

impl Graphs {
    /// Refuses a synchronisation of the device during a capture. The capture is then invalid.
    #[inline]
    pub(crate) fn refuse_synchronize(&self) -> Result<()> {
        self.if_capturing(|recording| {
            let checked = recording.captures.check_synchronize(|_| true, "synchronize");
            checked.map_err(|error| recording.refused(error, StreamId::HOST, Place::Unknown))
        })
    }

    /// Ends the capture that began on a stream that is closed, as `trace` writes. The stream's state is locked.
    #[cold]
    pub(crate) fn end_with_stream<'g>(
        &self,
        stream: StreamId,
        _: &mut BiasedGuard<'g, State>,
        garbage: &'g Garbage,
        trace: impl FnOnce(),
    ) {
        let mut recording = lock(&self.captures);
        trace();
        if let Some(ended) = recording.captures.abandon(stream).map(|ended| garbage.hold(ended)) {
            self.closed(recording, &ended.graph().session);
        }
    }

    /// Discards the capture that began on a stream. The stream goes on. If none began on it, nothing happens.
    #[cold]
    fn discard<'g>(&self, stream: StreamId, state: &mut BiasedGuard<'g, State>, garbage: &'g Garbage) {
        let mut recording = lock(&self.captures);
        let Some(ended) = recording.captures.discard(stream).map(|ended| garbage.hold(ended)) else { return };
        let session = &ended.graph().session;
        // Before any thread does what this capture forbade.
        if let Some(tracer) = session.tracer() {
            tracer.capture_abandoned(stream);
        }
        state.capture = None;
        self.closed(recording, session);
    }

    /// Counts a capture that has begun.
    fn opened(&self) {
        self.open.fetch_add(1, Ordering::AcqRel);
        if let Some(counter) = &self.counted_by {
            lock(&TOGETHER).push((Arc::clone(counter), Arc::clone(&self.captures)));
            OPEN_TOGETHER.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Lets other threads see that a capture has ended, and forgets its memory. The end is traced, and the captures
    /// are locked since then. So no operation that comes after the end is traced before it.
    fn closed(&self, recording: Guard<'_, Recording>, session: &Session) {
        session.is_open.store(false, Ordering::Release);
        drop(recording);
        self.open.fetch_sub(1, Ordering::AcqRel);
        let mut together = lock(&TOGETHER);
        if let Some(at) = together.iter().position(|(_, captures)| Arc::ptr_eq(captures, &self.captures)) {
            together.swap_remove(at);
            OPEN_TOGETHER.fetch_sub(1, Ordering::AcqRel);
        }
        drop(together);
        self.leave_captured(session);
    }

    /// Refuses a call that waits for a stream or queries it, if the stream captures or a capture forbids unsafe calls.
    pub(crate) fn refuse_to_ask(&self, stream: StreamId, call: &'static str) -> Result<()> {
        self.if_capturing(|recording| recording.check_stream(stream, call))?;
        self.refuse_unsafe(call)
    }

    /// Refuses a call that a captured stream does not allow. The capture is then invalid.
    pub(crate) fn refuse_captured(&self, stream: StreamId, call: &'static str) -> Result<()> {
        self.if_capturing(|recording| recording.check_stream(stream, call))
    }

    /// Returns `true` if a capture may forbid unsafe calls.
    pub(crate) fn may_forbid(&self) -> bool {
        let open = if self.counted_by.is_some() { &OPEN_TOGETHER } else { &self.open };
        open.load(Ordering::Acquire) > 0
    }

    /// Refuses an unsafe call of the calling thread while a capture forbids it: a capture of this device, or of one
    /// whose captures are counted together with its own. The captures that forbid the call are then invalid.
    pub(crate) fn refuse_unsafe(&self, call: &'static str) -> Result<()> {
        let Some(counter) = &self.counted_by else {
            return self.if_capturing(|recording| recording.check_unsafe(call));
        };
        if !self.may_forbid() {
            return Ok(());
        }
        process::refuse_forked()?;
        let together: Vec<_> = lock(&TOGETHER).iter().filter(|(by, _)| by == counter).cloned().collect();
        let refused = together.iter().filter_map(|(_, captures)| lock(captures).check_unsafe(call).err());
        // Errors of captures that were valid come first.
        refused.min_by_key(is_invalidated).map_or(Ok(()), Err)
    }

    /// Checks a use of the legacy default stream: no blocking stream may be capturing.
    pub(crate) fn refuse_legacy_use(&self, context: &Context) -> Result<()> {
        self.if_capturing(|recording| {
            let streams = context.streams();
            let blocking = |id| streams.iter().any(|it| it.id == id && it.role.standing() == Standing::Tied);
            recording.check_legacy(blocking)
        })
    }

    /// Makes the work that a captured stream's window has seen the work of a node.
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
fn with_open<R>(session: &Session, act: impl FnOnce(&mut Open, &mut Uses) -> R) -> Option<R> {
    let mut recording = lock(&session.context.graphs.captures);
    let (open, uses) = recording.captures.graph_mut(session.capture)?;
    Some(act(open, uses))
}

/// Drops a buffer of a capture's memory: adds a free node after all uses. If the capture has ended, the memory stays
/// live.
pub(crate) fn drop_captured(session: &Arc<Session>, alloc: GraphAllocId) {
    with_open(session, |open, uses| {
        let body = &mut open.body;
        // A second free node is refused, and the drop has nothing to do then.
        if let Ok(free) = body.add_free(&uses.ends_of(&body.core, alloc), Memory::Own(alloc), Place::Unknown) {
            if let Some(tracer) = session.tracer() {
                tracer.captured_drop(session.id, alloc);
            }
            uses.added(&mut body.core, free);
            open.count_nodes();
        }
    });
}

/// Gives a buffer of a capture's memory a name: that of its alloc node.
pub(crate) fn name_captured(session: &Arc<Session>, alloc: GraphAllocId, name: &Arc<str>) {
    with_open(session, |open, _| open.body.name_alloc(alloc, name));
}

impl Stream {
    /// Begins a capture: from now on operations on this stream become nodes of a graph and do not run (CUDA:
    /// `cudaStreamBeginCapture`, global mode).
    ///
    /// Streams that wait for an event recorded on this one join the capture. This stream must wait for them before the
    /// end. Memory allocated in the capture belongs to the graph. If it is freed or dropped in the capture, it gets a
    /// free node. Otherwise it stays live after a launch of the graph, and is [taken](crate::graph::Launch::take) from
    /// that launch.
    ///
    /// # Errors
    /// The stream captures already, or is the legacy default stream.
    #[track_caller]
    pub fn begin_capture(&self) -> Result<()> {
        self.begin_capture_in(CaptureMode::Global)
    }

    /// As [`begin_capture`](Self::begin_capture), with a mode (CUDA: `cudaStreamCaptureMode`). The mode decides the
    /// threads whose unsafe calls are refused during the capture, and if another thread may end it. Unsafe calls are
    /// synchronisations and queries of streams and events, pinned memory, immediate frees, new pools and instances: the
    /// capture does not see them, and is invalid after one. A capture of a CUDA device forbids the unsafe calls of all
    /// CUDA devices of the process, as in CUDA. A capture of a host device forbids those of that device.
    ///
    /// # Errors
    /// As for [`begin_capture`](Self::begin_capture).
    #[track_caller]
    pub fn begin_capture_in(&self, mode: CaptureMode) -> Result<()> {
        self.begin_new(mode, Ends::ByCall, Location::caller()).map(drop)
    }

    fn begin_new(&self, mode: CaptureMode, ends: Ends, caller: &'static Location<'static>) -> Result<Arc<Session>> {
        process::refuse_forked()?;
        let context = &self.shared.context;
        context.graphs.check_numbers()?;
        self.begin(Body::to_capture(context, Addressing::Fixed), None, mode, ends, caller)
    }

    /// Begins a capture of a new graph, or after some nodes of an existing one.
    pub(super) fn begin(
        &self,
        body: Body,
        after: Option<&[NodeId]>,
        mode: CaptureMode,
        ends: Ends,
        caller: &'static Location<'static>,
    ) -> Result<Arc<Session>> {
        let (shared, graph) = (&self.shared, body.core.id());
        // Locked until the refusal is traced. After the end of the capture that forbids it, the same call would be
        // right.
        let mut state = shared.state.lock();
        self.try_begin(&mut state, body, after, mode, ends, caller).inspect_err(|error| {
            shared.note_refused(error, |tracer| tracer.capture_begun(shared.id, (graph, after), mode, caller));
        })
    }

    fn try_begin(
        &self,
        state: &mut State,
        body: Body,
        after: Option<&[NodeId]>,
        mode: CaptureMode,
        ends: Ends,
        caller: &'static Location<'static>,
    ) -> Result<Arc<Session>> {
        let shared = &self.shared;
        let _ = shared.enter_to_begin(state)?;
        let graphs = &shared.context.graphs;
        let id = body.core.id();
        let mut recording = lock(&graphs.captures);
        let (who, tails) = ((shared.id, shared.role), after.unwrap_or_default());
        let place = Place::Source(caller);
        let checked = recording.captures.check_begin(who, &body.core, tails);
        checked.map_err(|error| recording.refused(error, shared.id, place))?;
        let begun = Site { act: Act::Read, stream: shared.id, op: 0, place };
        let (context, capture) = (Arc::clone(&shared.context), recording.captures.next_id());
        let (is_open, nodes, allocs) = (AtomicBool::new(true), AtomicU32::new(0), AtomicU32::new(0));
        let session = Arc::new(Session { id, capture, context, ends, is_open, nodes, allocs });
        if let Some(tracer) = session.tracer() {
            tracer.capture_begun(shared.id, (id, after), mode, caller);
        }
        let open = Open { session: Arc::clone(&session), body };
        recording.captures.begin(shared.id, open, tails, (calling(), mode), begun);
        graphs.opened();
        state.capture = Some(Arc::clone(&session));
        state.epoch = 0;
        Ok(session)
    }

    /// Ends the capture that began on this stream (CUDA: `cudaStreamEndCapture`).
    ///
    /// # Errors
    /// The capture has ended without a graph: a side stream was not joined (the error has its last node), or the
    /// capture is invalid. The capture goes on: another stream began it; another thread began it, and it is not
    /// relaxed; it ends with the closure of [`capture`](Self::capture) or [`capture_to`](Self::capture_to).
    #[track_caller]
    pub fn end_capture(&self) -> Result<Graph> {
        self.end(None, Location::caller())
    }

    /// Ends a capture, by a call or at the end of the closure for which it was begun.
    fn end(&self, of_closure: Option<&Arc<Session>>, caller: &'static Location<'static>) -> Result<Graph> {
        process::refuse_forked()?;
        let shared = &self.shared;
        // Traced while the locks are held: a moment later this stream may capture, and the same call may be right.
        let refused = |error| {
            shared.note_refused(&error, |tracer| tracer.capture_ended(shared.id, caller));
            error
        };
        let garbage = Garbage::default();
        let mut state = shared.state.lock();
        let graphs = &shared.context.graphs;
        lock(&graphs.captures).check_end(shared.id, of_closure)?;
        // An error here has invalidated the capture, and its end reports that.
        let seen = shared.close_window(&mut state);
        if shared.role.standing() == Standing::Barrier {
            graphs.refuse_legacy_use(&shared.context).map_err(refused)?;
        }
        let mut recording = lock(&graphs.captures);
        let (number, at) = (recording.device, (shared.id, Place::Source(caller)));
        let ended = recording.captures.end(shared.id, calling());
        let ended = ended.map_err(|error| refused(recording.refused(error, at.0, at.1)))?;
        let mut ended = garbage.hold(ended);
        state.capture = None;
        // The end of an invalid capture is its end.
        let (joined, begun) = (ended.check(), ended.begun());
        let is_refused = !matches!(joined, Err(Refusal::Invalidated(_)));
        let made = seen.and_then(|()| joined.map_err(|error| rule(number, error, Some(begun), at)));
        if let Some(tracer) = ended.graph().session.tracer() {
            let error = made.as_ref().err().filter(|_| is_refused);
            shadow::judged(error, || tracer.capture_ended(shared.id, caller));
        }
        graphs.closed(recording, &ended.graph().session);
        drop(state);
        made?;
        let mut body = ended.take().into_graph().body;
        body.captured();
        Ok(Graph { body: Arc::new(body) })
    }

    /// Captures the operations of `record` on this stream. Returns the graph and the value of `record`.
    ///
    /// # Errors
    /// The error of `record`, or as for [`end_capture`](Self::end_capture). The capture has ended in any case.
    #[track_caller]
    pub fn capture<R>(&self, record: impl FnOnce(&Stream) -> Result<R>) -> Result<(Graph, R)> {
        let session = self.begin_new(CaptureMode::Global, Ends::WithClosure, Location::caller())?;
        self.record_until_end(&session, record)
    }

    /// As [`capture`](Self::capture), for a capture that has begun.
    #[track_caller]
    pub(super) fn record_until_end<R>(
        &self,
        session: &Arc<Session>,
        record: impl FnOnce(&Stream) -> Result<R>,
    ) -> Result<(Graph, R)> {
        let recorded = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| record(self)));
        match recorded {
            Ok(Ok(recorded)) => Ok((self.end(Some(session), Location::caller())?, recorded)),
            Ok(Err(error)) => {
                self.abandon(Some(session));
                Err(error)
            }
            Err(panic) => {
                self.abandon(Some(session));
                std::panic::resume_unwind(panic)
            }
        }
    }

    /// Discards the capture that began on the stream: that of a closure, or one that ends by a call.
    pub(crate) fn abandon(&self, of_closure: Option<&Arc<Session>>) {
        if process::is_forked() {
            return;
        }
        let garbage = Garbage::default();
        let mut state = self.shared.state.lock();
        // The work that the window has seen is discarded with the capture.
        let _ = self.shared.close_window(&mut state);
        let is_meant = |session: &Arc<Session>| match of_closure {
            Some(one) => Arc::ptr_eq(session, one),
            None => session.ends == Ends::ByCall,
        };
        if state.capture.as_ref().is_some_and(is_meant) {
            self.shared.context.graphs.discard(self.shared.id, &mut state, &garbage);
        }
    }
}
