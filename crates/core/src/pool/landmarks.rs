//! Which block an address is in.
//!
//! The simple version is a sorted map from start to block. Departure: the range is cut into sections of 128 grains; a
//! table names the first block that starts in each, and a bitmap of three levels finds the last section at or below an
//! address that has one. From there the way to the block is at most 128 neighbours. Keeping it costs a few ns a block
//! made or merged, where the map would cost a hundred.
//!
//! Invariant LANDMARKS: a section names the lowest block that starts in it; a bit is set exactly where one does.

use super::block::{Blocks, NONE};

/// Grains a section, as a power of two.
const SECTION: u32 = 7;

/// The table of sections.
#[derive(Debug)]
pub(super) struct Landmarks {
    base: u64,
    shift: u32,
    first: Vec<u32>,
    /// Level 0 has a bit a section; a bit of a level above says that a word below is not zero.
    levels: [Vec<u64>; 4],
}

impl Landmarks {
    pub(super) fn new(base: u64, grain_shift: u32) -> Self {
        Self { base, shift: grain_shift + SECTION, first: Vec::new(), levels: Default::default() }
    }

    #[inline]
    fn section(&self, address: u64) -> usize {
        ((address - self.base) >> self.shift) as usize
    }

    /// A block starts here now.
    #[inline]
    pub(super) fn insert(&mut self, blocks: &Blocks, id: u32) {
        let start = blocks[id].start;
        let section = self.section(start);
        if section >= self.first.len() {
            self.reach(section);
        }
        let first = self.first[section];
        if first == NONE {
            self.set(section);
        } else if blocks[first].start <= start {
            return;
        }
        self.first[section] = id;
    }

    /// No block starts at `start` any more, where `id` did; `next` is the block that starts after it.
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
            self.clear(section);
        }
    }

    /// The block that `address`, of the pool's range, is in.
    pub(super) fn locate(&self, blocks: &Blocks, address: u64) -> u32 {
        let section = self.section(address).min(self.first.len() - 1);
        let mut id = self.first[section];
        if id == NONE || blocks[id].start > address {
            let before = self.set_before(section).expect("PARTITION: a block starts at the range's first address");
            id = self.first[before];
        }
        while blocks[id].end() <= address {
            id = blocks[id].above;
        }
        id
    }

    #[cold]
    fn reach(&mut self, section: usize) {
        self.first.resize(section + 1, NONE);
        let mut bits = section;
        for level in &mut self.levels {
            bits >>= 6;
            if level.len() <= bits {
                level.resize(bits + 1, 0);
            }
        }
    }

    #[inline]
    fn set(&mut self, section: usize) {
        let mut bit = section;
        for level in &mut self.levels {
            let word = &mut level[bit >> 6];
            let was = std::mem::replace(word, *word | 1 << (bit & 63));
            if was != 0 {
                return;
            }
            bit >>= 6;
        }
    }

    #[inline]
    fn clear(&mut self, section: usize) {
        let mut bit = section;
        for level in &mut self.levels {
            let word = &mut level[bit >> 6];
            *word &= !(1 << (bit & 63));
            if *word != 0 {
                return;
            }
            bit >>= 6;
        }
    }

    /// The last section before `section` in which a block starts.
    fn set_before(&self, section: usize) -> Option<usize> {
        let mut bit = section;
        for (height, level) in self.levels.iter().enumerate() {
            let word = level[bit >> 6] & ((1 << (bit & 63)) - 1);
            if word != 0 {
                let mut found = (bit & !63) + word.ilog2() as usize;
                for below in self.levels[..height].iter().rev() {
                    found = (found << 6) + below[found].ilog2() as usize;
                }
                return Some(found);
            }
            bit >>= 6;
        }
        // Above the last level the words are looked through: 2^24 sections a word, so there are few.
        let last = self.levels.last().expect("there are four levels");
        let word = (0..bit.min(last.len())).rev().find(|&word| last[word] != 0)?;
        let mut found = (word << 6) + last[word].ilog2() as usize;
        for below in self.levels[..3].iter().rev() {
            found = (found << 6) + below[found].ilog2() as usize;
        }
        Some(found)
    }

    /// Checks LANDMARKS against the blocks, given in the order of addresses.
    pub(super) fn audit(&self, blocks: &Blocks, ids: &[u32]) -> Result<(), String> {
        let mut expected = vec![NONE; self.first.len()];
        for &id in ids.iter().rev() {
            expected[self.section(blocks[id].start)] = id;
        }
        if expected != self.first {
            return Err("LANDMARKS: a section does not name its lowest block".into());
        }
        let bits = |section: usize| self.levels[0][section >> 6] >> (section & 63) & 1 == 1;
        if (0..expected.len()).any(|section| bits(section) != (expected[section] != NONE)) {
            return Err("LANDMARKS: a bit is wrong".into());
        }
        Ok(())
    }
}
