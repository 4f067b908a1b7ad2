//! What an exporter lends: an allocation's life gets a holder more, and its chunks go along. Knows lives and heaps; no
//! socket.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use millpond_core::check::Use;
use millpond_core::order::Base;
use millpond_core::share::{ChunkName, ForeignUse, LeaseId, MemoryGrant, PARTS_MAX, Part, Refusal, USES_MAX};
use millpond_core::units::Range;

use super::abroad::Namers;
use super::connection::Connection;
use super::lease::Lease;
use crate::state::context::Context;
use crate::state::device::{Allocation, Heap, Origin};
use crate::state::lent::{Holder, Phase};
use crate::state::listening::{Listening, expose};

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
    /// A use as other processes know it: what the offer's maker knew to have completed is before all that they do.
    fn abroad(&self, namers: &Namers<'_>, known: &Use) -> Option<ForeignUse> {
        let mut known_abroad = namers.use_abroad(known)?;
        if self.base.covers(known.point) {
            // All chains come after position 0.
            (known_abroad.point.seq, known_abroad.op) = (0, 0);
        }
        Some(known_abroad)
    }

    /// Lends it to a connection: what that is sent, and what the lease holds.
    pub(super) fn lend(
        &self,
        context: &Arc<Context>,
        number: u128,
        connection: &Arc<Connection>,
        id: LeaseId,
    ) -> std::result::Result<(MemoryGrant, Lease), Refusal> {
        let allocation = self.allocation.upgrade().ok_or(Refusal::Stale)?;
        // What its other holders have said by now is sent.
        Listening::of(&allocation);
        let Origin::Pool(pool) = &allocation.origin else { return Err(Refusal::Stale) };
        let namers = Namers::new(context, number);
        let mut heap = pool.lock();
        let mut life = allocation.life();
        if life.generation != self.generation || life.freed.is_some() {
            return Err(Refusal::Stale);
        }
        let range = Range::new(life.range.start, life.bytes);
        let (parts, offset) = heap.parts(pool.id.0, range).ok_or(Refusal::System)?;
        let abroad = |known: &Use| self.abroad(&namers, known);
        let is_open = |known: &&Use| !self.base.covers(known.point);
        let latest = life.history.latest();
        let sent = context.hold(&latest);
        // What processes did that are forgotten has completed.
        let uses: Vec<ForeignUse> = latest.iter().filter(is_open).filter_map(abroad).collect();
        if uses.len() > USES_MAX {
            return Err(Refusal::Uses);
        }
        let born = abroad(&life.history.born()).ok_or(Refusal::System)?;
        let held_by: Weak<Connection> = Arc::downgrade(connection);
        let holder = Holder { lease: id, process: connection.process(), connection: held_by, phase: Phase::Held };
        if connection.is_foreign() && !pool.is_open.load(Ordering::Acquire) {
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
        let (parts, points, phase, returned) = (parts.into(), Vec::new(), Phase::Held, 0);
        let (allocation, kept) = (Arc::downgrade(&allocation), Some(allocation));
        Ok((grant, Lease { id, allocation, kept, generation, parts, can_write, points, phase, returned, sent }))
    }
}
