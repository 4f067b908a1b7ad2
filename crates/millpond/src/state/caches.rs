//! A stream's caches, by pool: of nearly all streams there is one, and it is found by one comparison.
//!
//! Knows pools by where they are.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use millpond_core::ids::Seq;
use millpond_core::pool::StreamCache;

use crate::state::allocation::Allocation;
use crate::state::pool::PoolShared;

/// So many blocks wait for a visit to the heap; then the stream makes one.
const FALLEN_MAX: usize = 32;

/// The caches of one stream, each for another pool.
#[derive(Debug, Default)]
pub(crate) struct StreamCaches {
    /// The one that there was first, beside what else the stream's lock guards.
    first: Option<PoolCache>,
    others: Vec<PoolCache>,
}

/// A stream's cache for one pool.
#[derive(Debug)]
pub(crate) struct PoolCache {
    /// Where the pool is. Nothing else comes to be there while `owner` refers to it.
    at: usize,
    pub(crate) count: Arc<CacheCount>,
    pub(crate) blocks: StreamCache<Cached>,
    /// What fell out of the cache, on its way back to the heap with the next visit there.
    pub(crate) fallen: Vec<Cached>,
    pub(crate) owner: Weak<PoolShared>,
}

/// A freed block in a cache.
#[derive(Debug)]
pub(crate) struct Cached {
    pub(crate) allocation: Arc<Allocation>,
    /// Where on this stream's chain it was freed.
    pub(crate) seq: Seq,
}

impl StreamCaches {
    /// The cache for a pool, once there is one.
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

    /// As [`find`](Self::find), or a new one that adds to what `count` gives.
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
        // Caches whose pools are gone make room.
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
    /// Whether it is this pool's. Numbers do not tell: another device has pools of the same numbers.
    #[inline]
    pub(crate) fn is_for(&self, pool: &PoolShared) -> bool {
        self.at == std::ptr::from_ref(pool).addr()
    }

    /// Puts a freed block, with the bytes of its life. What falls off waits; the pool, where so much does that it is to
    /// return to the heap.
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
        if self.fallen.len() < FALLEN_MAX { None } else { self.owner.upgrade() }
    }

    /// Takes everything off: first what fell off before.
    pub(crate) fn clear(&mut self) -> impl Iterator<Item = (Arc<Allocation>, Seq)> + '_ {
        self.fallen.drain(..).chain(self.blocks.drain()).map(Cached::into_parts)
    }

    /// Takes off what fell off.
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

/// What a stream's cache did to the used bytes since the heap was given them. The pool looks only when it needs the
/// figure: the stream alone writes, under its lock, and the pool reads under its own.
#[derive(Debug, Default)]
#[repr(align(128))] // No cache line is shared with another stream's.
pub(crate) struct CacheCount {
    /// Bytes taken from the cache less bytes put on it.
    used: AtomicI64,
    /// The highest that was since the last look.
    peak: AtomicI64,
    /// Where it is in the pool's list, which changes it under its lock.
    place: AtomicUsize,
}

impl CacheCount {
    pub(crate) fn place(&self) -> usize {
        self.place.load(Ordering::Relaxed)
    }

    pub(crate) fn set_place(&self, place: usize) {
        self.place.store(place, Ordering::Relaxed);
    }

    /// The cache served a request.
    #[inline]
    pub(crate) fn take(&self, bytes: u64) {
        let used = self.used.load(Ordering::Relaxed) + bytes as i64;
        self.used.store(used, Ordering::Relaxed);
        if used > self.peak.load(Ordering::Relaxed) {
            self.peak.store(used, Ordering::Relaxed);
        }
    }

    /// What is used now and the most that was since the last look; the mark begins anew.
    pub(crate) fn look(&self) -> (i64, i64) {
        let peak = self.peak.load(Ordering::Relaxed);
        let used = self.used.load(Ordering::Relaxed);
        // A stream that is served this moment has set its own mark: that one stays.
        let _ = self.peak.compare_exchange(peak, used, Ordering::Relaxed, Ordering::Relaxed);
        (used, peak.max(used))
    }

    /// The cache took a freed block.
    #[inline]
    pub(crate) fn put(&self, bytes: u64) {
        self.used.store(self.used.load(Ordering::Relaxed) - bytes as i64, Ordering::Relaxed);
    }
}
