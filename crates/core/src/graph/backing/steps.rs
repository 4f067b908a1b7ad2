//! The steps that the caller has to take on the device, in order, and the effect of each success or failure.
//!
//! Depends on the effect of a step only, not on the reason for which it was planned.

use super::{ArenaKey, Backing, Chunk, Page, Tenant};
use crate::ids::ChunkId;
use crate::pool::Frontier;

/// One change to the device's memory. A chunk has the size of one granule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BackingStep {
    /// Create a chunk. Its number is new or is used again.
    Create {
        /// The chunk.
        chunk: ChunkId,
    },
    /// Map the chunk. It may be mapped elsewhere, too.
    Map {
        /// The arena that gets it.
        arena: ArenaKey,
        /// The chunk.
        chunk: ChunkId,
        /// First address.
        at: u64,
    },
    /// Remove the mapping of the chunk at these addresses. All work that used them has completed.
    Unmap {
        /// The chunk.
        chunk: ChunkId,
        /// First address.
        at: u64,
    },
    /// Destroy a chunk that is mapped nowhere.
    Destroy {
        /// The chunk.
        chunk: ChunkId,
    },
}

impl Backing {
    /// Returns the step to take next. The caller takes it, then calls [`applied`](Self::applied) or
    /// [`failed`](Self::failed). Until no step is left, the caller makes no other call that changes the memory.
    #[inline]
    pub fn next_step(&self) -> Option<&BackingStep> {
        self.steps.front()
    }

    /// Records that the step of [`next_step`](Self::next_step) succeeded.
    ///
    /// # Panics
    /// If no step is left.
    pub fn applied(&mut self) {
        match self.steps.pop_front().expect("a step was named") {
            BackingStep::Create { chunk } => {
                self.chunks[chunk.index()].is_there = true;
                self.statistics.reserved += self.granularity;
                self.statistics.reserved_high = self.statistics.reserved_high.max(self.statistics.reserved);
            }
            BackingStep::Destroy { chunk } => {
                self.chunks[chunk.index()] = Chunk::nowhere();
                self.vacant.push(chunk);
                self.statistics.reserved -= self.granularity;
            }
            BackingStep::Map { arena, chunk, at } => self.mapped(arena, chunk, at),
            BackingStep::Unmap { chunk, at } => self.unmapped(chunk, at),
        }
        if self.steps.is_empty() {
            self.audit_in_turn();
        }
    }

    /// Records that the step of [`next_step`](Self::next_step) failed; the device is as before it. The steps after it
    /// are dropped, and so is the launch that they were for. The steps before it stay for the next launch.
    ///
    /// # Panics
    /// If no step is left.
    #[cold]
    pub fn failed(&mut self) {
        assert!(!self.steps.is_empty(), "a step was named");
        for step in std::mem::take(&mut self.steps) {
            if let BackingStep::Create { chunk } = step {
                self.vacant.push(chunk);
            }
        }
        self.audit_in_turn();
    }

    /// Returns the number of a chunk that does not exist yet.
    pub(super) fn new_chunk(&mut self) -> ChunkId {
        self.vacant.pop().unwrap_or_else(|| {
            self.chunks.push(Chunk::nowhere());
            ChunkId(self.chunks.len() as u32 - 1)
        })
    }

    fn mapped(&mut self, arena: ArenaKey, chunk: ChunkId, at: u64) {
        let was_used = self.is_used(chunk);
        self.chunks[chunk.index()].places.push(at);
        self.pages.insert(at, Page { chunk, arena: Some(arena), pins: 0 });
        self.count_used(chunk, was_used);
        self.let_to(chunk, arena);
    }

    fn unmapped(&mut self, id: ChunkId, at: u64) {
        let was_used = self.is_used(id);
        let page = self.pages.remove(&at).expect("the granule has a page");
        debug_assert_eq!(page.pins, 0, "KEPT: {id} is unmapped under an unfreed allocation");
        self.spare.remove(&at);
        self.chunks[id.index()].places.retain(|place| *place != at);
        self.count_used(id, was_used);
        if let Some(arena) = page.arena
            && self.chunks[id.index()].tenant == Tenant::Arena(arena)
        {
            self.chunks[id.index()].tenant = Tenant::Past(self.arenas[&arena].last.clone());
            self.tenure(arena).strange += 1;
        }
    }

    /// Records that a chunk under a granule now serves `arena`. The granule may have been spare.
    pub(super) fn take_over(&mut self, at: u64, id: ChunkId, arena: ArenaKey) {
        let was_used = self.is_used(id);
        if self.spare.remove(&at) {
            self.pages.get_mut(&at).expect("the granule has a page").arena = Some(arena);
            self.count_used(id, was_used);
        }
        self.let_to(id, arena);
    }

    /// Makes `arena`, which has the chunk mapped, its tenant. Its launch will come after the last use of the chunk,
    /// which is kept until then.
    fn let_to(&mut self, id: ChunkId, arena: ArenaKey) {
        let chunk = &mut self.chunks[id.index()];
        match std::mem::replace(&mut chunk.tenant, Tenant::Arena(arena)) {
            Tenant::Arena(other) if other == arena => return,
            Tenant::Past(after) => chunk.also.join(&after),
            Tenant::Arena(other) => {
                let other = self.arenas.get_mut(&other).expect("a tenant is in use");
                chunk.also.join(&other.last);
                other.strange += 1;
            }
        }
        debug_assert_eq!(chunk.pins, 0, "KEPT");
        let tenure = self.tenure(arena);
        tenure.strange -= 1;
        tenure.is_new = true;
    }
}

impl Chunk {
    pub(super) fn nowhere() -> Self {
        Chunk {
            is_there: false,
            places: Default::default(),
            tenant: Tenant::Past(Frontier::EMPTY),
            also: Frontier::EMPTY,
            pins: 0,
            taken: 0,
        }
    }
}
