//! The page table of a pool: which physical chunk backs which virtual range.
//!
//! A *chunk* is physical memory of a whole number of granules (the device's mapping granularity, 2 MiB), mapped whole
//! or not at all. A page table has, for each granule of the pool's range, the chunk that is mapped there. Each chunk
//! counts its *pins*: the held blocks that overlap it. A chunk without pins is *idle* and is in a list, longest idle
//! first. A chunk that is mapped nowhere is *spare*.
//!
//! Depends on nothing about blocks, requested sizes, streams or policies. The pool above decides what to map and
//! when, and asks here only what is where. Nothing here calls a driver: the recorded changes have already happened.
//!
//! Invariants, re-derived by [`Space::audit`]:
//! * PAGES: a granule names a chunk exactly if that chunk is mapped there; a chunk is mapped at most once here. Every
//!   other granule is vacant or *closed*: an old mapping is still there and its addresses may not be used.
//! * IDLE: the idle list holds exactly the mapped chunks without pins, in the order in which they lost their last
//!   pin.
//! * BYTES: `reserved` is the sum of all created chunks, `idle` of those in the idle list, `spare` of the spare ones.

mod audit;
mod chunk;

pub use chunk::{Chunk, Place};

use crate::ids::ChunkId;
use crate::units::{Range, round_down};

const NONE: u32 = u32::MAX;
/// A granule whose old mapping was not removed yet.
const CLOSED: u32 = u32::MAX - 1;

/// The physical side of a pool: page table and chunks.
#[derive(Debug)]
pub struct Space {
    base: u64,
    shift: u32,
    /// The chunk of each granule. Only as long as the highest granule ever mapped.
    pages: Vec<u32>,
    chunks: Vec<Chunk>,
    unused_ids: Vec<u32>,
    oldest_idle: u32,
    newest_idle: u32,
    spares: Vec<ChunkId>,
    reserved: u64,
    reserved_high: u64,
    idle: u64,
}

impl Space {
    /// Makes an empty page table for addresses from `base` on, in granules of `granularity` bytes (a power of two
    /// that divides `base`).
    pub fn new(base: u64, granularity: u64) -> Self {
        assert!(granularity.is_power_of_two() && base.is_multiple_of(granularity), "the range starts at a granule");
        Self {
            base,
            shift: granularity.trailing_zeros(),
            pages: Vec::new(),
            chunks: Vec::new(),
            unused_ids: Vec::new(),
            oldest_idle: NONE,
            newest_idle: NONE,
            spares: Vec::new(),
            reserved: 0,
            reserved_high: 0,
            idle: 0,
        }
    }

    /// Returns the bytes of all chunks that exist, mapped or spare.
    pub fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Returns the highest value of [`reserved`](Self::reserved) since the last reset.
    pub fn reserved_high(&self) -> u64 {
        self.reserved_high
    }

    /// Resets [`reserved_high`](Self::reserved_high) to the current value.
    pub fn reset_high(&mut self) {
        self.reserved_high = self.reserved;
    }

    /// Returns the bytes of mapped chunks without a pin.
    pub fn idle(&self) -> u64 {
        self.idle
    }

    /// Returns the chunks that exist and are mapped nowhere.
    pub fn spares(&self) -> &[ChunkId] {
        &self.spares
    }

    /// Returns a chunk.
    pub fn chunk(&self, id: ChunkId) -> &Chunk {
        &self.chunks[id.index()]
    }

    /// Returns the bytes of a granule.
    pub fn granule(&self) -> u64 {
        1 << self.shift
    }

    /// Returns the chunk mapped at `address`, if there is one.
    pub fn at(&self, address: u64) -> Option<ChunkId> {
        match self.pages.get(self.page(address)) {
            None | Some(&(NONE | CLOSED)) => None,
            Some(&id) => Some(ChunkId(id)),
        }
    }

    /// Returns `true` if `address` is mapped, and the end, at most `end`, of the stretch from `address` on that is
    /// mapped or unmapped in the same way.
    pub fn same_until(&self, address: u64, end: u64) -> (bool, u64) {
        let mapped = self.at(address).is_some();
        let mut to = round_down(address, self.granule());
        while to < end && self.at(to).is_some() == mapped {
            if self.page(to) >= self.pages.len() {
                return (false, end);
            }
            to = match self.at(to) {
                Some(id) => self.chunk(id).range().end(),
                None => to + self.granule(),
            };
        }
        (mapped, to.min(end))
    }

    /// Returns the number of granules up to the highest one ever mapped.
    pub fn granules(&self) -> usize {
        self.pages.len()
    }

    /// Returns the idle chunks, longest idle first.
    pub fn idle_chunks(&self) -> impl Iterator<Item = ChunkId> + '_ {
        let mut next = self.oldest_idle;
        std::iter::from_fn(move || {
            let id = (next != NONE).then_some(ChunkId(next))?;
            next = self.chunk(id).newer;
            Some(id)
        })
    }

    /// Returns a number for a chunk that will be created. It has no bytes yet.
    pub fn plan(&mut self) -> ChunkId {
        match self.unused_ids.pop() {
            Some(id) => ChunkId(id),
            None => {
                self.chunks.push(Chunk::default());
                ChunkId((self.chunks.len() - 1) as u32)
            }
        }
    }

    /// Gives back the number of a planned chunk that will not be created.
    pub fn unplan(&mut self, id: ChunkId) {
        debug_assert_eq!(self.chunk(id).place, Place::Nowhere);
        self.unused_ids.push(id.0);
    }

    /// Records that a planned chunk was created. It is spare now.
    pub fn created(&mut self, id: ChunkId, bytes: u64) {
        debug_assert_eq!(self.chunk(id).place, Place::Nowhere);
        let chunk = &mut self.chunks[id.index()];
        (chunk.place, chunk.bytes) = (Place::Spare, bytes);
        self.spares.push(id);
        self.reserved += bytes;
        self.reserved_high = self.reserved_high.max(self.reserved);
    }

    /// Records that a spare chunk was destroyed.
    pub fn destroyed(&mut self, id: ChunkId) {
        self.unspare(id);
        self.reserved -= self.chunk(id).bytes;
        self.chunks[id.index()] = Chunk::default();
        self.unused_ids.push(id.0);
    }

    /// Records that a spare chunk was mapped at `at`. The only held blocks there are the `pins` blocks that the
    /// caller pins now.
    pub fn mapped(&mut self, id: ChunkId, at: u64, pins: u32) {
        self.unspare(id);
        self.place(id, at, pins);
    }

    /// Records that a mapped chunk was mapped at a second address. Its old granules are closed until
    /// [`opened`](Self::opened).
    ///
    /// Returns the old range.
    pub fn moved(&mut self, id: ChunkId, at: u64, pins: u32) -> Range {
        let old = self.chunk(id).range();
        self.end_idling(id);
        self.write_pages(old, CLOSED);
        self.chunks[id.index()].aliases += 1;
        self.place(id, at, pins);
        old
    }

    /// Records that the old mapping of a moved chunk was removed.
    pub fn opened(&mut self, id: ChunkId, old: Range) {
        self.write_pages(old, NONE);
        self.chunks[id.index()].aliases -= 1;
    }

    /// Records that an idle chunk was unmapped. It is spare now.
    pub fn unmapped(&mut self, id: ChunkId) {
        self.end_idling(id);
        self.write_pages(self.chunk(id).range(), NONE);
        self.chunks[id.index()].place = Place::Spare;
        self.spares.push(id);
    }

    /// Adds a pin to each chunk mapped under `range`, for a block that is held now.
    #[inline]
    pub fn pin(&mut self, range: Range) {
        self.each_chunk(range, |space, id| {
            let chunk = &mut space.chunks[id.index()];
            chunk.pins += 1;
            if chunk.pins == 1 {
                space.end_idling(id);
            }
        });
    }

    /// Removes a pin from each chunk mapped under `range`, for a block that is not held any more.
    #[inline]
    pub fn unpin(&mut self, range: Range) {
        self.each_chunk(range, |space, id| {
            let chunk = &mut space.chunks[id.index()];
            chunk.pins -= 1;
            if chunk.pins == 0 {
                space.start_idling(id);
            }
        });
    }

    /// Calls `act` for each chunk mapped under `range`.
    #[inline]
    fn each_chunk(&mut self, range: Range, mut act: impl FnMut(&mut Self, ChunkId)) {
        let mut at = range.start;
        while at < range.end() {
            match self.pages.get(self.page(at)) {
                None => return,
                Some(&(NONE | CLOSED)) => at = round_down(at, self.granule()) + self.granule(),
                Some(&id) => {
                    act(self, ChunkId(id));
                    at = self.chunks[id as usize].range().end();
                }
            }
        }
    }

    #[inline]
    fn page(&self, address: u64) -> usize {
        ((address - self.base) >> self.shift) as usize
    }

    fn place(&mut self, id: ChunkId, at: u64, pins: u32) {
        let chunk = &mut self.chunks[id.index()];
        (chunk.place, chunk.pins) = (Place::At(at), pins);
        let range = chunk.range();
        self.write_pages(range, id.0);
        if pins == 0 {
            self.start_idling(id);
        }
    }

    fn write_pages(&mut self, range: Range, value: u32) {
        let (from, to) = (self.page(range.start), self.page(range.end()));
        if self.pages.len() < to {
            self.pages.resize(to, NONE);
        }
        debug_assert!(value == NONE || value == CLOSED || self.pages[from..to].iter().all(|&page| page == NONE));
        self.pages[from..to].fill(value);
    }

    fn unspare(&mut self, id: ChunkId) {
        let place = self.spares.iter().position(|&spare| spare == id).expect("SPARE: the chunk is mapped nowhere");
        self.spares.swap_remove(place);
    }

    fn start_idling(&mut self, id: ChunkId) {
        let older = std::mem::replace(&mut self.newest_idle, id.0);
        match older {
            NONE => self.oldest_idle = id.0,
            _ => self.chunks[older as usize].newer = id.0,
        }
        let chunk = &mut self.chunks[id.index()];
        (chunk.older, chunk.newer) = (older, NONE);
        self.idle += chunk.bytes;
    }

    fn end_idling(&mut self, id: ChunkId) {
        let chunk = &self.chunks[id.index()];
        let (older, newer, bytes) = (chunk.older, chunk.newer, chunk.bytes);
        match older {
            NONE => self.oldest_idle = newer,
            _ => self.chunks[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest_idle = older,
            _ => self.chunks[newer as usize].older = older,
        }
        self.idle -= bytes;
    }
}

#[cfg(test)]
mod tests;
