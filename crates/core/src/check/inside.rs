//! The node of a launch that did what a side of a finding says of the launch.
//!
//! A launch is one operation of a stream, and the uses that it leaves belong to that operation. An instance knows its
//! latest launch. The node is not known for earlier launches, and for instances that were destroyed or updated since.
//! Decides nothing.

use super::checker::{Call, Checker};
use super::finding::{Finding, Side};
use super::graph_state::Instance;
use super::lives::{Found, Named};
use crate::graph::{LastAct, Memory as NodeMemory};
use crate::ids::{AllocId, Point};
use crate::life::{Fault, Kind};
use crate::op::{Act, Part};

/// An act of a launch, to find the node that did it.
#[derive(Clone, Copy, Debug)]
pub struct Sought {
    /// The allocation.
    pub id: AllocId,
    /// The point, if it is known: nodes may have points of their own.
    pub point: Option<Point>,
    /// The bytes, of which the node used at least some.
    pub part: Part,
}

impl Sought {
    /// Returns `true` if the node of this last act did it. `point` is the node's own point, if it has one.
    pub fn is_by(&self, last: &LastAct, point: Option<Point>) -> bool {
        let is_there = point.zip(self.point).is_none_or(|(own, sought)| own == sought);
        is_there && last.part.overlaps(self.part)
    }
}

impl Finding {
    /// Keeps the points of the sides of a fault, for [`name_nodes`](Self::name_nodes).
    pub fn met(mut self, fault: Fault) -> Self {
        self.met = Some(Box::new(fault));
        self
    }

    /// Adds the node to each side that had to come first and that a launch did. `node` returns the node for a side and
    /// its act.
    #[cold]
    pub fn name_nodes(&mut self, node: impl Fn(&Side, Sought) -> Option<Side>) {
        let Some(id) = self.subject.as_ref().map(|subject| subject.id) else { return };
        let met = self.met.take();
        let part = met.as_ref().map_or(Part::WHOLE, |fault| fault.part);
        let points = met.iter().flat_map(|fault| [&fault.earlier].into_iter().chain(&fault.ends[1..]));
        let points = points.map(|known| Some(known.point)).chain(std::iter::repeat(None));
        let sides = self.earlier.iter_mut().chain(&mut self.others).zip(points);
        for (side, point) in sides.filter(|(side, _)| side.within.is_none()) {
            if let Some(node) = node(side, Sought { id, point, part }) {
                side.node = node.node.clone();
                side.within = Some(Box::new(node));
            }
        }
        self.say_of_auto_free();
    }

    /// If the earlier side is a launch that frees what the launch before it left, changes the advice: a use has to come
    /// before that launch.
    fn say_of_auto_free(&mut self) {
        let Some(launch) = self.earlier.as_ref().filter(|it| it.within.as_deref() == Some(&Side::auto_free())) else {
            return;
        };
        let launch = match launch.spot.to_string() {
            spot if spot.is_empty() => "the launch".to_owned(),
            spot => format!("the launch at {spot}"),
        };
        let frees = "frees what the launch before left (auto free on launch)";
        match (self.kind, self.later.as_ref().and_then(|later| later.act)) {
            (Kind::DoubleFree, _) => self.advice = format!("leave this free out: {launch} {frees}"),
            (Kind::UseAfterFree, Some(act)) => {
                let verb = if act == Act::Write { "write" } else { "read" };
                self.advice = format!("{verb} it before {launch}, which {frees}, or use what that launch allocated");
            }
            _ => {}
        }
    }
}

impl Side {
    /// Describes the free, by a launch itself, of memory that the launch before it left (CUDA:
    /// `cudaGraphInstantiateFlagAutoFreeOnLaunch`).
    pub fn auto_free() -> Self {
        let who = "auto free on launch".to_owned();
        Side { verb: Act::Free.past().to_owned(), act: Some(Act::Free), who, ..Side::default() }
    }
}

impl Checker {
    /// Returns the node of a launch that did what the side says.
    #[cold]
    pub(super) fn node_of(&self, call: Call<'_>, side: &Side, sought: Sought) -> Option<Side> {
        let (launch, act) = ((side.stream?, side.op?), side.act?);
        let exec = self.graphs.execs.values().find(|it| it.launched == Some(launch) && !it.is_destroyed)?;
        let mut last_acts = exec.exec.summary().last_acts.iter().filter(|last| last.act == act);
        if act == Act::Free && exec.exec.auto_free_on_launch() && last_acts.clone().next().is_none() {
            return Some(Side::auto_free());
        }
        let is_it = |last: &&LastAct| {
            self.id_of(exec, last.memory) == Some(sought.id)
                && sought.is_by(last, exec.lanes.last_point(&exec.exec, last.node))
        };
        let (last, nodes) = (last_acts.find(is_it)?, exec.exec.nodes());
        Some(Side::of_node(&nodes[last.doer(nodes, sought.part).index()].site(act), call.names))
    }

    /// Returns the allocation that a node of an instance names, by its number in findings.
    fn id_of(&self, instance: &Instance, memory: NodeMemory) -> Option<AllocId> {
        let memory = self.name_of(instance, memory)?;
        let life = match self.lives.find(memory) {
            Found::Named(Named::Life(life) | Named::Lease(life)) => Some(life),
            Found::Named(Named::Node { .. }) => self.output(memory).and_then(Result::ok),
            _ => None,
        };
        Some(life.map_or(memory, |life| self.lives.birth(life).0).id)
    }
}
