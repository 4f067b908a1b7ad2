//! Launches that a driver refuses after they were judged right.
//!
//! A launch that is [stepped](Checker::step) may be withdrawn until its stream's next step, or until the caller says that
//! the device has it ([`advance`](Checker::advance)). Its uses are in the histories meanwhile, in place of those that they
//! stand for:
//!
//! * No verdict becomes right by such a use: whoever takes the end of the stream takes the one before the launch
//!   ([`Stream::end`](crate::order::Stream::end)), so that nobody comes after it.
//! * A verdict may become wrong by one. So a finding that names such a use is not told: the step is to be made again
//!   once the launch has ended, one way or the other ([`Reason::AskAgain`](super::Reason::AskAgain)).
//!
//! To withdraw a launch is to undo what it did to histories, the last change first. Nothing is copied beforehand: a
//! history hands out what a use replaces.

use super::answer::{Done, StreamHandle};
use super::checker::Checker;
use super::finding::{Edge, Finding};
use super::lives::{LifeId, Lives};
use crate::ids::{DeviceId, PoolId, Seq, Slot};
use crate::life::{History, Replaced, Use};
use crate::op::{Memory, Part};
use crate::order::Knows;

/// The history of a life, or of what an import of it did.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Whose {
    life: LifeId,
    /// Tells lives apart whose numbers are equal.
    serial: u64,
    import: Option<Memory>,
}

/// A change that a launch made, to be undone.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Change {
    /// A use was added.
    Added(Whose, Use, Part),
    /// A use was replaced.
    Replaced(Whose, Replaced),
    /// A device's newest use of a pool's memory was noted, in place of the one before.
    Foreign { pool: PoolId, device: DeviceId, used: (Slot, bool), before: Option<Use> },
}

impl Lives {
    /// As [`add_use`](Self::add_use), of a use that may be withdrawn: what it changes is appended to `changes`.
    pub(super) fn add_provisional(
        &mut self,
        life: LifeId,
        import: Option<Memory>,
        (new, part): (Use, Part),
        who: &impl Knows,
        changes: &mut Vec<Change>,
    ) {
        let mut add = |history: &mut History, whose: Whose, is_before: &dyn Fn(&Use) -> bool| {
            history.add_replacing(new, part, is_before, |it| changes.push(Change::Replaced(whose, it)));
            changes.push(Change::Added(whose, new, part));
        };
        let whole = self.at_mut(life);
        let whose = Whose { life, serial: whole.serial, import: None };
        let is_before = |known: &Use| who.covers(known.point);
        let Some(memory) = import else { return add(&mut whole.history, whose, &is_before) };
        // The import's process may end before the use is done: what it comes after stays beside it.
        add(&mut whole.history, whose, &|known| known.point.slot == new.point.slot);
        if let Some(lease) = self.lease_mut(life, memory) {
            add(&mut lease.history, Whose { import, ..whose }, &is_before);
        }
    }

    fn history_of(&mut self, whose: Whose) -> Option<&mut History> {
        let is_same = self.serial(whose.life) == Some(whose.serial);
        match whose.import {
            _ if !is_same => None,
            None => Some(&mut self.at_mut(whose.life).history),
            Some(import) => self.lease_mut(whose.life, import).map(|lease| &mut lease.history),
        }
    }
}

impl Checker {
    /// Withdraws a launch that the device does not have: its uses are forgotten, and what they replaced is put back. Its
    /// stream keeps its position. Whether it could be: not once its stream has gone on, was
    /// [advanced](Self::advance), or was destroyed.
    ///
    /// A launch of a graph, and one into a capture, cannot be withdrawn: these are done at once.
    pub fn retract(&mut self, done: Done) -> bool {
        let Done { stream: Some(StreamHandle(seat)), point: Some(point), changes, .. } = done else { return false };
        let last = self.time.get(seat).filter(|stream| stream.may_withdraw(point)).map(|stream| stream.chain.last());
        if last != Some(point) {
            return false;
        }
        for change in changes.into_iter().rev() {
            self.undo(change);
        }
        self.time.withdraw(seat);
        true
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
            Change::Foreign { pool, device, used, before } => {
                if let Some(known) = self.abroad.get_mut(&(pool, device)) {
                    match before {
                        Some(before) => drop(known.insert(used, before)),
                        None => drop(known.remove(&used)),
                    }
                }
            }
        }
    }

    /// Says that the device has all operations of a stream up to a position: a launch there cannot be withdrawn any more.
    /// Operations that the checker was not told of, of [private](super::Header) memory, count by their positions.
    pub fn advance(&mut self, stream: StreamHandle, position: Seq) {
        self.time.advance(stream.0, position);
    }

    /// The stream of the launch that may be withdrawn and that a finding names, if it names one.
    pub(super) fn unconfirmed_side(&self, finding: &Finding) -> Option<StreamHandle> {
        let met = finding.met.as_deref().into_iter().flat_map(|met| met.ends.iter().chain([&met.earlier]));
        let mut points = met.map(|used| used.point).chain(finding.missing.iter().filter_map(Edge::point));
        points.find_map(|point| self.time.unconfirmed_at(point)).map(StreamHandle)
    }
}
