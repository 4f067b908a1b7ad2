//! The steps that the caller must take on the device, and what each success or failure changes.
//!
//! Knows what a step changes, not why it was planned.
//!
//! Invariant STEPWISE: between two steps the pool is consistent; only a block that waits for its memory may have
//! holes.

use super::block::State;
use super::{Closed, Frontier, Pool};
use crate::ids::{BlockId, ChunkId};
use crate::space::Place;
use crate::units::Range;
use std::collections::VecDeque;

/// One change to the device's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Create a chunk of physical memory. Its number is new or recycled.
    Create {
        /// The chunk.
        chunk: ChunkId,
        /// Its size.
        bytes: u64,
    },
    /// Map a whole chunk. It may still be mapped elsewhere, too.
    Map {
        /// The chunk.
        chunk: ChunkId,
        /// First address.
        at: u64,
        /// Its size.
        bytes: u64,
    },
    /// Remove one mapping of a chunk. All work that used these addresses has completed.
    Unmap {
        /// The chunk.
        chunk: ChunkId,
        /// First address.
        at: u64,
        /// Its size.
        bytes: u64,
    },
    /// Destroy a chunk that is mapped nowhere.
    Destroy {
        /// The chunk.
        chunk: ChunkId,
        /// Its size.
        bytes: u64,
    },
}

/// The steps not taken yet, and the block that waits for them.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) steps: VecDeque<Step>,
    pub(super) target: Option<u32>,
}

impl Pool {
    /// Returns the next step to take. The caller carries it out, then calls [`applied`](Self::applied) or
    /// [`failed`](Self::failed). Until no step is left, it calls nothing else that changes the pool.
    #[inline]
    pub fn next_step(&self) -> Option<Step> {
        self.plan.steps.front().copied()
    }

    /// Records that the step returned by [`next_step`](Self::next_step) was carried out.
    ///
    /// # Panics
    /// If no step is left.
    pub fn applied(&mut self) {
        let step = self.plan.steps.pop_front().expect("a step was named");
        match step {
            Step::Create { chunk, bytes } => self.space.created(chunk, bytes),
            Step::Destroy { chunk, .. } => self.space.destroyed(chunk),
            Step::Map { chunk, at, bytes } => self.mapped(chunk, Range::new(at, bytes)),
            Step::Unmap { chunk, at, bytes } => self.unmapped(chunk, Range::new(at, bytes)),
        }
        if self.plan.steps.is_empty() {
            self.plan.target = None;
            self.audit_in_turn();
        }
    }

    /// Records that the step returned by [`next_step`](Self::next_step) could not be carried out; the device is as
    /// before it.
    ///
    /// The steps after it are dropped. A block that waited for them is freed again and returned; a grant that was
    /// ready stays valid. Chunks that were created stay for the next request.
    ///
    /// # Panics
    /// If no step is left.
    #[cold]
    pub fn failed(&mut self) -> Option<BlockId> {
        assert!(!self.plan.steps.is_empty(), "a step was named");
        for step in std::mem::take(&mut self.plan.steps) {
            if let Step::Create { chunk, .. } = step {
                self.space.unplan(chunk);
            }
        }
        let target = self.plan.target.take().map(BlockId);
        target.into_iter().for_each(|target| self.cancel(target));
        self.audit_now();
        target
    }

    /// Takes back a block just granted, which becomes free as it was.
    ///
    /// # Panics
    /// If `block` is not held.
    #[cold]
    pub fn cancel(&mut self, block: BlockId) {
        let at = self.heap.blocks.lookup(block).filter(|at| at.state == State::Held).expect("the block is held");
        let (range, after) = (at.range(), at.after.clone());
        self.held -= range.bytes;
        self.space.unpin(range);
        let mut id = block.0;
        let mut next = range.start;
        while next < range.end() {
            let (mapped, end) = self.space.same_until(next, range.end());
            let rest = (end < range.end()).then(|| self.heap.split(id, end));
            match mapped {
                true => {
                    self.heap.shadow.free(Range::between(next, end), &after);
                    self.heap.release(id, State::Free, after.clone(), |_| false);
                }
                false => self.heap.release(id, State::Hole, Frontier::EMPTY, |_| false),
            }
            (id, next) = (rest.unwrap_or(id), end);
        }
    }

    fn mapped(&mut self, chunk: ChunkId, range: Range) {
        let target = self.plan.target;
        let held = target.map_or(Range::default(), |id| self.heap.blocks[id].range());
        let pins = u32::from(held.overlaps(range));
        let mut after = Frontier::EMPTY;
        if let Place::At(_) = self.space.chunk(chunk).place {
            let old = self.space.moved(chunk, range.start, pins);
            let block = self.heap.carve(old);
            self.heap.shadow.forget(old);
            self.heap.blocks[block].state = State::Closed;
            after = self.heap.blocks[block].after.clone();
            self.closed.push(Closed { chunk, range: old, block });
        } else {
            self.space.mapped(chunk, range.start, pins);
        }
        if let Some(id) = target.filter(|_| pins != 0) {
            self.heap.blocks[id].after.join(&after);
        }
        let below = Range::between(range.start, held.start.clamp(range.start, range.end()));
        let above = Range::between(held.end().clamp(range.start, range.end()), range.end());
        let around = if pins == 0 { [range, Range::default()] } else { [below, above] };
        for free in around.into_iter().filter(|free| !free.is_empty()) {
            let id = self.heap.carve(free);
            self.heap.shadow.free(free, &after);
            self.heap.release(id, State::Free, after.clone(), |_| false);
        }
    }

    fn unmapped(&mut self, chunk: ChunkId, range: Range) {
        let id = match self.closed.iter().position(|old| old.chunk == chunk && old.range == range) {
            Some(index) => {
                self.space.opened(chunk, range);
                self.closed.swap_remove(index).block
            }
            None => {
                let is_over = |id: u32| {
                    let block = &self.heap.blocks[id];
                    block.state == State::Free && block.after.is_empty()
                };
                debug_assert!(self.heap.over(range).all(is_over), "SAFE: {chunk} is unmapped at {range}, in use");
                self.space.unmapped(chunk);
                self.heap.carve(range)
            }
        };
        self.heap.shadow.forget(range);
        self.heap.release(id, State::Hole, Frontier::EMPTY, |_| false);
    }
}
