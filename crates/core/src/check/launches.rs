//! Instances: launched again and again, with what each launch frees, uses and leaves behind.
//!
//! A launch is judged by the instance's summary: what it demands of the outside, and what it leaves there. Launches of
//! one instance come one after the other whatever their streams (CUDA's own rule: a hidden edge). The steps are those
//! of `graph/lanes.rs`. Knows streams, lives and events.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::checker::{Call, Checker, Refused, Step, quiet};
use super::finding::Finding;
use super::history::Use;
use super::kind::Kind;
use super::lives::{Freed, LifeId, Named, Source};
use super::names::{Key, Names};
use super::timeline::Seat;
use super::violation::Site;
use crate::graph::{Demand, Exec, Graph, GraphAllocId, Lanes, Memory as NodeMemory, Standing};
use crate::ids::{EventId, ExecId, GraphId, NodeId, StreamId};
use crate::op::{Act, Memory, Name};
use crate::order::Snapshot;

/// What became of an allocation that a launch left behind.
#[derive(Clone, Copy, Debug)]
enum Output {
    Live(LifeId),
    Freed(Freed),
}

/// The launch before.
#[derive(Clone, Debug)]
struct Last {
    snapshot: Snapshot,
    site: Site,
}

/// An instantiated graph of the program.
#[derive(Debug)]
pub(super) struct Instance {
    exec: Exec,
    lanes: Lanes,
    /// As it was instantiated, for launches into captures.
    graph: Arc<Graph>,
    family: Option<GraphId>,
    names: Names,
    outputs: FxHashMap<GraphAllocId, Output>,
    last: Option<Last>,
    is_destroyed: bool,
}

/// Instances with the same addresses: of one graph and its copies.
#[derive(Debug, Default)]
pub(super) struct Family {
    /// The launch before, of any of them.
    last: Option<Snapshot>,
    /// The one whose memory is not all freed.
    holder: Option<ExecId>,
    /// How many instances there are.
    instances: usize,
}

impl Checker {
    pub(super) fn instantiate(&mut self, call: Call<'_>, graph: GraphId, exec: ExecId, auto_free: bool) -> Step {
        let made = self.made(call, graph)?;
        let family = made.family.filter(|_| made.graph.allocs().next().is_some());
        let Some(draft) = self.check_whole(call, graph) else { return Err(quiet()) };
        let made = self.made(call, graph)?;
        let (copy, names) = (Arc::new(made.graph.clone()), made.names.clone());
        let instance = draft.instantiate(0, auto_free);
        if let Some(pin) = instance.outdated() {
            return Err(self.made_anew(call, pin));
        }
        self.graphs.hold(&names);
        let lanes = Lanes::new(&instance, || self.time.open_slot());
        if let Some(family) = family {
            self.graphs.families.entry(family).or_default().instances += 1;
        }
        let outputs = FxHashMap::default();
        let new =
            Instance { exec: instance, lanes, graph: copy, family, names, outputs, last: None, is_destroyed: false };
        self.graphs.execs.insert(exec, new);
        Ok(())
    }

    fn instance(&self, call: Call<'_>, exec: ExecId) -> Step<&Instance> {
        match self.graphs.execs.get(&exec) {
            Some(instance) if !instance.is_destroyed => Ok(instance),
            _ if self.graphs.void_execs.contains(&exec) => Err(quiet()),
            _ => {
                let help = "instantiate it first, and destroy it after its last launch";
                let sentence = format!("{exec} is not there: it was never made, or is destroyed");
                let mut finding = Finding::new(Kind::UnknownName, sentence, help);
                finding.later = Some(self.side(call, self.host_site(call, Act::Read), "used"));
                Err(Box::new(finding))
            }
        }
    }

    pub(super) fn update(&mut self, call: Call<'_>, exec: ExecId, graph: GraphId) -> Step {
        self.instance(call, exec)?;
        let names = self.made(call, graph)?.names.clone();
        let Some(draft) = self.check_whole(call, graph) else { return Err(quiet()) };
        let Some(instance) = self.graphs.execs.get_mut(&exec) else { return Ok(()) };
        if let Err(error) = instance.exec.update(draft) {
            let mut finding = Finding::new(Kind::GraphRefused, error.to_string(), "instantiate the changed graph");
            finding.later = Some(self.side(call, self.host_site(call, Act::Read), "updated"));
            return Err(Box::new(finding));
        }
        let (new, outdated) = (instance.names.learn_all(&names), instance.exec.outdated());
        self.graphs.hold_each(&new);
        outdated.map_or(Ok(()), |pin| Err(self.made_anew(call, pin)))
    }

    /// An instance is launched on a stream, or becomes a child node of its capture.
    pub(super) fn launch_graph(&mut self, call: Call<'_>, exec: ExecId, stream: StreamId) -> Step {
        let seat = self.enter(call, stream)?;
        self.instance(call, exec)?;
        let Some(instance) = self.graphs.execs.remove(&exec) else { return Ok(()) };
        let launched = match self.graphs.is_captured(stream) {
            true => self.capture_child(call, seat, Arc::clone(&instance.graph), &instance.names).map(|()| None),
            false => self.try_launch(call, seat, exec, &instance).map(Some),
        };
        if launched.is_err() {
            // What was left unfreed is told here, and not as a leak again.
            for life in instance.exec.unfreed().filter_map(|alloc| instance.live(alloc)) {
                self.lives.at_mut(life).is_doubtful = true;
            }
        }
        self.graphs.execs.insert(exec, instance);
        if let Some(freed) = launched? {
            self.commit_launch(call, seat, exec, freed);
        }
        Ok(())
    }

    /// Whether the launch is right; the lives that it frees by itself.
    fn try_launch(&self, call: Call<'_>, seat: Seat, exec: ExecId, instance: &Instance) -> Step<Vec<LifeId>> {
        let later = self.site(call, seat, Act::Free);
        let family = instance.family.and_then(|family| self.graphs.families.get(&family));
        if let Some(holder) = family.and_then(|family| family.holder).filter(|holder| *holder != exec) {
            return Err(self.addresses_taken(call, seat, holder, instance));
        }
        let mut waited: Vec<&Snapshot> = instance.last.iter().map(|last| &last.snapshot).collect();
        waited.extend(family.and_then(|family| family.last.as_ref()));
        let chain = &self.time.at(seat).chain;
        let freed = match instance.exec.check_launch() {
            Ok(unfreed) => unfreed.filter_map(|alloc| instance.live(alloc)).collect::<Vec<LifeId>>(),
            Err(_) => return Err(self.unfreed(call, seat, instance)),
        };
        for &life in &freed {
            let knows = Standing { stream: chain, waited: &waited };
            if let Err(mut fault) = self.lives.at(life).history.check_free(&knows) {
                fault.kind = Kind::AutoFreeBeforeUse;
                let mut refused = self.unordered(call, life, fault, later);
                refused.notes.push("the launch frees it by itself (auto free on launch)".to_owned());
                return Err(refused);
            }
        }
        for demand in &instance.exec.summary().demands {
            let before = waited.len();
            for wait in &demand.waits {
                waited.extend(self.waited_for(instance, *wait));
            }
            self.check_demand(call, seat, instance, demand, &waited)?;
            waited.truncate(before);
        }
        for pin in instance.exec.pins() {
            self.resolve(call, Memory { id: pin.id, generation: pin.generation }, self.site(call, seat, Act::Read))?;
        }
        Ok(freed)
    }

    /// What a wait node of a launch waits for.
    fn waited_for(&self, instance: &Instance, wait: NodeId) -> Option<&Snapshot> {
        let (_, key) = instance.exec.summary().waits.iter().find(|(node, _)| *node == wait)?;
        match &self.events.get(&EventId(key.0 as u32))?.stands {
            super::events::Stands::Recorded(recorded) => Some(&recorded.snapshot),
            _ => None,
        }
    }

    fn check_demand(
        &self,
        call: Call<'_>,
        seat: Seat,
        instance: &Instance,
        demand: &Demand,
        waited: &[&Snapshot],
    ) -> Step {
        let later = self.site(call, seat, demand.act);
        let Some(memory) = Self::name_of(instance, demand.memory) else { return Ok(()) };
        let checked = self.resolve(call, memory, later).and_then(|target| {
            let knows = Standing { stream: &self.time.at(seat).chain, waited };
            let history = &self.lives.at(target.life).history;
            let checked = match demand.act {
                Act::Free => history.check_free(&knows),
                act => history.check_use(act, &knows, self.settings.races && !demand.may_share),
            };
            checked.map_err(|fault| self.unordered(call, target.life, fault, later))
        });
        checked.map_err(|mut refused| {
            let node = &instance.exec.nodes()[demand.node.index()];
            let name = node.label.name.as_deref().map(|name| format!(" `{name}`")).unwrap_or_default();
            let at = match self.spot(call, node.label.place).to_string() {
                spot if spot.is_empty() => spot,
                spot => format!(" ({spot})"),
            };
            refused.notes.push(format!("in the launch: node {}, {}{name}{at}", demand.node.0, node.kind.noun()));
            if let Some(side) = &mut refused.later {
                side.node = Some(demand.node.0.to_string());
            }
            refused
        })
    }

    /// The program's name for memory that a node names.
    fn name_of(instance: &Instance, memory: NodeMemory) -> Option<Memory> {
        match memory {
            NodeMemory::External { id, generation } => Some(Memory { id, generation }),
            NodeMemory::Foreign { graph, alloc } => match instance.exec.pins_of(graph, alloc).first() {
                Some(pin) => Some(Memory { id: pin.id, generation: pin.generation }),
                None => instance.names.of((graph, alloc)),
            },
            NodeMemory::Own(alloc) => instance.name(alloc),
        }
    }

    #[cold]
    fn addresses_taken(&self, call: Call<'_>, seat: Seat, holder: ExecId, instance: &Instance) -> Refused {
        let title = self.title(call, self.time.at(seat).id);
        let sentence =
            format!("a graph is launched on {title} with the addresses of {holder}, whose memory is not freed");
        let help = "free that first, or make the graph with symbolic addresses";
        // Instances of one graph have its allocations in common; a copy has the same addresses only.
        let is_same = |other: &Instance| other.graph.id() == instance.graph.id();
        let kind = match self.graphs.execs.get(&holder).is_some_and(is_same) {
            true => Kind::UnfreedLaunch,
            false => Kind::SharedAddresses,
        };
        let mut finding = Finding::new(kind, sentence, help);
        let last = self.graphs.execs.get(&holder).and_then(|instance| instance.last.as_ref());
        finding.earlier = last.map(|last| self.side(call, last.site, "launched"));
        finding.later = Some(self.side(call, self.site(call, seat, Act::Allocate), "launched"));
        Box::new(finding)
    }

    #[cold]
    fn unfreed(&self, call: Call<'_>, seat: Seat, instance: &Instance) -> Refused {
        let left: Vec<LifeId> = instance.exec.unfreed().filter_map(|alloc| instance.live(alloc)).collect();
        let title = self.title(call, self.time.at(seat).id);
        let help = "free it, or instantiate with auto free on launch";
        let mut finding = match left.first() {
            Some(&life) => {
                let life = self.lives.at(life);
                let subject = self.subject(call, life.memory, life.bytes, life.name);
                let sentence =
                    format!("a graph is launched again on {title}, and {subject} of its last launch is not freed");
                let mut finding = Finding::new(Kind::UnfreedLaunch, sentence, help);
                finding.earlier = Some(self.act_side(call, life.history.born().site));
                finding.subject = Some(subject);
                finding
            }
            None => Finding::new(Kind::UnfreedLaunch, "a graph is launched again with memory that is not freed", help),
        };
        if left.len() > 1 {
            finding.notes.push(format!("{} allocations in all", left.len()));
        }
        if let Some(last) = &instance.last {
            let side = self.side(call, last.site, "launched");
            finding.notes.push(format!("its last launch: {} ({})", side.title(), side.spot));
        }
        finding.later = Some(self.side(call, self.site(call, seat, Act::Allocate), "launched"));
        Box::new(finding)
    }

    /// The launch is made: see `graph/lanes.rs` for the steps.
    fn commit_launch(&mut self, call: Call<'_>, seat: Seat, exec: ExecId, freed: Vec<LifeId>) {
        let Some(mut instance) = self.graphs.execs.remove(&exec) else { return };
        if let Some(last) = &instance.last {
            self.time.at_mut(seat).chain.wait(&last.snapshot);
        }
        let family = instance.family.and_then(|family| self.graphs.families.get(&family));
        if let Some(last) = family.and_then(|family| family.last.as_ref()) {
            self.time.at_mut(seat).chain.wait(last);
        }
        let before = self.time.at(seat).chain.snapshot();
        let waits: Vec<(NodeId, Snapshot)> = instance
            .exec
            .summary()
            .waits
            .iter()
            .map(|(node, _)| *node)
            .filter_map(|node| Some((node, self.waited_for(&instance, node)?.clone())))
            .collect();
        let base = self.time.base(call.host);
        let site = self.site(call, seat, Act::Free);
        let exports: Vec<(EventId, Snapshot)> = instance
            .exec
            .summary()
            .records
            .iter()
            .map(|&(node, key)| {
                let index = instance.exec.index();
                let waited = waits.iter().filter(|(wait, _)| index.reaches(*wait, node)).map(|(_, snapshot)| snapshot);
                let snapshot = instance.lanes.export(&instance.exec, node, &base, &before, waited);
                (EventId(key.0 as u32), snapshot)
            })
            .collect();
        let ends: Vec<Snapshot> = instance.lanes.ends(&base).collect();
        let chain = &mut self.time.at_mut(seat).chain;
        for snapshot in ends.iter().chain(waits.iter().map(|(_, snapshot)| snapshot)) {
            chain.wait(snapshot);
        }
        let point = chain.submit();
        for life in freed {
            // The instance is at hand here and not in the table, where `end` looks for it.
            if let Some(Source::Launch(_, alloc)) = self.lives.end(life, Use { point, site }).map(|life| life.source) {
                let _ = instance.exec.freed(alloc);
            }
        }
        instance.outputs.clear();
        self.leave_marks(call, seat, exec, &mut instance, point);
        instance.exec.launched();
        instance.lanes.advance();
        for (event, snapshot) in exports {
            self.events.entry(event).or_default().launched(snapshot, site);
        }
        let snapshot = self.time.at(seat).chain.snapshot();
        if let Some(family) = instance.family.and_then(|family| self.graphs.families.get_mut(&family)) {
            family.last = Some(snapshot.clone());
            family.holder = (!instance.exec.outputs().is_empty()).then_some(exec);
        }
        instance.last = Some(Last { snapshot, site });
        self.graphs.execs.insert(exec, instance);
        self.time.at_mut(seat).last_work = Some((point.seq, point.seq));
        self.done(seat, "launched", call.place);
    }

    /// What a launch leaves in the histories of memory, and the lives that it begins.
    fn leave_marks(
        &mut self,
        call: Call<'_>,
        seat: Seat,
        exec: ExecId,
        instance: &mut Instance,
        point: crate::ids::Point,
    ) {
        let stream = self.time.at(seat);
        let (id, op) = (stream.id, stream.ops + 1);
        for at in 0..instance.exec.summary().marks.len() {
            let mark = instance.exec.summary().marks[at];
            let point = instance.lanes.point(&instance.exec, mark.node).unwrap_or(point);
            let site = Site { act: mark.act, stream: id, op, place: call.place };
            match (mark.memory, mark.act) {
                (NodeMemory::Own(alloc), Act::Allocate) => {
                    let node = &instance.exec.nodes()[mark.node.index()];
                    let place = if node.label.place == Default::default() { call.place } else { node.label.place };
                    let born = Use { point, site: Site { place, ..site } };
                    let bytes = instance.exec.allocs()[alloc.index()].bytes;
                    let memory = Self::name_of(instance, mark.memory);
                    let Some(memory) = memory else { continue };
                    let label = || node.label.name.as_deref().and_then(|name| call.names.find(name));
                    let name: Option<Name> = self.graphs.called.get(&memory).copied().or_else(label);
                    let life = self.lives.begin(memory, born, bytes, name, Source::Launch(exec, alloc));
                    instance.outputs.insert(alloc, Output::Live(life));
                    self.graphs.latest.insert(memory, (exec, alloc));
                }
                (NodeMemory::Own(alloc), act) => {
                    if let (Some(life), true) = (instance.live(alloc), act != Act::Free) {
                        self.lives.at_mut(life).history.add_use(Use { point, site }, &self.time.at(seat).chain);
                    }
                }
                (memory, act) => self.leave_outside(call, seat, instance, (memory, act), Use { point, site }),
            }
        }
    }

    fn leave_outside(
        &mut self,
        call: Call<'_>,
        seat: Seat,
        instance: &Instance,
        (memory, act): (NodeMemory, Act),
        new: Use,
    ) {
        let Some(memory) = Self::name_of(instance, memory) else { return };
        let Ok(target) = self.resolve(call, memory, new.site) else { return };
        match act {
            Act::Free => self.end(target.life, new),
            _ => self.lives.at_mut(target.life).history.add_use(new, &self.time.at(seat).chain),
        }
    }

    /// The life that the latest launch gave memory of an alloc node; what freed it; none where there was no launch.
    pub(super) fn output(&self, memory: Memory) -> Option<Result<LifeId, Freed>> {
        let (exec, alloc) = self.graphs.latest.get(&memory)?;
        match self.graphs.execs.get(exec)?.outputs.get(alloc)? {
            Output::Live(life) => Some(Ok(*life)),
            Output::Freed(freed) => Some(Err(*freed)),
        }
    }

    /// What a launch left, as other graphs name it: by its alloc node. Of a graph with symbolic addresses each instance
    /// has its own, which nodes use by the name of its life.
    pub(super) fn left_by_launch(&self, life: LifeId, act: Act) -> Option<(Key, Memory)> {
        let Source::Launch(exec, alloc) = self.lives.at(life).source else { return None };
        let instance = self.graphs.execs.get(&exec)?;
        let is_named = act == Act::Free || instance.family.is_some();
        is_named.then(|| Some((instance.key(alloc), instance.name(alloc)?)))?
    }

    /// Memory of an instance was freed from outside.
    pub(super) fn output_freed(&mut self, exec: ExecId, alloc: GraphAllocId, freed: Freed) {
        let Some(instance) = self.graphs.execs.get_mut(&exec) else { return };
        // That it was there to be freed was seen when its life was found.
        let _ = instance.exec.freed(alloc);
        instance.outputs.insert(alloc, Output::Freed(freed));
        if instance.exec.unfreed().next().is_none()
            && let Some(family) = instance.family.and_then(|family| self.graphs.families.get_mut(&family))
        {
            family.holder = None;
        }
        self.bury(exec);
    }

    /// Gives the latest launch's life a name of its own.
    pub(super) fn take(&mut self, call: Call<'_>, exec: ExecId, node: Memory, memory: Memory) -> Step {
        let site = self.host_site(call, Act::Read);
        let instance = self.instance(call, exec)?;
        let alloc = instance.outputs.keys().find(|alloc| instance.name(**alloc) == Some(node));
        match alloc.and_then(|alloc| instance.outputs.get(alloc)) {
            Some(Output::Live(life)) => {
                let life = *life;
                self.lives.at_mut(life).memory = memory;
                self.lives.name(memory, Named::Life(life));
                Ok(())
            }
            Some(Output::Freed(freed)) => Err(self.after_free(call, node, Some(*freed), site)),
            None => self.resolve(call, node, site).map(drop),
        }
    }

    pub(super) fn destroy_exec(&mut self, call: Call<'_>, exec: ExecId) -> Step {
        self.instance(call, exec)?;
        if let Some(instance) = self.graphs.execs.get_mut(&exec) {
            instance.is_destroyed = true;
        }
        self.bury(exec);
        Ok(())
    }

    /// An instance that is destroyed and left nothing that lives is forgotten.
    fn bury(&mut self, exec: ExecId) {
        let is_over = |it: &Instance| it.is_destroyed && it.exec.unfreed().next().is_none();
        if !self.graphs.execs.get(&exec).is_some_and(is_over) {
            return;
        }
        let Some(instance) = self.graphs.execs.remove(&exec) else { return };
        if let Some(id) = instance.family
            && let Some(family) = self.graphs.families.get_mut(&id)
        {
            family.instances -= 1;
            if family.instances == 0 && !self.graphs.graphs.values().any(|made| made.family == Some(id)) {
                self.graphs.families.remove(&id);
            }
        }
        for alloc in instance.exec.outputs() {
            if let Some(memory) = instance.name(*alloc)
                && self.graphs.latest.get(&memory).is_some_and(|(latest, _)| *latest == exec)
            {
                self.graphs.latest.remove(&memory);
            }
        }
        self.forget_names(&instance.names);
        instance.lanes.close().for_each(|last| self.time.close_slot(last));
    }
}

impl Instance {
    /// An allocation, as graphs name it.
    fn key(&self, alloc: GraphAllocId) -> Key {
        let it = &self.exec.allocs()[alloc.index()];
        (it.graph, it.alloc)
    }

    /// An allocation, as the program names it.
    fn name(&self, alloc: GraphAllocId) -> Option<Memory> {
        self.names.of(self.key(alloc))
    }

    fn live(&self, alloc: GraphAllocId) -> Option<LifeId> {
        match self.outputs.get(&alloc) {
            Some(Output::Live(life)) => Some(*life),
            _ => None,
        }
    }
}
