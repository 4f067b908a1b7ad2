//! Free blocks by size, with search in constant time.
//!
//! The simple version is a sorted set of (size, address): best fit in logarithmic time. This version is different:
//! sizes fall into bins, sixteen for each doubling, and two levels of bitmaps give the next bin that is not empty, so
//! that the time does not depend on the number of free blocks. Textbook good fit then takes any block of the next bin
//! up, and misses a block that fits exactly in the request's own bin, which wastes 10 to 57 % on deep learning
//! programs. So up to [`LOOK`] blocks of a bin are looked at, beginning with the request's own bin, and the smallest
//! that fits is taken.
//!
//! Depends on sizes in grains and links of blocks; on nothing about streams or memory.
//!
//! Invariant BINS: each block is in the bin of its size, once; a bit is set exactly if its bin has blocks.

use super::block::{Blocks, NONE};

/// The number of blocks of one bin that a search looks at.
const LOOK: usize = 8;
/// The number of bins for each doubling, as a power of two.
const FINE: u32 = 4;
const PER_DOUBLING: usize = 1 << FINE;
/// The number of doublings of sizes in grains: enough for 2^52 grains.
const DOUBLINGS: usize = 50;

/// One index of free blocks.
#[derive(Clone, Debug)]
pub(super) struct Bins {
    /// A bit for each doubling: set if one of its bins is not empty.
    coarse: u64,
    /// A bit for each bin of each doubling: set if the bin is not empty.
    fine: [u16; DOUBLINGS],
    grain_shift: u32,
    /// The first block of each bin.
    heads: [u32; DOUBLINGS * PER_DOUBLING],
}

impl Bins {
    pub(super) fn new(grain_shift: u32) -> Self {
        Self { coarse: 0, fine: [0; DOUBLINGS], grain_shift, heads: [NONE; DOUBLINGS * PER_DOUBLING] }
    }

    /// Returns the bin of a size: one for each of the small sizes, then sixteen for each doubling.
    #[inline]
    fn bin(&self, bytes: u64) -> usize {
        let grains = bytes >> self.grain_shift;
        if grains < PER_DOUBLING as u64 {
            return grains as usize;
        }
        let doubling = grains.ilog2() - FINE;
        ((doubling as usize) << FINE) + (grains >> doubling) as usize
    }

    #[inline]
    pub(super) fn insert(&mut self, blocks: &mut Blocks, id: u32) {
        let bin = self.bin(blocks[id].bytes);
        let next = std::mem::replace(&mut self.heads[bin], id);
        if next != NONE {
            blocks[next].bin_prev = id;
        }
        let block = &mut blocks[id];
        (block.bin_prev, block.bin_next) = (NONE, next);
        self.fine[bin >> FINE] |= 1 << (bin & (PER_DOUBLING - 1));
        self.coarse |= 1 << (bin >> FINE);
    }

    #[inline]
    pub(super) fn remove(&mut self, blocks: &mut Blocks, id: u32) {
        let block = &blocks[id];
        let (prev, next) = (block.bin_prev, block.bin_next);
        if next != NONE {
            blocks[next].bin_prev = prev;
        }
        if prev != NONE {
            blocks[prev].bin_next = next;
            return;
        }
        let bin = self.bin(blocks[id].bytes);
        debug_assert_eq!(self.heads[bin], id, "BINS: the first of a bin is its head");
        self.heads[bin] = next;
        if next == NONE {
            let fine = &mut self.fine[bin >> FINE];
            *fine &= !(1 << (bin & (PER_DOUBLING - 1)));
            if *fine == 0 {
                self.coarse &= !(1 << (bin >> FINE));
            }
        }
    }

    /// Returns the smallest of up to [`LOOK`] blocks of `bytes` or more in the request's own bin, or else in the next
    /// bin up that is not empty.
    #[inline]
    pub(super) fn find(&self, blocks: &Blocks, bytes: u64) -> Option<u32> {
        if self.coarse == 0 {
            return None;
        }
        let own = self.bin(bytes);
        if let Some(id) = self.smallest(blocks, own, bytes) {
            return Some(id);
        }
        self.smallest(blocks, self.next_bin(own + 1)?, bytes)
    }

    /// Looks at up to `looks` blocks, from small bins to large, and returns the first of `bytes` or more that is
    /// `good`.
    pub(super) fn find_where(
        &self,
        blocks: &Blocks,
        bytes: u64,
        mut looks: usize,
        good: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let mut bin = self.next_bin(self.bin(bytes));
        while let Some(at) = bin {
            let mut id = self.heads[at];
            while id != NONE {
                looks = looks.checked_sub(1)?;
                if blocks[id].bytes >= bytes && good(id) {
                    return Some(id);
                }
                id = blocks[id].bin_next;
            }
            bin = self.next_bin(at + 1);
        }
        None
    }

    /// Returns the blocks from the bin of `bytes` on, from small bins to large.
    pub(super) fn from<'a>(&'a self, blocks: &'a Blocks, bytes: u64) -> impl Iterator<Item = u32> + 'a {
        let mut bin = self.next_bin(self.bin(bytes));
        let mut id = bin.map_or(NONE, |at| self.heads[at]);
        std::iter::from_fn(move || {
            while id == NONE {
                bin = self.next_bin(bin? + 1);
                id = self.heads[bin?];
            }
            let found = id;
            id = blocks[id].bin_next;
            Some(found)
        })
    }

    /// Returns the blocks below the bin of `bytes`, from large bins to small.
    pub(super) fn below<'a>(&'a self, blocks: &'a Blocks, bytes: u64) -> impl Iterator<Item = u32> + 'a {
        let mut bin = self.bin(bytes);
        let mut id = NONE;
        std::iter::from_fn(move || {
            while id == NONE {
                bin = self.bin_before(bin)?;
                id = self.heads[bin];
            }
            let found = id;
            id = blocks[id].bin_next;
            Some(found)
        })
    }

    /// Returns the largest of the first [`LOOK`] blocks of the largest bin.
    pub(super) fn largest(&self, blocks: &Blocks) -> Option<u32> {
        let bin = self.bin_before(DOUBLINGS * PER_DOUBLING)?;
        let mut id = self.heads[bin];
        let mut best = id;
        for _ in 0..LOOK {
            if id == NONE {
                break;
            }
            if blocks[id].bytes > blocks[best].bytes {
                best = id;
            }
            id = blocks[id].bin_next;
        }
        Some(best)
    }

    #[inline]
    fn smallest(&self, blocks: &Blocks, bin: usize, bytes: u64) -> Option<u32> {
        let mut id = self.heads[bin];
        let (mut best, mut least) = (None, u64::MAX);
        for _ in 0..LOOK {
            if id == NONE {
                break;
            }
            let block = &blocks[id];
            if block.bytes >= bytes && block.bytes < least {
                (best, least) = (Some(id), block.bytes);
                if least == bytes {
                    break;
                }
            }
            id = block.bin_next;
        }
        best
    }

    #[inline]
    fn next_bin(&self, from: usize) -> Option<usize> {
        let doubling = from >> FINE;
        let fine = self.fine.get(doubling)? & (u16::MAX << (from & (PER_DOUBLING - 1)));
        if fine != 0 {
            return Some((doubling << FINE) + fine.trailing_zeros() as usize);
        }
        let coarse = self.coarse & (u64::MAX << 1 << doubling);
        if coarse == 0 {
            return None;
        }
        let doubling = coarse.trailing_zeros() as usize;
        Some((doubling << FINE) + self.fine[doubling].trailing_zeros() as usize)
    }

    fn bin_before(&self, before: usize) -> Option<usize> {
        let doubling = before >> FINE;
        let mask = (1u32 << (before & (PER_DOUBLING - 1))) - 1;
        let fine = self.fine.get(doubling).map_or(0, |&fine| u32::from(fine) & mask);
        if fine != 0 {
            return Some((doubling << FINE) + fine.ilog2() as usize);
        }
        let coarse = self.coarse & ((1u64 << doubling) - 1);
        if coarse == 0 {
            return None;
        }
        let doubling = coarse.ilog2() as usize;
        Some((doubling << FINE) + self.fine[doubling].ilog2() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::super::block::State;
    use super::*;
    use crate::units::Range;

    /// Blocks of these sizes in grains, all in one index.
    fn filled(sizes: &[u64]) -> (Blocks, Bins) {
        let mut blocks = Blocks::new(Range::new(0, 1 << 40));
        let mut bins = Bins::new(9);
        for &size in sizes {
            let id = blocks.cut_low(0, size << 9, State::Free);
            bins.insert(&mut blocks, id);
        }
        (blocks, bins)
    }

    #[test]
    fn an_exact_fit_in_the_own_bin_is_taken() {
        let (blocks, bins) = filled(&[1001, 1000, 1003, 1200]);
        let found = |grains: u64| bins.find(&blocks, grains << 9).map(|id| blocks[id].bytes >> 9);
        assert_eq!(found(1000), Some(1000));
        assert_eq!(found(1002), Some(1003));
        assert_eq!(found(1004), Some(1200));
        assert_eq!(found(1201), None);
        assert!(found(3).is_some_and(|grains| grains >= 1000));
    }

    #[test]
    fn bins_are_distinct_up_to_the_largest_sizes() {
        let bins = Bins::new(9);
        let mut last = 0;
        for doubling in 0..52 {
            for part in 0..16u64 {
                let grains = ((16 + part) << doubling) >> 4;
                let bin = bins.bin(grains << 9);
                assert!(bin >= last && bin < DOUBLINGS * PER_DOUBLING, "{grains} grains in bin {bin}");
                last = bin;
            }
        }
    }

    #[test]
    fn removing_all_leaves_no_bit() {
        let sizes = [1, 15, 16, 17, 31, 32, 100, 1 << 20, 100];
        let (mut blocks, mut bins) = filled(&sizes);
        let mut seen: Vec<u32> = bins.from(&blocks, 0).collect();
        assert_eq!(seen.len(), sizes.len());
        let mut down: Vec<u32> = bins.below(&blocks, 1 << 35).collect();
        down.sort_unstable();
        seen.sort_unstable();
        assert_eq!(seen, down);
        assert_eq!(blocks[bins.largest(&blocks).unwrap()].bytes >> 9, 1 << 20);
        for id in seen {
            bins.remove(&mut blocks, id);
        }
        assert!(bins.coarse == 0 && bins.fine.iter().all(|&bits| bits == 0));
    }
}
