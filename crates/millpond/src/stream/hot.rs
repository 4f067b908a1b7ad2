//! The hot path of memory: an allocation that the stream's cache serves, and a free that goes there.
//!
//! It takes the stream's lock, looks in the cache, checks and goes; no lock is shared with another stream and no driver
//! call is made. Nothing is in the way where there is nothing to learn, and the cache has the block or the life is
//! plainly over. Whatever else is the case is found before anything has changed, and `operations/memory.rs` does the
//! call from its beginning. So there is one way through each function here, straight down; what it calls is cold.
//!
//! Both are calls whose arguments and results are in registers, or stay where the caller has them: what is returned in
//! memory is written in words and read at once in vectors, which a processor waits for.

use std::panic::Location;
use std::sync::Arc;

use millpond_core::check::{Act, Use};
use millpond_core::op::Trust;
use millpond_core::order::op_at;
use millpond_core::units::round_up;
use millpond_driver::prefetch;

use crate::state::allocation::{Allocation, Owned, site};
use crate::state::caches::Cached;
use crate::state::origin::Origin;
use crate::state::pool::PoolShared;
use crate::state::stream::{State, StreamShared};

/// A life that has begun.
pub(crate) type Served = (Arc<Allocation>, u64);

impl StreamShared {
    /// Allocates `bytes`, not 0, from this point of the stream on, where nothing is in the way: the entry, and which
    /// life of it begins.
    #[inline(never)]
    pub(crate) fn alloc_from_cache(
        &self,
        pool: &PoolShared,
        bytes: u64,
        caller: &'static Location<'static>,
    ) -> Option<Served> {
        match self.state.try_own() {
            Some(mut state) if self.is_current(&state) => self.take_from_cache(&mut state, pool, bytes, caller),
            Some(_) => None,
            None => self.alloc_from_shared_cache(pool, bytes, caller),
        }
    }

    /// As [`alloc_from_cache`](Self::alloc_from_cache), where this thread does not own the stream's lock.
    #[cold]
    #[inline(never)]
    fn alloc_from_shared_cache(
        &self,
        pool: &PoolShared,
        bytes: u64,
        caller: &'static Location<'static>,
    ) -> Option<Served> {
        let mut state = self.state.lock();
        if self.is_current(&state) { self.take_from_cache(&mut state, pool, bytes, caller) } else { None }
    }

    /// A life begins in a block of the cache, where one fits.
    #[inline(always)]
    pub(crate) fn take_from_cache(
        &self,
        state: &mut State,
        pool: &PoolShared,
        bytes: u64,
        caller: &'static Location<'static>,
    ) -> Option<Served> {
        let rounded = round_up(bytes, pool.grain)?;
        let cache = state.caches.find(pool)?;
        let Cached { allocation, .. } = cache.blocks.take(rounded)?;
        cache.count.take(bytes);
        state.chain.submit();
        let mut life = allocation.life();
        life.begin(bytes, self.last_use(state, Act::Allocate, caller));
        let generation = life.generation;
        drop(life);
        if let Some(tracer) = &self.context.tracer {
            tracer.alloc((allocation.id, generation), pool.id, self.id, bytes, caller);
        }
        self.leave(state);
        Some((allocation, generation))
    }

    /// Frees an allocation at this point of the stream, and leaves nothing in its place, where nothing is in the way:
    /// it is memory of a pool that no other process has, and all that was done to it comes before this point. With
    /// `OWN` all of that has to be this stream's own. Whether it did: where it did not, nothing has happened.
    #[inline(never)]
    pub(crate) fn free_to_cache<const OWN: bool>(
        &self,
        held: &mut Option<Owned>,
        caller: &'static Location<'static>,
    ) -> bool {
        let Some(owned) = held else { return false };
        prefetch(&*owned.allocation);
        match self.state.try_own() {
            Some(mut state) => self.put_if_over::<OWN>(&mut state, held, caller),
            None => self.free_to_shared_cache::<OWN>(held, caller),
        }
    }

    /// As [`free_to_cache`](Self::free_to_cache), where this thread does not own the stream's lock.
    #[cold]
    #[inline(never)]
    fn free_to_shared_cache<const OWN: bool>(
        &self,
        held: &mut Option<Owned>,
        caller: &'static Location<'static>,
    ) -> bool {
        self.put_if_over::<OWN>(&mut self.state.lock(), held, caller)
    }

    #[inline(always)]
    fn put_if_over<const OWN: bool>(
        &self,
        state: &mut State,
        held: &mut Option<Owned>,
        caller: &'static Location<'static>,
    ) -> bool {
        if !self.is_current(state) {
            return false;
        }
        let Some(Owned { allocation, generation, .. }) = &*held else { return false };
        let (entry, generation) = (&**allocation, *generation);
        let Origin::Pool(pool) = &entry.origin else { return false };
        let State { chain, birth, caches, .. } = &mut *state;
        // It is of the stream's own device: there are caches for no other's pools.
        let Some(cache) = caches.find(pool) else { return false };
        let mut life = entry.life();
        if !life.is_unlent(generation) || !life.is_over_for(chain, OWN) || pool.bypasses_caches() {
            return false;
        }
        let point = chain.submit();
        life.freed.end(Use { point, site: site(Act::Free, self.id, op_at(point.seq) - *birth, caller) });
        if let Some(tracer) = &self.context.tracer {
            tracer.free((entry.id, generation), self.id, Trust::None, caller);
        }
        let (rounded, bytes) = (life.range.bytes, life.bytes);
        drop(life);
        let Some(Owned { allocation, .. }) = held.take() else { return false };
        if let Some(pool) = cache.put(Cached { allocation, seq: point.seq }, rounded, bytes) {
            self.return_fallen(state, &pool);
        }
        self.leave(state);
        true
    }
}
