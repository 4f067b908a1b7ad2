//! What lies at an address: for pointers that came from outside.

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

/// What lies at an address.
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
    /// What lies at `address`. Takes at most a walk over one section of 512 grains for a held block.
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

    /// The addresses of a held block; `None` where the number is not that of one.
    pub fn block(&self, block: BlockId) -> Option<Range> {
        self.heap.blocks.lookup(block).filter(|at| at.state == State::Held).map(super::block::Block::range)
    }

    /// What the holder of a block calls it; `None` where it has not said, or the number is not that of a held block.
    pub fn name(&self, block: BlockId) -> Option<u32> {
        let held = self.heap.blocks.lookup(block).filter(|at| at.state == State::Held)?;
        Some(held.bin_prev).filter(|&name| name != NONE)
    }

    /// The holder of a block calls it so, until it is freed. A number is not a name where it is `u32::MAX`.
    ///
    /// # Panics
    /// Where `block` is not held.
    #[inline]
    pub fn set_name(&mut self, block: BlockId, name: u32) {
        let at = &mut self.heap.blocks[block.0];
        assert!(at.state == State::Held, "the block is held");
        at.bin_prev = name;
    }

    /// The chunks mapped under a range, upwards, each with its whole range. Under a held block there are no holes.
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
