//! Allocations and frees in stream order that the hot path does not serve: the stream has something to learn or
//! captures, the memory is of a graph or of another process, it is lent, or the call is to be refused.
//!
//! In all other cases `stream/hot.rs` has done the call already. An allocation that misses the cache goes to the heap
//! (`stream/make_room.rs`). Freed memory goes to a cache or a heap (`stream/release.rs`).

use std::panic::Location;
use std::sync::Arc;

use bytemuck::Pod;
use millpond_core::check::{Act, Fault, Kind};
use millpond_core::op::Trust;
use millpond_driver::DriverError;
use millpond_driver::locks::BiasedGuard;

use crate::names::count::Count;
use crate::names::error::{Error, Invalid, Nearest, Result};
use crate::names::stream_names::side;
use crate::pool::handle::Pool;
use crate::state::allocation::{Owned, site};
use crate::state::caches::Cached;
use crate::state::ends::{free_import, free_in_graph};
use crate::state::listening::{Listening, check_free};
use crate::state::origin::Origin;
use crate::state::pool::PoolShared;
use crate::state::session::Session;
use crate::state::stream::{Mode, State, StreamShared};
use crate::stream::buffer::{Buffer, Kept};
use crate::stream::handle::Stream;
use crate::stream::hot::Served;
use crate::stream::refused::Refused;
use crate::stream::release::not_launched;
use crate::stream::report::Noted;

/// The result of a free. The error has the reason and what was to be freed.
pub(crate) type FreeResult = std::result::Result<(), (Error, Owned)>;

impl StreamShared {
    /// Allocates where the hot path did not: the cache has no block, or the stream had something to learn and the cache
    /// was not asked.
    #[cold]
    #[inline(never)]
    pub(crate) fn alloc_in_full(
        &self,
        pool: &Arc<PoolShared>,
        bytes: u64,
        caller: &'static Location<'static>,
    ) -> std::result::Result<Served, Box<Error>> {
        self.alloc_or_capture(pool, bytes, caller).map_err(|error| {
            self.note_refused(&error, |tracer| tracer.captured_alloc(None, pool.id, self.id, bytes, caller));
            error.into()
        })
    }

    fn alloc_or_capture(
        &self,
        pool: &Arc<PoolShared>,
        bytes: u64,
        caller: &'static Location<'static>,
    ) -> Result<Served> {
        let mut state = self.state.lock();
        if !self.is_current(&state) {
            if self.enter(&mut state)? == Mode::Capturing {
                let captured = self.capture_alloc(&state, pool, bytes, caller);
                return state.counted(captured);
            }
            if let Some(served) = self.take_from_cache(&mut state, pool, bytes, caller) {
                return Ok(served);
            }
        }
        self.alloc_slow(&mut state, pool, bytes, caller)
    }

    /// Frees an allocation at this point of the stream, if that comes after its allocation and every use. `Holder` owns
    /// it while the program's reporter is called.
    pub(crate) fn free<Holder>(&self, owned: Owned, caller: &'static Location<'static>) -> FreeResult
    where
        Holder: From<Owned> + Into<Owned>,
    {
        let mut held = Some(owned);
        self.free_to_cache::<false>(&mut held, caller);
        held.map_or(Ok(()), |owned| self.free_in_full::<Holder>(owned, caller))
    }

    /// As [`free`](Self::free), where the hot path did not free it.
    #[cold]
    #[inline(never)]
    pub(crate) fn free_in_full<Holder>(&self, owned: Owned, caller: &'static Location<'static>) -> FreeResult
    where
        Holder: From<Owned> + Into<Owned>,
    {
        let mut noted = Noted::default();
        let freed = self.try_free::<false>(owned, caller, Some(&mut noted));
        freed.or_else(|refused| self.free_again::<Holder>(refused, noted, caller))
    }

    /// As [`free_in_full`](Self::free_in_full), if everything that is known of the allocation was done on this stream.
    #[cold]
    #[inline(never)]
    pub(crate) fn free_own_in_full(&self, owned: Owned, caller: &'static Location<'static>) -> FreeResult {
        self.try_free::<true>(owned, caller, None)
    }

    /// As [`free`](Self::free), for a program that is trusted as CUDA trusts it: everything that it did with the
    /// memory, on any stream, comes before this point, though nothing of that is known here.
    #[inline]
    pub(crate) fn free_trusted(&self, owned: Owned, caller: &'static Location<'static>) -> FreeResult {
        let mut state = self.state.lock();
        let Owned { allocation, generation, address } = owned;
        match self.enter(&mut state).and_then(|mode| self.check_device(&allocation).map(|()| mode)) {
            Ok(Mode::Live) => {}
            stopped => {
                return self.free_elsewhere(&mut state, stopped, Owned { allocation, generation, address }, caller);
            }
        }
        let life = allocation.life();
        if !life.is_plainly_live(&allocation, generation) {
            drop(life);
            return self.free_not_plain(state, Owned { allocation, generation, address }, caller, None);
        }
        let (rounded, bytes, seq) = self.end_life(&mut state, life, (&allocation, generation), Trust::Order, caller);
        self.put_in_cache(&mut state, Cached { allocation, seq }, rounded, bytes);
        self.leave(&mut state);
        Ok(())
    }

    /// Tries a refused free again, once the messages of other processes were received, and for as long as its missing
    /// edges can be added.
    #[cold]
    fn free_again<Holder>(
        &self,
        refused: (Error, Owned),
        mut noted: Noted,
        caller: &'static Location<'static>,
    ) -> FreeResult
    where
        Holder: From<Owned> + Into<Owned>,
    {
        let (mut error, mut held) = (refused.0, Holder::from(refused.1));
        let (mut is_settled, mut known) = (false, false);
        loop {
            if error.is_foreign() && !is_settled {
                let owned = held.into();
                Listening::of(&owned.allocation);
                held = owned.into();
                is_settled = true;
            } else if noted != Noted::Anew {
                let owned = held.into();
                if noted == Noted::Later {
                    self.note_refused(&error, |tracer| tracer.free_owned(&owned, Some(self.id), caller));
                }
                held = owned.into();
                if !self.add_missing_waits(&mut error, &mut known) {
                    return Err((error, held.into()));
                }
            }
            noted = Noted::default();
            match self.try_free::<false>(held.into(), caller, Some(&mut noted)) {
                Ok(()) => return Ok(()),
                Err(again) => (error, held) = (again.0, again.1.into()),
            }
        }
    }

    /// Frees the allocation, or returns why not. `noted` then says if the refusal is in the trace.
    #[inline(never)]
    fn try_free<const OWN: bool>(
        &self,
        owned: Owned,
        caller: &'static Location<'static>,
        noted: Option<&mut Noted>,
    ) -> FreeResult {
        let Owned { allocation, generation, address } = owned;
        let mut state = self.state.lock();
        match self.enter(&mut state).and_then(|mode| self.check_device(&allocation).map(|()| mode)) {
            Ok(Mode::Live) => {}
            stopped => {
                return self.free_elsewhere(&mut state, stopped, Owned { allocation, generation, address }, caller);
            }
        }
        let life = allocation.life();
        let is_plainly_freed = life.is_plainly_freed(&allocation, generation, &state.chain);
        if OWN && is_plainly_freed && !life.history.all_points(|point| point.chain == self.chain) {
            let earlier = life.history.born();
            let fault = Fault::new(Kind::FreeBeforeAlloc, earlier);
            let later = site(Act::Free, self.id, state.op() + 1, caller);
            let error = self.refuse(&state, &allocation, &life, fault, later);
            drop(life);
            return Err((error, Owned { allocation, generation, address }));
        }
        if !is_plainly_freed {
            drop(life);
            return self.free_not_plain(state, Owned { allocation, generation, address }, caller, noted);
        }
        let (rounded, bytes, seq) = self.end_life(&mut state, life, (&allocation, generation), Trust::None, caller);
        self.put_in_cache(&mut state, Cached { allocation, seq }, rounded, bytes);
        self.leave(&mut state);
        Ok(())
    }

    /// Frees memory that cannot be freed at a point of this stream: it captures, it is closed, or the memory is another
    /// device's.
    #[cold]
    #[inline(never)]
    fn free_elsewhere(
        &self,
        state: &mut State,
        stopped: Result<Mode>,
        owned: Owned,
        caller: &'static Location<'static>,
    ) -> FreeResult {
        match stopped.and_then(|_| state.counted(self.capture_free(&owned, caller))) {
            Ok(()) => Ok(()),
            Err(error) => Err((error, owned)),
        }
    }

    /// Frees memory where that is not plain: memory of graphs, captures and other processes, lent memory, and memory
    /// whose free is to be refused.
    #[cold]
    #[inline(never)]
    fn free_not_plain(
        &self,
        mut guard: BiasedGuard<'_, State>,
        owned: Owned,
        caller: &'static Location<'static>,
        noted: Option<&mut Noted>,
    ) -> FreeResult {
        let state = &mut *guard;
        if let Origin::Captured(_) = owned.allocation.origin {
            let later = site(Act::Free, self.id, state.op() + 1, caller);
            return Err((not_launched(&owned.allocation, later), owned));
        }
        let mut life = owned.allocation.life();
        if life.generation != owned.generation {
            let later = site(Act::Free, self.id, state.op() + 1, caller);
            let error =
                owned.allocation.stale_name(&life, owned.generation, side(owned.allocation.device, later)).into();
            drop(life);
            return Err((error, owned));
        }
        let checked = match life.freed.now() {
            Some(free) => Err(Fault::after_free(free, Act::Free)),
            None => check_free(&owned.allocation, &life, &state.chain),
        };
        if let Err(fault) = checked {
            let later = site(Act::Free, self.id, state.op() + 1, caller);
            let error = self.refuse(state, &owned.allocation, &life, fault, later);
            if let Some(noted) = noted {
                *noted = self.refused_here(state, &error, |tracer| tracer.free_owned(&owned, Some(self.id), caller));
            }
            drop(life);
            return Err((error, owned));
        }
        if let Origin::Pool(_) = owned.allocation.origin {
            let was_lent = life.lent.is_some();
            let (rounded, bytes, seq) =
                self.end_life(state, life, (&owned.allocation, owned.generation), Trust::None, caller);
            let Owned { allocation, .. } = owned;
            match was_lent {
                // Other processes may still reach it, and only the heap handles that.
                true => self.free_to_heap(state, Cached { allocation, seq }, rounded, bytes),
                false => self.put_in_cache(state, Cached { allocation, seq }, rounded, bytes),
            }
            self.leave(state);
            return Ok(());
        }
        let free = self.next_use(state, Act::Free, caller);
        life.freed.end(free);
        if let Some(tracer) = &self.context.tracer {
            tracer.free((owned.allocation.id, owned.generation), self.id, Trust::None, caller);
        }
        if !owned.allocation.is_import() {
            free_in_graph(&owned.allocation, life, free.point.into());
            self.leave(state);
            return Ok(());
        }
        self.leave(state);
        // After the lock is released, because its exporter may have to make room for the message.
        drop(guard);
        free_import(&owned.allocation, life, Some(free));
        Ok(())
    }

    /// Refuses a length whose bytes cannot be counted: it is out of memory like any other size that is too large.
    #[cold]
    #[inline(never)]
    fn refuse_too_many(&self, pool: &Pool, bytes: u64, caller: &'static Location<'static>) -> Box<Error> {
        match self.alloc_in_full(pool.arc(), bytes, caller) {
            Ok(served) => {
                // No device has so much memory.
                PoolShared::drop_allocation(served.into());
                Box::new(DriverError::OutOfMemory { call: "alloc", bytes }.into())
            }
            Err(error) => error,
        }
    }

    /// Returns the capture that the stream is in, for a free by address.
    pub(crate) fn enter_to_free(&self) -> Result<Option<Arc<Session>>> {
        let mut state = self.state.lock();
        let _ = self.enter(&mut state)?;
        Ok(state.capture.clone())
    }
}

impl Stream {
    /// Allocates `len` elements, which are live from this point of the stream on (CUDA: `cudaMallocFromPoolAsync`). The
    /// contents are undefined: any bytes, possibly of former allocations. The address is a multiple of 512.
    ///
    /// The elements can be of any type that is [`Pod`](bytemuck::Pod), also [a struct of your own][own].
    ///
    /// [own]: crate::guide::cookbook#a-struct-of-your-own-in-a-buffer
    ///
    /// Lengths count elements and are `usize`. Sizes of pools, and [`MIB`](crate::MIB), count bytes and are `u64`:
    /// ```
    /// # fn main() -> millpond::Result<()> {
    /// # let device = millpond::Device::host(Default::default())?;
    /// # let (stream, pool) = (device.stream()?, device.default_pool());
    /// use millpond::MIB;
    ///
    /// let x = stream.alloc::<u8>(&pool, 4 * MIB as usize)?;
    /// # assert_eq!(x.len(), 4 << 20);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::OutOfMemory`](crate::Error::OutOfMemory), with a report of what holds the memory, after
    /// everything idle was moved or given back. Returns [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a
    /// destroyed pool or one of another device.
    #[inline(always)] // Thin: the result is made in its caller's place, not copied there.
    #[track_caller]
    pub fn alloc<T: Pod>(&self, pool: &Pool, len: usize) -> Result<Buffer<T>> {
        let caller = Location::caller();
        let Some(count) = Count::<T>::new(len) else {
            let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
            return Err(*self.shared.refuse_too_many(pool, bytes, caller));
        };
        if count.bytes() == 0 {
            return Ok(Buffer::new(None, count));
        }
        let served = match self.shared.alloc_from_cache(&pool.shared, count.bytes(), caller) {
            Some(served) => Ok(served),
            None => self.shared.alloc_in_full(pool.arc(), count.bytes(), caller),
        };
        served.map(|served| Buffer::new(Some(served.into()), count)).map_err(|error| *error)
    }

    /// Frees a buffer at this point of the stream (CUDA: `cudaFreeAsync`). It may have been allocated and used on other
    /// streams: the free must come after all of that.
    ///
    /// # Errors
    /// Returns a violation, with the buffer, which is unchanged: still live, to be freed once the missing edge is
    /// there.
    #[inline(always)] // As for `alloc`.
    #[track_caller]
    pub fn free<T: Pod>(&self, buffer: Buffer<T>) -> std::result::Result<(), Refused<T>> {
        let caller = Location::caller();
        let mut buffer = buffer;
        match self.shared.free_to_cache::<false>(buffer.place(), caller) {
            true => {
                // The buffer owns nothing any more.
                std::mem::forget(buffer);
                Ok(())
            }
            false => self.free_in_full(buffer, caller),
        }
    }

    #[cold]
    #[inline(never)]
    fn free_in_full<T>(
        &self,
        buffer: Buffer<T>,
        caller: &'static Location<'static>,
    ) -> std::result::Result<(), Refused<T>> {
        let (owned, count) = buffer.into_owned();
        let Some(owned) = owned else { return Ok(()) };
        let freed = self.shared.free_in_full::<Kept>(owned, caller);
        freed.map_err(|(error, owned)| Refused { error, buffer: Buffer::new(Some(owned), count) })
    }

    /// Frees memory by its address, which may come from anywhere (CUDA: `cudaFreeAsync`). Null is allowed and has no
    /// effect. A buffer that owned the memory then owns nothing. In a capture this adds a free node.
    ///
    /// # Errors
    /// Returns [`Invalid::Pointer`](crate::error::Invalid::Pointer), with what is nearest, if the address is not the
    /// start of a live allocation. Returns a violation as for [`free`](Self::free). The memory is unchanged in both
    /// cases.
    #[track_caller]
    pub fn free_address(&self, address: u64) -> Result<()> {
        let caller = Location::caller();
        if address == 0 {
            return Ok(());
        }
        let shared = &self.shared;
        let entered = shared.enter_to_free().inspect_err(|error| {
            let found = PoolShared::find_on(&shared.context, address);
            shared.note_refused(error, |tracer| match &found {
                Ok(owned) => tracer.free_owned(owned, Some(shared.id), caller),
                Err(error) => shared.note_second_free(error, address, caller),
            });
        });
        let capture = entered?;
        // The address of an alloc node is not the node, which a capture may free by its name.
        let is_named = capture.is_some();
        let is_node =
            |error: &Error| matches!(error.invalid(), Some(Invalid::Pointer { nearest: Nearest::OfGraph { .. }, .. }));
        let captured = capture.and_then(|capture| shared.context.graphs.find_captured(&capture, address));
        let found = captured.map_or_else(|| PoolShared::find_on(&shared.context, address), Ok);
        let owned = found.inspect_err(|error| {
            if !(is_named && is_node(error)) {
                shared.note_second_free(error, address, caller);
            }
        })?;
        shared.free::<Owned>(owned, caller).map_err(|(error, _)| error)
    }
}
