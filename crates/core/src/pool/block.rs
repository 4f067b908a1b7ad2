//! The blocks of the virtual heap: a slab of blocks, linked to their neighbours by address.
//!
//! Only cuts and joins blocks. Depends on nothing about requested sizes, frontiers or physical memory.
//!
//! Invariant PARTITION: from the lowest block along `above`, the blocks cover the pool's range without gap or
//! overlap, and the `below` links lead back.

use super::Frontier;
use crate::ids::BlockId;
use crate::units::Range;

/// No block.
pub(super) const NONE: u32 = u32::MAX;

/// The state of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// An entry of the slab that is not a block at present.
    Unused,
    /// Handed out: it belongs to the program, lies in a stream cache, or waits for its memory to be mapped.
    Held,
    /// Free and wholly mapped.
    Free,
    /// Free, and nothing is mapped at its addresses.
    Hole,
    /// Without an owner: memory that was moved away is still mapped here, in addition to its new addresses.
    Closed,
}

/// A block. It holds the links of bins and queues, so that a block changes lists without allocation. It fills one
/// cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(super) struct Block {
    pub(super) start: u64,
    pub(super) bytes: u64,
    pub(super) state: State,
    /// Neighbours by address.
    pub(super) below: u32,
    pub(super) above: u32,
    /// Neighbours in its bin. For a held block, `bin_prev` is the holder's name for it.
    pub(super) bin_prev: u32,
    pub(super) bin_next: u32,
    /// Neighbours in the queue of its lane.
    pub(super) earlier: u32,
    pub(super) later: u32,
    /// The index that contains it, if it is free.
    pub(super) home: u32,
    /// For a free block, the points after which it may be used. For a held one, the points that it was taken with, in
    /// case it is given back unused.
    pub(super) after: Frontier,
}

impl Block {
    #[inline]
    pub(super) fn range(&self) -> Range {
        Range::new(self.start, self.bytes)
    }

    #[inline]
    pub(super) fn end(&self) -> u64 {
        self.start + self.bytes
    }
}

/// The slab.
#[derive(Debug)]
pub(super) struct Blocks {
    slab: Vec<Block>,
    unused: u32,
    live: usize,
}

impl std::ops::Index<u32> for Blocks {
    type Output = Block;
    #[inline]
    fn index(&self, id: u32) -> &Block {
        &self.slab[id as usize]
    }
}

impl std::ops::IndexMut<u32> for Blocks {
    #[inline]
    fn index_mut(&mut self, id: u32) -> &mut Block {
        &mut self.slab[id as usize]
    }
}

impl Blocks {
    /// Makes one block, a hole with number 0, of the whole range.
    pub(super) fn new(range: Range) -> Self {
        let mut blocks = Self { slab: Vec::new(), unused: NONE, live: 0 };
        blocks.make(range, State::Hole, Frontier::EMPTY);
        blocks
    }

    /// Returns the number of blocks.
    pub(super) fn count(&self) -> usize {
        self.live
    }

    /// Returns the block with a number that came from outside, if there is one.
    pub(super) fn lookup(&self, id: BlockId) -> Option<&Block> {
        self.slab.get(id.index()).filter(|block| block.state != State::Unused)
    }

    /// Marks a block that is in no index as handed out. Its holder has not named it yet.
    #[inline]
    pub(super) fn hold(&mut self, id: u32) {
        let block = &mut self[id];
        (block.state, block.bin_prev) = (State::Held, NONE);
    }

    /// Cuts a block in two, with `bytes` in the lower part. The lower part keeps the number; returns the number of
    /// the upper.
    ///
    /// Updates sizes, links and frontier only. The caller updates the indexes.
    #[inline]
    pub(super) fn cut(&mut self, id: u32, bytes: u64) -> u32 {
        let block = &mut self[id];
        debug_assert!(0 < bytes && bytes < block.bytes);
        let upper = Range::new(block.start + bytes, block.bytes - bytes);
        let (state, after, above) = (block.state, block.after.clone(), block.above);
        block.bytes = bytes;
        let made = self.make(upper, state, after);
        self.link(id, made);
        self.link(made, above);
        made
    }

    /// Makes a block of the lowest `bytes` of another. The other keeps its number and loses these bytes.
    #[inline]
    pub(super) fn cut_low(&mut self, id: u32, bytes: u64, state: State) -> u32 {
        let block = &mut self[id];
        debug_assert!(0 < bytes && bytes < block.bytes);
        let lower = Range::new(block.start, bytes);
        let (after, below) = (block.after.clone(), block.below);
        block.start += bytes;
        block.bytes -= bytes;
        let made = self.make(lower, state, after);
        self.link(below, made);
        self.link(made, id);
        made
    }

    /// Joins the block above `id` to it. Returns the number of the block that is gone.
    #[inline]
    pub(super) fn join_above(&mut self, id: u32) -> u32 {
        let gone = self[id].above;
        let (bytes, above) = (self[gone].bytes, self[gone].above);
        self[id].bytes += bytes;
        self.link(id, above);
        let unused = self.unused;
        let block = &mut self[gone];
        block.state = State::Unused;
        block.after = Frontier::EMPTY;
        block.bin_next = unused;
        self.unused = gone;
        self.live -= 1;
        gone
    }

    #[inline]
    fn link(&mut self, below: u32, above: u32) {
        if below != NONE {
            self[below].above = above;
        }
        if above != NONE {
            self[above].below = below;
        }
    }

    #[inline]
    fn make(&mut self, range: Range, state: State, after: Frontier) -> u32 {
        let block = Block {
            start: range.start,
            bytes: range.bytes,
            state,
            below: NONE,
            above: NONE,
            bin_prev: NONE,
            bin_next: NONE,
            earlier: NONE,
            later: NONE,
            home: NONE,
            after,
        };
        self.live += 1;
        match self.unused {
            NONE => {
                self.slab.push(block);
                (self.slab.len() - 1) as u32
            }
            id => {
                self.unused = self[id].bin_next;
                self[id] = block;
                id
            }
        }
    }
}
