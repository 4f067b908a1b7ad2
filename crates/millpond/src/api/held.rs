//! Buffers in a table of the program, for other languages: which of them are live, and their frees. An entry leaves its
//! table with a free that succeeds, never with one that is refused.
//!
//! Simple version: take the buffer out, free it, and put it back if that is refused. Meanwhile another thread finds
//! nothing there, frees the memory by its address and allocates it anew. Then the refused buffer is put back over the
//! new one. Departure: the table is asked under the stream's lock, and while its entry cannot move the lifetime is
//! checked and ended in one step ([`Freeing::try_free`]). A buffer whose free is not plainly right is freed by name
//! ([`Stream::free_raw`]), with the entry in its place until that has happened.
//!
//! Locks: the table's comes after a stream's state and before the lifetimes of allocations.

use std::panic::Location;
use std::sync::Arc;

use millpond_driver::locks::BiasedGuard;

use crate::api::device::Device;
use crate::api::raw::{RawMemory, Whose};
use crate::names::count::Count;
use crate::names::error::Result;
use crate::pool::handle::Pool;
use crate::state::allocation::Owned;
use crate::state::origin::Origin;
use crate::state::pool::PoolShared;
use crate::state::stream::Mode;
use crate::state::stream::{State, StreamShared};
use crate::stream::buffer::Buffer;
use crate::stream::handle::Stream;

/// A stream that is about to free a buffer of a table. While this lives the stream is locked: ask nothing but the
/// table.
#[must_use]
#[derive(Debug)]
pub struct Freeing<'s> {
    stream: &'s StreamShared,
    state: BiasedGuard<'s, State>,
    /// `true` if the free goes to the device, and not into a graph.
    is_live: bool,
    /// `true` if blocks are to return to the heap, once the table is not locked any more.
    have_fallen: bool,
    caller: &'static Location<'static>,
}

impl Freeing<'_> {
    /// Frees a buffer if that is plainly right and the stream has a cache for its pool, and leaves an empty one.
    /// Otherwise returns `false`, and nothing has happened: [`Stream::free_raw`] then frees it or returns why not.
    #[inline(always)] // The hot path of a free.
    pub fn try_free(&mut self, buffer: &mut Buffer<u8>) -> bool {
        if !self.is_live {
            return false;
        }
        match self.stream.end_in_cache::<false>(&mut self.state, buffer.place(), self.caller) {
            Some(fallen) => {
                buffer.was_taken_out();
                self.stream.leave(&mut self.state);
                self.have_fallen |= fallen.is_some();
                true
            }
            None => false,
        }
    }
}

impl Drop for Freeing<'_> {
    #[inline(always)] // As for `try_free`.
    fn drop(&mut self) {
        if self.have_fallen {
            self.stream.return_all_fallen(&mut self.state);
        }
    }
}

impl StreamShared {
    /// Returns the blocks that fell out of caches to their heaps, where many have.
    #[cold]
    #[inline(never)]
    fn return_all_fallen(&self, state: &mut State) {
        let many = state.caches.iter_mut().filter(|cache| cache.have_many_fallen());
        let pools: Vec<Arc<PoolShared>> = many.filter_map(|cache| cache.owner.upgrade()).collect();
        pools.iter().for_each(|pool| self.return_fallen(state, pool));
    }
}

/// For other languages and libraries, with [`raw`](crate::raw).
impl Stream {
    /// Allocates at this point of the stream as [`alloc`](Self::alloc), if this thread owns the stream's lock and the
    /// stream's cache serves it. Otherwise returns `None`, and nothing has happened. There is no function call in it.
    #[inline(always)] // The hot path of an allocation.
    #[track_caller]
    pub fn try_alloc(&self, pool: &Pool, bytes: usize) -> Option<Buffer<u8>> {
        let (stream, count) = (&*self.shared, Count::<u8>::new(bytes)?);
        let mut state = stream.state.try_own()?;
        if count.bytes() == 0 || !stream.is_current(&state) {
            return None;
        }
        let served = stream.take_from_cache(&mut state, &pool.shared, count.bytes(), Location::caller())?;
        Some(Buffer::new(Some(served.into()), count))
    }

    /// As [`freeing`](Self::freeing), if this thread owns the stream's lock and the stream has nothing to learn.
    #[inline(always)] // As for `Freeing::try_free`.
    #[track_caller]
    pub fn try_freeing(&self) -> Option<Freeing<'_>> {
        let stream = &*self.shared;
        let state = stream.state.try_own()?;
        if !stream.is_current(&state) {
            return None;
        }
        Some(Freeing { stream, state, is_live: true, have_fallen: false, caller: Location::caller() })
    }

    /// Begins to free a buffer of a table at this point of the stream.
    ///
    /// # Errors
    /// Returns an error if the stream is closed.
    #[inline]
    #[track_caller]
    pub fn freeing(&self) -> Result<Freeing<'_>> {
        let stream = &*self.shared;
        let mut state = stream.state.lock();
        let is_live = stream.enter(&mut state)? == Mode::Live;
        Ok(Freeing { stream, state, is_live, have_fallen: false, caller: Location::caller() })
    }

    /// Frees memory by name, at this point of the stream. A buffer that owned it then owns nothing.
    ///
    /// # Errors
    /// As for [`free`](Self::free), and an error if another caller has freed the memory meanwhile.
    #[track_caller]
    pub fn free_raw(&self, memory: &RawMemory) -> Result<()> {
        match &memory.whose {
            Whose::Life(owned) => self.shared.free_named(owned.clone(), Location::caller()),
            Whose::Node(name) => self.free_address(name.address),
        }
    }
}

fn is_live(owned: &Owned) -> bool {
    match &owned.allocation.origin {
        Origin::Captured(session) => session.is_open(),
        _ => {
            let life = owned.allocation.life();
            life.generation == owned.generation && life.freed.is_none()
        }
    }
}

impl RawMemory {
    /// Returns `true` if the lifetime goes on, or for memory of a capture, if the capture goes on. The memory of an
    /// alloc node has many lifetimes: for it this returns `true`.
    pub fn is_live(&self) -> bool {
        match &self.whose {
            Whose::Life(owned) => is_live(owned),
            Whose::Node(_) => true,
        }
    }
}

/// For other languages and libraries, with [`raw`](crate::raw).
impl Buffer<u8> {
    /// Returns an empty buffer: a vacant place of a table.
    pub const fn vacant() -> Self {
        Self::EMPTY
    }

    /// Returns `true` if the buffer is empty.
    #[inline]
    pub fn is_vacant(&self) -> bool {
        self.owned().is_none()
    }

    /// Returns `true` if the buffer owns memory that begins at this address. An empty buffer begins nowhere, not at 0.
    #[inline]
    pub fn begins_at(&self, address: u64) -> bool {
        self.owned().is_some_and(|owned| owned.address == address)
    }

    /// Returns `true` if the memory is of this device.
    pub fn is_of(&self, device: &Device) -> bool {
        self.owned().is_some_and(|owned| owned.allocation.device == device.context().number)
    }

    /// Returns `true` if the lifetime goes on, or for memory of a capture, if the capture goes on. It may have ended by
    /// a free of its address, by a free node of a graph, or by a launch that frees automatically.
    pub fn is_live(&self) -> bool {
        self.owned().is_some_and(is_live)
    }

    /// Returns `true` if, of two buffers at one address, this one's lifetime ended before the other's began. A thread
    /// may be late with the other buffer: then that one has ended, and this one goes on.
    pub fn gives_way_to(&self, other: &Buffer<u8>) -> bool {
        let (Some(owned), Some(others)) = (self.owned(), other.owned()) else { return true };
        match (&owned.allocation.origin, &others.allocation.origin) {
            // A free node ends no lifetime, and the address serves again within the capture.
            (Origin::Captured(one), Origin::Captured(same)) if Arc::ptr_eq(one, same) => {
                owned.allocation.id < others.allocation.id
            }
            _ => !is_live(owned),
        }
    }
}

/// For other languages and libraries, with [`raw`](crate::raw).
impl Device {
    /// Frees memory by name, immediately. A buffer that owned it then owns nothing.
    ///
    /// # Errors
    /// As for [`free`](Self::free), and an error if another caller has freed the memory meanwhile.
    #[track_caller]
    pub fn free_raw(&self, memory: &RawMemory) -> Result<()> {
        match &memory.whose {
            Whose::Life(owned) => self.free_now(owned, Location::caller()),
            Whose::Node(name) => self.free_address(name.address),
        }
    }
}
