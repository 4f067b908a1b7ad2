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
use crate::state::stream::{Mode, StreamShared};
use crate::stream::buffer::Buffer;
use crate::stream::handle::Stream;
use crate::stream::hot::Served;
use crate::stream::refused::Refused;
use crate::stream::release::not_launched;
use crate::stream::report::Noted;

/// The reason why a free is right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ground {
    /// The stream comes after everything that was done to the memory.
    Order,
    /// As `Order`, and all of that was done on this stream. Otherwise the free is refused.
    Own,
    /// The program's word, as CUDA believes it: everything that it did with the memory, on any stream, comes before the
    /// free, though nothing of that is known here.
    Word,
}

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

    /// Frees an allocation by a name that owns nothing.
    pub(crate) fn free_named(&self, owned: Owned, caller: &'static Location<'static>) -> Result<()> {
        let mut held = Some(owned);
        self.free_to_cache::<false>(&mut held, caller);
        held.map_or(Ok(()), |owned| self.free_in_full(&owned, Ground::Order, caller))
    }

    /// Frees an allocation at this point of the stream where the hot path did not. A violation is reported, if that is
    /// the setting, and the free is tried again for as long as its missing edges can be added.
    ///
    /// # Errors
    /// The reason why nothing is freed.
    #[cold]
    #[inline(never)]
    pub(crate) fn free_in_full(&self, owned: &Owned, ground: Ground, caller: &'static Location<'static>) -> Result<()> {
        let (mut is_settled, mut known) = (false, false);
        loop {
            let mut noted = Noted::default();
            let Err(mut error) = self.try_free(owned, ground, caller, &mut noted) else { return Ok(()) };
            if ground != Ground::Order {
                return Err(error);
            }
            if error.is_foreign() && !is_settled {
                Listening::of(&owned.allocation);
                is_settled = true;
            } else if noted != Noted::Anew {
                if noted == Noted::Later {
                    self.note_refused(&error, |tracer| tracer.free_owned(owned, Some(self.id), caller));
                }
                if !self.add_missing_waits(&mut error, &mut known) {
                    return Err(error);
                }
            }
        }
    }

    /// Frees an allocation, or returns why not. `noted` then says if the refusal is in the trace.
    fn try_free(
        &self,
        owned: &Owned,
        ground: Ground,
        caller: &'static Location<'static>,
        noted: &mut Noted,
    ) -> Result<()> {
        let Owned { allocation, generation, .. } = owned;
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let mode = self.enter(state)?;
        self.check_device(allocation)?;
        if mode == Mode::Capturing {
            return state.counted(self.capture_free(owned, caller));
        }
        let later = site(Act::Free, self.id, state.op() + 1, caller);
        if let Origin::Captured(_) = allocation.origin {
            return Err(not_launched(allocation, later));
        }
        let mut life = allocation.life();
        if life.generation != *generation {
            return Err(allocation.stale_name(&life, *generation, side(allocation.device, later)).into());
        }
        let is_plain = life.is_plainly_live(allocation, *generation);
        let is_believed = is_plain && ground == Ground::Word;
        let is_shared = || !life.history.all_points(|point| point.chain == self.chain);
        let checked = match life.freed.now() {
            Some(free) => Err(Fault::after_free(free, Act::Free)),
            None if is_believed => Ok(()),
            None => check_free(allocation, &life, &state.chain),
        };
        let checked = match checked {
            Ok(()) if is_plain && ground == Ground::Own && is_shared() => {
                Err(Fault::new(Kind::FreeBeforeAlloc, life.history.born()))
            }
            checked => checked,
        };
        if let Err(fault) = checked {
            let error = self.refuse(state, allocation, &life, fault, later);
            if ground == Ground::Order {
                *noted = self.refused_here(state, &error, |tracer| tracer.free_owned(owned, Some(self.id), caller));
            }
            return Err(error);
        }
        let free = self.next_use(state, Act::Free, caller);
        life.freed.end(free);
        if let Some(tracer) = &self.context.tracer {
            let trust = if is_believed { Trust::Order } else { Trust::None };
            tracer.free((allocation.id, *generation), self.id, trust, caller);
        }
        if let Origin::Pool(_) = allocation.origin {
            let (rounded, bytes, was_lent) = (life.range.bytes, life.bytes, life.lent.is_some());
            drop(life);
            let freed = Cached { allocation: Arc::clone(allocation), seq: free.point.seq };
            match was_lent {
                // Other processes may still reach it, and only the heap handles that.
                true => self.free_to_heap(state, freed, rounded, bytes),
                false => self.put_in_cache(state, freed, rounded, bytes),
            }
            self.leave(state);
            return Ok(());
        }
        if !allocation.is_import() {
            free_in_graph(allocation, life, free.point.into());
            self.leave(state);
            return Ok(());
        }
        self.leave(state);
        // After the lock is released, because its exporter may have to make room for the message.
        drop(guard);
        free_import(allocation, life, Some(free));
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
            false => self.free_in_full(buffer, Ground::Order, caller),
        }
    }

    /// As [`free`](Self::free), where the hot path did not free it.
    #[cold]
    #[inline(never)]
    pub(crate) fn free_in_full<T>(
        &self,
        buffer: Buffer<T>,
        ground: Ground,
        caller: &'static Location<'static>,
    ) -> std::result::Result<(), Refused<T>> {
        // The buffer owns the memory meanwhile: if the program's reporter panics, it is dropped.
        match buffer.owned().map_or(Ok(()), |owned| self.shared.free_in_full(owned, ground, caller)) {
            Ok(()) => {
                buffer.into_owned();
                Ok(())
            }
            Err(error) => Err(Refused { error, buffer }),
        }
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
        shared.free_named(owned, caller)
    }
}
