//! The address space, cut into pages, blocks and grains, with the number of each.
//!
//! A page of 2 MiB is found by two loads from tables (by a hash beyond the 47 bits of a process's own addresses). A
//! page with several allocations is cut into blocks of 32 KiB, and a block into the fewest grains that separate its
//! allocations. Allocations that lie far apart take little memory here, so that the entries of many allocations stay in
//! the cache. The smallest grain has 512 bytes, because CUDA's device allocations are aligned to that. This module
//! knows only numbers.

use std::ops::RangeInclusive;

use rustc_hash::FxHashMap;

pub(super) const PAGE: u64 = 21;
pub(super) const BLOCK: u64 = 15;
pub(super) const GRAIN: u64 = 9;
/// The number of blocks in a page.
pub(super) const CUT: usize = 64;
/// The number of no allocation.
pub(super) const NONE: u32 = u32::MAX;
/// The number of a piece that several allocations share.
pub(super) const SHARED: u32 = u32::MAX - 1;

/// The number of bits of a page's index that each of the two tables takes.
const TABLE: u64 = 13;

#[derive(Clone, Debug)]
pub(super) enum Page {
    /// One allocation has all of it, or none does.
    Whole(u32),
    Blocks(Box<[Block; CUT]>),
}

#[derive(Clone, Debug)]
pub(super) enum Block {
    /// One allocation has all of it, or none does.
    Whole(u32),
    /// Grains of equal size. Their number is a power of two.
    Grains(Box<[u32]>),
}

/// Returns the log2 of a grain's size, for a block with these grains.
#[inline]
pub(super) fn grain_bits(grains: &[u32]) -> u64 {
    BLOCK - u64::from(grains.len().trailing_zeros())
}

/// Returns the indices of the parts that a range overlaps. The parts have `1 << bits` bytes each, and together make up
/// the `1 << all` bytes at `base`. The range must overlap at least one.
pub(super) fn parts(base: u64, all: u64, bits: u64, start: u64, end: u64) -> RangeInclusive<usize> {
    let part = |at: u64| ((at.clamp(base, base + ((1 << all) - 1)) - base) >> bits) as usize;
    part(start)..=part(end - 1)
}

type Table = Box<[Page; 1 << TABLE]>;

/// Makes a table of equal entries, directly on the heap: it is too large for the stack.
fn table<T: Clone>(of: T) -> Box<[T; 1 << TABLE]> {
    let Ok(table) = vec![of; 1 << TABLE].into_boxed_slice().try_into() else { unreachable!("it has so many") };
    table
}

/// All pages.
#[derive(Debug)]
pub(super) struct Pages {
    near: Box<[Option<Table>; 1 << TABLE]>,
    far: FxHashMap<u64, Page>,
}

impl Default for Pages {
    fn default() -> Self {
        Self { near: table(None), far: FxHashMap::default() }
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

    /// Returns a page to put something into.
    pub(super) fn page_mut(&mut self, page: u64) -> &mut Page {
        match self.near.get_mut((page >> TABLE) as usize) {
            Some(table) => {
                let table = table.get_or_insert_with(|| self::table(Page::Whole(NONE)));
                &mut table[page as usize & ((1 << TABLE) - 1)]
            }
            None => self.far.entry(page).or_insert(Page::Whole(NONE)),
        }
    }

    /// Returns the number for an address.
    #[inline(always)]
    pub(super) fn number(&self, at: u64) -> u32 {
        match self.page(at >> PAGE) {
            None => NONE,
            Some(Page::Whole(number)) => *number,
            Some(Page::Blocks(blocks)) => match &blocks[(at >> BLOCK) as usize & (CUT - 1)] {
                Block::Whole(number) => *number,
                Block::Grains(grains) => grains[(at >> grain_bits(grains)) as usize & (grains.len() - 1)],
            },
        }
    }
}
