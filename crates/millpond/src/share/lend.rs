//! What an exporter lends: an allocation's life with its holders, and when its memory is free again.
//!
//! Invariant **held-by-all**: a life that is lent ends only when its owner and all importers have let go and their uses
//! have completed: until then its block stays held, so that its chunks stay where they are. Knows lives and heaps; no
//! socket.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use millpond_core::check::{History, Use};
use millpond_core::ids::Point;
use millpond_core::order::Base;
use millpond_core::pool::{Freed, Frontier};
use millpond_core::share::{ChunkName, ForeignUse, LeaseId, MemoryGrant, PARTS_MAX, Part, Refusal, USES_MAX};
use millpond_core::units::Range;

use super::abroad::{Hold, Namers};
use super::connection::Connection;
use crate::state::allocation::{Allocation, Life, Origin};
use crate::state::context::Context;
use crate::state::lent::{Hearing, Holder, Lent, Phase, own_points};
use crate::state::pool::{Heap, PoolShared};
use crate::sync::locks::BiasedGuard;
use crate::sync::ranks;

/// What a ticket for memory stands for.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) allocation: Weak<Allocation>,
    pub(super) generation: u64,
    /// What the exporting host knew to have completed when it gave the ticket away: it goes with the ticket.
    pub(super) base: Arc<Base>,
    /// Whether importers may write to it.
    pub(super) can_write: bool,
}

/// What a lease holds. Dropped, it lets go: its importer is gone, or has said all that there is to say.
///
/// Invariant **over-keeps-nothing**: once its uses have completed a lease keeps no memory. Its importer's host may
/// never learn of that, and the importer's device may live for what this one holds of it: the two would keep each
/// other.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) id: LeaseId,
    allocation: Weak<Allocation>,
    /// The same, until its uses have completed, and to let go: whoever drops a lease holds no lock.
    kept: Option<Arc<Allocation>>,
    generation: u64,
    pub(super) parts: Arc<[Part]>,
    pub(super) can_write: bool,
    /// What was done under it that its importer's host does not know to have completed.
    points: Vec<Point>,
    phase: Phase,
    /// How many of its connection were given back before it.
    pub(super) returned: u64,
    /// Those whose uses its importer was told of.
    told: Hold,
}

impl Heap {
    /// The chunks under a held block, and how far into the first it begins.
    pub(super) fn parts(&self, pool: u32, range: Range) -> Option<(Vec<Part>, u64)> {
        let mut parts = Vec::new();
        let mut offset = None;
        for (chunk, whole) in self.pool.chunks_under(range) {
            offset.get_or_insert_with(|| range.start - whole.start);
            let serial = self.serial(chunk)?;
            parts.push(Part { chunk: ChunkName { pool, serial }, bytes: whole.bytes });
        }
        Some((parts, offset?))
    }
}

impl Offer {
    /// Lends it to a connection: what that gets told, and what the lease holds.
    pub(super) fn lend(
        &self,
        context: &Arc<Context>,
        number: u128,
        connection: &Arc<Connection>,
        id: LeaseId,
    ) -> std::result::Result<(MemoryGrant, Lease), Refusal> {
        let allocation = self.allocation.upgrade().ok_or(Refusal::Stale)?;
        // What its other holders have said by now is told.
        Hearing::of(&allocation);
        let Origin::Pool(pool) = &allocation.origin else { return Err(Refusal::Stale) };
        let namers = Namers::new(context, number);
        let mut heap = pool.lock();
        let mut life = allocation.life();
        if life.generation != self.generation || life.freed.is_some() {
            return Err(Refusal::Stale);
        }
        let range = Range::new(life.range.start, life.bytes);
        let (parts, offset) = heap.parts(pool.id.0, range).ok_or(Refusal::System)?;
        let abroad = |known: &Use| {
            let mut known_abroad = namers.use_abroad(known)?;
            if self.base.covers(known.point) {
                // All chains come after position 0.
                (known_abroad.point.seq, known_abroad.op) = (0, 0);
            }
            Some(known_abroad)
        };
        let is_open = |known: &&Use| !self.base.covers(known.point);
        let latest = life.history.latest();
        let told = context.hold(&latest);
        // What processes did that are forgotten has completed.
        let uses: Vec<ForeignUse> = latest.iter().filter(is_open).filter_map(abroad).collect();
        if uses.len() > USES_MAX {
            return Err(Refusal::Uses);
        }
        let born = abroad(&life.history.born()).ok_or(Refusal::System)?;
        let held_by: Weak<Connection> = Arc::downgrade(connection);
        let holder = Holder { lease: id, process: connection.process(), connection: held_by, phase: Phase::Held };
        if connection.is_foreign() && !pool.is_open.load(Ordering::Acquire) {
            Lent::expose(&mut life, &mut heap, &allocation, pool);
        }
        drop(heap);
        life.lent.get_or_insert_default().holders.push(holder);
        let (bytes, generation) = (life.bytes, life.generation);
        drop(life);
        let first = parts.iter().copied().take(PARTS_MAX).collect();
        let (lease, part_count, gone) = (id, parts.len() as u32, Vec::new());
        let grant = MemoryGrant {
            lease,
            bytes,
            offset,
            part_count,
            parts: first,
            gone,
            born,
            uses,
            device: number,
            can_write: self.can_write,
        };
        let (parts, points, returned) = (parts.into(), Vec::new(), 0);
        let (can_write, phase) = (self.can_write, Phase::Held);
        let (allocation, kept) = (Arc::downgrade(&allocation), Some(allocation));
        Ok((grant, Lease { id, allocation, kept, generation, parts, can_write, points, phase, returned, told }))
    }
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

    /// Changes the holder's part of the life, if it is still that one; whether the holder stays. Where nobody needs the
    /// memory any more, and the owner has dropped it, the life ends.
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
        self.told.is_over(&points);
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
fn give_back(allocation: &Arc<Allocation>, life: BiasedGuard<'_, { ranks::LIFE }, Life>) {
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
