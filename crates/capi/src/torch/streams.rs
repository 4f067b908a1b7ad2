//! Foreign streams by their handle, found without a lock.
//!
//! Simple version: a map behind a lock. Departure: every allocation and free asks, from every thread, so readers look
//! into a table that only ever fills, each stream in its place without a pointer to follow; who adds holds a lock. A
//! program has some tens of streams. What does not fit any more goes to the map.

use std::sync::{Mutex, OnceLock};

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
    places: [OnceLock<Known>; PLACES],
    rest: Mutex<Rest>,
}

#[derive(Default)]
struct Rest {
    taken: usize,
    overflow: FxHashMap<u64, &'static Known>,
}

impl Streams {
    pub(super) fn new() -> Self {
        Self { places: [const { OnceLock::new() }; PLACES], rest: Mutex::default() }
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
            match self.places[at].get() {
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
        while let Some(known) = self.places[at].get() {
            if known.handle == handle {
                return Ok(&known.stream);
            }
            at = (at + 1) % PLACES;
        }
        let known = Known { handle, stream: open()? };
        if rest.taken < TAKEN_MAX {
            rest.taken += 1;
            return Ok(&self.places[at].get_or_init(|| known).stream);
        }
        let known = Box::leak(Box::new(known));
        rest.overflow.insert(handle, known);
        Ok(&known.stream)
    }

    /// All of them.
    pub(super) fn all(&'static self) -> Vec<&'static Stream> {
        let rest = lock(&self.rest);
        let overflow = rest.overflow.values().copied();
        self.places.iter().filter_map(OnceLock::get).chain(overflow).map(|known| &known.stream).collect()
    }
}
