//! Where a block goes that no mapped free block has room for: the addresses that need the least new memory.
//!
//! A *run* is a stretch of neighbouring free blocks, holes and mapped ones, that the request may use; a *window* is
//! a place for the block in a run. Mapped parts of a window serve as they are, its holes must be filled with chunks.
//! Windows are looked for around a bounded number of holes, those large enough by themselves and those a little too
//! small; the whole heap is walked only before a request is refused.
//!
//! Knows the heap; nothing of where chunks come from.

use super::block::{Block, NONE, State};
use super::heap::Heap;
use crate::units::{Range, round_down, round_up};

/// How many holes of either kind are looked at.
const HOLES: usize = 16;
/// How many neighbours on either side of a hole belong to its run.
const REACH: usize = 8;

/// A place for a block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Window {
    pub(super) range: Range,
    /// Bytes to be mapped.
    pub(super) need: u64,
    /// Bytes of its run.
    run: u64,
}

/// A part of a window that must be filled with chunks: `from..to`; new ones may go up to `ceiling`, in the same hole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Segment {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) ceiling: u64,
}

impl Window {
    /// The segments to be filled, upwards.
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
    /// The best window around some of the holes.
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

    /// The best window of all.
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

    /// Tries the window at the start of each block of a run, and at the end of each mapped one.
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
