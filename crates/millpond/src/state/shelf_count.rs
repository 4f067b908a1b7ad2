//! What one stream's shelf adds to a pool's used bytes, counted by the pool only when it looks.
//!
//! Knows two numbers, which its stream alone raises and lowers, under that one's lock. Looks come under the pool's.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

/// What a stream's shelf did to the used bytes since the heap was given them. Written by the stream alone, under its
/// lock.
#[derive(Debug, Default)]
#[repr(align(128))] // No cache line is shared with another stream's.
pub(crate) struct ShelfCount {
    /// Bytes taken from the shelf less bytes put on it.
    used: AtomicI64,
    /// The highest that was since the last look.
    peak: AtomicI64,
    /// Where it is in the pool's list, which changes it under its lock.
    place: AtomicUsize,
}

impl ShelfCount {
    pub(crate) fn place(&self) -> usize {
        self.place.load(Ordering::Relaxed)
    }

    pub(crate) fn set_place(&self, place: usize) {
        self.place.store(place, Ordering::Relaxed);
    }

    /// The shelf served a request.
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

    /// The shelf took a freed block.
    #[inline]
    pub(crate) fn put(&self, bytes: u64) {
        self.used.store(self.used.load(Ordering::Relaxed) - bytes as i64, Ordering::Relaxed);
    }
}
