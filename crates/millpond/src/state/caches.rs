//! The caches of a stream, one for each pool. Nearly all streams have one cache, and it is found by one comparison.
//!
//! Identifies pools by their addresses.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use millpond_core::ids::Seq;
use millpond_core::pool::StreamCache;

use crate::state::allocation::Allocation;
use crate::state::pool::PoolShared;

/// If this many blocks wait for a visit to the heap, the stream makes one.
const FALLEN_MAX: usize = 32;

/// The caches of one stream, each for another pool.
#[derive(Debug, Default)]
pub(crate) struct StreamCaches {
    /// The first cache, stored beside the rest of what the stream's lock guards.
    first: Option<PoolCache>,
    others: Vec<PoolCache>,
}

/// A stream's cache for one pool.
#[derive(Debug)]
pub(crate) struct PoolCache {
    /// The address of the pool. No other object can be there while `owner` refers to the pool.
    at: usize,
    pub(crate) count: Arc<CacheCount>,
    pub(crate) blocks: StreamCache<Cached>,
    /// The blocks that fell out of the cache. They return to the heap with the next visit there.
    pub(crate) fallen: Vec<Cached>,
    pub(crate) owner: Weak<PoolShared>,
}

/// A freed block in a cache.
#[derive(Debug)]
pub(crate) struct Cached {
    pub(crate) allocation: Arc<Allocation>,
    /// The position of the free on this stream's chain.
    pub(crate) seq: Seq,
}

impl StreamCaches {
    /// Returns the cache for a pool, if there is one.
    #[inline(always)]
    pub(crate) fn find(&mut self, pool: &PoolShared) -> Option<&mut PoolCache> {
        match &mut self.first {
            Some(first) if first.is_for(pool) => Some(first),
            _ if self.others.is_empty() => None,
            _ => Self::find_in(&mut self.others, pool),
        }
    }

    #[inline(never)]
    fn find_in<'s>(others: &'s mut [PoolCache], pool: &PoolShared) -> Option<&'s mut PoolCache> {
        others.iter_mut().find(|cache| cache.is_for(pool))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut PoolCache> {
        self.first.iter_mut().chain(&mut self.others)
    }

    /// As [`find`](Self::find), or makes a new cache with the count that `count` returns.
    #[inline(always)]
    pub(crate) fn find_or_add(
        &mut self,
        pool: &Arc<PoolShared>,
        count: impl FnOnce() -> Arc<CacheCount>,
    ) -> &mut PoolCache {
        match &self.first {
            Some(first) if first.is_for(pool) => self.first.as_mut().expect("it was looked at just now"),
            _ => self.find_other_or_add(pool, count),
        }
    }

    #[inline(never)]
    fn find_other_or_add(&mut self, pool: &Arc<PoolShared>, count: impl FnOnce() -> Arc<CacheCount>) -> &mut PoolCache {
        if let Some(at) = self.others.iter().position(|cache| cache.is_for(pool)) {
            return &mut self.others[at];
        }
        // Remove the caches whose pools are gone.
        let is_wanted = |cache: &PoolCache| cache.owner.strong_count() > 0;
        self.first.take_if(|cache| !is_wanted(cache));
        self.others.retain(is_wanted);
        let (at, owner) = (Arc::as_ptr(pool).addr(), Arc::downgrade(pool));
        let cache = PoolCache { at, count: count(), blocks: StreamCache::new(), fallen: Vec::new(), owner };
        if self.first.is_none() {
            return self.first.insert(cache);
        }
        self.others.push(cache);
        self.others.last_mut().expect("pushed just now")
    }
}

impl PoolCache {
    /// Returns `true` if this is the pool's cache. Numbers do not identify a pool: another device has pools of the same
    /// numbers.
    #[inline]
    pub(crate) fn is_for(&self, pool: &PoolShared) -> bool {
        self.at == std::ptr::from_ref(pool).addr()
    }

    /// Puts a freed block into the cache, with the bytes of its lifetime. A block that falls out waits. Returns the
    /// pool if so many wait that they are to return to the heap.
    #[inline(always)]
    pub(crate) fn put(&mut self, freed: Cached, rounded: u64, bytes: u64) -> Option<Arc<PoolShared>> {
        self.count.put(bytes);
        match self.blocks.put(rounded, freed) {
            Ok(()) => None,
            Err(fallen) => self.fall(fallen),
        }
    }

    #[inline(never)]
    fn fall(&mut self, fallen: Cached) -> Option<Arc<PoolShared>> {
        self.fallen.push(fallen);
        if self.have_many_fallen() { self.owner.upgrade() } else { None }
    }

    /// Returns `true` if so many blocks have fallen out that they are to return to the heap.
    pub(crate) fn have_many_fallen(&self) -> bool {
        self.fallen.len() >= FALLEN_MAX
    }

    /// Takes all blocks out, first those that fell out before.
    pub(crate) fn clear(&mut self) -> impl Iterator<Item = (Arc<Allocation>, Seq)> + '_ {
        self.fallen.drain(..).chain(self.blocks.drain()).map(Cached::into_parts)
    }

    /// Takes out the blocks that fell out.
    pub(crate) fn clear_fallen(&mut self) -> impl Iterator<Item = (Arc<Allocation>, Seq)> + '_ {
        self.fallen.drain(..).map(Cached::into_parts)
    }
}

impl Cached {
    #[inline]
    fn into_parts(self) -> (Arc<Allocation>, Seq) {
        (self.allocation, self.seq)
    }
}

/// The change that a stream's cache has made to the used bytes, and that the heap has not counted. The stream alone
/// changes `used`, under its lock. The pool reads it under its own lock, only when it needs the figure.
#[derive(Debug, Default)]
#[repr(align(128))] // No cache line is shared with another stream's.
pub(crate) struct CacheCount {
    /// The bytes taken from the cache, less the bytes put into it.
    used: AtomicI64,
    /// The highest value of `used` since the last look.
    peak: AtomicI64,
    /// The index in the pool's list. The pool changes it under its lock.
    place: AtomicUsize,
}

impl CacheCount {
    pub(crate) fn place(&self) -> usize {
        self.place.load(Ordering::Relaxed)
    }

    pub(crate) fn set_place(&self, place: usize) {
        self.place.store(place, Ordering::Relaxed);
    }

    /// Counts a request that the cache served.
    #[inline]
    pub(crate) fn take(&self, bytes: u64) {
        let used = self.used.load(Ordering::Relaxed) + bytes as i64;
        self.used.store(used, Ordering::Relaxed);
        if used > self.peak.load(Ordering::Relaxed) {
            self.peak.store(used, Ordering::Relaxed);
        }
    }

    /// Returns the present value of `used` and its highest since the last look, and begins a new peak.
    pub(crate) fn look(&self) -> (i64, i64) {
        let peak = self.peak.load(Ordering::Relaxed);
        let used = self.used.load(Ordering::Relaxed);
        // A stream that is served at this moment has set its own peak. That one stays.
        let _ = self.peak.compare_exchange(peak, used, Ordering::Relaxed, Ordering::Relaxed);
        (used, peak.max(used))
    }

    /// Counts a freed block that the cache took.
    #[inline]
    pub(crate) fn put(&self, bytes: u64) {
        self.used.store(self.used.load(Ordering::Relaxed) - bytes as i64, Ordering::Relaxed);
    }
}
