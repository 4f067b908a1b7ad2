//! Finds the block that contains an address.
//!
//! The simple version is a sorted map from start to block. This version divides the range into sections of 512
//! grains. A table has the first block that starts in each section, and a bitmap, searched by words, gives the last
//! section at or below an address in which a block starts: a word covers 16 MiB of addresses. From there at most 512
//! neighbours are walked. An update costs a few ns for each block made or merged; with the map it would cost a
//! hundred.
//!
//! Invariant LANDMARKS: a section's entry is the lowest block that starts in it; its bit is set exactly if there is
//! one.

use super::block::{Blocks, NONE};

/// The number of grains in a section, as a power of two.
const SECTION: u32 = 9;

/// The sections and the blocks that start in them.
#[derive(Debug)]
pub(super) struct Landmarks {
    base: u64,
    shift: u32,
    first: Vec<u32>,
    /// A bit for each section: set if a block starts in it.
    starts: Vec<u64>,
}

impl Landmarks {
    pub(super) fn new(base: u64, grain_shift: u32) -> Self {
        Self { base, shift: grain_shift + SECTION, first: Vec::new(), starts: Vec::new() }
    }

    #[inline]
    fn section(&self, address: u64) -> usize {
        ((address - self.base) >> self.shift) as usize
    }

    /// Adds a block that starts here now.
    #[inline]
    pub(super) fn insert(&mut self, blocks: &Blocks, id: u32) {
        let start = blocks[id].start;
        let section = self.section(start);
        if section >= self.first.len() {
            self.reach(section);
        }
        let first = self.first[section];
        if first == NONE {
            self.starts[section >> 6] |= 1 << (section & 63);
        } else if blocks[first].start <= start {
            return;
        }
        self.first[section] = id;
    }

    /// Removes block `id`, which started at `start`. `next` is the block that starts after it.
    #[inline]
    pub(super) fn remove(&mut self, blocks: &Blocks, id: u32, start: u64, next: u32) {
        let section = self.section(start);
        if self.first[section] != id {
            return;
        }
        if next != NONE && self.section(blocks[next].start) == section {
            self.first[section] = next;
        } else {
            self.first[section] = NONE;
            self.starts[section >> 6] &= !(1 << (section & 63));
        }
    }

    /// Returns the block that contains `address`, which lies in the pool's range.
    pub(super) fn locate(&self, blocks: &Blocks, address: u64) -> u32 {
        let section = self.section(address).min(self.first.len() - 1);
        let mut id = self.first[section];
        if id == NONE || blocks[id].start > address {
            let before = self.start_before(section).expect("PARTITION: a block starts at the range's first address");
            id = self.first[before];
        }
        while blocks[id].end() <= address {
            id = blocks[id].above;
        }
        id
    }

    /// Records that `new` starts where `old` did.
    #[inline]
    pub(super) fn replace(&mut self, start: u64, old: u32, new: u32) {
        let section = self.section(start);
        if self.first[section] == old {
            self.first[section] = new;
        }
    }

    #[cold]
    fn reach(&mut self, section: usize) {
        self.first.resize(section + 1, NONE);
        self.starts.resize((section >> 6) + 1, 0);
    }

    /// Returns the last section before `section` in which a block starts.
    fn start_before(&self, section: usize) -> Option<usize> {
        let word = section >> 6;
        let bits = |at: usize, mask: u64| Some(self.starts[at] & mask).filter(|&bits| bits != 0).map(|bits| (at, bits));
        let own = bits(word, (1 << (section & 63)) - 1);
        let (at, bits) = own.or_else(|| (0..word).rev().find_map(|at| bits(at, u64::MAX)))?;
        Some((at << 6) + bits.ilog2() as usize)
    }

    /// Checks LANDMARKS against the blocks, given in ascending order.
    pub(super) fn audit(&self, blocks: &Blocks, ids: &[u32]) -> Result<(), String> {
        let mut expected = vec![NONE; self.first.len()];
        for &id in ids.iter().rev() {
            expected[self.section(blocks[id].start)] = id;
        }
        if expected != self.first {
            return Err("LANDMARKS: a section does not name its lowest block".into());
        }
        let bits = |section: usize| self.starts[section >> 6] >> (section & 63) & 1 == 1;
        if (0..expected.len()).any(|section| bits(section) != (expected[section] != NONE)) {
            return Err("LANDMARKS: a bit is wrong".into());
        }
        Ok(())
    }
}
