//! Whether a launch of the program may be made: what each step of the protocol asks the tables.
//!
//! Knows lives, families and events; changes nothing.

use super::checker::{Call, Checker, Refused, Step};
use super::finding::{Finding, Side};
use super::graph_state::Instance;
use super::let_in::User;
use super::lives::LifeId;
use super::protocol::{Launch, judge};
use super::timeline::Seat;
use super::usage::Target;
use crate::graph::{Demand, Memory as NodeMemory, NodeKind, Standing, Work};
use crate::ids::{ExecId, NodeId};
use crate::life::{Kind, Site};
use crate::op::{Act, Memory, Thing};
use crate::order::{Chain, Snapshot};

/// A launch that is being judged.
struct Launching<'c> {
    checker: &'c Checker,
    call: Call<'c>,
    seat: Seat,
    instance: &'c Instance,
    /// The launches before that it comes after.
    waited: Vec<&'c Snapshot>,
    /// What launches before left, which it has to free.
    freed: Vec<LifeId>,
}

impl Launching<'_> {
    /// Where the nodes of a demand stand.
    fn standing<R>(&self, demand: Option<&Demand>, act: impl FnOnce(&Standing<'_, Chain>) -> R) -> R {
        let stream = &self.checker.time.at(self.seat).chain;
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
        match self.freed.is_empty() || self.instance.exec.auto_free_on_launch() {
            true => Ok(()),
            false => Err(self.checker.unfreed(self.call, self.seat, self.instance, &self.freed)),
        }
    }

    fn check_addresses(&self) -> Step {
        let mut left = self.checker.families(self.instance).flat_map(|family| &family.left);
        match left.find(|(_, left)| self.instance.is_taken_by(left)) {
            Some((&(holder, _), _)) => Err(self.checker.addresses_taken(self.call, self.seat, holder)),
            None => Ok(()),
        }
    }

    fn check_auto_frees(&self) -> Step {
        let Self { checker, call, seat, .. } = *self;
        self.freed.iter().try_for_each(|&life| {
            let checked = self.standing(None, |knows| checker.lives.at(life).history.check_auto_free(knows));
            checked.map_err(|fault| {
                let mut refused = checker.unordered(call, life, fault, checker.site(call, seat, Act::Free));
                refused.in_launch(None);
                refused
            })
        })
    }

    fn check_demand(&self, number: usize) -> Step {
        let Self { checker, call, seat, instance, .. } = *self;
        let demand = &instance.exec.summary().demands[number];
        let later = checker.site(call, seat, demand.act);
        let Some(memory) = Checker::name_of(instance, demand.memory) else { return Ok(()) };
        let mut first = 0;
        let checked = checker.demanded(call, instance, demand.memory, memory, later).and_then(|target| {
            // A node that was added by hand works on a device that is not known.
            let is_kernel =
                |node: NodeId| matches!(instance.exec.nodes()[node.index()].kind, NodeKind::Work(Work::Kernel));
            let user = match demand.device.is_some() && demand.nodes.iter().any(|(node, _)| is_kernel(*node)) {
                true => User::Kernel(demand.device),
                false => User::Other(demand.device),
            };
            checker.check_reach(call, target, user, later)?;
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
            self.checker.resolve(self.call, memory, self.checker.site(self.call, self.seat, Act::Read)).map(drop)
        })
    }

    fn join(&self, refused: &mut Refused, also: Refused) {
        refused.join(&also);
    }
}

impl Checker {
    /// Whether the launch is right; the lives that it frees by itself.
    pub(super) fn try_launch(
        &self,
        call: Call<'_>,
        seat: Seat,
        exec: ExecId,
        instance: &Instance,
    ) -> Step<Vec<LifeId>> {
        let mut waited: Vec<&Snapshot> = instance.last.iter().map(|last| &last.snapshot).collect();
        waited.extend(self.families(instance).filter_map(|family| family.last.as_ref()));
        let freed = self.left_unfreed(exec, instance);
        let launch = Launching { checker: self, call, seat, instance, waited, freed };
        judge(&launch, instance.exec.summary().demands.len())?;
        Ok(launch.freed)
    }

    /// What launches of this instance, or of others of its graph, left of what it makes anew.
    fn left_unfreed(&self, exec: ExecId, instance: &Instance) -> Vec<LifeId> {
        let mut unfreed: Vec<LifeId> = instance.exec.unfreed().filter_map(|alloc| instance.live(alloc)).collect();
        let others = self.families(instance).flat_map(|family| &family.left);
        let others = others.filter(|((by, _), left)| *by != exec && instance.leaves.contains(&left.key));
        unfreed.extend(others.filter_map(|((by, alloc), _)| self.graphs.execs.get(by)?.live(*alloc)));
        unfreed
    }

    /// The life that a node means by the name of another graph's memory: not one that a copy of that graph began.
    fn demanded(
        &self,
        call: Call<'_>,
        instance: &Instance,
        wanted: NodeMemory,
        memory: Memory,
        later: Site,
    ) -> Step<Target> {
        if let NodeMemory::Foreign { graph, alloc } = wanted
            && instance.exec.pins_of(graph, alloc).is_empty()
            && self.latest_key(memory).is_some_and(|latest| latest != (graph, alloc))
        {
            return Err(match self.freed_of((graph, alloc)) {
                Some(freed) => self.after_free(call, memory, Some(freed), later),
                None => self.never_allocated(call, memory, later),
            });
        }
        self.resolve(call, memory, later)
    }

    #[cold]
    fn addresses_taken(&self, call: Call<'_>, seat: Seat, holder: ExecId) -> Refused {
        let (title, kept_by) = (self.title(call, self.time.at(seat).kept.id), call.names.title(Thing::Exec(holder)));
        let sentence =
            format!("a graph is launched on {title} with the addresses of {kept_by}, whose memory is not freed");
        let help = "free that first, or make the graph with symbolic addresses";
        let mut finding = Finding::new(Kind::SharedAddresses, sentence, help);
        let last = self.graphs.execs.get(&holder).and_then(|instance| instance.last.as_ref());
        finding.earlier = last.map(|last| self.side(call, last.site, "launched"));
        finding.later = Some(self.side(call, self.site(call, seat, Act::Allocate), "launched"));
        Box::new(finding)
    }

    #[cold]
    fn unfreed(&self, call: Call<'_>, seat: Seat, instance: &Instance, left: &[LifeId]) -> Refused {
        let title = self.title(call, self.time.at(seat).kept.id);
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
}
