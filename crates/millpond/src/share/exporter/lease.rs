//! The leases of an exporter: how an allocation gets another holder, how its chunks are sent, and when its memory is
//! free again.
//!
//! Invariant **held-by-all**: the lifetime of a lent allocation ends only when its owner and all importers have
//! released it and their uses have completed. Until then its block stays held, so that its chunks stay in place.
//! Depends on lives and heaps; on no socket.

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
use crate::state::pool::Heap;

/// The memory that a ticket stands for.
#[derive(Debug)]
pub(in crate::share) struct Offer {
    pub(in crate::share) allocation: Weak<Allocation>,
    pub(in crate::share) generation: u64,
    /// The work that the exporting host knew to have completed when it issued the ticket. It applies to all holders of
    /// the ticket.
    pub(in crate::share) base: Arc<Base>,
    /// `true` if importers may write to it.
    pub(in crate::share) can_write: bool,
}

impl Heap {
    /// Returns the chunks under a held block, and the block's offset in the first one.
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
    /// Returns a use as other processes see it. What the exporter's host knew to have completed comes before
    /// everything that they do.
    fn foreign_use(&self, names: &Names<'_>, known: &Use) -> Option<ForeignUse> {
        let mut foreign = names.foreign_use(known)?;
        if self.base.covers(known.point) {
            // All chains come after position 0.
            (foreign.point.seq, foreign.op) = (0, 0);
        }
        Some(foreign)
    }

    /// Lends the memory to an importer. Returns the grant to send, all its chunks, and the lease.
    pub(super) fn lend(
        &self,
        context: &Arc<Context>,
        number: u128,
        id: LeaseId,
        (process, connection): (u32, Weak<dyn Importer>),
    ) -> std::result::Result<(MemoryGrant, Arc<[Part]>, Lease), Refusal> {
        let allocation = self.allocation.upgrade().ok_or(Refusal::Stale)?;
        // Include the messages that its other holders have sent by now.
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
        // The work of forgotten processes has completed.
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

/// A lease. Dropping it releases the memory: its importer is gone, or has sent everything that it will.
///
/// Invariant **over-keeps-nothing**: once its uses have completed, a lease keeps no memory. Its importer's host may
/// never learn of that, and the importer's device may live because of what this device holds of it: the two would
/// keep each other alive.
#[derive(Debug)]
pub(super) struct Lease {
    id: LeaseId,
    allocation: Weak<Allocation>,
    /// The same allocation, until its uses have completed, and during a release. A thread that drops a lease holds no
    /// lock.
    kept: Option<Arc<Allocation>>,
    generation: u64,
    /// The uses under it that its importer's host does not know to have completed.
    points: Vec<Point>,
    /// The speakers whose uses were sent to its importer.
    sent: Hold,
}

impl Lease {
    /// Ends the lease in the order of the program. These uses may not have completed.
    pub(super) fn release(&mut self, uses: &[Use]) {
        self.points = uses.iter().map(|known| known.point).collect();
        self.change(|history, holder| {
            holder.phase = Phase::Returned;
            uses.iter().for_each(|known| history.add_apart(*known));
            true
        });
    }

    /// Records that the uses listed at the return have completed. Returns the allocation that it kept, to be dropped
    /// where no lock is held.
    pub(super) fn complete(&mut self) -> Option<Arc<Allocation>> {
        self.change(|_, holder| {
            holder.phase = Phase::Completed;
            true
        });
        self.kept.take()
    }

    /// Releases the memory. Events must order what was done under the lease.
    pub(super) fn forget(mut self) -> Lease {
        self.points.clear();
        self.let_go();
        self
    }

    /// Changes the holder in the allocation's life, if the life is still the same. `act` returns `true` if the holder
    /// stays. If no process needs the memory any more and the owner has dropped it, the lifetime ends.
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
    /// Releases the memory: everything that the owner does from now on comes after the uses under the lease. The rest
    /// is to be dropped where no lock is held.
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

/// Gives the block back to the heap, when the last holder has released an allocation that its owner dropped.
fn give_back(allocation: &Arc<Allocation>, life: BiasedGuard<'_, Life>) {
    let (after, bytes) = (Frontier::of(own_points(&life)), life.bytes);
    drop(life);
    allocation.pool().take_back(Arc::clone(allocation), Freed::after(after), bytes);
}
