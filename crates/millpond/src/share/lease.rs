//! What an importer has of an allocation that was lent to it, and when its memory is free again.
//!
//! Invariant **held-by-all**: a life that is lent ends only when its owner and all importers have let go and their uses
//! have completed: until then its block stays held, so that its chunks stay where they are. Knows lives and heaps; no
//! connection.

use std::sync::{Arc, Weak};

use millpond_core::check::{History, Use};
use millpond_core::ids::Point;
use millpond_core::pool::{Freed, Frontier};
use millpond_core::share::{LeaseId, Part};
use millpond_driver::locks::BiasedGuard;

use super::abroad::Hold;
use crate::state::device::{Allocation, Life, PoolShared};
use crate::state::lent::{Holder, Phase};
use crate::state::listening::own_points;

/// What a lease holds. Dropped, it lets go: its importer is gone, or has said all that there is to say.
///
/// Invariant **over-keeps-nothing**: once its uses have completed a lease keeps no memory. Its importer's host may
/// never learn of that, and the importer's device may live for what this one holds of it: the two would keep each
/// other.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) id: LeaseId,
    pub(super) allocation: Weak<Allocation>,
    /// The same, until its uses have completed, and to let go: whoever drops a lease holds no lock.
    pub(super) kept: Option<Arc<Allocation>>,
    pub(super) generation: u64,
    pub(super) parts: Arc<[Part]>,
    pub(super) can_write: bool,
    /// What was done under it that its importer's host does not know to have completed.
    pub(super) points: Vec<Point>,
    pub(super) phase: Phase,
    /// How many of its connection were given back before it.
    pub(super) returned: u64,
    /// Those whose uses were sent to its importer.
    pub(super) sent: Hold,
}

impl Lease {
    /// The hold ends in the order of the program; these uses may not have completed.
    pub(super) fn release(&mut self, uses: &[Use], returned: u64) {
        (self.phase, self.returned) = (Phase::Returning, returned);
        self.points = uses.iter().map(|known| known.point).collect();
        self.change(|history, holder| {
            holder.phase = Phase::Returning;
            uses.iter().for_each(|known| history.add_apart(*known));
            true
        });
    }

    /// Whether it was given back.
    pub(super) fn is_returned(&self) -> bool {
        self.phase != Phase::Held
    }

    /// Whether it was given back, and there is nothing more to say of it.
    pub(super) fn is_settled(&self) -> bool {
        self.is_returned() && self.points.is_empty()
    }

    /// Whether its uses have completed.
    pub(super) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    /// The uses that it was given back with have completed. What it kept, to be dropped where no lock is held; none
    /// where that is no news.
    pub(super) fn over(&mut self) -> Option<Arc<Allocation>> {
        if self.phase != Phase::Returning {
            return None;
        }
        self.phase = Phase::Over;
        self.change(|_, holder| {
            holder.phase = Phase::Over;
            true
        });
        self.kept.take()
    }

    /// It lets go; what was done under it is left to be ordered by events.
    pub(super) fn forget(mut self) -> Lease {
        self.points.clear();
        self.let_go();
        self
    }

    /// Changes the holder's part of the life, if it is still that one; whether the holder stays. Where no process needs
    /// the memory any more, and the owner has dropped it, the life ends.
    fn change(&mut self, act: impl FnOnce(&mut History, &mut Holder) -> bool) {
        if self.kept.is_none() {
            self.kept = self.allocation.upgrade();
        }
        let Some(allocation) = &self.kept else { return };
        let mut life = allocation.life();
        if life.generation != self.generation {
            return;
        }
        let Life { history, lent, .. } = &mut *life;
        let Some(lent) = lent else { return };
        let Some(at) = lent.holders.iter().position(|holder| holder.lease == self.id) else { return };
        if !act(history, &mut lent.holders[at]) {
            lent.holders.swap_remove(at);
        }
        let (is_over, is_dropped) = (lent.is_over(), lent.is_dropped);
        if (lent.holders.is_empty() && !lent.is_exposed) || (is_over && is_dropped) {
            life.lent = None;
        }
        if is_over && is_dropped {
            give_back(allocation, life);
        }
    }
}

impl Lease {
    /// Lets go: whatever the owner does from now on comes after what was done under it. What is left is to be dropped
    /// where no lock is held.
    pub(super) fn let_go(&mut self) {
        let points = std::mem::take(&mut self.points);
        self.sent.is_over(&points);
        self.change(|history, _| {
            history.settle(|point| points.contains(&point));
            false
        });
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// The last holder of a life that its owner dropped has let go.
fn give_back(allocation: &Arc<Allocation>, life: BiasedGuard<'_, Life>) {
    let (after, bytes) = (Frontier::of(own_points(&life)), life.bytes);
    drop(life);
    let pool: &Arc<PoolShared> = allocation.pool();
    let mut heap = pool.lock();
    heap.give_back(Arc::clone(allocation), Freed::after(after));
    heap.count_used(-(bytes as i64));
    pool.destroy_exposed(&mut heap);
    drop(heap);
    pool.trim_if_destroyed();
}
