//! Instances: launched again and again, with what each launch frees, uses and leaves behind.
//!
//! A launch is judged by the instance's summary: what it demands of the outside, and what it leaves there. Launches of
//! one instance come one after the other whatever their streams (CUDA's own rule: a hidden edge). The steps are those
//! of `graph/lanes.rs`. Knows streams, lives and events.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::answer::Begun;
use super::checker::{Call, Checker, Step, quiet};
use super::finding::Finding;
use super::graph_state::{Instance, Last, Output};
use super::homes::Family;
use super::lives::{LifeId, Source};
use super::names::Key;
use super::protocol::Launched;
use super::timeline::Seat;
use super::usage::ended;
use crate::graph::{GraphAllocId, Lanes, Memory as NodeMemory};
use crate::ids::{EventId, ExecId, GraphId, NodeId, StreamId};
use crate::life::{Kind, Site, Use};
use crate::op::{Act, Memory, Name, Thing};
use crate::order::Snapshot;

impl Checker {
    pub(super) fn instantiate(&mut self, call: Call<'_>, graph: GraphId, exec: ExecId, auto_free: bool) -> Step {
        self.made(call, graph)?;
        let draft = self.check_whole(call, graph);
        let made = self.made(call, graph)?;
        let (copy, names, homes) = (Arc::new(made.graph.clone()), made.names.clone(), made.homes.clone());
        let Some(draft) = draft else {
            self.graphs.unmade.extend(names.keys.keys());
            return Err(quiet());
        };
        let core = draft.instantiate(0, auto_free);
        if let Some(pin) = core.outdated() {
            return Err(self.made_anew(call, pin, "instantiated"));
        }
        for memory in names.keys.keys() {
            self.graphs.unmade.remove(memory);
        }
        self.graphs.hold(&names);
        let lanes = Lanes::new(&core, || self.time.open_slot());
        let mut new = Instance {
            exec: core,
            lanes,
            graph: copy,
            homes,
            families: SmallVec::new(),
            cover: Vec::new(),
            leaves: FxHashSet::default(),
            names,
            outputs: FxHashMap::default(),
            former: FxHashMap::default(),
            last: None,
            launched: None,
            is_destroyed: false,
        };
        new.settle();
        self.graphs.enroll(&new.families);
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
        let (copy, names, homes) = (Arc::new(made.graph.clone()), made.names.clone(), made.homes.clone());
        let Some(draft) = draft else {
            self.graphs.unmade.extend(names.keys.keys());
            return Err(quiet());
        };
        let Some(instance) = self.graphs.execs.get_mut(&exec) else { return Ok(()) };
        let keys: Vec<(GraphAllocId, Key)> = instance.outputs.keys().map(|it| (*it, instance.key(*it))).collect();
        // What is refused leaves the instance as it was.
        let outdated = instance.exec.check_update(&draft).map(|()| draft.outdated());
        if let Ok(Some(pin)) = outdated {
            return Err(self.made_anew(call, pin, "updated"));
        }
        if let Err(error) = outdated.and_then(|_| instance.exec.update(draft)) {
            let mut finding = Finding::new(Kind::GraphRefused, error.to_string(), "instantiate the changed graph");
            finding.later = Some(self.side(call, self.host_site(call, Act::Read), "updated"));
            return Err(Box::new(finding));
        }
        instance.launched = None;
        for (alloc, before) in keys {
            let left = instance.former.remove(&alloc).unwrap_or(before);
            if instance.key(alloc) != left {
                instance.former.insert(alloc, left);
            }
        }
        // Other nodes may be seen from outside.
        let lanes = Lanes::new(&instance.exec, || self.time.open_slot());
        let before = std::mem::replace(&mut instance.lanes, lanes);
        before.close().for_each(|last| self.time.close_slot(last));
        let new = instance.names.turn_into(&names);
        (instance.graph, instance.homes) = (copy, homes);
        let before = std::mem::take(&mut instance.families);
        instance.settle();
        let families = instance.families.clone();
        self.graphs.enroll(&families);
        self.graphs.withdraw_from(&before);
        self.graphs.hold_each(&new);
        Ok(())
    }

    /// An instance is launched on a stream, or becomes a child node of its capture.
    pub(super) fn launch_graph(&mut self, call: Call<'_>, exec: ExecId, stream: StreamId) -> Step {
        // What is not there cannot be launched: the stream learns nothing.
        if self.graphs.void_execs.contains(&exec) {
            return Err(quiet());
        }
        let seat = self.enter(call, stream)?;
        self.instance(call, exec)?;
        let Some(instance) = self.graphs.execs.remove(&exec) else { return Ok(()) };
        let launched = match self.graphs.is_captured(stream) {
            true => {
                let (graph, Instance { names, homes, .. }) = (Arc::clone(&instance.graph), &instance);
                self.capture_child(call, seat, graph, names, homes).map(|()| None)
            }
            false => self
                .check_records(call, seat, &instance)
                .and_then(|()| self.try_launch(call, seat, exec, &instance).map(Some)),
        };
        if launched.is_err() {
            // What was left unfreed is reported here, and not as a leak again.
            for life in instance.exec.unfreed().filter_map(|alloc| instance.live(alloc)) {
                self.lives.at_mut(life).is_doubtful = true;
            }
            self.graphs.unmade.extend(instance.names.keys.keys());
        }
        self.graphs.execs.insert(exec, instance);
        if let Some(freed) = launched? {
            self.commit_launch(call, seat, exec, freed);
        }
        Ok(())
    }

    pub(super) fn families<'c>(&'c self, instance: &'c Instance) -> impl Iterator<Item = &'c Family> {
        instance.families.iter().filter_map(|family| self.graphs.families.get(family))
    }

    /// What a wait node of a launch waits for.
    pub(super) fn waited_for(&self, instance: &Instance, wait: NodeId) -> Option<&Snapshot> {
        let summary = instance.exec.summary();
        let (_, key) = summary.waits.iter().find(|(node, _)| *node == wait && !summary.waits_for_own(wait))?;
        match &self.events.get(&EventId(key.0 as u32))?.stands {
            super::event_state::Stands::Recorded(recorded) => Some(&recorded.snapshot),
            _ => None,
        }
    }

    /// The program's name for memory that a node names.
    pub(super) fn name_of(instance: &Instance, memory: NodeMemory) -> Option<Memory> {
        match memory {
            NodeMemory::External { id, generation } => Some(Memory { id, generation }),
            NodeMemory::Foreign { graph, alloc } => match instance.exec.pins_of(graph, alloc).first() {
                Some(pin) => Some(Memory { id: pin.id, generation: pin.generation }),
                None => instance.names.of((graph, alloc)),
            },
            NodeMemory::Own(alloc) => instance.name(alloc),
        }
    }

    /// The launch is made: see `graph/lanes.rs` for the steps.
    fn commit_launch(&mut self, call: Call<'_>, seat: Seat, exec: ExecId, freed: Vec<LifeId>) {
        let Some(mut instance) = self.graphs.execs.remove(&exec) else { return };
        self.follow_launches(seat, &instance);
        let all = instance.exec.summary().waits.iter();
        let waited = |&(node, _): &(NodeId, _)| Some((node, self.waited_for(&instance, node)?.clone()));
        let waits: Vec<(NodeId, Snapshot)> = all.filter_map(waited).collect();
        for (_, key) in instance.exec.summary().waits.iter().filter(|(wait, _)| waits.iter().any(|it| it.0 == *wait)) {
            self.events.entry(EventId(key.0 as u32)).or_default().waited();
        }
        let (base, knew) = (self.time.base(call.op.host), self.time.at(seat).chain.snapshot());
        for (node, snapshot) in &waits {
            self.time.tell_wait_of_node(seat, *node, snapshot);
        }
        let exports = instance.lanes.exports(&instance.exec, &base, &knew, &waits);
        let site = self.site(call, seat, Act::Write);
        let point = instance.lanes.pass(&mut self.time.at_mut(seat).chain, &base, &waits);
        for life in freed {
            let free = Use { point, site: Site { act: Act::Free, ..site } };
            match self.lives.at(life).source {
                // The instance is at hand here and not in the table, where `end` looks for it.
                Source::Launch(by, alloc) if by == exec => {
                    if let Some(life) = self.lives.end(life, free) {
                        self.time.answer.tell(|done| done.ended.push(ended(&life, free.point)));
                        instance.freed(alloc, life.freed_by(free));
                    }
                    self.graphs.forget_left(&instance.families, (exec, alloc));
                }
                _ => self.end(life, free),
            }
        }
        let (parted, gone) = self.graphs.part_from_former(exec, &instance);
        for life in parted {
            self.lives.at_mut(life).source = Source::Parted;
        }
        instance.outputs.clear();
        instance.former.clear();
        self.leave_marks(call, exec, &mut instance, Use { point, site }, &knew);
        // Addresses of the instance's own stay where they are when it becomes another graph's.
        let is_own = |alloc: GraphAllocId| instance.exec.allocs()[alloc.index()].is_symbolic;
        for (alloc, memory) in gone {
            // A copy's memory may have the name of the original's.
            let is_same = Self::name_of(&instance, NodeMemory::Own(alloc)) == Some(memory);
            if let Some(life) = instance.live(alloc).filter(|_| is_own(alloc) && !is_same) {
                self.graphs.overtaken.insert(memory, self.lives.at(life).history.born());
            }
        }
        instance.exec.launched();
        instance.lanes.advance();
        for (&(_, key), snapshot) in instance.exec.summary().records.iter().zip(exports) {
            self.events.entry(EventId(key.0 as u32)).or_default().record(snapshot, site);
        }
        let snapshot = self.time.at(seat).chain.snapshot();
        self.note_in_families(exec, &instance, &snapshot);
        instance.last = Some(Last { snapshot, site });
        instance.launched = Some((site.stream, site.op));
        self.graphs.execs.insert(exec, instance);
        self.done(seat, "launched", call.op.place);
    }

    /// Instances with addresses in common come after this launch, and find what it left.
    fn note_in_families(&mut self, exec: ExecId, instance: &Instance, launch: &Snapshot) {
        for id in &instance.families {
            let Some(family) = self.graphs.families.get_mut(id) else { continue };
            family.last = Some(launch.clone());
            let outputs = instance.exec.outputs().iter();
            family.left.extend(outputs.filter_map(|&alloc| Some(((exec, alloc), instance.left(alloc, *id)?))));
        }
    }

    /// What a launch leaves in the histories of memory, and the lives that it begins. `knew` is the stream before it.
    fn leave_marks(&mut self, call: Call<'_>, exec: ExecId, instance: &mut Instance, whole: Use, knew: &Snapshot) {
        for at in 0..instance.exec.summary().marks.len() {
            let mark = instance.exec.summary().marks[at];
            let launched = Launched { whole, point: |node| instance.lanes.point(&instance.exec, node) };
            let done = launched.by(mark.node, mark.act);
            let found = match (mark.memory, mark.act) {
                (NodeMemory::Own(alloc), Act::Allocate) => {
                    self.bear(call, exec, instance, (alloc, mark.node), done);
                    continue;
                }
                (NodeMemory::Own(alloc), _) => instance.live(alloc).map(|life| (life, None)),
                (memory, _) => Self::name_of(instance, memory).and_then(|memory| {
                    let target = self.resolve(call, memory, done.site).ok()?;
                    Some((target.life, target.is_lease.then_some(memory)))
                }),
            };
            let Some((life, import)) = found else { continue };
            let device = instance.exec.nodes()[mark.node.index()].label.device;
            let own = || self.time.stream(whole.site.stream).map(|stream| stream.kept.device);
            if let Some(device) = device.or_else(own).filter(|_| import.is_none() && mark.act != Act::Free) {
                self.note_abroad(life, device, Use { site: Site { act: mark.act, ..whole.site }, ..whole });
            }
            if let Some(free) = launched.leave(&mark, |used| self.lives.add_use(life, import, used, mark.part, knew)) {
                self.end(life, free);
            }
        }
    }

    /// An allocation of a launch that outlives it begins.
    fn bear(
        &mut self,
        call: Call<'_>,
        exec: ExecId,
        instance: &mut Instance,
        (alloc, node): (GraphAllocId, NodeId),
        born: Use,
    ) {
        let Some(memory) = Self::name_of(instance, NodeMemory::Own(alloc)) else { return };
        let label = &instance.exec.nodes()[node.index()].label;
        let place = if label.place == Default::default() { call.op.place } else { label.place };
        let labelled = || label.name.as_deref().and_then(|name| call.names.find(name));
        let name: Option<Name> = self.graphs.called.get(&memory).copied().or_else(labelled);
        let bytes = instance.exec.allocs()[alloc.index()].bytes;
        let born = Use { site: Site { place, ..born.site }, ..born };
        let life = self.lives.begin(memory, born, bytes, name, Source::Launch(exec, alloc));
        self.time.answer.tell(|done| done.begun.push(Begun { memory, point: born.point }));
        instance.outputs.insert(alloc, Output::Live(life));
        self.graphs.latest.insert(memory, (exec, alloc));
        self.graphs.parted_as.remove(&memory);
        self.graphs.overtaken.remove(&memory);
        self.graphs.unmade.remove(&memory);
    }
}
