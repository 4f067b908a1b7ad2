//! The changes of launches that may still be withdrawn, and how histories return them.
//!
//! Knows lifetimes; no stream and no verdict.

use super::lives::{LifeId, Lives};
use crate::ids::{ChainIndex, DeviceId, ExecId, NodeId, PoolId};
use crate::life::{History, Replaced, Use};
use crate::op::{Memory, Op, Part};
use crate::order::{Knows, Snapshot, StreamIndex};

/// The history of a lifetime, or of the uses by one import of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Whose {
    pub(super) life: LifeId,
    /// Tells lifetimes with the same [`LifeId`] apart.
    serial: u64,
    import: Option<Memory>,
}

/// A change by a launch, to be undone if the launch is withdrawn.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Change {
    /// A use was added.
    Added(Whose, Use, Part),
    /// A use was replaced.
    Replaced(Whose, Replaced),
    /// The allocation of a lifetime got another point. The use is the one before.
    Born(Whose, Use),
    /// The newest use of a pool's memory by a device was noted. `before` is the use that it replaces.
    Foreign { pool: PoolId, device: DeviceId, used: (ChainIndex, bool), before: Option<Use> },
}

/// A launch of a graph that was judged right and is not done yet.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) stream_index: StreamIndex,
    pub(super) exec: ExecId,
    pub(super) op: Op,
    /// The lifetimes that earlier launches left and that this one frees by itself, with their serial numbers.
    pub(super) freed: Vec<(LifeId, u64)>,
    /// The snapshots that its event wait nodes wait for.
    pub(super) waits: Vec<(NodeId, Snapshot)>,
    pub(super) changes: Vec<Change>,
}

impl Lives {
    /// Replaces the allocation's point by one that no party comes after. Appends the change to `changes`.
    pub(super) fn begin_again(&mut self, life: LifeId, born: Use, changes: &mut Vec<Change>) {
        let it = self.at_mut(life);
        let whose = Whose { life, serial: it.serial, import: None };
        changes.push(Change::Born(whose, it.history.replace_born(born)));
    }

    /// As [`add_use`](Self::add_use), for a use that may be withdrawn. Appends the changes to `changes`.
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
