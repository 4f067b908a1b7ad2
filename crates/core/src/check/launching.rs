//! The tables' answers to each step of the protocol that decides whether a graph launch of the program may be made.
//!
//! Knows lifetimes and events; changes nothing.

use super::checker::{Call, Checker, Refused, Step};
use super::finding::{Finding, Side};
use super::graph_state::{Instance, User};
use super::lives::LifeId;
use super::protocol::{Launch, judge};
use super::timeline::StreamIndex;
use crate::graph::{Demand, NodeKind, Standing, Work};
use crate::ids::NodeId;
use crate::life::{Site, Use};
use crate::op::{Act, Memory};
use crate::order::{Chain, Snapshot};

/// A launch that is being judged.
struct Launching<'c> {
    checker: &'c Checker,
    call: Call<'c>,
    stream_index: StreamIndex,
    instance: &'c Instance,
    /// The earlier launches that it comes after.
    waited: Vec<&'c Snapshot>,
    /// The memory of earlier launches that it has to free.
    freed: Vec<LifeId>,
    /// `true` if it can free all of that.
    may_free: bool,
}

impl Launching<'_> {
    /// Calls `act` with what the nodes of a demand come after.
    fn standing<R>(&self, demand: Option<&Demand>, act: impl FnOnce(&Standing<'_, Chain>) -> R) -> R {
        let stream = &self.checker.time.at(self.stream_index).chain;
        let waits = demand.map_or(&[][..], |demand| &demand.waits);
        let learned = waits.iter().filter_map(|wait| self.checker.waited_for(self.instance, *wait));
        match waits.is_empty() {
            true => act(&Standing { stream, waited: &self.waited }),
            false => {
                let waited: Vec<&Snapshot> = self.waited.iter().copied().chain(learned).collect();
                act(&Standing { stream, waited: &waited })
            }
        }
    }
}

impl Launch for Launching<'_> {
    type Refused = Refused;

    fn check_unfreed(&self) -> Step {
        match self.may_free || self.freed.is_empty() && !self.instance.has_nameless {
            true => Ok(()),
            false => Err(self.checker.unfreed(self.call, self.stream_index, self.instance, &self.freed)),
        }
    }

    fn check_auto_frees(&self) -> Step {
        let Self { checker, call, stream_index, .. } = *self;
        self.freed.iter().try_for_each(|&life| {
            let checked = self.standing(None, |knows| checker.lives.at(life).history.check_auto_free(knows));
            checked.map_err(|fault| {
                let mut refused = checker.unordered(call, life, fault, checker.site(call, stream_index, Act::Free));
                refused.in_launch(None);
                refused
            })
        })
    }

    fn check_demand(&self, number: usize) -> Step {
        let Self { checker, call, stream_index, instance, .. } = *self;
        let demand = &instance.exec.summary().demands[number];
        let later = checker.site(call, stream_index, demand.act);
        let Some(memory) = checker.name_of(instance, demand.memory) else { return Ok(()) };
        let mut first = 0;
        let checked = checker.resolve(call, memory, later).and_then(|target| {
            // The device of a node that was added by hand is not known.
            let is_kernel =
                |node: NodeId| matches!(instance.exec.nodes()[node.index()].kind, NodeKind::Work(Work::Kernel));
            let user = match demand.device.is_some() && demand.nodes.iter().any(|(node, _)| is_kernel(*node)) {
                true => User::Kernel(demand.device),
                false => User::Other(demand.device),
            };
            checker.check_reach(call, target, user, later)?;
            if self.freed.contains(&target.life) {
                let free =
                    Use { point: checker.time.at(stream_index).chain.last(), site: Site { act: Act::Free, ..later } };
                let freed = checker.lives.at(target.life).freed_by(free);
                return Err(checker.after_free(call, memory, Some(freed), later));
            }
            let history = &checker.lives.at(target.life).history;
            let checked = self.standing(Some(demand), |who| history.check_demand(demand, who, checker.settings.races));
            checked.map_err(|fault| {
                first = history.first_to_blame(demand, &fault);
                checker.unordered(call, target.life, fault, later)
            })
        });
        checked.map_err(|mut refused| {
            let node = &instance.exec.nodes()[demand.nodes[first].0.index()];
            refused.in_launch(Some(Side::of_node(&node.site(demand.act), call.names)));
            refused
        })
    }

    fn check_pins(&self) -> Step {
        self.instance.exec.pins().iter().try_for_each(|pin| {
            let memory = Memory { id: pin.id, generation: pin.generation };
            self.checker
                .resolve(self.call, memory, self.checker.site(self.call, self.stream_index, Act::Read))
                .map(drop)
        })
    }

    fn join(&self, refused: &mut Refused, also: Refused) {
        refused.join(&also);
    }
}

impl Checker {
    /// Judges a launch. Returns the lifetimes that it frees by itself.
    pub(super) fn try_launch(
        &self,
        call: Call<'_>,
        stream_index: StreamIndex,
        instance: &Instance,
    ) -> Step<Vec<LifeId>> {
        let waited: Vec<&Snapshot> = instance.launches_before().map(|last| &last.snapshot).collect();
        let mut freed: Vec<LifeId> = instance.exec.outputs().iter().filter_map(|alloc| instance.live(*alloc)).collect();
        let mut may_free = instance.exec.auto_free_on_launch() && !instance.has_nameless;
        self.left_by_others(instance, &mut freed, &mut may_free);
        let launch = Launching { checker: self, call, stream_index, instance, waited, freed, may_free };
        judge(&launch, instance.exec.summary().demands.len())?;
        Ok(launch.freed)
    }

    /// Adds the memory that destroyed instances left at the addresses of this one. The launch frees by itself only the
    /// memory that it allocates again: `may_free` becomes `false` if there is other memory.
    fn left_by_others(&self, instance: &Instance, left: &mut Vec<LifeId>, may_free: &mut bool) {
        for (graph, before) in &instance.before {
            let gone = self.graphs.execs.get(&before.exec).filter(|gone| gone.is_destroyed);
            for (gone, (alloc, life)) in gone.iter().flat_map(|gone| gone.lives().map(move |left| (gone, left))) {
                let key = gone.key(alloc);
                if key.0 == *graph {
                    *may_free &= instance.exec.outputs().iter().any(|of| instance.key(*of) == key);
                    left.push(life);
                }
            }
        }
    }

    #[cold]
    fn unfreed(&self, call: Call<'_>, stream_index: StreamIndex, instance: &Instance, left: &[LifeId]) -> Refused {
        let title = self.title(call, self.time.at(stream_index).kept.id);
        let subject = left.first().map(|&life| {
            let life = self.lives.at(life);
            (self.subject_of(call, life), self.act_side(call, life.history.born().site))
        });
        let mut finding = Finding::unfreed(&title, subject, left.len());
        if let Some(last) = instance.launches_before().last() {
            let side = self.side(call, last.site, "launched");
            finding.notes.push(format!("its last launch: {} ({})", side.title(), side.spot));
        }
        finding.later = Some(self.side(call, self.site(call, stream_index, Act::Allocate), "launched"));
        Box::new(finding)
    }
}
