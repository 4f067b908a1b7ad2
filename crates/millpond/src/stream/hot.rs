//! The hot path of memory: an allocation that the stream's cache serves, and a free into the cache.
//!
//! It takes the stream's lock, looks in the cache, checks and returns. It takes no lock that streams share, and makes
//! no driver call. It applies if the stream has nothing to learn and the cache has the block, or all uses of the
//! allocation plainly come before the free. Any other case is found before anything has changed, and
//! `operations/memory.rs` then does the call from its beginning. So there is one straight path through each function
//! here, and the functions that leave it are cold.
//!
//! The arguments and results of both calls are in registers, or stay where the caller has them. A result in memory
//! would be written in words and read at once in vectors, and the processor would wait for it.

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

/// An allocation whose lifetime has begun, and the generation of that lifetime.
pub(crate) type Served = (Arc<Allocation>, u64);

impl StreamShared {
    /// Allocates `bytes`, which is not 0, at this point of the stream, if the hot path applies. Returns the allocation
    /// and the generation of the lifetime that begins.
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

    /// As [`alloc_from_cache`](Self::alloc_from_cache), for a thread that does not own the stream's lock.
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

    /// Begins a lifetime in a block of the cache, if one fits.
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
        let point = state.chain.submit();
        let mut life = allocation.life();
        life.begin(bytes, Use { point, site: site(Act::Allocate, self.id, op_at(point.seq) - state.birth, caller) });
        let generation = life.generation;
        drop(life);
        if let Some(tracer) = &self.context.tracer {
            tracer.alloc((allocation.id, generation), pool.id, self.id, bytes, caller);
        }
        self.leave(state);
        Some((allocation, generation))
    }

    /// Frees an allocation at this point of the stream and takes it out of `held`, if the hot path applies: it is
    /// memory of a pool that no other process has, and everything that was done to it comes before this point. With
    /// `OWN`, all of that must be this stream's own. Returns `false` if it was not freed; nothing has happened then.
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

    /// As [`free_to_cache`](Self::free_to_cache), for a thread that does not own the stream's lock.
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
        let Some(fallen) = self.end_in_cache::<OWN>(state, held, caller) else { return false };
        if let Some(pool) = fallen {
            self.return_fallen(state, &pool);
        }
        self.leave(state);
        true
    }

    /// Ends a lifetime at the next point of the stream, which has learned everything, and puts the block in the cache,
    /// if the hot path applies. Returns `None` if not, and nothing has happened then. If many blocks have fallen out of
    /// the cache, returns their pool, for [`return_fallen`](Self::return_fallen). The caller leaves the stream.
    #[inline(always)]
    pub(crate) fn end_in_cache<const OWN: bool>(
        &self,
        state: &mut State,
        held: &mut Option<Owned>,
        caller: &'static Location<'static>,
    ) -> Option<Option<Arc<PoolShared>>> {
        let Owned { allocation, generation, .. } = held.as_ref()?;
        let (entry, generation) = (&**allocation, *generation);
        let Origin::Pool(pool) = &entry.origin else { return None };
        let State { chain, birth, caches, .. } = &mut *state;
        // The pool is of the stream's own device: a stream has no caches for pools of other devices.
        let cache = caches.find(pool)?;
        let mut life = entry.life();
        if !life.is_unlent(generation) || !life.is_over_for(chain, OWN) || pool.bypasses_caches() {
            return None;
        }
        let point = chain.submit();
        life.freed.end(Use { point, site: site(Act::Free, self.id, op_at(point.seq) - *birth, caller) });
        if let Some(tracer) = &self.context.tracer {
            tracer.free((entry.id, generation), self.id, Trust::None, caller);
        }
        let (rounded, bytes) = (life.range.bytes, life.bytes);
        drop(life);
        let Owned { allocation, .. } = held.take()?;
        Some(cache.put(Cached { allocation, seq: point.seq }, rounded, bytes))
    }
}
