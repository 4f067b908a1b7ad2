//! Instances, which are launched again and again: what each launch frees, uses and leaves.
//!
//! A launch is judged by the instance's summary: its demands on memory from outside, and the last acts that it leaves
//! there. Launches of one instance come one after the other, whatever their streams (CUDA's own rule: a hidden edge).
//! The steps are those of `graph/lanes.rs`. An upload comes after the launches before it, too, and does nothing else.
//! Knows streams, lifetimes and events.
//!
//! Invariant **one-life**: an allocation is live from a launch to its free, and is not allocated again before that.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::checker::{Call, Checker, Stands, Step, quiet};
use super::finding::Finding;
use super::graph_state::{Instance, Last, Output, has_addresses};
use super::lives::{LifeId, Named, Source};
use super::protocol::Launched;
use super::timeline::StreamIndex;
use crate::graph::{Asked, GraphAllocId, Holder, Lanes, Memory as NodeMemory};
use crate::ids::{EventId, ExecId, GraphId, NodeId, StreamId};
use crate::life::{Kind, Site, Use};
use crate::op::{Act, Memory, Name, Thing};
use crate::order::Snapshot;

impl Checker {
    pub(super) fn instantiate(&mut self, call: Call<'_>, graph: GraphId, exec: ExecId, auto_free: bool) -> Step {
        self.made(call, graph)?;
        let draft = self.check_whole(call, graph);
        let made = self.made(call, graph)?;
        let (copy, held) = (Arc::new(made.graph.clone()), made.held.clone());
        let draft = draft.ok_or_else(quiet)?;
        self.check_copy(call, graph, Asked::Instance)?;
        let core = draft.instantiate(0, auto_free);
        if let Some(pin) = core.outdated() {
            return Err(self.made_anew(call, pin, "instantiated"));
        }
        for memory in self.graphs.names.made_by(&copy, &held) {
            self.graphs.unmade.remove(&memory);
        }
        self.graphs.names.hold(&held);
        let made = self.made(call, graph)?;
        if made.graph.fixed_memory().is_some() {
            made.holder = Some((Holder::Instance(call.op.place), Some(exec)));
        }
        let before = made.take_before(|graph| has_addresses(&core, graph));
        let lanes = Lanes::new(&core, || self.time.open_chain());
        let new = Instance {
            exec: core,
            lanes,
            graph: copy,
            held,
            outputs: FxHashMap::default(),
            has_nameless: false,
            last: None,
            before,
            launched: None,
            is_destroyed: false,
        };
        self.graphs.execs.insert(exec, new);
        Ok(())
    }

    pub(super) fn instance(&self, call: Call<'_>, exec: ExecId) -> Step<&Instance> {
        match self.graphs.execs.get(&exec) {
            Some(instance) if !instance.is_destroyed => Ok(instance),
            _ if self.graphs.void_execs.contains(&exec) => Err(quiet()),
            _ => {
                let help = "instantiate it first, and destroy it after its last launch";
                let exec = call.names.title(Thing::Exec(exec));
                let sentence = format!("{exec} does not exist: it was never instantiated, or is destroyed");
                let mut finding = Finding::new(Kind::UnknownName, sentence, help);
                finding.later = Some(self.side(call, self.host_site(call, Act::Read), "used"));
                Err(Box::new(finding))
            }
        }
    }

    pub(super) fn update(&mut self, call: Call<'_>, exec: ExecId, graph: GraphId) -> Step {
        self.instance(call, exec)?;
        self.made(call, graph)?;
        let draft = self.check_whole(call, graph);
        let made = self.made(call, graph)?;
        let (copy, held) = (Arc::new(made.graph.clone()), made.held.clone());
        let draft = draft.ok_or_else(quiet)?;
        let from = self.instance(call, exec)?.graph.id();
        if from != graph {
            let checked = self.instance(call, exec)?.graph.check_copy(Asked::Updated, None);
            checked
                .and_then(|()| copy.check_copy(Asked::Update, None))
                .map_err(|it| self.graph_refused_at(call, graph, it))?;
        }
        let Some(instance) = self.graphs.execs.get_mut(&exec) else { return Ok(()) };
        let named = |(alloc, output): (&GraphAllocId, &Output)| {
            Some((*alloc, self.graphs.names.of(instance.key(*alloc))?, *output))
        };
        let left = instance.outputs.iter().filter_map(named).collect();
        // A refused update leaves the instance as it was.
        let outdated = instance.exec.check_update(&draft).map(|()| draft.outdated());
        if let Ok(Some(pin)) = outdated {
            return Err(self.made_anew(call, pin, "updated"));
        }
        if let Err(error) = outdated.and_then(|_| instance.exec.update(draft)) {
            let later = self.side(call, self.host_site(call, Act::Read), "updated");
            return Err(Box::new(Finding::of_update(&error).at(later)));
        }
        instance.launched = None;
        // Other nodes may be visible from outside now.
        let lanes = Lanes::new(&instance.exec, || self.time.open_chain());
        let before = std::mem::replace(&mut instance.lanes, lanes);
        before.close().for_each(|last| self.time.close_chain(last));
        instance.graph = copy;
        self.graphs.names.hold(&held);
        let former = std::mem::replace(&mut instance.held, held);
        self.keep_names(exec, left);
        self.forget_names(&former);
        Ok(())
    }

    /// Launches an instance on a stream, or adds it to the stream's capture as a child node.
    pub(super) fn launch_graph(&mut self, call: Call<'_>, exec: ExecId, stream: StreamId) -> Step {
        // An instance that does not exist cannot be launched, so the stream learns nothing.
        if self.graphs.void_execs.contains(&exec) {
            return Err(quiet());
        }
        let stream_index = self.enter(call, stream)?;
        self.instance(call, exec)?;
        let Some(mut instance) = self.graphs.execs.remove(&exec) else { return Ok(()) };
        let launched = match self.graphs.is_captured(stream) {
            true => self.capture_child(call, stream_index, Arc::clone(&instance.graph), &instance.held).map(|()| None),
            false => self
                .check_records(call, stream_index, &instance)
                .and_then(|()| self.try_launch(call, stream_index, &instance).map(Some)),
        };
        match &launched {
            Ok(Some(freed)) => self.commit_launch(call, stream_index, exec, &mut instance, freed),
            Ok(None) => {}
            // This refusal reports the memory that is not freed. It is not reported again as a leak.
            Err(_) => instance.lives().for_each(|(_, life)| self.lives.at_mut(life).is_doubtful = true),
        }
        self.graphs.execs.insert(exec, instance);
        launched.map(drop)
    }

    /// Puts the stream after the earlier launches.
    fn follow_launches(&mut self, stream_index: StreamIndex, instance: &Instance) {
        for last in instance.launches_before() {
            self.time.wait(stream_index, &last.snapshot);
        }
    }

    /// Uploads an instance on a stream: its memory is bound.
    pub(super) fn upload(&mut self, call: Call<'_>, exec: ExecId, stream: StreamId) -> Step {
        let stream_index = self.enter(call, stream)?;
        self.instance(call, exec)?;
        self.refuse_in_capture(call, stream, "a graph is uploaded")?;
        let Some(mut instance) = self.graphs.execs.remove(&exec) else { return Ok(()) };
        self.follow_launches(stream_index, &instance);
        let site = self.site(call, stream_index, Act::Read);
        let uploading = self.time.at_mut(stream_index);
        uploading.chain.submit();
        let snapshot = uploading.chain.snapshot();
        instance.last = Some(Last { snapshot, site });
        instance.before.retain(|(_, before)| {
            before.last = None;
            self.graphs.execs.contains_key(&before.exec)
        });
        self.graphs.execs.insert(exec, instance);
        self.time.done(stream_index, "uploaded", call.op.place);
        Ok(())
    }

    /// Returns the snapshot that a wait node of a launch waits for.
    pub(super) fn waited_for(&self, instance: &Instance, wait: NodeId) -> Option<&Snapshot> {
        let summary = instance.exec.summary();
        let (_, key) = summary.waits.iter().find(|(node, _)| *node == wait && !summary.waits_for_own(wait))?;
        match &self.events.get(&EventId(key.0 as u32))?.stands {
            Stands::Recorded(recorded) => Some(&recorded.snapshot),
            _ => None,
        }
    }

    /// Returns the program's name for memory that a node names.
    pub(super) fn name_of(&self, instance: &Instance, memory: NodeMemory) -> Option<Memory> {
        match memory {
            NodeMemory::External { id, generation } => Some(Memory { id, generation }),
            NodeMemory::Foreign { graph, alloc } => match instance.exec.pins_of(graph, alloc).first() {
                Some(pin) => Some(Memory { id: pin.id, generation: pin.generation }),
                None => self.graphs.names.of((graph, alloc)),
            },
            NodeMemory::Own(alloc) => self.graphs.names.of(instance.key(alloc)),
        }
    }

    /// Makes the launch: see `graph/lanes.rs` for the steps.
    fn commit_launch(
        &mut self,
        call: Call<'_>,
        stream_index: StreamIndex,
        exec: ExecId,
        instance: &mut Instance,
        freed: &[LifeId],
    ) {
        self.follow_launches(stream_index, instance);
        let waited = |&(node, _): &(NodeId, _)| Some((node, self.waited_for(instance, node)?.clone()));
        let waits: Vec<(NodeId, Snapshot)> = instance.exec.summary().waits.iter().filter_map(waited).collect();
        for (wait, key) in &instance.exec.summary().waits {
            let Some((_, record)) = waits.iter().find(|it| it.0 == *wait) else { continue };
            let (event, point) = (EventId(key.0 as u32), Some(record.point()));
            self.events.entry(event).or_default().waited();
            self.time.asked.tell(|effects| effects.awaited.push((event, point)));
        }
        let (base, knew) = (self.time.base(call.op.host), self.time.at(stream_index).chain.snapshot());
        let exports = instance.lanes.exports(&instance.exec, &base, &knew, &waits);
        let site = self.site(call, stream_index, Act::Write);
        let follows = |last: &Last| self.time.at(stream_index).chain.knows_of(&last.snapshot);
        debug_assert!(instance.launches_before().all(follows), "no-overlap: {exec} is launched beside a launch before");
        let point = instance.lanes.pass(&mut self.time.at_mut(stream_index).chain, &base, &waits);
        for &life in freed {
            let free = Use { point, site: Site { act: Act::Free, ..site } };
            match self.lives.at(life).source {
                // `end` looks for the instance in the table, but it is not there now.
                Source::Launch(by, alloc) if by == exec => {
                    if let Some(life) = self.lives.end(life, free) {
                        instance.outputs.insert(alloc, Output::Freed(life.freed_by(free)));
                    }
                }
                _ => self.end(life, free),
            }
        }
        debug_assert!(
            instance.lives().next().is_none() && !instance.has_nameless,
            "one-life: checked before the launch"
        );
        instance.outputs.clear();
        self.leave_last_acts(call, exec, instance, Use { point, site }, &knew);
        instance.has_nameless = instance.outputs.len() < instance.exec.outputs().len();
        instance.lanes.advance();
        for (&(_, key), snapshot) in instance.exec.summary().records.iter().zip(exports) {
            let event = EventId(key.0 as u32);
            self.events.entry(event).or_default().record(snapshot, site);
            self.time.asked.tell(|effects| effects.recorded.push(event));
        }
        let snapshot = self.time.at(stream_index).chain.snapshot();
        instance.last = Some(Last { snapshot, site });
        instance.before.clear();
        instance.launched = Some((site.stream, site.op));
        self.time.done(stream_index, "launched", call.op.place);
    }

    /// Adds what a launch leaves to the histories of memory, and begins the lifetimes of its outputs. `knew` is the
    /// stream before the launch.
    fn leave_last_acts(&mut self, call: Call<'_>, exec: ExecId, instance: &mut Instance, whole: Use, knew: &Snapshot) {
        for at in 0..instance.exec.summary().last_acts.len() {
            let last = instance.exec.summary().last_acts[at];
            let launched = Launched { whole, point: |node| instance.lanes.point(&instance.exec, node) };
            let done = launched.by(last.node, last.act);
            let found = match (last.memory, last.act) {
                (NodeMemory::Own(alloc), Act::Allocate) => {
                    self.bear(call, exec, instance, (alloc, last.node), done);
                    continue;
                }
                (NodeMemory::Own(alloc), _) => instance.live(alloc).map(|life| (life, None)),
                (memory, _) => self.name_of(instance, memory).and_then(|memory| {
                    let target = self.resolve(call, memory, done.site).ok()?;
                    Some((target.life, target.is_lease.then_some(memory)))
                }),
            };
            let Some((life, import)) = found else { continue };
            let device = instance.exec.nodes()[last.node.index()].label.device;
            let own = || self.time.stream(whole.site.stream).map(|stream| stream.kept.device);
            if let Some(device) = device.or_else(own).filter(|_| import.is_none() && last.act != Act::Free) {
                self.note_foreign(life, device, Use { site: Site { act: last.act, ..whole.site }, ..whole });
            }
            if let Some(free) = launched.leave(&last, |used| self.lives.add_use(life, import, used, last.part, knew)) {
                self.end(life, free);
            }
        }
    }

    /// Begins the lifetime of an allocation that outlives its launch.
    fn bear(
        &mut self,
        call: Call<'_>,
        exec: ExecId,
        instance: &mut Instance,
        (alloc, node): (GraphAllocId, NodeId),
        born: Use,
    ) {
        let Some(memory) = self.name_of(instance, NodeMemory::Own(alloc)) else { return };
        let label = &instance.exec.nodes()[node.index()].label;
        let place = if label.place == Default::default() { call.op.place } else { label.place };
        let labelled = || label.name.as_deref().and_then(|name| call.names.find(name));
        let name: Option<Name> = self.graphs.called.get(&memory).copied().or_else(labelled);
        let bytes = instance.exec.allocs()[alloc.index()].bytes;
        let born = Use { site: Site { place, ..born.site }, ..born };
        // The name may still refer to memory that an instance left before it was updated to another graph.
        let (graph, own) = instance.key(alloc);
        self.lives.name(memory, Named::Node { graph, alloc: own });
        let life = self.lives.begin(memory, born, bytes, name, Source::Launch(exec, alloc));
        instance.outputs.insert(alloc, Output::Live(life));
        self.graphs.latest.insert(memory, (exec, alloc));
        self.graphs.unmade.remove(&memory);
    }
}
