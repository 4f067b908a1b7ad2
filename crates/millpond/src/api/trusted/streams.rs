//! Foreign streams by their handles, found without a lock.
//!
//! Simple version: a map behind a lock. Departure: every allocation and free of every thread looks a stream up. So
//! readers use a table that only ever fills, with each stream in its place and no pointer to follow. A thread that adds
//! a stream holds a lock. A program has some tens of streams. A stream that does not fit any more goes to the map, and
//! so does one that may end: the streams that the program closes while the table is used, and the default streams of
//! threads.
//!
//! Invariant `what-it-means`: a handle is looked up by its meaning for the calling thread. Two handles name the legacy
//! default stream. One handle names the default stream of whichever thread uses it: a separate stream for each thread.

use std::ops::Deref;
use std::sync::{Arc, OnceLock, Weak};

use millpond_driver::locks::{Mutex, lock};
use millpond_driver::process::{self, ThreadNumber};
use rustc_hash::FxHashMap;

use crate::names::error::Result;
use crate::names::native::{LEGACY, PER_THREAD};
use crate::stream::handle::Stream;
use crate::sync::ranks;

/// The number of places in the table, a power of two.
const PLACES: usize = 512;
/// The most places that are taken, so that a search ends soon.
const TAKEN_MAX: usize = PLACES / 2;

thread_local! {
    /// Dropped when the thread ends.
    static THREAD: Arc<()> = Arc::default();
}

/// A foreign stream in the table. It is never forgotten.
#[derive(Debug)]
struct Known {
    handle: u64,
    stream: Stream,
}

/// The foreign streams of a device.
#[derive(Debug)]
pub(super) struct Streams {
    places: [OnceLock<Known>; PLACES],
    rest: Mutex<ranks::Trusted, Rest>,
}

#[derive(Debug, Default)]
struct Rest {
    taken: usize,
    by_handle: FxHashMap<u64, Stream>,
    /// The default streams of threads, while the threads live.
    by_thread: FxHashMap<ThreadNumber, (Weak<()>, Stream)>,
}

/// A stream that was found.
pub(super) enum Found<'a> {
    InPlace(&'a Stream),
    InMap(Stream),
}

impl Deref for Found<'_> {
    type Target = Stream;

    #[inline]
    fn deref(&self) -> &Stream {
        match self {
            Found::InPlace(stream) => stream,
            Found::InMap(stream) => stream,
        }
    }
}

impl Streams {
    /// Makes the table for a program that closes none of its streams while the table is used, or that reports each one
    /// that it closes.
    pub(super) fn new(stay_open: bool) -> Self {
        let rest = Rest { taken: if stay_open { 0 } else { TAKEN_MAX }, ..Rest::default() };
        Self { places: [const { OnceLock::new() }; PLACES], rest: Mutex::new(rest) }
    }

    #[inline]
    fn start(handle: u64) -> usize {
        (handle.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 55) as usize % PLACES
    }

    /// Returns the stream of a handle. `open` makes a new one.
    #[inline]
    pub(super) fn find(&self, handle: u64, open: impl FnOnce() -> Result<Stream>) -> Result<Found<'_>> {
        let handle = handle.max(LEGACY);
        let mut at = Self::start(handle);
        loop {
            match self.places[at].get() {
                Some(known) if known.handle == handle => return Ok(Found::InPlace(&known.stream)),
                Some(_) => at = (at + 1) % PLACES,
                None => return self.find_in_map(handle, open),
            }
        }
    }

    /// Called once for each stream that has a place, and each time for one in the map.
    #[cold]
    fn find_in_map(&self, handle: u64, open: impl FnOnce() -> Result<Stream>) -> Result<Found<'_>> {
        if handle == PER_THREAD {
            return self.of_this_thread(open).map(Found::InMap);
        }
        let mut rest = lock(&self.rest);
        if let Some(stream) = rest.by_handle.get(&handle) {
            return Ok(Found::InMap(stream.clone()));
        }
        let mut at = Self::start(handle);
        while let Some(known) = self.places[at].get() {
            if known.handle == handle {
                return Ok(Found::InPlace(&known.stream));
            }
            at = (at + 1) % PLACES;
        }
        let stream = open()?;
        if rest.taken < TAKEN_MAX {
            rest.taken += 1;
            return Ok(Found::InPlace(&self.places[at].get_or_init(|| Known { handle, stream }).stream));
        }
        rest.by_handle.insert(handle, stream.clone());
        Ok(Found::InMap(stream))
    }

    fn of_this_thread(&self, open: impl FnOnce() -> Result<Stream>) -> Result<Stream> {
        let thread = process::this_thread();
        let mut rest = lock(&self.rest);
        if let Some((_, stream)) = rest.by_thread.get(&thread) {
            return Ok(stream.clone());
        }
        let stream = open()?;
        let (gone, live) =
            std::mem::take(&mut rest.by_thread).into_iter().partition(|(_, (it, _))| it.strong_count() == 0);
        rest.by_thread = live;
        // A thread that is ending has no token any more: its stream is closed at the next look.
        let token = THREAD.try_with(Arc::downgrade).unwrap_or_default();
        rest.by_thread.insert(thread, (token, stream.clone()));
        drop(rest);
        // Closed after the lock is released, because that calls the driver.
        drop::<FxHashMap<_, _>>(gone);
        Ok(stream)
    }

    /// Forgets a stream that the program is about to close. A stream that may be closed is in the map.
    pub(super) fn forget(&self, handle: u64) {
        let gone = lock(&self.rest).by_handle.remove(&handle);
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, HostConfig};

    fn id(streams: &Streams, device: &Device, handle: u64) -> millpond_core::ids::StreamId {
        streams.find(handle, || device.non_blocking_stream()).expect("a stream").id()
    }

    #[test]
    fn a_handle_is_what_it_means_to_the_thread() {
        let device = Device::host(HostConfig::default()).expect("a host device");
        let streams = Streams::new(true);
        assert_eq!(id(&streams, &device, 0), id(&streams, &device, LEGACY));
        let own = id(&streams, &device, PER_THREAD);
        assert_eq!(id(&streams, &device, PER_THREAD), own);
        let one = id(&streams, &device, 48);
        let on_another_thread = || {
            std::thread::scope(|scope| {
                let ids = || [PER_THREAD, 48].map(|handle| id(&streams, &device, handle));
                scope.spawn(ids).join().expect("no panic")
            })
        };
        let (first, second) = (on_another_thread(), on_another_thread());
        assert!(first[0] != own && second[0] != own && first[0] != second[0]);
        assert_eq!((first[1], second[1]), (one, one));
    }

    #[test]
    fn streams_of_threads_that_ended_are_closed() {
        let device = Device::host(HostConfig::default()).expect("a host device");
        let streams = Streams::new(true);
        for _ in 0..100 {
            let ask = || id(&streams, &device, PER_THREAD);
            std::thread::scope(|scope| scope.spawn(ask).join().expect("no panic"));
        }
        assert!(lock(&streams.rest).by_thread.len() <= 2, "each new thread's look closes those that ended");
    }

    #[test]
    fn what_has_no_place_is_found_and_can_be_forgotten() {
        let device = Device::host(HostConfig::default()).expect("a host device");
        for stay_open in [false, true] {
            let streams = Streams::new(stay_open);
            let handles = || (16..16 * (TAKEN_MAX as u64 + 20)).step_by(16);
            let made: Vec<_> = handles().map(|handle| id(&streams, &device, handle)).collect();
            assert!(handles().zip(&made).all(|(handle, made)| id(&streams, &device, handle) == *made));
            streams.forget(16);
            assert_eq!(id(&streams, &device, 16) == made[0], stay_open, "only what may be closed is forgotten");
        }
    }
}
