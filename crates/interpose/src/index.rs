//! Which allocation an address lies in: one question for each word of a kernel's arguments.
//!
//! The simple version is an ordered map of ranges. Here the space of addresses is cut (`pages`): an answer takes five
//! loads and a comparison of bounds, whatever number is live, and a new allocation is put into 64 blocks and 128 grains
//! at most, and its whole pages. The few allocations that share a grain (small host memory) are listed. Who asks for
//! many addresses asks for all numbers first ([`Index::number`]): those loads wait for memory together. What an answer
//! takes is half a line of memory.
//!
//! Memory of a device that was freed keeps its place until something else is there, so that a use of it is known for
//! what it is; so many frees are remembered. Addresses of the host come back without a call of the driver's: freed
//! memory has none there, and one of a device only while the host has not got its range ([`Index::used`]). Memory of an
//! alloc node keeps its place between its lives. Knows no order and no handle. Invariant **one-live**: no byte is in
//! two live entries.

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

/// How many frees are remembered: as many as the checker remembers.
const FREED: usize = 1 << 16;

/// The index: see the module.
#[derive(Debug)]
pub(crate) struct Index {
    pages: Pages,
    /// Grains that several allocations are in.
    shared: Shared,
    entries: Vec<Entry>,
    freed: VecDeque<u32>,
    vacant: Vec<u32>,
    low: u64,
    high: u64,
    live: usize,
    /// How many of them are alloc nodes' memory.
    nodes: usize,
    /// Of a mapping: the end of the range that it is in to the program, where it is in one.
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
    /// The allocation that an address is in, live or freed; the live one where both are.
    #[inline]
    pub(crate) fn find(&self, at: u64) -> Option<&Entry> {
        if self.may_have(at) { self.at(at, self.number(at)) } else { None }
    }

    /// Whether an address is among those that anything was ever at.
    #[inline]
    pub(crate) fn may_have(&self, at: u64) -> bool {
        (self.low <= at) & (at < self.high)
    }

    /// Where it is kept what [`touched`](Self::touched) wants to know of an address.
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

    /// What a number stands for, where that is an allocation; what is there need not be live.
    #[inline]
    pub(crate) fn by_number(&self, number: u32) -> Option<&Entry> {
        self.entries.get(number as usize)
    }

    /// Where the answer for a number is kept: for who asks the processor for it ahead. It may point anywhere.
    #[inline]
    pub(crate) fn place_of(&self, number: u32) -> *const u8 {
        self.entries.as_ptr().wrapping_add(number as usize).cast()
    }

    /// An address that work may use. A pointer one past the end of memory is none to what was freed behind it.
    pub(crate) fn touched(&self, at: u64, number: u32) -> Option<&Entry> {
        let entry = self.at(at, number)?;
        let is_end =
            || at.checked_sub(1).and_then(|before| self.find(before)).is_some_and(|before| before.is_allocated);
        (entry.is_allocated || !is_end()).then_some(entry)
    }

    /// The allocation that work uses by an address. `is_hosts` says whether the host has the address: it is asked where
    /// the allocation is freed, which is forgotten then.
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

    /// The allocation that begins at an address.
    pub(crate) fn starting_at(&self, at: u64) -> Option<&Entry> {
        self.find(at).filter(|entry| entry.start == at)
    }

    /// Adds an allocation; those that it takes the place of are handed to `displaced`: their frees were not seen.
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

    /// An allocation ends.
    pub(crate) fn free(&mut self, memory: Memory) {
        if self.entry(memory).is_some_and(|entry| entry.is_live) {
            self.bury(memory.id.0);
        }
    }

    /// The memory of alloc nodes is not known any more: whether there was any.
    pub(crate) fn forget_nodes(&mut self) -> bool {
        if self.nodes == 0 {
            return false;
        }
        let nodes: Vec<Memory> = self.living().filter(|it| it.kind == Kind::Node).map(Entry::memory).collect();
        nodes.into_iter().for_each(|memory| self.forget(memory));
        true
    }

    /// Nothing is at the addresses of an allocation any more, not even a freed one.
    pub(crate) fn forget(&mut self, memory: Memory) {
        let Some(&Entry { kind, is_live, .. }) = self.entry(memory) else { return };
        if is_live {
            // Its number is never given out again: it has a life that goes on, as far as operations say.
            self.live -= 1;
            self.nodes -= usize::from(kind == Kind::Node);
            self.entries[memory.id.index()].set_live(false);
        }
        self.clear(memory.id.0);
    }

    /// Memory of an alloc node can be used from now on, or not until its next launch.
    pub(crate) fn set_allocated(&mut self, memory: Memory, is_allocated: bool) {
        if self.entry(memory).is_some_and(|entry| entry.is_live) {
            self.entries[memory.id.index()].set_allocated(is_allocated);
        }
    }

    /// An allocation lives on, for its free was refused. Where another lies there by now it does not.
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

    /// A mapping at the very place of one that is gone: it has that one's name.
    pub(crate) fn map_again(&mut self, start: u64, bytes: u64) -> Option<Memory> {
        let is_gone = |it: &&Entry| !it.is_live && it.kind == Kind::Mapped && it.end - it.start == bytes;
        let memory = self.starting_at(start).filter(is_gone)?.memory();
        self.revive(memory);
        self.joined.remove(&memory.id.0);
        self.entries[memory.id.index()].is_live.then_some(memory)
    }

    /// The mappings in these bytes are one range to the program.
    pub(crate) fn join(&mut self, start: u64, end: u64) {
        let mut at = start;
        while let Some(entry) = self.find(at).filter(|it| it.is_live && it.kind == Kind::Mapped && at < end) {
            let (id, behind) = (entry.id, entry.end);
            self.joined.insert(id.0, end.max(behind));
            at = behind;
        }
    }

    /// The other mappings of the range that one is in, from there on.
    pub(crate) fn joined(&self, entry: &Entry) -> impl Iterator<Item = &Entry> {
        let end = self.joined.get(&entry.id.0).copied().unwrap_or(entry.end);
        let next = move |it: &&Entry| self.find(it.end).filter(|it| it.is_live && it.start < end);
        std::iter::successors(next(&entry), move |it| next(it))
    }

    /// An allocation by its name, if that is its latest.
    pub(crate) fn entry(&self, memory: Memory) -> Option<&Entry> {
        self.entries.get(memory.id.index()).filter(|entry| entry.memory() == memory)
    }

    /// What a number was given to last.
    #[inline]
    pub(crate) fn latest(&self, id: AllocId) -> Option<&Entry> {
        self.entries.get(id.index()).filter(|entry| entry.end > 0)
    }

    /// All that live.
    pub(crate) fn living(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.is_live)
    }

    /// How many live.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// A name that nothing has had, nor will have: for what was never allocated.
    pub(crate) fn unused_name(&mut self) -> Memory {
        let number = self.entries.len() as u32;
        let (id, kind) = (AllocId(number), Kind::Device);
        let (is_live, is_allocated, is_plain) = (false, false, false);
        let none = Entry { start: 0, end: 0, id, generation: 0, kind, home: 0, is_live, is_allocated, is_plain };
        self.entries.push(none);
        none.memory()
    }

    /// The first live entry with a byte in a range.
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

    /// An entry is freed; the oldest that was is forgotten.
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

    /// Nothing leads to an entry any more.
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
