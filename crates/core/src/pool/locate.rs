//! Finds the block at an address, for pointers that come from outside.

use super::Pool;
use super::block::{NONE, State};
use crate::ids::{BlockId, ChunkId};
use crate::units::Range;

/// A held block near an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neighbour {
    /// Its number.
    pub block: BlockId,
    /// Its addresses.
    pub range: Range,
}

/// The result of a lookup of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Located {
    /// Not an address of this pool.
    Outside,
    /// In a held block, `offset` bytes from its start.
    Held {
        /// The block.
        block: Neighbour,
        /// Bytes from its start.
        offset: u64,
    },
    /// In no held block.
    Free {
        /// The nearest held block below.
        below: Option<Neighbour>,
        /// The nearest held block above.
        above: Option<Neighbour>,
    },
}

impl Pool {
    /// Looks up `address`. For a held block this walks at most one section of 512 grains.
    pub fn locate(&self, address: u64) -> Located {
        if !self.heap.range.contains(address) {
            return Located::Outside;
        }
        let blocks = &self.heap.blocks;
        let id = self.heap.at(address);
        if blocks[id].state == State::Held {
            return Located::Held { block: self.neighbour(id), offset: address - blocks[id].start };
        }
        let held = |mut id: u32, step: fn(&super::block::Block) -> u32| {
            while id != NONE && blocks[id].state != State::Held {
                id = step(&blocks[id]);
            }
            (id != NONE).then(|| self.neighbour(id))
        };
        Located::Free { below: held(id, |block| block.below), above: held(id, |block| block.above) }
    }

    /// Returns the addresses of a held block, or `None` if no held block has the number.
    pub fn block(&self, block: BlockId) -> Option<Range> {
        self.heap.blocks.lookup(block).filter(|at| at.state == State::Held).map(super::block::Block::range)
    }

    /// Returns the holder's name for a block, or `None` if it has none or no held block has the number.
    pub fn name(&self, block: BlockId) -> Option<u32> {
        let held = self.heap.blocks.lookup(block).filter(|at| at.state == State::Held)?;
        Some(held.bin_prev).filter(|&name| name != NONE)
    }

    /// Gives a held block a name, which it has until it is freed. `u32::MAX` is not a name.
    ///
    /// # Panics
    /// If `block` is not held.
    #[inline]
    pub fn set_name(&mut self, block: BlockId, name: u32) {
        let at = &mut self.heap.blocks[block.0];
        assert!(at.state == State::Held, "the block is held");
        at.bin_prev = name;
    }

    /// Returns the chunks mapped under a range, in ascending order, each with its whole range. There are no holes
    /// under a held block.
    pub fn chunks_under(&self, range: Range) -> impl Iterator<Item = (ChunkId, Range)> + '_ {
        let mut at = range.start;
        std::iter::from_fn(move || {
            let chunk = (at < range.end()).then(|| self.space.at(at)).flatten()?;
            let whole = self.space.chunk(chunk).range();
            at = whole.end();
            Some((chunk, whole))
        })
    }

    fn neighbour(&self, id: u32) -> Neighbour {
        Neighbour { block: BlockId(id), range: self.heap.blocks[id].range() }
    }
}
