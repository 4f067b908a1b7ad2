//! The space of addresses, cut into pages, blocks and grains: which number each has.
//!
//! A page of 2 MiB is found by two loads from tables (a hash beyond the 47 bits of a process's own addresses). One that
//! several allocations are in is cut into blocks of 32 KiB, and a block into grains of 512 bytes, the least that CUDA's
//! device allocations lie apart. Knows numbers only.

use std::ops::RangeInclusive;

use rustc_hash::FxHashMap;

pub(super) const PAGE: u64 = 21;
pub(super) const BLOCK: u64 = 15;
pub(super) const GRAIN: u64 = 9;
/// So many blocks has a page, and so many grains a block.
pub(super) const CUT: usize = 64;
/// No allocation's.
pub(super) const NONE: u32 = u32::MAX;
/// Of several allocations.
pub(super) const SHARED: u32 = u32::MAX - 1;

/// So many bits of a page's number choose in each of the two tables.
const TABLE: u64 = 13;

#[derive(Clone, Debug)]
pub(super) enum Page {
    /// All of it is one allocation's, or none's.
    Whole(u32),
    Blocks(Box<[Block; CUT]>),
}

#[derive(Clone, Debug)]
pub(super) enum Block {
    /// All of it is one allocation's, or none's.
    Whole(u32),
    Grains(Box<[u32; CUT]>),
}

/// Which of the parts of so many bytes in `base` and behind it a range has bytes of.
pub(super) fn parts(base: u64, bits: u64, start: u64, end: u64) -> RangeInclusive<usize> {
    let part = |at: u64| ((at.clamp(base, base + (((CUT as u64) << bits) - 1)) - base) >> bits) as usize;
    part(start)..=part(end - 1)
}

/// All pages.
#[derive(Debug)]
pub(super) struct Pages {
    near: Box<[Option<Box<[Page]>>]>,
    far: FxHashMap<u64, Page>,
}

impl Default for Pages {
    fn default() -> Self {
        Self { near: vec![None; 1 << TABLE].into(), far: FxHashMap::default() }
    }
}

impl Pages {
    #[inline]
    pub(super) fn page(&self, page: u64) -> Option<&Page> {
        match self.near.get((page >> TABLE) as usize) {
            Some(table) => Some(&table.as_ref()?[page as usize & ((1 << TABLE) - 1)]),
            None => self.far.get(&page),
        }
    }

    /// A page that something is put into.
    pub(super) fn page_mut(&mut self, page: u64) -> &mut Page {
        match self.near.get_mut((page >> TABLE) as usize) {
            Some(table) => {
                let table = table.get_or_insert_with(|| vec![Page::Whole(NONE); 1 << TABLE].into());
                &mut table[page as usize & ((1 << TABLE) - 1)]
            }
            None => self.far.entry(page).or_insert(Page::Whole(NONE)),
        }
    }

    /// Where the number of an address is kept.
    #[inline]
    pub(super) fn number(&self, at: u64) -> &u32 {
        match self.page(at >> PAGE) {
            None => &NONE,
            Some(Page::Whole(number)) => number,
            Some(Page::Blocks(blocks)) => match &blocks[(at >> BLOCK) as usize & (CUT - 1)] {
                Block::Whole(number) => number,
                Block::Grains(grains) => &grains[(at >> GRAIN) as usize & (CUT - 1)],
            },
        }
    }
}
