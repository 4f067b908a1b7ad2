//! Launches that a driver refuses after they were judged right.
//!
//! A launch that was [stepped](Checker::step) may be withdrawn until its stream's next step, or until the caller says
//! that the device has it ([`advance`](Checker::advance)). In the meantime its uses are in the histories, in place of
//! the uses that they stand for:
//!
//! * No verdict becomes right because of such a use. A party that takes the end of the stream takes the end before the
//!   launch ([`Stream::end`](crate::order::Stream::end)), so no party comes after the launch.
//! * A verdict may become wrong because of such a use. So a finding that names one is not reported: the step must be
//!   made again once the launch is confirmed or withdrawn ([`Reason::AskAgain`](super::Reason::AskAgain)).
//!
//! The launch of a graph also begins and ends lifetimes, records events and changes its instance. It does so only when
//! it is confirmed. Until then it is *held*, with its uses in the histories.
//!
//! Withdrawing a launch undoes its changes to histories, the last one first. Nothing is copied beforehand: a history
//! returns what a use replaces.

use super::answer::{Done, StreamHandle};
use super::changes::{Change, Held};
use super::checker::{Call, Checker};
use super::finding::{Edge, Finding};
use super::lives::{Found, LifeId, Named};
use super::timeline::StreamIndex;
use super::usage::Target;
use crate::graph::Memory as NodeMemory;
use crate::ids::{ExecId, Point, Seq};
use crate::life::{Kind, Site, Use};
use crate::op::{Act, Memory, Names, What};
use crate::order::Snapshot;

impl Checker {
    /// Withdraws a launch that the device does not have. Its uses are forgotten, and the uses that they replaced are
    /// put back. The stream keeps its position. Returns `false` if it cannot be withdrawn: its stream has gone on, was
    /// [advanced](Self::advance), or was destroyed.
    ///
    /// A launch into a capture cannot be withdrawn: it is done at once.
    pub fn retract(&mut self, done: Done) -> bool {
        let Done { stream: Some(StreamHandle(stream_index)), point: Some(point), changes, .. } = done else {
            return false;
        };
        let last =
            self.time.get(stream_index).filter(|stream| stream.may_withdraw(point)).map(|stream| stream.chain.last());
        if last != Some(point) {
            return false;
        }
        match self.take_held(stream_index) {
            Some(held) => {
                self.undo_all(held.changes);
                self.time.release(stream_index);
            }
            None => {
                self.undo_all(changes);
                self.time.withdraw(stream_index);
            }
        }
        true
    }

    fn undo_all(&mut self, changes: Vec<Change>) {
        changes.into_iter().rev().for_each(|change| self.undo(change));
    }

    fn undo(&mut self, change: Change) {
        match change {
            Change::Added(whose, used, part) => {
                if let Some(history) = self.lives.history_of(whose) {
                    history.remove(&used, part);
                }
            }
            Change::Replaced(whose, replaced) => {
                if let Some(history) = self.lives.history_of(whose) {
                    history.put_back(replaced);
                }
            }
            Change::Born(whose, born) => {
                if let Some(history) = self.lives.history_of(whose) {
                    history.replace_born(born);
                }
            }
            Change::Foreign { pool, device, used, before } => {
                if let Some(known) = self.foreign.get_mut(&(pool, device)) {
                    match before {
                        Some(before) => drop(known.insert(used, before)),
                        None => drop(known.remove(&used)),
                    }
                }
            }
        }
    }

    /// Tells the checker that the device has all operations of a stream up to a position, so that a launch there cannot
    /// be withdrawn any more. The position is one of an answer, or [follows](crate::order::next_op) from one.
    /// Operations on [private](super::Header) memory, which were not stepped, are counted by their positions.
    ///
    /// Returns the effects of a launch of a graph that was not done so far. `names` is the table of names that the
    /// operations refer to.
    pub fn advance(&mut self, stream: StreamHandle, position: Seq, names: &Names) -> Done {
        let is_reached = self.time.get(stream.0).is_some_and(|stream| position >= stream.chain.seq());
        if !is_reached || !self.is_held(stream.0) {
            self.time.advance(stream.0, position);
            return Done::default();
        }
        self.time.answer.ask();
        self.confirm(stream.0, names);
        let mut done = self.time.answer.take();
        self.time.advance(stream.0, position);
        let advanced = self.time.at(stream.0);
        (done.stream, done.point, done.number) = (Some(stream), Some(advanced.chain.last()), advanced.kept.ops);
        done
    }

    /// Confirms the last launch of a stream. A launch that was held is done.
    #[inline]
    pub(super) fn confirm(&mut self, stream_index: StreamIndex, names: &Names) {
        match self.take_held(stream_index) {
            Some(held) => self.commit_held(held, names),
            None => self.time.confirm(stream_index),
        }
    }

    /// As [`confirm`](Self::confirm), for the held launches of all streams.
    pub(super) fn confirm_all(&mut self, names: &Names) {
        while let Some(held) = self.held.pop() {
            self.commit_held(held, names);
        }
    }

    /// Returns `true` if the launch of a graph on a stream may be withdrawn.
    #[inline]
    pub(super) fn is_held(&self, stream_index: StreamIndex) -> bool {
        self.held.iter().any(|held| held.stream_index == stream_index)
    }

    #[inline]
    fn take_held(&mut self, stream_index: StreamIndex) -> Option<Held> {
        let at = self.held.iter().position(|held| held.stream_index == stream_index)?;
        Some(self.held.swap_remove(at))
    }

    /// Returns the stream of a launch that may be withdrawn and must end before an operation can be judged: a launch of
    /// the instance that the operation names, or, for a drop or an export, which need no order, a launch that frees the
    /// memory that it names.
    pub(super) fn launching(&self, what: &What) -> Option<StreamHandle> {
        let is_it = |held: &&Held| match *what {
            What::GraphLaunch { exec, .. }
            | What::GraphUpload { exec, .. }
            | What::ExecUpdate { exec, .. }
            | What::ExecDestroy { exec }
            | What::Take { exec, .. } => held.exec == exec,
            What::Drop { memory } | What::Export { memory, .. } => self.life_of(memory).is_some_and(|life| {
                held.changes.iter().any(|change| matches!(change, Change::Born(whose, _) if whose.life == life))
            }),
            _ => false,
        };
        self.held.iter().find(is_it).map(|held| StreamHandle(held.stream_index))
    }

    /// Returns the lifetime that a name refers to.
    fn life_of(&self, memory: Memory) -> Option<LifeId> {
        match self.lives.find(memory) {
            Found::Named(Named::Life(life) | Named::Lease(life)) => Some(life),
            Found::Named(Named::Node { .. }) => self.output(memory)?.ok(),
            _ => None,
        }
    }

    /// Holds the launch of a graph, which was judged right. Until it is confirmed, its uses are in the histories, and
    /// the lifetimes that it frees begin at its point, which no party comes after.
    pub(super) fn hold_launch(&mut self, call: Call<'_>, stream_index: StreamIndex, exec: ExecId, freed: Vec<LifeId>) {
        let Some(instance) = self.graphs.execs.remove(&exec) else { return };
        // The device must wait for the launches before. The order has these waits once the launch is done.
        let last = instance.launches_before().map(|last| &last.snapshot);
        let chain = &self.time.at(stream_index).chain;
        let before: Vec<Point> = last.filter(|it| !chain.knows_of(it)).map(Snapshot::point).collect();
        before.into_iter().for_each(|point| self.time.answer.waits(point));
        let waits = self.waits_of(&instance);
        for (node, snapshot) in &waits {
            self.time.tell_wait_of_node(stream_index, *node, snapshot);
        }
        self.time.begin(stream_index);
        let site = self.site(call, stream_index, Act::Write);
        let point = self.time.at_mut(stream_index).chain.submit();
        let mut changes = Vec::new();
        for life in &freed {
            self.lives.begin_again(*life, Use { point, site }, &mut changes);
        }
        for last in &instance.exec.summary().last_acts {
            let used = Use { point, site: Site { act: last.act, ..site } };
            let target = match last.memory {
                NodeMemory::Own(_) => None,
                memory => self.name_of(&instance, memory).map(|memory| (memory, self.resolve(call, memory, used.site))),
            };
            let Some((memory, Ok(Target { life, is_lease }))) = target else { continue };
            if last.act == Act::Free {
                self.lives.begin_again(life, used, &mut changes);
                continue;
            }
            let import = is_lease.then_some(memory);
            self.lives.add_provisional(
                life,
                import,
                (used, last.part),
                &self.time.at(stream_index).chain,
                &mut changes,
            );
            let device = instance.exec.nodes()[last.node.index()].label.device;
            if import.is_none() {
                self.note_foreign(life, device.unwrap_or(self.time.at(stream_index).kept.device), used);
                changes.append(self.time.answer.changes());
            }
        }
        self.graphs.execs.insert(exec, instance);
        let freed = freed.into_iter().filter_map(|life| Some((life, self.lives.serial(life)?))).collect();
        self.held.push(Held { stream_index, exec, op: call.op.clone(), freed, waits, changes });
    }

    /// Does the launch of a graph as if it had never been held.
    #[cold]
    fn commit_held(&mut self, held: Held, names: &Names) {
        let Held { stream_index, exec, op, freed, waits, changes } = held;
        self.undo_all(changes);
        self.time.release(stream_index);
        // Memory that was dropped in the meantime is gone.
        let lives = freed.into_iter().filter(|(life, serial)| self.lives.serial(*life) == Some(*serial));
        let freed = lives.map(|(life, _)| life).collect();
        self.commit_launch(Call { op: &op, names }, stream_index, exec, freed, Some(waits));
        // The waits were in the answer of the step that judged the launch.
        self.time.answer.tell(|done| done.waits.clear());
    }

    /// Returns the stream of a launch that may be withdrawn and may have made a finding wrong: a launch that the
    /// finding names, or a held launch of a graph, which may begin or end the memory of the finding.
    pub(super) fn unconfirmed_side(&self, finding: &Finding) -> Option<StreamHandle> {
        // A refused call makes a capture invalid and is not made again, so no launch decides about it.
        let is_of_a_launch = finding.kind == Kind::UnfreedLaunch;
        let is_of_memory = finding.subject.is_some() && finding.graph.is_none();
        if let Some(held) = self.held.first().filter(|_| is_of_a_launch || is_of_memory) {
            return Some(StreamHandle(held.stream_index));
        }
        let met = finding.met.as_deref().into_iter().flat_map(|met| met.ends.iter().chain([&met.earlier]));
        let mut points = met.map(|used| used.point).chain(finding.missing.iter().filter_map(Edge::point));
        points.find_map(|point| self.time.unconfirmed_at(point)).map(StreamHandle)
    }
}
