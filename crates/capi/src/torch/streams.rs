//! Foreign streams by their handle, found without a lock.
//!
//! Simple version: a map behind a lock. Departure: every allocation and free asks, from every thread, so readers look
//! into a table of pointers that only ever fills; who adds holds a lock. A program has some tens of streams. What does
//! not fit any more goes to the map.

use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};

use millpond::Stream;
use rustc_hash::FxHashMap;

use crate::device::lock;
use crate::status::Result;

/// Places in the table, a power of two.
const PLACES: usize = 512;
/// So many are taken at most, so that a search ends soon.
const TAKEN_MAX: usize = PLACES / 2;

/// A foreign stream; never forgotten.
struct Known {
    handle: u64,
    stream: Stream,
}

/// The foreign streams of a device.
pub(super) struct Streams {
    places: [AtomicPtr<Known>; PLACES],
    rest: Mutex<Rest>,
}

#[derive(Default)]
struct Rest {
    taken: usize,
    overflow: FxHashMap<u64, &'static Known>,
}

impl Streams {
    pub(super) fn new() -> Self {
        Self { places: [const { AtomicPtr::new(std::ptr::null_mut()) }; PLACES], rest: Mutex::default() }
    }

    #[inline]
    fn start(handle: u64) -> usize {
        (handle.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 55) as usize % PLACES
    }

    /// The stream of a handle, made by `open` where it is new.
    #[inline]
    pub(super) fn find(&'static self, handle: u64, open: impl FnOnce() -> Result<Stream>) -> Result<&'static Stream> {
        let mut at = Self::start(handle);
        loop {
            // SAFETY: null, or a stream that was published and is never forgotten.
            match unsafe { self.places[at].load(Ordering::Acquire).as_ref() } {
                Some(known) if known.handle == handle => return Ok(&known.stream),
                Some(_) => at = (at + 1) % PLACES,
                None => return self.add(handle, open),
            }
        }
    }

    /// Once for each stream.
    #[cold]
    fn add(&'static self, handle: u64, open: impl FnOnce() -> Result<Stream>) -> Result<&'static Stream> {
        let mut rest = lock(&self.rest);
        if let Some(known) = rest.overflow.get(&handle) {
            return Ok(&known.stream);
        }
        let mut at = Self::start(handle);
        // SAFETY: as above.
        while let Some(known) = unsafe { self.places[at].load(Ordering::Acquire).as_ref() } {
            if known.handle == handle {
                return Ok(&known.stream);
            }
            at = (at + 1) % PLACES;
        }
        let known = Box::leak(Box::new(Known { handle, stream: open()? }));
        if rest.taken < TAKEN_MAX {
            rest.taken += 1;
            self.places[at].store(known, Ordering::Release);
        } else {
            rest.overflow.insert(handle, known);
        }
        Ok(&known.stream)
    }

    /// All of them.
    pub(super) fn all(&'static self) -> Vec<&'static Stream> {
        let rest = lock(&self.rest);
        // SAFETY: as above.
        let known = |place: &'static AtomicPtr<Known>| unsafe { place.load(Ordering::Acquire).as_ref() };
        let overflow = rest.overflow.values().copied();
        self.places.iter().filter_map(known).chain(overflow).map(|known| &known.stream).collect()
    }
}
