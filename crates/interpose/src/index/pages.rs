//! The space of addresses, cut into pages, blocks and grains: which number each has.
//!
//! A page of 2 MiB is found by two loads from tables (a hash beyond the 47 bits of a process's own addresses). One that
//! several allocations are in is cut into blocks of 32 KiB, and a block into as few grains as keep its allocations
//! apart: what lies far apart takes little memory here, so that the answers for many allocations stay in the cache. The
//! least grain has 512 bytes, as CUDA's device allocations lie apart. Knows numbers only.

use std::ops::RangeInclusive;

use rustc_hash::FxHashMap;

pub(super) const PAGE: u64 = 21;
pub(super) const BLOCK: u64 = 15;
pub(super) const GRAIN: u64 = 9;
/// So many blocks has a page.
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
    /// Of equal size; how many they are is a power of two.
    Grains(Box<[u32]>),
}

/// How many bits the addresses of a grain have, where a block has so many of them.
#[inline]
pub(super) fn grain_bits(grains: &[u32]) -> u64 {
    BLOCK - u64::from(grains.len().trailing_zeros())
}

/// Which of the parts of so many bytes in `base` and behind it a range has bytes of. It has some of them all, which
/// have `all` bits.
pub(super) fn parts(base: u64, all: u64, bits: u64, start: u64, end: u64) -> RangeInclusive<usize> {
    let part = |at: u64| ((at.clamp(base, base + ((1 << all) - 1)) - base) >> bits) as usize;
    part(start)..=part(end - 1)
}

type Table = Box<[Page; 1 << TABLE]>;

/// A table of nothing, made where it stays: it is too large for a stack.
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

    /// A page that something is put into.
    pub(super) fn page_mut(&mut self, page: u64) -> &mut Page {
        match self.near.get_mut((page >> TABLE) as usize) {
            Some(table) => {
                let table = table.get_or_insert_with(|| self::table(Page::Whole(NONE)));
                &mut table[page as usize & ((1 << TABLE) - 1)]
            }
            None => self.far.entry(page).or_insert(Page::Whole(NONE)),
        }
    }

    /// The number of an address.
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
