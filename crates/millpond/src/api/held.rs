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

use millpond_core::op::Trust;
use millpond_driver::locks::BiasedGuard;

use crate::api::device::Device;
use crate::api::raw::{RawMemory, Whose};
use crate::names::error::Result;
use crate::state::allocation::Owned;
use crate::state::caches::Cached;
use crate::state::origin::Origin;
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
    /// The block that was freed and is still to be put in the cache, its bytes, and the bytes of its lifetime.
    freed: Option<(Cached, u64, u64)>,
    caller: &'static Location<'static>,
}

impl Freeing<'_> {
    /// Frees a buffer if that is plainly right, and leaves an empty one. Otherwise returns `false`, and nothing has
    /// happened: [`Stream::free_raw`] then frees it or returns why not. One buffer for each `Freeing`.
    #[inline]
    pub fn try_free(&mut self, buffer: &mut Buffer<u8>) -> bool {
        let Some(Owned { allocation, generation, .. }) = buffer.owned() else { return false };
        if !self.is_live || self.freed.is_some() || allocation.device != self.stream.context.number {
            return false;
        }
        let life = allocation.life();
        if !life.is_plainly_freed(allocation, *generation, &self.state.chain) {
            return false;
        }
        let ended = self.stream.end_life(&mut self.state, life, (allocation, *generation), Trust::None, self.caller);
        let (rounded, bytes, seq) = ended;
        let owned = buffer.take_owned();
        self.freed = owned.map(|Owned { allocation, .. }| (Cached { allocation, seq }, rounded, bytes));
        true
    }
}

impl Drop for Freeing<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some((freed, rounded, bytes)) = self.freed.take() {
            self.stream.put_in_cache(&mut self.state, freed, rounded, bytes);
            self.stream.leave(&mut self.state);
        }
    }
}

/// For other languages and libraries, with [`raw`](crate::raw).
impl Stream {
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
        Ok(Freeing { stream, state, is_live, freed: None, caller: Location::caller() })
    }

    /// Frees memory by name, at this point of the stream. A buffer that owned it then owns nothing.
    ///
    /// # Errors
    /// As for [`free`](Self::free), and an error if another caller has freed the memory meanwhile.
    #[track_caller]
    pub fn free_raw(&self, memory: &RawMemory) -> Result<()> {
        match &memory.whose {
            Whose::Life(owned) => {
                self.shared.free::<Owned>(owned.clone(), Location::caller()).map_err(|(error, _)| error)
            }
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
