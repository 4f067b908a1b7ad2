//! Work of captured streams: each operation becomes a node, and operations that cannot be captured are refused.
//!
//! [`Captures`](crate::graph::Captures) decides which capture a stream is in and what invalidates a capture, as in the
//! library. Knows graphs and streams; no launch.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::addresses::empty_graph;
use super::checker::{Call, Checker, Stands, Step, quiet};
use super::effects::Captured as CapturedInto;
use super::finding::Finding;
use super::graph_state::Captured;
use super::graphs::{Pins, used};
use super::lives::{Found, Named};
use super::names::Held;
use super::timeline::StreamIndex;
use crate::graph::{
    Adding, Asked, CaptureError, CapturedEvent, Ended, EventKey, Graph, GraphError, GraphFault, Label,
    Memory as NodeMemory, NodeKind, Work,
};
use crate::ids::{DeviceId, EventId, GraphId, NodeId, PoolId, StreamId};
use crate::life::{Kind, Site};
use crate::op::{Access, Act, CaptureMode, Memory, Name, Thing, Trust, What};
use crate::order::default_streams::Standing;

impl Checker {
    /// Returns `true` if an operation belongs to an invalid capture. It is not done, and the reason was reported
    /// before.
    fn is_spoiled(&self, what: &What) -> bool {
        let stream = match *what {
            What::Launch { stream, .. }
            | What::Copy { stream, .. }
            | What::Alloc { stream, .. }
            | What::Free { stream, .. }
            | What::EventRecord { stream, .. }
            | What::EventWait { stream, .. }
            | What::StreamSynchronize { stream }
            | What::StreamQuery { stream, .. }
            | What::GraphLaunch { stream, .. }
            | What::GraphUpload { stream, .. } => stream,
            _ => return false,
        };
        let captures = &self.graphs.captures;
        captures.of(stream).is_some_and(|capture| !captures.is_valid(capture))
    }

    /// Checks an operation of a stream while a capture is in progress: the legacy default stream must not have to wait
    /// for a captured stream.
    #[cold]
    pub(super) fn enter_while_capturing(&mut self, call: Call<'_>, stream_index: StreamIndex) -> Step<StreamIndex> {
        let stream = self.time.at(stream_index);
        if stream.role.standing() == Standing::Barrier {
            let (home, time) = (stream.home, &self.time);
            let checked = self.graphs.captures.check_legacy(|stream| time.is_blocking(stream, home));
            checked.map_err(|error| self.capture_refused(call, error, self.time.at(stream_index).kept.id))?;
        }
        Ok(stream_index)
    }

    /// Refuses a call that is not allowed on a captured stream.
    pub(super) fn refuse_in_capture(&mut self, call: Call<'_>, stream: StreamId, what: &'static str) -> Step {
        if call.op.host.has_returned() {
            return Ok(());
        }
        let checked = self.graphs.captures.check_stream(stream, what);
        checked.map_err(|error| self.capture_refused(call, error, stream))
    }

    /// Refuses what captures in progress forbid: work of an invalid capture, and unsafe calls.
    #[cold]
    pub(super) fn refuse_while_capturing(&mut self, call: Call<'_>) -> Step {
        if call.op.host.has_returned() {
            return Ok(());
        }
        if self.is_spoiled(&call.op.what) {
            return Err(quiet());
        }
        match call.op.what {
            // `free_now` makes this check, once it has found the memory.
            What::FreeNow { .. } => Ok(()),
            // On the legacy default stream, the call first waits for captured blocking streams. Their captures become
            // invalid (906), and all others go on (measured on an H200, driver 580).
            What::StreamSynchronize { stream } | What::StreamQuery { stream, .. } => {
                if let Some(stream_index) = self.time.look(call.op.host, stream) {
                    self.enter_while_capturing(call, stream_index)?;
                }
                self.refuse_unsafe(call)
            }
            _ => self.refuse_unsafe(call),
        }
    }

    /// Refuses an unsafe call that a capture forbids.
    pub(super) fn refuse_unsafe(&mut self, call: Call<'_>) -> Step {
        let may_forbid = self.graphs.is_capturing() && !call.op.host.has_returned();
        let what = call.op.what.unsafe_call().filter(|_| may_forbid);
        let Some(what) = what.filter(|_| self.is_unsafe_alone(&call.op.what)) else { return Ok(()) };
        let host = call.op.host;
        let caller = (host.into(), self.graphs.modes.get(&host).copied().unwrap_or_default());
        let checked = self.graphs.captures.check_unsafe(caller, what);
        checked.map_err(|error| self.capture_refused(call, error, StreamId::HOST))
    }

    /// Returns `true` if the capture modes alone decide that a call is refused. They do not if the call is about a
    /// captured stream or event.
    pub(super) fn is_unsafe_alone(&self, what: &What) -> bool {
        match *what {
            What::StreamSynchronize { stream } | What::StreamQuery { stream, .. } => {
                self.graphs.captures.of(stream).is_none()
            }
            What::EventSynchronize { event } | What::EventQuery { event, .. } => {
                !matches!(self.events.get(&event).map(|event| &event.stands), Some(Stands::Captured(_)))
            }
            ref other => other.unsafe_call().is_some(),
        }
    }

    /// Refuses the synchronisation of a device, or of all devices, if one of its streams is captured.
    pub(super) fn refuse_synchronize(&mut self, call: Call<'_>, device: Option<DeviceId>) -> Step {
        if !self.graphs.is_capturing() || call.op.host.has_returned() {
            return Ok(());
        }
        let time = &self.time;
        let is_of_it = |member| {
            let its = time.stream(member).map(|stream| stream.kept.device);
            device.is_none_or(|device| its == Some(device))
        };
        let checked = self.graphs.captures.check_synchronize(is_of_it, "the device is synchronized");
        checked.map_err(|error| self.capture_refused(call, error, StreamId::HOST))
    }

    pub(super) fn captured_alloc(
        &mut self,
        call: Call<'_>,
        stream_index: StreamIndex,
        memory: Memory,
        (pool, bytes): (PoolId, u64),
        name: Option<Name>,
    ) -> Step {
        let holder = self.graphs.others(self.captured_graph(stream_index), None).holder;
        let mut addresses = std::mem::take(&mut self.graphs.addresses);
        let added = self.captured_node(call, stream_index, "allocated", name, |graph, tails, label| {
            graph.check_unmoved(holder)?;
            let (node, alloc) = addresses.add_alloc(graph, tails, bytes, label)?;
            Ok((node, (graph.id(), alloc, graph.addressing())))
        });
        self.graphs.addresses = addresses;
        let (graph, alloc, addressing) = added?;
        self.graphs.names.add((graph, alloc), memory, addressing);
        self.keep_access(call, stream_index, memory, pool);
        self.lives.name(memory, Named::Node { graph, alloc });
        Ok(())
    }

    pub(super) fn captured_work(
        &mut self,
        call: Call<'_>,
        stream_index: StreamIndex,
        work: Work,
        accesses: &[Access],
        trust: Trust,
        name: Option<Name>,
    ) -> Step {
        let graph = self.captured_graph(stream_index);
        let sites: SmallVec<[Site; 2]> = accesses.iter().map(|it| self.site(call, stream_index, it.act)).collect();
        let named = accesses;
        let (accesses, pins) = self.node_accesses(call, graph, named, &sites)?;
        if work == Work::Copy {
            let subject = |at: usize| self.named_by_node(call, graph, &named[at], &accesses[at]);
            self.refuse_overlap(call, self.site(call, stream_index, Act::Write), used(&accesses), subject)?;
        }
        self.check_node_reach(call, stream_index, named, &accesses)?;
        let may_share = !self.looks_for_races(trust);
        self.look_at(call, stream_index, name, |adding, label| adding.check(&accesses, may_share, work.noun(), label))?;
        self.captured_node(call, stream_index, "launched", name, |graph, tails, label| {
            let node = graph.add_work(work, tails, &accesses, label)?;
            pins.into_iter().for_each(|pin| graph.pin(pin));
            graph.set_may_share(node, may_share);
            Ok((node, ()))
        })
    }

    pub(super) fn captured_free(&mut self, call: Call<'_>, stream_index: StreamIndex, memory: Memory) -> Step {
        let graph = self.captured_graph(stream_index);
        let later = self.site(call, stream_index, Act::Free);
        let found = match self.node_memory(call, graph, memory, later, &mut Pins::new())? {
            NodeMemory::External { .. } => {
                let name = call.names.title(Thing::Memory(memory));
                return Err(Box::new(Finding::foreign_free(&name).at(self.act_side(call, later))));
            }
            found => found,
        };
        self.look_at(call, stream_index, None, |adding, label| adding.check_free(found, label))?;
        let key = self.graphs.own(graph).and_then(|graph| graph.freed_alone(found));
        let others = self.graphs.others(graph, key);
        self.captured_node(call, stream_index, "freed", None, |graph, tails, label| {
            Ok((graph.add_only_free(tails, found, label, others)?, ()))
        })?;
        self.graphs.grant(key, graph);
        Ok(())
    }

    /// Turns the drop of memory that a capture in progress allocates into a free node. Returns `false` for other
    /// memory.
    pub(super) fn captured_drop(&mut self, call: Call<'_>, memory: Memory) -> Step<bool> {
        let Found::Named(Named::Node { graph, alloc }) = self.lives.find(memory) else { return Ok(false) };
        let capture = self.graphs.capture_into(graph);
        let Some(stream) = capture.and_then(|capture| self.graphs.captures.origin(capture)) else { return Ok(false) };
        // The stream learns nothing by a node.
        let Some(stream_index) = self.time.look(call.op.host, stream) else { return Ok(false) };
        // The free comes after all nodes that use the memory, on whatever streams they were captured.
        let (label, others) = (self.label(call, None, Some(stream)), self.graphs.others(graph, Some((graph, alloc))));
        if let Some((Captured { graph: into, .. }, uses)) = capture.and_then(|it| self.graphs.captures.graph_mut(it)) {
            let after = uses.ends_of(into, alloc);
            let added = into.add_only_free(&after, NodeMemory::Own(alloc), label, others);
            self.time.asked.tell(|effects| effects.captured = Some(CapturedInto { graph, after: after.into_vec() }));
            match added {
                Ok(node) => {
                    uses.added(into, node);
                    self.graphs.grant(Some((graph, alloc)), graph);
                }
                // Another graph frees it, so the drop has nothing to do.
                Err(GraphError::FreedByOther { .. } | GraphError::Copy(_)) => {}
                Err(error) => return Err(self.graph_refused(call, graph, error, stream_index)),
            }
        }
        Ok(true)
    }

    /// Captures an external record or an external wait.
    pub(super) fn captured_event(
        &mut self,
        call: Call<'_>,
        stream_index: StreamIndex,
        event: EventId,
        is_record: bool,
    ) -> Step {
        let key = EventKey(u64::from(event.0));
        let (work, verb) = match is_record {
            true => (Work::EventRecord(key), "recorded"),
            false => (Work::EventWait(key), "waited for"),
        };
        self.captured_node(call, stream_index, verb, None, |graph, tails, label| {
            Ok((graph.add_work(work, tails, &[], label)?, ()))
        })
    }

    pub(super) fn captured_record(&mut self, call: Call<'_>, stream_index: StreamIndex) -> Step<CapturedEvent> {
        let stream = self.time.at(stream_index).kept.id;
        let recorded = self.graphs.captures.record(stream).unwrap_or(Err(CaptureError::NotCapturing(stream)));
        recorded.map_err(|error| self.capture_refused(call, error, stream))
    }

    pub(super) fn captured_wait(&mut self, call: Call<'_>, stream_index: StreamIndex, event: &CapturedEvent) -> Step {
        let stream = self.time.at(stream_index).kept.id;
        let is_known = self.graphs.captures.of(stream) == Some(event.capture) && self.covers_tails(stream, event);
        let waited = self.graphs.captures.wait((stream, self.time.at(stream_index).role), event);
        waited.map_err(|error| self.capture_refused(call, error, stream))?;
        let site = self.site(call, stream_index, Act::Read);
        self.time.at_mut(stream_index).note("waited for", call.op.place);
        if is_known {
            let sentence = format!("{} waits for captured work that it comes after already", self.title(call, stream));
            let mut finding = Finding::new(Kind::RedundantWait, sentence, "leave this wait out");
            finding.later = Some(self.side(call, site, "waited"));
            self.advise_against(call.op.place, finding);
        } else {
            self.note_needed(call.op.place);
        }
        Ok(())
    }

    fn covers_tails(&mut self, stream: StreamId, event: &CapturedEvent) -> bool {
        let covered = self.graphs.captures.with(stream, |Adding { graph, tails, .. }| {
            let index = graph.graph.refresh();
            event.tails.iter().all(|&node| tails.iter().any(|&tail| index.reaches_or_is(node, tail)))
        });
        covered.unwrap_or(false)
    }

    pub(super) fn captured_wait_outside(&mut self, call: Call<'_>, stream_index: StreamIndex, event: EventId) -> Step {
        let stream = self.time.at(stream_index).kept.id;
        let waited = self.graphs.captures.wait_outside(stream);
        waited.map_err(|error| {
            let mut refused = self.capture_refused(call, error, stream);
            if let Some(Stands::Recorded(recorded)) = self.events.get(&event).map(|event| &event.stands) {
                refused.earlier = Some(self.side(call, recorded.site, "recorded"));
            }
            refused
        })
    }

    /// Captures the launch of an instance, which becomes a child node.
    pub(super) fn capture_child(
        &mut self,
        call: Call<'_>,
        stream_index: StreamIndex,
        child: Arc<Graph>,
        held: &Held,
    ) -> Step {
        let into = self.captured_graph(stream_index);
        child.check_copy(Asked::Captured, None).map_err(|error| self.graph_refused_at(call, into, error))?;
        self.captured_node(call, stream_index, "launched", None, |graph, tails, label| {
            Ok((graph.add_child(tails, child, label)?, ()))
        })?;
        self.graphs.hold(into, held);
        Ok(())
    }

    /// Checks a node that is about to be captured, so that a fault is reported at its line.
    fn look_at(
        &mut self,
        call: Call<'_>,
        stream_index: StreamIndex,
        name: Option<Name>,
        check: impl FnOnce(&mut Adding<'_, Captured>, &Label) -> Result<(), Box<GraphFault>>,
    ) -> Step {
        let stream = self.time.at(stream_index).kept.id;
        let label = self.label(call, name, Some(stream));
        let checked = self
            .graphs
            .captures
            .with(stream, |adding| check(adding, &label).map_err(|fault| (adding.graph.graph.id(), fault)));
        let checked = checked.map_err(|error| self.capture_refused(call, error, stream))?;
        checked.map_err(|(id, fault)| Box::new(self.graph_fault(call, id, &fault)))
    }

    /// Adds a node to the capture that a stream is in.
    fn captured_node<R>(
        &mut self,
        call: Call<'_>,
        stream_index: StreamIndex,
        verb: &'static str,
        name: Option<Name>,
        add: impl FnOnce(&mut Graph, &[NodeId], Label) -> Result<(NodeId, R), GraphError>,
    ) -> Step<R> {
        let stream = self.time.at(stream_index).kept.id;
        let label = self.label(call, name, Some(stream));
        let added = self.graphs.captures.add(stream, |adding| {
            let (graph, tails) = (&mut adding.graph.graph, adding.tails);
            add(graph, tails, label).map_err(|error| (graph.id(), error))
        });
        let added = added.map_err(|error| self.capture_refused(call, error, stream))?;
        let result = added.map_err(|(id, error)| self.graph_refused(call, id, error, stream_index))?;
        self.time.at_mut(stream_index).note(verb, call.op.place);
        Ok(result)
    }

    fn captured_graph(&self, stream_index: StreamIndex) -> GraphId {
        let captured = self.graphs.captured_on(self.time.at(stream_index).kept.id);
        captured.map_or(GraphId(u32::MAX), |captured| captured.graph.id())
    }

    pub(super) fn begin_capture(
        &mut self,
        call: Call<'_>,
        stream: StreamId,
        graph: GraphId,
        mode: CaptureMode,
        symbolic: bool,
    ) -> Step {
        let captured = Captured { graph: empty_graph(graph, symbolic), held: Held::new(), is_copy: false };
        self.begin_in(call, stream, (captured, &[]), mode)?;
        self.graphs.hold(graph, &smallvec![graph]);
        Ok(())
    }

    /// Begins a capture into an existing graph. The first captured nodes come after the nodes `after`.
    pub(super) fn begin_capture_to(
        &mut self,
        call: Call<'_>,
        stream: StreamId,
        (graph, after): (GraphId, &[NodeId]),
        mode: CaptureMode,
    ) -> Step {
        let made = self.made(call, graph)?;
        let (copy, held) = (made.graph.clone(), made.held.clone());
        let captured = Captured { graph: copy, held: Held::new(), is_copy: true };
        self.begin_in(call, stream, (captured, after), mode)?;
        self.graphs.hold(graph, &held);
        Ok(())
    }

    /// Begins a capture into `graph`. The first captured nodes come after the nodes `after`.
    fn begin_in(
        &mut self,
        call: Call<'_>,
        stream: StreamId,
        (captured, after): (Captured, &[NodeId]),
        mode: CaptureMode,
    ) -> Step {
        // No operation of the stream: it has no number, and nothing comes after it.
        let stream_index = self.look(call, stream)?;
        let begun = Site { op: 0, ..self.site(call, stream_index, Act::Read) };
        let (origin, graph) = ((stream, self.time.at(stream_index).role), captured.graph.id());
        let checked = self.graphs.captures.check_begin(origin, &captured.graph, after);
        checked.map_err(|error| self.capture_refused(call, error, stream))?;
        let how = (call.op.host.into(), mode);
        let capture = self.graphs.captures.begin(stream, captured, after, how, begun);
        self.graphs.captures_into(graph, capture);
        Ok(())
    }

    /// Records that a capture made no graph. If the reason `was_reported`, later uses of the graph or its memory are
    /// not. Otherwise its memory is memory that no launch allocates. A graph that existed before the capture is as it
    /// was.
    fn void_captured(&mut self, captured: Captured, was_reported: bool) {
        let Captured { graph, held, is_copy } = captured;
        let id = graph.id();
        let mut gone = Vec::new();
        match was_reported {
            true => gone = self.graphs.release(&held),
            false => self.forget_names(&held),
        }
        let mut before = 0;
        if let Some(former) = self.graphs.graphs.get_mut(&id).filter(|_| is_copy) {
            before = former.graph.len();
            former.graph.retire_like(&graph);
        } else {
            self.graphs.void_graphs.insert(id);
        }
        for (_, node) in graph.nodes().filter(|(node, _)| node.index() >= before) {
            self.take_back(id, &node.kind);
            // `release` does not return a name that another graph holds.
            if was_reported && let NodeKind::MemAlloc(alloc) = node.kind {
                gone.extend(self.graphs.names.of((id, alloc)));
            }
        }
        gone.into_iter().for_each(|memory| self.lives.name(memory, Named::Void));
    }

    /// Takes a destroyed stream out of its capture. If the capture began on the stream, it ends without a graph. If the
    /// stream had joined it, the stream's work stays there.
    pub(super) fn leave_capture(&mut self, call: Call<'_>, stream: StreamId) {
        let captures = &mut self.graphs.captures;
        let is_valid = captures.of(stream).is_some_and(|capture| captures.is_valid(capture));
        let left = captures.abandon(stream).map(|ended| self.void_capture(ended));
        if let Some(begun) = left
            && is_valid
            && self.settings.leaks
        {
            let finding = self.never_ends(call, begun);
            self.more.push(finding);
        }
    }

    pub(super) fn abandon_capture(&mut self, call: Call<'_>, stream: StreamId) -> Step {
        match self.graphs.captures.discard(stream) {
            Some(ended) => {
                self.void_capture(ended);
                Ok(())
            }
            None => Err(self.capture_refused(call, CaptureError::NotCapturing(stream), stream)),
        }
    }

    /// A capture has ended without a graph: where it began.
    fn void_capture(&mut self, ended: Ended<Captured>) -> Site {
        let (begun, was_valid) = (ended.begun(), ended.was_valid());
        let captured = self.graphs.take_captured(ended);
        self.void_captured(captured, !was_valid);
        begun
    }

    pub(super) fn end_capture(&mut self, call: Call<'_>, stream: StreamId) -> Step {
        // On the legacy default stream, the end is refused like an operation (measured: 906).
        self.look(call, stream)?;
        let ended = self.graphs.captures.end(stream, call.op.host.into());
        let mut ended = ended.map_err(|error| self.capture_refused(call, error, stream))?;
        let checked = ended.check();
        let captured = self.graphs.take_captured(ended);
        match checked {
            Ok(()) => {
                let Captured { graph, mut held, is_copy } = captured;
                match self.graphs.graphs.get_mut(&graph.id()).filter(|_| is_copy) {
                    Some(made) => {
                        std::mem::swap(&mut made.held, &mut held);
                        (made.graph, made.is_checked) = (graph, false);
                        self.forget_names(&held);
                    }
                    None => self.add_graph(graph, held),
                }
                Ok(())
            }
            Err(error) => {
                self.void_captured(captured, true);
                // The reason was reported when the capture became invalid.
                match error {
                    CaptureError::Invalidated(_) => Ok(()),
                    error => Err(self.capture_refused(call, error, stream)),
                }
            }
        }
    }
}
