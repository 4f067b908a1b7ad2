//! Streams whose operations become nodes: the capture of each stream, and the dependencies of its next node.
//!
//! A capture begins on one stream, its *origin*. Each member stream has *tails*: the nodes that its next node depends
//! on. An event recorded in a capture is a copy of the tails. A wait for it adds them to the tails of the waiting
//! stream, and a stream that was not capturing joins. Every operation, frees included, comes after all tails and
//! becomes the only one, so that what a wait merged is never dropped. At the end, all work of the side streams must
//! come before the origin's tails.
//!
//! The graph is the caller's, who adds each node after the tails and reports it. The errors that *invalidate* a capture
//! are CUDA's: after one, only the end of the capture is possible. A refused argument does not invalidate.
//!
//! Invariants: **member**: a stream is in at most one capture. **antichain**: no tail of a stream comes before another.

use std::fmt;

use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

use super::error::GraphError;
use super::fault::GraphFault;
use super::graph::Graph;
use super::node::{Access, Label, Memory, NodeId};
use super::uses::Uses;
use crate::ids::{HostId, StreamId};
use crate::life::Site;
pub use crate::op::CaptureMode;
use crate::op::{Act, StreamRole};

/// The number of a capture, counted up; never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CaptureId(pub u64);

impl fmt::Display for CaptureId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "capture {}", self.0)
    }
}

/// A thread that calls a driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller {
    /// The driver. All CUDA devices of a process have one.
    pub driver: u32,
    /// The thread.
    pub thread: u64,
}

impl From<HostId> for Caller {
    fn from(host: HostId) -> Self {
        Caller { driver: host.driver(), thread: host.thread().into() }
    }
}

/// The nodes that a stream's next node comes after.
pub type Tails = SmallVec<[NodeId; 2]>;

/// An event recorded in a capture: a position in the graph, not in time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CapturedEvent {
    /// The capture in which it was recorded.
    pub capture: CaptureId,
    /// The nodes that the event stands for.
    pub tails: Tails,
}

/// The reasons to refuse a call, each with CUDA's code.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CaptureError {
    /// `STREAM_CAPTURE_UNSUPPORTED` (900): the legacy default stream cannot be captured.
    LegacyStream,
    /// `STREAM_CAPTURE_UNSUPPORTED` (900): the call needs completed work, or acts at once.
    Unsupported {
        /// The call.
        call: &'static str,
        /// A capture that the call invalidates.
        capture: CaptureId,
    },
    /// `ILLEGAL_STATE` (401): a capture cannot begin twice.
    AlreadyCapturing(StreamId),
    /// `ILLEGAL_STATE` (401): there is no capture to end.
    NotCapturing(StreamId),
    /// `STREAM_CAPTURE_INVALIDATED` (901): an earlier error has invalidated the capture.
    Invalidated(CaptureId),
    /// `STREAM_CAPTURE_MERGE` (902): a wait would join two captures.
    Merge {
        /// The waiting stream.
        stream: StreamId,
        /// Its capture.
        here: CaptureId,
        /// The capture of the event.
        there: CaptureId,
    },
    /// `STREAM_CAPTURE_UNMATCHED` (903): a capture must end on the stream on which it began.
    Unmatched {
        /// The stream.
        stream: StreamId,
        /// Its capture.
        capture: CaptureId,
        /// The stream on which that began.
        origin: StreamId,
    },
    /// `STREAM_CAPTURE_UNJOINED` (904): nothing on the origin comes after the last work of a side stream.
    Unjoined {
        /// The side stream.
        stream: StreamId,
        /// The stream on which the capture began.
        origin: StreamId,
        /// Its last node.
        leaf: NodeId,
        /// That node's name and place.
        described: String,
    },
    /// `STREAM_CAPTURE_ISOLATION` (905): a captured stream waits for an event recorded outside of the capture.
    Isolation(StreamId),
    /// `STREAM_CAPTURE_IMPLICIT` (906): the legacy default stream would have to wait for a captured stream.
    Implicit(StreamId),
    /// `CAPTURED_EVENT` (907): the event stands for a node, not for work that runs. If its capture has not ended, the
    /// call has invalidated it.
    CapturedEvent(CaptureId),
    /// `STREAM_CAPTURE_WRONG_THREAD` (908): another thread began the capture, and its mode is not relaxed.
    WrongThread(CaptureId),
    /// The graph refused the node. The capture goes on.
    Graph(GraphError),
}

impl CaptureError {
    /// Returns the capture concerned, for an operation of `stream`.
    pub fn capture<T: AsMut<Graph>>(&self, captures: &Captures<T>, stream: StreamId) -> Option<CaptureId> {
        match *self {
            CaptureError::Unsupported { capture, .. }
            | CaptureError::CapturedEvent(capture)
            | CaptureError::WrongThread(capture) => Some(capture),
            CaptureError::Implicit(blocking) => captures.of(blocking),
            _ => captures.of(stream),
        }
    }

    /// Returns CUDA's error code.
    pub fn code(&self) -> u32 {
        match self {
            CaptureError::LegacyStream | CaptureError::Unsupported { .. } => 900,
            CaptureError::AlreadyCapturing(_) | CaptureError::NotCapturing(_) => 401,
            CaptureError::Invalidated(_) => 901,
            CaptureError::Merge { .. } => 902,
            CaptureError::Unmatched { .. } => 903,
            CaptureError::Unjoined { .. } => 904,
            CaptureError::Isolation(_) => 905,
            CaptureError::Implicit(_) => 906,
            CaptureError::CapturedEvent(_) => 907,
            CaptureError::WrongThread(_) => 908,
            CaptureError::Graph(_) => 1,
        }
    }

    /// Returns the error as a sentence. `title` returns the name of a stream. `origin` is the stream on which the
    /// invalidated capture began, if it is known.
    pub fn sentence(&self, title: impl Fn(StreamId) -> String, origin: Option<StreamId>) -> String {
        match self {
            CaptureError::LegacyStream => "the legacy default stream cannot be captured".to_owned(),
            CaptureError::Unsupported { call, .. } => match origin {
                Some(origin) => {
                    format!("{call} while {} is captured: that makes the capture invalid", title(origin))
                }
                None => format!("{call} while a capture goes on: that makes it invalid"),
            },
            CaptureError::AlreadyCapturing(stream) => format!("{} is being captured already", title(*stream)),
            CaptureError::NotCapturing(stream) => format!("{} is not being captured", title(*stream)),
            CaptureError::Invalidated(capture) => {
                format!("{capture} is invalid because of an earlier error, and its end makes no graph")
            }
            CaptureError::Merge { stream, .. } => format!(
                "{} is in one capture and waits for an event recorded in another: they cannot be merged",
                title(*stream)
            ),
            CaptureError::Unmatched { stream, origin, .. } => {
                format!("{} joined a capture that began on {}, and is to end there", title(*stream), title(*origin))
            }
            CaptureError::Unjoined { stream, described, .. } => {
                format!("the capture ends, and {} was not joined: its last node is {described}", title(*stream))
            }
            CaptureError::Isolation(stream) => {
                format!("{} is being captured and waits for an event from outside", title(*stream))
            }
            CaptureError::Implicit(stream) => {
                format!("the legacy default stream is used while {}, a blocking stream, is captured", title(*stream))
            }
            CaptureError::CapturedEvent(_) => "the event was recorded in a capture: it stands for a node and never \
                                               completes; a capture that goes on is invalid from now on"
                .to_owned(),
            CaptureError::WrongThread(capture) => format!("{capture} was begun by another thread"),
            CaptureError::Graph(error) => error.to_string(),
        }
    }

    /// Returns the advice. `title` returns the name of a stream.
    pub fn help(&self, title: impl Fn(StreamId) -> String) -> String {
        let help = match self {
            CaptureError::Unjoined { stream, origin, .. } => {
                let (stream, origin) = (title(*stream), title(*origin));
                return format!("make {origin} wait for an event recorded on {stream} after its last operation");
            }
            CaptureError::Isolation(_) => "record the event in the capture, or wait with the external flag",
            CaptureError::Merge { .. } => "join streams of one capture only",
            CaptureError::LegacyStream => "capture a stream that the program made",
            CaptureError::Unsupported { .. } | CaptureError::Implicit(_) => "do it before or after the capture",
            CaptureError::CapturedEvent(_) => {
                "record the event again outside of the capture, after the work that is meant"
            }
            CaptureError::Invalidated(_) => "begin another capture",
            _ => "end the capture where it began, and once",
        };
        help.to_owned()
    }
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let title = |stream: StreamId| stream.to_string();
        match self {
            CaptureError::Graph(error) => error.fmt(f),
            _ => write!(f, "{}; {}", self.sentence(title, None), self.help(title)),
        }
    }
}

impl std::error::Error for CaptureError {}

impl From<GraphError> for CaptureError {
    fn from(error: GraphError) -> Self {
        CaptureError::Graph(error)
    }
}

/// One capture.
#[derive(Debug)]
struct Capture<T> {
    origin: StreamId,
    caller: Caller,
    mode: CaptureMode,
    is_valid: bool,
    members: FxHashMap<StreamId, Tails>,
    graph: T,
    uses: Uses,
    begun: Site,
}

/// A captured stream's next node: the graph that it is added to.
#[derive(Debug)]
pub struct Adding<'a, T> {
    /// The graph of the capture.
    pub graph: &'a mut T,
    /// The nodes that the node comes after.
    pub tails: &'a [NodeId],
    uses: &'a Uses,
}

impl<T: AsMut<Graph>> Adding<'_, T> {
    /// Checks the uses of memory by the node: as [`Uses::check`].
    ///
    /// # Errors
    /// The first pair that is wrong.
    pub fn check(
        &mut self,
        accesses: &[Access],
        may_share: bool,
        noun: &'static str,
        label: &Label,
    ) -> Result<(), Box<GraphFault>> {
        self.uses.check(self.graph.as_mut(), self.tails, accesses, may_share, noun, label)
    }

    /// Checks the free of memory by the node: as [`Uses::check_free`].
    ///
    /// # Errors
    /// The pair that is wrong.
    pub fn check_free(&mut self, memory: Memory, label: &Label) -> Result<(), Box<GraphFault>> {
        self.uses.check_free(self.graph.as_mut(), self.tails, memory, label)
    }
}

/// A capture that has ended.
#[derive(Debug)]
pub struct Ended<T> {
    /// Its number.
    pub capture: CaptureId,
    /// The streams that were in it. They are no longer captured.
    pub streams: Vec<StreamId>,
    was: Capture<T>,
}

impl<T> Ended<T> {
    /// Returns where the capture began.
    pub fn begun(&self) -> Site {
        self.was.begun
    }

    /// Returns `true` if no error had invalidated it.
    pub fn was_valid(&self) -> bool {
        self.was.is_valid
    }

    /// Returns the graph, as it was captured.
    pub fn graph(&self) -> &T {
        &self.was.graph
    }

    /// Takes the graph.
    pub fn into_graph(self) -> T {
        self.was.graph
    }
}

impl<T: AsMut<Graph>> Ended<T> {
    /// Checks that the capture may become a graph.
    ///
    /// # Errors
    /// [`CaptureError::Invalidated`], [`CaptureError::Unjoined`].
    pub fn check(&mut self) -> Result<(), CaptureError> {
        if !self.was.is_valid {
            return Err(CaptureError::Invalidated(self.capture));
        }
        let Capture { members, origin, graph, .. } = &mut self.was;
        let graph = graph.as_mut();
        let index = graph.refresh();
        let joined = &members[&*origin];
        let is_loose = |node: &NodeId| !joined.iter().any(|&tail| index.reaches_or_is(*node, tail));
        let mut loose = self.streams.iter().filter_map(|it| Some((*it, *members[it].iter().find(|it| is_loose(it))?)));
        let Some((stream, leaf)) = loose.next() else { return Ok(()) };
        let site = graph.site(leaf, Act::Read);
        let described = site.map_or_else(|| leaf.to_string(), |site| site.describe());
        Err(CaptureError::Unjoined { stream, origin: *origin, leaf, described })
    }
}

/// The captures that have not ended: see the module. `T` has the graph of a capture, and what its owner keeps with it.
#[derive(Debug)]
pub struct Captures<T> {
    begun: u64,
    captures: FxHashMap<CaptureId, Capture<T>>,
    streams: FxHashMap<StreamId, CaptureId>,
}

impl<T> Default for Captures<T> {
    fn default() -> Self {
        Self { begun: 0, captures: FxHashMap::default(), streams: FxHashMap::default() }
    }
}

impl<T: AsMut<Graph>> Captures<T> {
    /// Returns the number that the next capture gets.
    pub fn next_id(&self) -> CaptureId {
        CaptureId(self.begun + 1)
    }

    /// Returns `true` if no capture goes on.
    pub fn is_empty(&self) -> bool {
        self.captures.is_empty()
    }

    /// Returns the number of captures that go on.
    pub fn len(&self) -> usize {
        self.captures.len()
    }

    /// Returns the graph of a capture.
    pub fn graph(&self, capture: CaptureId) -> Option<&T> {
        Some(&self.captures.get(&capture)?.graph)
    }

    /// Returns the graph of a capture, to be changed, and the uses of memory by its nodes.
    pub fn graph_mut(&mut self, capture: CaptureId) -> Option<(&mut T, &mut Uses)> {
        let Capture { graph, uses, .. } = self.captures.get_mut(&capture)?;
        Some((graph, uses))
    }

    /// Returns the graphs of all captures.
    pub fn graphs(&self) -> impl Iterator<Item = &T> {
        self.captures.values().map(|capture| &capture.graph)
    }

    /// Returns where a capture began.
    pub fn begun(&self, capture: CaptureId) -> Option<Site> {
        Some(self.captures.get(&capture)?.begun)
    }

    /// Returns the stream on which a capture began.
    pub fn origin(&self, capture: CaptureId) -> Option<StreamId> {
        Some(self.captures.get(&capture)?.origin)
    }

    /// Returns where each valid capture began.
    pub fn all_begun(&self) -> impl Iterator<Item = Site> {
        self.captures.values().filter(|capture| capture.is_valid).map(|capture| capture.begun)
    }

    /// Returns the capture that a stream is in.
    pub fn of(&self, stream: StreamId) -> Option<CaptureId> {
        self.streams.get(&stream).copied()
    }

    /// Returns `true` if a capture has not ended and is valid.
    pub fn is_valid(&self, capture: CaptureId) -> bool {
        self.captures.get(&capture).is_some_and(|capture| capture.is_valid)
    }

    /// Returns the nodes that the stream's next node comes after, or `None` if it is not captured.
    pub fn tails(&self, stream: StreamId) -> Option<&[NodeId]> {
        Some(&self.captures[self.streams.get(&stream)?].members[&stream])
    }

    /// Checks that a capture may begin on a stream, into a graph, after `tails`.
    ///
    /// # Errors
    /// [`CaptureError::LegacyStream`], [`CaptureError::AlreadyCapturing`], an unknown tail.
    pub fn check_begin(
        &self,
        (origin, role): (StreamId, StreamRole),
        graph: &Graph,
        tails: &[NodeId],
    ) -> Result<(), CaptureError> {
        if role == StreamRole::Legacy {
            return Err(CaptureError::LegacyStream);
        }
        if self.streams.contains_key(&origin) {
            return Err(CaptureError::AlreadyCapturing(origin));
        }
        match tails.iter().find(|id| graph.node(**id).is_none()) {
            Some(unknown) => Err(GraphError::UnknownNode(*unknown).into()),
            None => Ok(()),
        }
    }

    /// Begins a capture on `origin` into `graph` (CUDA: `cudaStreamBeginCapture`, `...ToGraph`), which
    /// [`check_begin`](Self::check_begin) allows. Its first nodes come after `tails`, which are nodes of that graph.
    /// `begun` is the place of the call.
    pub fn begin(
        &mut self,
        origin: StreamId,
        mut graph: T,
        tails: &[NodeId],
        (caller, mode): (Caller, CaptureMode),
        begun: Site,
    ) -> CaptureId {
        let id = self.next_id();
        self.begun = id.0;
        let uses = Uses::of(graph.as_mut());
        let members = FxHashMap::default();
        let mut capture = Capture { origin, caller, mode, is_valid: true, members, graph, uses, begun };
        capture.merge(origin, tails);
        self.captures.insert(id, capture);
        self.streams.insert(origin, id);
        id
    }

    /// Acts on the graph of the capture that a stream is in, as an operation of the stream does.
    ///
    /// # Errors
    /// [`CaptureError::NotCapturing`], [`CaptureError::Invalidated`].
    pub fn with<R>(&mut self, stream: StreamId, act: impl FnOnce(&mut Adding<'_, T>) -> R) -> Result<R, CaptureError> {
        let id = self.of(stream).ok_or(CaptureError::NotCapturing(stream))?;
        let Capture { graph, members, uses, .. } = self.valid(id)?;
        Ok(act(&mut Adding { graph, tails: &members[&stream], uses }))
    }

    /// Adds the node of an operation of a captured stream, after all the stream's tails.
    ///
    /// # Errors
    /// [`CaptureError::NotCapturing`], [`CaptureError::Invalidated`]; within it the error of `add`, and the capture is
    /// as before.
    pub fn add<R, E>(
        &mut self,
        stream: StreamId,
        add: impl FnOnce(&mut Adding<'_, T>) -> Result<(NodeId, R), E>,
    ) -> Result<Result<R, E>, CaptureError> {
        let added = self.with(stream, add)?;
        let (node, result) = match added {
            Ok(added) => added,
            Err(error) => return Ok(Err(error)),
        };
        if let Some(capture) = self.of(stream).and_then(|id| self.captures.get_mut(&id)) {
            capture.uses.added(capture.graph.as_mut(), node);
            capture.members.insert(stream, smallvec![node]);
        }
        Ok(Ok(result))
    }

    /// Records an event on a captured stream (CUDA: `cudaEventRecord`). Returns `None` if the stream is not captured.
    ///
    /// # Errors
    /// [`CaptureError::Invalidated`].
    pub fn record(&mut self, stream: StreamId) -> Option<Result<CapturedEvent, CaptureError>> {
        let id = self.of(stream)?;
        Some(self.valid(id).map(|capture| CapturedEvent { capture: id, tails: capture.members[&stream].clone() }))
    }

    /// Makes a stream wait for an event that was recorded in a capture (CUDA: `cudaStreamWaitEvent`). A stream that is
    /// not captured joins.
    ///
    /// # Errors
    /// The event's capture has ended ([`CaptureError::CapturedEvent`]) or is invalid, or the stream's is invalid; the
    /// stream is the legacy default stream, and the event's capture is then invalid; the stream is in another capture,
    /// and both captures are then invalid.
    pub fn wait(&mut self, (stream, role): (StreamId, StreamRole), event: &CapturedEvent) -> Result<(), CaptureError> {
        if let Some(here) = self.of(stream) {
            self.valid(here)?;
        }
        let there = event.capture;
        if !self.captures.contains_key(&there) {
            return Err(CaptureError::CapturedEvent(there));
        }
        match self.of(stream) {
            Some(here) if here != there => {
                self.invalidate(here);
                self.invalidate(there);
                return Err(CaptureError::Merge { stream, here, there });
            }
            None if role == StreamRole::Legacy => {
                self.invalidate(there);
                return Err(CaptureError::LegacyStream);
            }
            _ => {}
        }
        self.valid(there)?.merge(stream, &event.tails);
        self.streams.insert(stream, there);
        Ok(())
    }

    /// Checks a wait of a stream for an event that was recorded outside of captures. A captured stream must not wait.
    ///
    /// # Errors
    /// [`CaptureError::Isolation`]; the capture is then invalid. [`CaptureError::Invalidated`] if it was already.
    pub fn wait_outside(&mut self, stream: StreamId) -> Result<(), CaptureError> {
        match self.of(stream) {
            None => Ok(()),
            Some(id) => {
                self.valid(id)?;
                self.invalidate(id);
                Err(CaptureError::Isolation(stream))
            }
        }
    }

    /// Checks a synchronisation or query of a stream, which must not be captured. The check of
    /// [`check_unsafe`](Self::check_unsafe) is separate.
    ///
    /// # Errors
    /// [`CaptureError::Unsupported`]; the capture is then invalid. [`CaptureError::Invalidated`] if it was already.
    pub fn check_stream(&mut self, stream: StreamId, call: &'static str) -> Result<(), CaptureError> {
        let Some(capture) = self.of(stream) else { return Ok(()) };
        self.valid(capture)?.is_valid = false;
        Err(CaptureError::Unsupported { call, capture })
    }

    /// Refuses the synchronisation or query of an event that was recorded in a capture.
    ///
    /// # Errors
    /// Always [`CaptureError::CapturedEvent`]. If the capture has not ended, it is then invalid.
    pub fn check_event(&mut self, event: &CapturedEvent) -> Result<(), CaptureError> {
        self.invalidate(event.capture);
        Err(CaptureError::CapturedEvent(event.capture))
    }

    /// Checks an unsafe call ([`What::unsafe_call`](crate::op::What::unsafe_call)) of a thread whose own mode is
    /// `mode`.
    ///
    /// # Errors
    /// [`CaptureError::Unsupported`] if both modes forbid it; the captures that forbid it are then invalid.
    /// [`CaptureError::Invalidated`] if all of them were already.
    pub fn check_unsafe(
        &mut self,
        (caller, mode): (Caller, CaptureMode),
        call: &'static str,
    ) -> Result<(), CaptureError> {
        let forbids = |capture: &Capture<T>| match (mode, capture.mode) {
            (CaptureMode::Relaxed, _) | (_, CaptureMode::Relaxed) => false,
            (CaptureMode::Global, CaptureMode::Global) => capture.caller.driver == caller.driver,
            _ => capture.caller == caller,
        };
        self.spoil_each(forbids, call)
    }

    /// Checks the synchronisation of a device. Captures on that device forbid it, in any mode and begun by any thread.
    /// `is_of_it` returns `true` for the streams of the device.
    ///
    /// # Errors
    /// As for [`check_unsafe`](Self::check_unsafe).
    pub fn check_synchronize(
        &mut self,
        is_of_it: impl Fn(StreamId) -> bool,
        call: &'static str,
    ) -> Result<(), CaptureError> {
        self.spoil_each(|capture| capture.members.keys().any(|stream| is_of_it(*stream)), call)
    }

    /// Invalidates the captures that forbid a call.
    fn spoil_each(&mut self, forbids: impl Fn(&Capture<T>) -> bool, call: &'static str) -> Result<(), CaptureError> {
        let forbidding = self.captures.iter_mut().filter(|(_, capture)| forbids(capture));
        // Captures that were valid come first.
        let first = forbidding.map(|(id, capture)| (!std::mem::take(&mut capture.is_valid), *id)).min();
        match first {
            None => Ok(()),
            Some((false, capture)) => Err(CaptureError::Unsupported { call, capture }),
            Some((true, capture)) => Err(CaptureError::Invalidated(capture)),
        }
    }

    /// Checks a use of the legacy default stream, which would wait for the streams for which `is_blocking` holds.
    ///
    /// # Errors
    /// [`CaptureError::Implicit`] if one of them is captured; the captures of all of them are then invalid.
    pub fn check_legacy(&mut self, is_blocking: impl Fn(StreamId) -> bool) -> Result<(), CaptureError> {
        let mut blocking: Vec<(StreamId, CaptureId)> =
            self.streams.iter().filter(|(stream, _)| is_blocking(**stream)).map(|(a, b)| (*a, *b)).collect();
        blocking.sort_unstable();
        for (_, id) in &blocking {
            self.invalidate(*id);
        }
        blocking.first().map_or(Ok(()), |(stream, _)| Err(CaptureError::Implicit(*stream)))
    }

    /// Ends the capture that began on `stream` (CUDA: `cudaStreamEndCapture`). [`Ended::check`] decides if it becomes a
    /// graph. It has ended in both cases.
    ///
    /// # Errors
    /// The capture goes on if this is not the call to end it: [`CaptureError::NotCapturing`],
    /// [`CaptureError::Unmatched`] (it is then invalid), [`CaptureError::WrongThread`].
    pub fn end(&mut self, stream: StreamId, caller: Caller) -> Result<Ended<T>, CaptureError> {
        let id = self.of(stream).ok_or(CaptureError::NotCapturing(stream))?;
        let capture = &self.captures[&id];
        if capture.origin != stream {
            let origin = capture.origin;
            self.invalidate(id);
            return Err(CaptureError::Unmatched { stream, capture: id, origin });
        }
        if capture.mode != CaptureMode::Relaxed && capture.caller != caller {
            return Err(CaptureError::WrongThread(id));
        }
        Ok(self.take(id))
    }

    /// Ends the capture that began on the stream, without a graph. Returns `None`, and does nothing, if none began on
    /// it.
    pub fn discard(&mut self, stream: StreamId) -> Option<Ended<T>> {
        self.of(stream).filter(|id| self.captures[id].origin == stream)?;
        self.abandon(stream)
    }

    /// Records that the stream is destroyed. If a capture began on it, that ends without a graph. If it had joined one,
    /// its work stays there and must be joined before the end. CUDA does the same: once the origin is destroyed, no
    /// call is refused because of that capture any more (an H100, driver 580.159).
    pub fn abandon(&mut self, stream: StreamId) -> Option<Ended<T>> {
        let id = self.streams.remove(&stream).filter(|id| self.captures[id].origin == stream)?;
        Some(self.take(id))
    }

    fn take(&mut self, id: CaptureId) -> Ended<T> {
        let was = self.captures.remove(&id).expect("member: the stream's capture goes on");
        let mut streams: Vec<StreamId> = was.members.keys().copied().collect();
        streams.sort_unstable();
        self.streams.retain(|_, other| *other != id);
        Ended { capture: id, streams, was }
    }

    /// Invalidates a capture after an error that it cannot recover from. Only its end is possible then.
    pub fn invalidate(&mut self, id: CaptureId) {
        if let Some(capture) = self.captures.get_mut(&id) {
            capture.is_valid = false;
        }
    }

    fn valid(&mut self, id: CaptureId) -> Result<&mut Capture<T>, CaptureError> {
        self.captures.get_mut(&id).filter(|capture| capture.is_valid).ok_or(CaptureError::Invalidated(id))
    }
}

impl<T: AsMut<Graph>> Capture<T> {
    /// Puts a stream, which may be new in the capture, after more nodes.
    fn merge(&mut self, stream: StreamId, more: &[NodeId]) {
        let index = self.graph.as_mut().refresh();
        let tails = self.members.entry(stream).or_default();
        for &node in more {
            if !tails.iter().any(|&tail| index.reaches_or_is(node, tail)) {
                tails.retain(|tail| !index.reaches(*tail, node));
                tails.push(node);
            }
        }
    }
}
