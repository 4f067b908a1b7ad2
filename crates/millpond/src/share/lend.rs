//! What an exporter lends: an allocation's life with its holders, and when its memory is free again.
//!
//! Invariant **held-by-all**: a life that is lent ends only when its owner and all importers have let go and their uses
//! are over: until then its block stays held, so that its chunks stay where they are. Knows lives and heaps; no socket.

use std::sync::{Arc, Weak};

use millpond_core::check::{Act, Fault, History, Kind, Place, Site, Use};
use millpond_core::ids::{Point, Slot, StreamId};
use millpond_core::order::{Base, Chain, Knows};
use millpond_core::pool::Frontier;
use millpond_core::share::{ChunkName, ForeignUse, LeaseId, MemoryGrant, PARTS_MAX, Part, Refusal, USES_MAX};
use millpond_core::units::Range;
use millpond_driver::LightGuard;
use smallvec::SmallVec;

use super::abroad::is_abroad;
use crate::allocation::{Allocation, Life, Origin};
use crate::context::Context;
use crate::pool::{Heap, PoolShared};

/// Who holds a life beside its owner.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lent {
    /// The processes with a lease, once for each.
    holders: SmallVec<[u32; 2]>,
    /// Leases that were given back whose uses are not known to be over.
    returning: u32,
    /// The owner has dropped it.
    is_dropped: bool,
}

impl Lent {
    /// Why the owner may not free it now.
    fn fault(&self) -> Option<Fault> {
        let process = *self.holders.first()?;
        let site = Site { act: Act::Allocate, stream: StreamId::HOST, op: 0, place: Place::Process(process) };
        let point = Point { slot: Slot(0), seq: 0 };
        Some(Fault { kind: Kind::FreeWhileImported, earlier: Use { point, site } })
    }

    fn let_go(&mut self, process: u32) {
        if let Some(at) = self.holders.iter().position(|holder| *holder == process) {
            self.holders.swap_remove(at);
        }
    }

    fn is_over(&self) -> bool {
        self.holders.is_empty() && self.returning == 0
    }
}

/// What a ticket for memory stands for.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) allocation: Weak<Allocation>,
    pub(super) generation: u64,
    /// What the exporting host knew to be over when it gave the ticket away: it goes with the ticket.
    pub(super) base: Arc<Base>,
}

impl Offer {
    /// Whether there still is what it stands for.
    pub(super) fn is_good(&self) -> bool {
        self.allocation.upgrade().is_some_and(|allocation| {
            let life = allocation.life();
            life.generation == self.generation && life.freed.is_none()
        })
    }
}

/// What a lease holds.
#[derive(Debug)]
pub(super) struct Lease {
    allocation: Arc<Allocation>,
    generation: u64,
    process: u32,
    pub(super) parts: Vec<Part>,
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
    /// Lends it to a process: what it gets told, with lease number 0, and what the lease holds.
    pub(super) fn lend(
        &self,
        context: &Context,
        number: u128,
        process: u32,
    ) -> std::result::Result<(MemoryGrant, Lease), Refusal> {
        let allocation = self.allocation.upgrade().ok_or(Refusal::Stale)?;
        let Origin::Pool(pool) = &allocation.origin else { return Err(Refusal::Stale) };
        let heap = pool.lock();
        let mut life = allocation.life();
        if life.generation != self.generation || life.freed.is_some() {
            return Err(Refusal::Stale);
        }
        let range = Range::new(life.range.start, life.bytes);
        let (parts, offset) = heap.parts(pool.id.0, range).ok_or(Refusal::System)?;
        drop(heap);
        let abroad = |known: &Use| {
            let mut known_abroad = context.use_abroad(number, known);
            if self.base.covers(known.point) {
                // Everybody comes after position 0.
                (known_abroad.point.seq, known_abroad.op) = (0, 0);
            }
            known_abroad
        };
        let is_open = |known: &&Use| !self.base.covers(known.point);
        let uses: Vec<ForeignUse> = life.history.uses().iter().filter(is_open).map(abroad).collect();
        if uses.len() > USES_MAX {
            return Err(Refusal::System);
        }
        let born = abroad(&life.history.born());
        life.lent.get_or_insert_default().holders.push(process);
        let (bytes, generation) = (life.bytes, life.generation);
        drop(life);
        let first = parts.iter().copied().take(PARTS_MAX).collect();
        let (lease, part_count) = (LeaseId(0), parts.len() as u32);
        let grant = MemoryGrant { lease, bytes, offset, part_count, parts: first, gone: Vec::new(), born, uses };
        Ok((grant, Lease { allocation, generation, process, parts }))
    }
}

impl Lease {
    /// The hold ends in the order of the program; the uses named are not over. The points that they have here.
    pub(super) fn release(
        &self,
        context: &Context,
        number: u128,
        uses: &[ForeignUse],
    ) -> std::result::Result<Vec<Point>, Refusal> {
        let here = |known| context.use_here(number, self.process, known);
        let uses: Vec<Use> = uses.iter().map(here).collect::<Option<_>>().ok_or(Refusal::Malformed)?;
        self.change(|history, lent| {
            lent.let_go(self.process);
            lent.returning += u32::from(!uses.is_empty());
            uses.iter().for_each(|known| history.add_apart(*known));
        });
        Ok(uses.iter().map(|known| known.point).collect())
    }

    /// The uses of a hold that was given back are over.
    pub(super) fn over(&self) {
        self.change(|_, lent| lent.returning = lent.returning.saturating_sub(1));
    }

    /// Whatever the owner does comes after the uses at these points.
    pub(super) fn known(&self, points: &[Point]) {
        let mut life = self.allocation.life();
        if life.generation == self.generation {
            life.history.settle(|point| points.contains(&point));
        }
    }

    /// The holder is gone.
    pub(super) fn lost(&self) {
        self.change(|_, lent| lent.let_go(self.process));
    }

    /// Changes who holds the life, if it is still that one, and ends it where nobody does any more.
    fn change(&self, act: impl FnOnce(&mut History, &mut Lent)) {
        let mut life = self.allocation.life();
        if life.generation != self.generation {
            return;
        }
        let Life { history, lent, .. } = &mut *life;
        let Some(lent) = lent else { return };
        act(history, lent);
        if lent.is_over() {
            let is_dropped = lent.is_dropped;
            life.lent = None;
            if is_dropped {
                give_back(&self.allocation, life);
            }
        }
    }
}

/// Whether `who` may free a life with its next operation. The owner of what is lent frees last; an importer comes after
/// what it did itself: the exporter's own free comes after the rest.
#[inline]
pub(crate) fn check_free(allocation: &Allocation, life: &Life, who: &impl Knows) -> std::result::Result<(), Fault> {
    match &allocation.origin {
        Origin::Imported(_) => {
            let own = life.history.uses().iter().filter(|known| !is_abroad(known));
            match own.copied().find(|earlier| !who.covers(earlier.point)) {
                Some(earlier) => Err(Fault { kind: Kind::FreeBeforeUse, earlier }),
                None => Ok(()),
            }
        }
        _ => match life.lent.as_ref().and_then(|lent| lent.fault()) {
            Some(fault) => Err(fault),
            None => life.history.check_free(who),
        },
    }
}

/// The owner drops a life that is lent: whether it now waits for its importers.
pub(crate) fn park(life: &mut Life) -> bool {
    match &mut life.lent {
        Some(lent) if !lent.is_over() => {
            lent.is_dropped = true;
            true
        }
        _ => false,
    }
}

/// The points of what this process did to a life: what others did is over.
pub(crate) fn own_points(life: &Life) -> impl Iterator<Item = Point> + '_ {
    let uses = life.history.uses().iter().filter(|known| !is_abroad(known)).map(|known| known.point);
    std::iter::once(life.history.born().point).chain(uses)
}

/// The last holder of a life that its owner dropped has let go.
fn give_back(allocation: &Arc<Allocation>, life: LightGuard<'_, Life>) {
    let (after, bytes) = (Frontier::of(own_points(&life)), life.bytes);
    drop(life);
    let pool: &Arc<PoolShared> = allocation.pool();
    let mut heap = pool.lock();
    heap.give_back(Arc::clone(allocation), after, None::<&Chain>);
    heap.count_used(-(bytes as i64));
    drop(heap);
    pool.trim_if_destroyed();
}
