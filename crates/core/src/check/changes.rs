//! What launches that may be withdrawn have changed so far, and how a history hands that out.
//!
//! Knows lives; no stream and no verdict.

use super::lives::{LifeId, Lives};
use crate::ids::{ChainIndex, DeviceId, ExecId, NodeId, PoolId};
use crate::life::{History, Replaced, Use};
use crate::op::{Memory, Op, Part};
use crate::order::{Knows, Snapshot, StreamIndex};

/// The history of a life, or of what an import of it did.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Whose {
    pub(super) life: LifeId,
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
    /// A life has another point where it began.
    Born(Whose, Use),
    /// A device's newest use of a pool's memory was noted, in place of the one before.
    Foreign { pool: PoolId, device: DeviceId, used: (ChainIndex, bool), before: Option<Use> },
}

/// The launch of a graph that was judged right and is not done yet.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) stream_index: StreamIndex,
    pub(super) exec: ExecId,
    pub(super) op: Op,
    /// What launches before left and this one frees by itself, with the serial numbers of these lives.
    pub(super) freed: Vec<(LifeId, u64)>,
    /// What its wait nodes wait for.
    pub(super) waits: Vec<(NodeId, Snapshot)>,
    pub(super) changes: Vec<Change>,
}

impl Lives {
    /// A life begins at a point that no party comes after: what it changes is appended to `changes`.
    pub(super) fn begin_again(&mut self, life: LifeId, born: Use, changes: &mut Vec<Change>) {
        let it = self.at_mut(life);
        let whose = Whose { life, serial: it.serial, import: None };
        changes.push(Change::Born(whose, it.history.replace_born(born)));
    }

    /// As [`add_use`](Self::add_use), of a use that may be withdrawn: what it changes is appended to `changes`.
    pub(super) fn add_provisional(
        &mut self,
        life: LifeId,
        import: Option<Memory>,
        (new, part): (Use, Part),
        who: &impl Knows,
        changes: &mut Vec<Change>,
    ) {
        let mut add = |history: &mut History, whose: Whose| {
            let is_before = |known: &Use| who.covers(known.point);
            history.add_replacing(new, part, is_before, |it| changes.push(Change::Replaced(whose, it)));
            changes.push(Change::Added(whose, new, part));
        };
        let whole = self.at_mut(life);
        let whose = Whose { life, serial: whole.serial, import: None };
        add(&mut whole.history, whose);
        if let Some(lease) = import.and_then(|import| self.lease_mut(life, import)) {
            add(&mut lease.history, Whose { import, ..whose });
        }
    }

    pub(super) fn history_of(&mut self, whose: Whose) -> Option<&mut History> {
        let is_same = self.serial(whose.life) == Some(whose.serial);
        match whose.import {
            _ if !is_same => None,
            None => Some(&mut self.at_mut(whose.life).history),
            Some(import) => self.lease_mut(whose.life, import).map(|lease| &mut lease.history),
        }
    }
}
