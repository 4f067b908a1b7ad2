//! Finds the addresses for a block that no mapped free block has room for: those that need the least new memory.
//!
//! A *run* is a sequence of neighbouring free blocks, holes and mapped ones, that the request may use. A *window* is
//! a place for the block in a run. Its mapped parts are used as they are; its holes must be filled with chunks.
//! Windows are searched around a bounded number of holes: some that are large enough by themselves and some a little
//! too small. The whole heap is walked only before a request is refused.
//!
//! Depends on the heap; on nothing about the source of chunks.

use super::block::{Block, NONE, State};
use super::heap::Heap;
use crate::units::{Range, round_down, round_up};

/// The number of holes of either kind to look at.
const HOLES: usize = 16;
/// The number of neighbours on either side of a hole that belong to its run.
const REACH: usize = 8;

/// A place for a block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Window {
    pub(super) range: Range,
    /// The number of bytes to be mapped.
    pub(super) need: u64,
    /// The number of bytes of its run.
    run: u64,
}

/// A part of a window that must be filled with chunks: `from..to`. New chunks may extend up to `ceiling`, in the same
/// hole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Segment {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) ceiling: u64,
}

impl Window {
    /// Returns the segments to be filled, in ascending order.
    pub(super) fn segments(&self, heap: &Heap, granule: u64) -> Vec<Segment> {
        let holes = heap.over(self.range).filter(|&id| heap.blocks[id].state == State::Hole);
        holes.map(|id| segment(&heap.blocks[id], self.range, granule)).collect()
    }
}

fn segment(hole: &Block, window: Range, granule: u64) -> Segment {
    let from = round_down(window.start.max(hole.start), granule);
    let to = round_up(window.end().min(hole.end()), granule).expect("the hole ends in the address space");
    let ceiling = if window.end() < hole.end() { hole.end() } else { to };
    Segment { from, to, ceiling }
}

/// The search for the best window of `bytes` among blocks that are `legal`.
pub(super) struct Search<'a, L: Fn(&Block) -> bool> {
    pub(super) heap: &'a Heap,
    pub(super) bytes: u64,
    pub(super) granule: u64,
    pub(super) legal: L,
}

impl<L: Fn(&Block) -> bool> Search<'_, L> {
    /// Returns the best window around some of the holes.
    pub(super) fn near_holes(&self) -> Option<Window> {
        let (holes, blocks) = (&self.heap.holes, &self.heap.blocks);
        let large = holes.from(blocks, self.bytes).take(HOLES);
        let small = holes.below(blocks, self.bytes).take(HOLES);
        let mut best = None;
        let mut run = Vec::with_capacity(2 * REACH + 1);
        for hole in large.chain(small) {
            self.run_around(hole, &mut run);
            self.best_of(&run, &mut best);
        }
        best
    }

    /// Returns the best window of the whole heap.
    pub(super) fn anywhere(&self) -> Option<Window> {
        let (mut run, mut best) = (Vec::new(), None);
        for id in self.heap.all() {
            if (self.legal)(&self.heap.blocks[id]) {
                run.push(id);
            } else {
                self.best_of(&run, &mut best);
                run.clear();
            }
        }
        self.best_of(&run, &mut best);
        best
    }

    fn run_around(&self, hole: u32, run: &mut Vec<u32>) {
        let blocks = &self.heap.blocks;
        let is_part = |id: u32| id != NONE && (self.legal)(&blocks[id]);
        run.clear();
        let mut id = hole;
        while run.len() < REACH && is_part(id) {
            run.push(id);
            id = blocks[id].below;
        }
        run.reverse();
        id = blocks[hole].above;
        for _ in 0..REACH {
            if !is_part(id) {
                break;
            }
            run.push(id);
            id = blocks[id].above;
        }
    }

    /// Tries the window at the start of each block of a run, and the window at the end of each mapped one.
    fn best_of(&self, run: &[u32], best: &mut Option<Window>) {
        let blocks = &self.heap.blocks;
        let (Some(&first), Some(&last)) = (run.first(), run.last()) else { return };
        let all = Range::between(blocks[first].start, blocks[last].end());
        if all.bytes < self.bytes {
            return;
        }
        for (index, &id) in run.iter().enumerate() {
            let block = &blocks[id];
            if all.end() - block.start >= self.bytes {
                self.consider(Range::new(block.start, self.bytes), &run[index..], all.bytes, best);
            }
            if block.state == State::Free && block.end() - all.start >= self.bytes {
                self.consider(Range::new(block.end() - self.bytes, self.bytes), &run[..=index], all.bytes, best);
            }
        }
    }

    fn consider(&self, range: Range, parts: &[u32], run: u64, best: &mut Option<Window>) {
        let mut need = 0;
        for &id in parts {
            let block = &self.heap.blocks[id];
            if block.state == State::Hole && block.range().overlaps(range) {
                let segment = segment(block, range, self.granule);
                need += segment.to - segment.from;
            }
        }
        if best.as_ref().is_none_or(|best| (need, run) < (best.need, best.run)) {
            *best = Some(Window { range, need, run });
        }
    }
}
