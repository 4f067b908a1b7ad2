//! Launches that may start before the one before them has completed (CUDA: programmatic stream serialization) must not
//! rely on that.
//!
//! Knows streams, lives and captures; decides about order only.

use smallvec::SmallVec;

use super::checker::{Call, Checker, Step};
use super::lives::{Life, Source};
use super::timeline::Seat;
use super::usage::Target;
use crate::graph::{Access as NodeAccess, CompletedNodes};
use crate::ids::{NodeId, Point, Slot};
use crate::life::{Site, Use};
use crate::op::{Access, Place};
use crate::order::{Clock, Knows};

impl Checker {
    /// Work that may start before the launch before it has completed must not rely on that.
    pub(super) fn check_early(&mut self, call: Call<'_>, seat: Seat, accesses: &[Access], targets: &[Target]) -> Step {
        // What the host knows to have completed has done so before the launch is called.
        let base = self.time.base(call.op.host);
        let stream = self.time.at(seat);
        let Some(last) = stream.kept.last_work.as_ref() else { return Ok(()) };
        let (slot, met, mut needed) = (stream.chain.slot(), stream.met(), None);
        let mut overlaps = |known: &Use| {
            let is_by_it = last.says(known.point, slot, met) && !base.covers(known.point);
            let wait = last.wait_for(known.point, slot).filter(|_| is_by_it);
            needed = needed.or(wait);
            is_by_it && wait.is_none()
        };
        for (access, target) in accesses.iter().zip(targets) {
            let conflicts = |known: &&Use| access.act.conflicts(known.site.act);
            let life = self.lives.at(target.life);
            let uses = life.history.uses_of(access.part).filter(conflicts).copied();
            let freed = last.learned().filter(|_| last.says(life.history.born().point, slot, met));
            let freed = freed.filter_map(|learned| given(life, learned, slot, &self.time.freed));
            if let Some(earlier) = uses.chain(origin(life, slot)).chain(freed).find(|known| overlaps(known)) {
                return Err(self.weakly_ordered(call, target.life, earlier, self.site(call, seat, access.act)));
            }
        }
        needed.into_iter().for_each(|wait| self.needs(wait));
        Ok(())
    }

    /// A node that may start before the launch before it has completed must not rely on that. What has completed by
    /// then.
    pub(super) fn check_captured_early(
        &mut self,
        call: Call<'_>,
        seat: Seat,
        named: &[Access],
        accesses: &[NodeAccess],
    ) -> Step<CompletedNodes> {
        let stream = self.time.at(seat).kept.id;
        let captures = &mut self.graphs.captures;
        let tails: SmallVec<[NodeId; 2]> = captures.tails(stream).unwrap_or(&[]).into();
        let Some(graph) = captures.graph(stream) else { return Ok(CompletedNodes::from([])) };
        let Some(captured) = self.graphs.captured.get(&graph.id()) else { return Ok(CompletedNodes::from([])) };
        let completed = graph.completed_before(&tails, |node| captured.early.get(&node));
        let mut earlier_of = |access: &NodeAccess| {
            let conflicting = captured.uses.conflicting(*access);
            conflicting.filter(|(node, _)| graph.may_run(*node, &tails, &completed)).min_by_key(|(node, _)| *node)
        };
        let found = named.iter().zip(accesses).find_map(|(named, access)| Some((named, access, earlier_of(access)?)));
        let Some((named, access, (node, act))) = found else { return Ok(completed) };
        let Some(graph) = self.graphs.captures.graph_of(stream) else { return Ok(completed) };
        let (id, label) = (graph.id(), graph.node(node).map(|node| &node.label));
        let (place, on) = label.map_or((Place::Unknown, None), |label| (label.place, label.stream));
        let subject = self.named_by_node(call, id, named, access);
        let later = self.site(call, seat, access.act);
        let earlier = Site { act, place, stream: on.unwrap_or(later.stream), op: 0 };
        Err(self.weak(call, subject, earlier, later))
    }
}

/// What must have been done before the memory is used by a stream with this chain's number. A launch that left it is
/// work, too. An allocation in the stream's own order is none, but may have the bytes of what was freed before it.
fn origin(life: &Life, slot: Slot) -> Option<Use> {
    let born = life.history.born();
    match life.source {
        Source::Stream { after, .. } if born.point.slot == slot => {
            (after > 0).then_some(Use { point: Point { slot, seq: after }, ..born })
        }
        _ => Some(born),
    }
}

/// What is freed at or before a point that the stream learned, if anything was: an allocation of the stream, by this
/// chain's number, may have the bytes.
fn given(life: &Life, learned: Point, slot: Slot, freed: &Clock) -> Option<Use> {
    let born = life.history.born();
    let is_in_order = matches!(life.source, Source::Stream { .. }) && born.point.slot == slot;
    let point = Point { seq: freed.seen(learned.slot).min(learned.seq), ..learned };
    (is_in_order && point.seq > 0 && point.slot != slot).then_some(Use { point, ..born })
}
