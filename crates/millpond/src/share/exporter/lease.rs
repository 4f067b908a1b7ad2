//! What an exporter lends: an allocation's life gets a holder more, and its chunks go along; and when its memory is
//! free again.
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
use millpond_core::share::{ChunkName, ForeignUse, LeaseId, MemoryGrant, PARTS_MAX, Part, Phase, Refusal, USES_MAX};
use millpond_core::units::Range;
use millpond_driver::locks::BiasedGuard;

use crate::share::foreign::{Hold, Names};
use crate::state::allocation::{Allocation, Life};
use crate::state::context::Context;
use crate::state::lent::{Holder, Importer};
use crate::state::listening::{Listening, expose, own_points};
use crate::state::origin::Origin;
use crate::state::pool::{Heap, PoolShared};

/// What a ticket for memory stands for.
#[derive(Debug)]
pub(in crate::share) struct Offer {
    pub(in crate::share) allocation: Weak<Allocation>,
    pub(in crate::share) generation: u64,
    /// What the exporting host knew to have completed when it gave the ticket away: it goes with the ticket.
    pub(in crate::share) base: Arc<Base>,
    /// Whether importers may write to it.
    pub(in crate::share) can_write: bool,
}

impl Heap {
    /// The chunks under a held block, and how far into the first it begins.
    pub(in crate::share) fn parts(&self, pool: u32, range: Range) -> Option<(Vec<Part>, u64)> {
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
    /// A use as other processes know it: what the offer's maker knew to have completed is before all that they do.
    fn foreign_use(&self, names: &Names<'_>, known: &Use) -> Option<ForeignUse> {
        let mut foreign = names.foreign_use(known)?;
        if self.base.covers(known.point) {
            // All chains come after position 0.
            (foreign.point.seq, foreign.op) = (0, 0);
        }
        Some(foreign)
    }

    /// Lends it to an importer: what that is sent, all its chunks, and what the lease holds.
    pub(super) fn lend(
        &self,
        context: &Arc<Context>,
        number: u128,
        id: LeaseId,
        (process, connection): (u32, Weak<dyn Importer>),
    ) -> std::result::Result<(MemoryGrant, Arc<[Part]>, Lease), Refusal> {
        let allocation = self.allocation.upgrade().ok_or(Refusal::Stale)?;
        // What its other holders have said by now is sent.
        Listening::of(&allocation);
        let Origin::Pool(pool) = &allocation.origin else { return Err(Refusal::Stale) };
        let names = Names::new(context, number);
        let mut heap = pool.lock();
        let mut life = allocation.life();
        if life.generation != self.generation || life.freed.is_some() {
            return Err(Refusal::Stale);
        }
        let range = Range::new(life.range.start, life.bytes);
        let (parts, offset) = heap.parts(pool.id.0, range).ok_or(Refusal::System)?;
        let foreign = |known: &Use| self.foreign_use(&names, known);
        let is_open = |known: &&Use| !self.base.covers(known.point);
        let latest = life.history.latest();
        let sent = context.hold(&latest);
        // What processes did that are forgotten has completed.
        let uses: Vec<ForeignUse> = latest.iter().filter(is_open).filter_map(foreign).collect();
        if uses.len() > USES_MAX {
            return Err(Refusal::Uses);
        }
        let born = foreign(&life.history.born()).ok_or(Refusal::System)?;
        let holder = Holder { lease: id, process, connection, phase: Phase::Held };
        if process != std::process::id() && !pool.is_open.load(Ordering::Acquire) {
            expose(&mut life, &mut heap, &allocation, pool);
        }
        drop(heap);
        life.lent.get_or_insert_default().holders.push(holder);
        let (bytes, generation, can_write) = (life.bytes, life.generation, self.can_write);
        drop(life);
        let grant = MemoryGrant {
            lease: id,
            bytes,
            offset,
            part_count: parts.len() as u32,
            parts: parts.iter().copied().take(PARTS_MAX).collect(),
            gone: Vec::new(),
            born,
            uses,
            device: number,
            can_write,
        };
        let (allocation, kept) = (Arc::downgrade(&allocation), Some(allocation));
        Ok((grant, parts.into(), Lease { id, allocation, kept, generation, points: Vec::new(), sent }))
    }
}

/// What a lease holds. Dropped, it lets go: its importer is gone, or has said all that there is to say.
///
/// Invariant **over-keeps-nothing**: once its uses have completed a lease keeps no memory. Its importer's host may
/// never learn of that, and the importer's device may live for what this one holds of it: the two would keep each
/// other.
#[derive(Debug)]
pub(super) struct Lease {
    id: LeaseId,
    allocation: Weak<Allocation>,
    /// The same, until its uses have completed, and to let go: whoever drops a lease holds no lock.
    kept: Option<Arc<Allocation>>,
    generation: u64,
    /// What was done under it that its importer's host does not know to have completed.
    points: Vec<Point>,
    /// Those whose uses were sent to its importer.
    sent: Hold,
}

impl Lease {
    /// The hold ends in the order of the program; these uses may not have completed.
    pub(super) fn release(&mut self, uses: &[Use]) {
        self.points = uses.iter().map(|known| known.point).collect();
        self.change(|history, holder| {
            holder.phase = Phase::Returned;
            uses.iter().for_each(|known| history.add_apart(*known));
            true
        });
    }

    /// The uses that it was given back with have completed. What it kept, to be dropped where no lock is held.
    pub(super) fn complete(&mut self) -> Option<Arc<Allocation>> {
        self.change(|_, holder| {
            holder.phase = Phase::Completed;
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
