//! Finds the allocation that an address lies in: one lookup for each word of a kernel's arguments.
//!
//! The simple version is an ordered map of ranges. Here the address space is cut into pieces (`pages`). A lookup takes
//! five loads and a comparison of bounds, however many allocations are live. A new allocation is put into at most 64
//! blocks and 128 grains, and into its whole pages. The few allocations that share a grain (small host memory) are in a
//! list. To look up many addresses, get all their numbers first ([`Index::number`]), so that the cache misses overlap.
//! An entry is half a cache line.
//!
//! Freed device memory keeps its addresses until something else is there, so that a use of it is recognised. A limited
//! number of frees is remembered. The host reuses addresses without a driver call: so freed host memory has no
//! addresses, and freed device memory keeps its addresses only until the host gets the range ([`Index::used`]). An
//! alloc node's memory keeps its addresses between launches. The index knows no order and no handle. Invariant
//! **one-live**: no byte is in two live entries.

mod entry;
mod grains;
mod pages;

use std::collections::VecDeque;

pub(crate) use entry::{Entry, Kind};
use grains::{Shared, clear, put};
use millpond_core::ids::AllocId;
use millpond_core::op::Memory;
use pages::{BLOCK, Block, GRAIN, NONE, PAGE, Page, Pages, SHARED, grain_bits, parts};
use rustc_hash::FxHashMap;

/// The number of frees that are remembered: as many as the checker remembers.
const FREED: usize = 1 << 16;

/// The index; see the module.
#[derive(Debug)]
pub(crate) struct Index {
    pages: Pages,
    /// The grains that several allocations lie in.
    shared: Shared,
    entries: Vec<Entry>,
    freed: VecDeque<u32>,
    vacant: Vec<u32>,
    low: u64,
    high: u64,
    live: usize,
    /// The number of live allocations that are memory of alloc nodes.
    nodes: usize,
    /// For a mapping in a range that the program made of several: the end of that range.
    joined: FxHashMap<u32, u64>,
}

impl Default for Index {
    fn default() -> Self {
        Self {
            pages: Pages::default(),
            shared: FxHashMap::default(),
            entries: Vec::new(),
            freed: VecDeque::new(),
            vacant: Vec::new(),
            low: u64::MAX,
            high: 0,
            live: 0,
            nodes: 0,
            joined: FxHashMap::default(),
        }
    }
}

impl Index {
    /// Returns the allocation, live or freed, that an address is in. If there are both, returns the live one.
    #[inline]
    pub(crate) fn find(&self, at: u64) -> Option<&Entry> {
        if self.may_have(at) { self.at(at, self.number(at)) } else { None }
    }

    /// Returns `false` if no allocation was ever at the address.
    #[inline]
    pub(crate) fn may_have(&self, at: u64) -> bool {
        (self.low <= at) & (at < self.high)
    }

    /// Returns the number for an address, which [`touched`](Self::touched) takes.
    #[inline(always)]
    pub(crate) fn number(&self, at: u64) -> u32 {
        self.pages.number(at)
    }

    #[inline]
    fn at(&self, at: u64, number: u32) -> Option<&Entry> {
        match number {
            NONE => None,
            SHARED => self.find_shared(at),
            number => self.entries.get(number as usize).filter(|entry| entry.is_at(at)),
        }
    }

    #[cold]
    fn find_shared(&self, at: u64) -> Option<&Entry> {
        let numbers = self.shared.get(&(at >> GRAIN))?;
        let here = numbers.iter().map(|number| &self.entries[*number as usize]);
        here.filter(|it| it.is_at(at)).max_by_key(|it| it.is_live)
    }

    /// Returns the entry of a number, if the number is an allocation's. The allocation need not be live.
    #[inline]
    pub(crate) fn by_number(&self, number: u32) -> Option<&Entry> {
        self.entries.get(number as usize)
    }

    /// Returns the address of a number's entry, for prefetching. It may point anywhere.
    #[inline]
    pub(crate) fn place_of(&self, number: u32) -> *const u8 {
        self.entries.as_ptr().wrapping_add(number as usize).cast()
    }

    /// Returns the allocation that work may use by this address. The end pointer of allocated memory does not count as
    /// an address of freed memory behind it.
    pub(crate) fn touched(&self, at: u64, number: u32) -> Option<&Entry> {
        let entry = self.at(at, number)?;
        let is_end =
            || at.checked_sub(1).and_then(|before| self.find(before)).is_some_and(|before| before.is_allocated);
        (entry.is_allocated || !is_end()).then_some(entry)
    }

    /// Returns the allocation that work uses by an address. `is_hosts` tells whether the address is host memory now. It
    /// is called only if the allocation is not allocated; if it returns `true`, that allocation is forgotten.
    pub(crate) fn used(&mut self, at: u64, is_hosts: impl Fn(u64) -> bool) -> Option<&Entry> {
        let is_free = |it: &Entry| !it.is_allocated;
        while let Some(memory) = self.find(at).filter(|it| is_free(it)).map(Entry::memory) {
            if !is_hosts(at) {
                break;
            }
            self.forget(memory);
        }
        self.find(at)
    }

    /// Returns the allocation that begins at an address.
    pub(crate) fn starting_at(&self, at: u64) -> Option<&Entry> {
        self.find(at).filter(|entry| entry.start == at)
    }

    /// Adds an allocation. Live allocations that it overlaps are passed to `displaced`: their frees were not seen.
    pub(crate) fn insert(
        &mut self,
        start: u64,
        bytes: u64,
        kind: Kind,
        home: u32,
        mut displaced: impl FnMut(Entry),
    ) -> Memory {
        let end = start.saturating_add(bytes.max(1));
        while let Some(old) = self.first_live_in(start, end) {
            let entry = self.entries[old as usize];
            self.bury(old);
            displaced(entry);
        }
        let (number, generation) = match self.vacant.pop() {
            Some(number) => (number, self.entries[number as usize].generation + 1),
            None => (self.entries.len() as u32, 0),
        };
        let (id, is_live, is_plain) = (AllocId(number), true, kind != Kind::Mapped);
        let entry = Entry { start, end, id, generation, kind, home, is_live, is_allocated: true, is_plain };
        match self.entries.get_mut(number as usize) {
            Some(place) => *place = entry,
            None => self.entries.push(entry),
        }
        (self.low, self.high) = (self.low.min(start), self.high.max(end));
        self.live += 1;
        self.nodes += usize::from(kind == Kind::Node);
        for page in start >> PAGE..=(end - 1) >> PAGE {
            self.put(page, number, entry);
        }
        entry.memory()
    }

    /// Ends an allocation.
    pub(crate) fn free(&mut self, memory: Memory) {
        if self.entry(memory).is_some_and(|entry| entry.is_live) {
            self.bury(memory.id.0);
        }
    }

    /// Forgets the memory of all alloc nodes. Returns `false` if there was none.
    pub(crate) fn forget_nodes(&mut self) -> bool {
        if self.nodes == 0 {
            return false;
        }
        let nodes: Vec<Memory> = self.living().filter(|it| it.kind == Kind::Node).map(Entry::memory).collect();
        nodes.into_iter().for_each(|memory| self.forget(memory));
        true
    }

    /// Forgets an allocation: nothing is at its addresses any more, not even freed memory.
    pub(crate) fn forget(&mut self, memory: Memory) {
        let Some(&Entry { kind, is_live, .. }) = self.entry(memory) else { return };
        if is_live {
            // Its number is never reused: for operations, its lifetime goes on.
            self.live -= 1;
            self.nodes -= usize::from(kind == Kind::Node);
            self.entries[memory.id.index()].set_live(false);
        }
        self.clear(memory.id.0);
    }

    /// Sets whether an alloc node's memory can be used: `true` from a launch on, `false` until the next one.
    pub(crate) fn set_allocated(&mut self, memory: Memory, is_allocated: bool) {
        if self.entry(memory).is_some_and(|entry| entry.is_live) {
            self.entries[memory.id.index()].set_allocated(is_allocated);
        }
    }

    /// Makes an allocation live again whose free was refused, unless another one lies there by now.
    pub(crate) fn revive(&mut self, memory: Memory) {
        let Some(Entry { start, end, .. }) = self.entry(memory).copied() else { return };
        let place = self.freed.iter().rposition(|number| *number == memory.id.0);
        if let (Some(place), None) = (place, self.first_live_in(start, end)) {
            self.freed.remove(place);
            self.entries[memory.id.index()].set_live(true);
            self.live += 1;
            self.nodes += usize::from(self.entries[memory.id.index()].kind == Kind::Node);
        }
    }

    /// Revives a mapping that is gone for a new one at exactly the same place, under the old name.
    pub(crate) fn map_again(&mut self, start: u64, bytes: u64) -> Option<Memory> {
        let is_gone = |it: &&Entry| !it.is_live && it.kind == Kind::Mapped && it.end - it.start == bytes;
        let memory = self.starting_at(start).filter(is_gone)?.memory();
        self.revive(memory);
        self.joined.remove(&memory.id.0);
        self.entries[memory.id.index()].is_live.then_some(memory)
    }

    /// Notes that the program treats the mappings in these bytes as one range.
    pub(crate) fn join(&mut self, start: u64, end: u64) {
        let mut at = start;
        while let Some(entry) = self.find(at).filter(|it| it.is_live && it.kind == Kind::Mapped && at < end) {
            let (id, behind) = (entry.id, entry.end);
            self.joined.insert(id.0, end.max(behind));
            at = behind;
        }
    }

    /// Returns the mappings that follow this one in its range.
    pub(crate) fn joined(&self, entry: &Entry) -> impl Iterator<Item = &Entry> {
        let end = self.joined.get(&entry.id.0).copied().unwrap_or(entry.end);
        let next = move |it: &&Entry| self.find(it.end).filter(|it| it.is_live && it.start < end);
        std::iter::successors(next(&entry), move |it| next(it))
    }

    /// Returns the entry of a name, if no newer allocation has its number.
    pub(crate) fn entry(&self, memory: Memory) -> Option<&Entry> {
        self.entries.get(memory.id.index()).filter(|entry| entry.memory() == memory)
    }

    /// Returns the newest entry of a number.
    #[inline]
    pub(crate) fn latest(&self, id: AllocId) -> Option<&Entry> {
        self.entries.get(id.index()).filter(|entry| entry.end > 0)
    }

    /// Returns all live entries.
    pub(crate) fn living(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.is_live)
    }

    /// Returns the number of live entries.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// Returns a name that no allocation ever has, for memory that was never allocated.
    pub(crate) fn unused_name(&mut self) -> Memory {
        let number = self.entries.len() as u32;
        let (id, kind) = (AllocId(number), Kind::Device);
        let (is_live, is_allocated, is_plain) = (false, false, false);
        let none = Entry { start: 0, end: 0, id, generation: 0, kind, home: 0, is_live, is_allocated, is_plain };
        self.entries.push(none);
        none.memory()
    }

    /// Returns the first live entry with a byte in a range.
    fn first_live_in(&self, start: u64, end: u64) -> Option<u32> {
        let overlaps = |number: u32| {
            let entry = self.entries.get(number as usize)?;
            (entry.is_live && entry.start < end && start < entry.end).then_some(number)
        };
        let in_grain = |at: u64, number: u32| match number {
            NONE => None,
            SHARED => self.shared.get(&(at >> GRAIN))?.iter().find_map(|number| overlaps(*number)),
            number => overlaps(number),
        };
        let in_block = |base: u64, block: &Block| match block {
            Block::Whole(NONE) => None,
            Block::Whole(number) => overlaps(*number),
            Block::Grains(grains) => {
                let bits = grain_bits(grains);
                parts(base, BLOCK, bits, start, end).find_map(|at| in_grain(base + ((at as u64) << bits), grains[at]))
            }
        };
        (start >> PAGE..=(end - 1) >> PAGE).find_map(|page| match self.pages.page(page)? {
            Page::Whole(NONE) => None,
            Page::Whole(number) => overlaps(*number),
            Page::Blocks(blocks) => {
                let base = page << PAGE;
                parts(base, PAGE, BLOCK, start, end).find_map(|at| in_block(base + ((at as u64) << BLOCK), &blocks[at]))
            }
        })
    }

    /// Puts an entry into a page.
    fn put(&mut self, page: u64, number: u32, entry: Entry) {
        let (base, place) = (page << PAGE, self.pages.page_mut(page));
        if entry.has_all(base, PAGE) {
            *place = Page::Whole(number);
            return;
        }
        if let Page::Whole(old) = *place {
            *place = Page::Blocks(Box::new(std::array::from_fn(|_| Block::Whole(old))));
        }
        let Page::Blocks(blocks) = place else { return };
        for at in parts(base, PAGE, BLOCK, entry.start, entry.end) {
            let (block, base) = (&mut blocks[at], base + ((at as u64) << BLOCK));
            match entry.has_all(base, BLOCK) {
                true => *block = Block::Whole(number),
                false => put(&mut self.shared, &self.entries, base, block, &entry),
            }
        }
    }

    /// Marks an entry as freed. Beyond the limit, the oldest freed entry is forgotten.
    fn bury(&mut self, number: u32) {
        let entry = &mut self.entries[number as usize];
        entry.set_live(false);
        self.live -= 1;
        self.nodes -= usize::from(entry.kind == Kind::Node);
        self.freed.push_back(number);
        if self.freed.len() > FREED
            && let Some(oldest) = self.freed.pop_front()
        {
            self.clear(oldest);
            if self.entries[oldest as usize].generation < u32::MAX {
                self.vacant.push(oldest);
            }
        }
    }

    /// Removes an entry from all pages.
    fn clear(&mut self, number: u32) {
        let Entry { start, end, .. } = self.entries[number as usize];
        for page in start >> PAGE..=(end - 1) >> PAGE {
            let base = page << PAGE;
            match self.pages.page_mut(page) {
                Page::Whole(it) if *it == number => *it = NONE,
                Page::Blocks(blocks) => {
                    for at in parts(base, PAGE, BLOCK, start, end) {
                        clear(&mut self.shared, base + ((at as u64) << BLOCK), &mut blocks[at], number, (start, end));
                    }
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
