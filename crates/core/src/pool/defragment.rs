//! Defragmentation: fills holes that moved memory left, while much memory is idle.
//!
//! Growth moves idle chunks to where they are needed and leaves holes. Once the blocks around a hole are freed, the
//! hole still divides the mapped memory into *islands*, and each island ends with a piece that is too small for the
//! next request. Without defragmentation, the islands of a training loop triple within eight rounds, and what is
//! reserved rises with them (docs/slack.md).
//!
//! Holes are filled with chunks of other free blocks: the smallest hole first, from the smallest block first, and
//! from a side where that block ends already. A block gives only to one that becomes at least twice as large. So the
//! sum of the squares of the free blocks' sizes rises with each filled hole, and the process ends and never runs in a
//! circle. Nothing is created or destroyed. A hole that no chunks fill exactly stays.
//!
//! It runs when the host has synchronised: a loop then uses the least memory, and waits anyway. It spends at most
//! half of the allowance (`slack.rs`); the other half is left to requests.
//!
//! Depends on the heap and the space. The caller takes the steps.

use super::Pool;
use super::block::{NONE, State};
use super::slack::MOVE_NS;
use super::steps::Step;
use crate::ids::ChunkId;
use crate::units::Range;
use std::collections::HashSet;

/// A hole between mapped memory.
struct Hole {
    range: Range,
    /// The free blocks on both sides, or [`NONE`] for a side without one.
    beside: [u32; 2],
    /// The size of the free block once the hole is filled.
    bytes: u64,
}

/// A chunk that can be moved. The sort order is the order in which chunks are taken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Source {
    /// The free block that contains it: that block's size and number.
    from: (u64, u32),
    /// Its distance from the end at which chunks of that block are taken.
    depth: u64,
    chunk: ChunkId,
}

impl Pool {
    /// Returns `true` if memory was moved since the last defragmentation, a quarter of what is reserved is idle, and
    /// the allowance is enough for a move.
    #[inline]
    pub fn is_fragmented(&self) -> bool {
        self.is_holed && self.space.idle() >= self.space.reserved() / 4 && self.budget.half() >= MOVE_NS
    }

    /// Plans to fill holes between mapped memory, and leaves steps. Call it again when they are taken, until it
    /// leaves none. Returns `true` if there are steps.
    pub fn defragment(&mut self) -> bool {
        debug_assert!(self.plan.steps.is_empty(), "STEPWISE: all steps are taken before the pool is defragmented");
        let mut left = self.budget.half();
        let mut sources = self.sources();
        let (mut giving, mut taking) = (HashSet::<u32>::new(), HashSet::<u32>::new());
        for hole in self.holes_between() {
            if hole.beside.iter().any(|beside| giving.contains(beside)) {
                continue;
            }
            let gives = |source: &Source| {
                let (bytes, block) = source.from;
                bytes <= hole.bytes / 2 && !hole.beside.contains(&block) && !taking.contains(&block)
            };
            let Some(taken) = self.fill(&sources, hole.range.bytes, gives) else { continue };
            let cost = MOVE_NS * taken.len() as u64;
            if cost > left {
                break;
            }
            left -= cost;
            self.budget.spend(cost);
            taking.extend(hole.beside.iter().filter(|&&beside| beside != NONE));
            let mut to = hole.range.start;
            for &index in taken.iter().rev() {
                let Source { from, chunk, .. } = sources.remove(index);
                giving.insert(from.1);
                let Range { start: at, bytes } = self.space.chunk(chunk).range();
                self.plan.steps.extend([Step::Unmap { chunk, at, bytes }, Step::Map { chunk, at: to, bytes }]);
                to += bytes;
            }
        }
        self.is_holed = !self.plan.steps.is_empty();
        self.is_holed
    }

    /// Returns the indexes of sources that fill this many bytes exactly, in ascending order, or `None` if there are
    /// none.
    fn fill(&self, sources: &[Source], bytes: u64, gives: impl Fn(&Source) -> bool) -> Option<Vec<usize>> {
        let (mut taken, mut lacks) = (Vec::new(), bytes);
        for (index, source) in sources.iter().enumerate().filter(|(_, source)| gives(source)) {
            let bytes = self.space.chunk(source.chunk).bytes;
            if bytes <= lacks {
                taken.push(index);
                lacks -= bytes;
            }
            if lacks == 0 {
                return Some(taken);
            }
        }
        None
    }

    /// Returns the chunks that can be moved: idle, over, and in a block that is free for all streams.
    fn sources(&self) -> Vec<Source> {
        let mut sources: Vec<Source> = Vec::new();
        for chunk in self.space.idle_chunks().filter(|&chunk| self.is_late(chunk)) {
            let at = self.space.chunk(chunk).range().start;
            let block = self.heap.at(at);
            let free = &self.heap.blocks[block];
            let above = free.above;
            let ends_above = above == NONE || self.heap.blocks[above].state == State::Hole;
            let depth = if ends_above { free.end() - at } else { at - free.start };
            sources.push(Source { from: (free.bytes, block), depth, chunk });
        }
        sources.sort_unstable();
        sources
    }

    /// Returns the holes beside free blocks, the smallest first. The hole above everything is left out: nothing lies
    /// above it.
    fn holes_between(&self) -> Vec<Hole> {
        let blocks = &self.heap.blocks;
        let open = |id: u32| match id != NONE && blocks[id].state == State::Free && blocks[id].after.is_empty() {
            true => (id, blocks[id].bytes),
            false => (NONE, 0),
        };
        let between = self.heap.all().map(|id| &blocks[id]).filter(|it| it.state == State::Hole && it.above != NONE);
        let mut holes: Vec<Hole> = between
            .map(|hole| {
                let ((below, low), (above, high)) = (open(hole.below), open(hole.above));
                Hole { range: hole.range(), beside: [below, above], bytes: low + hole.bytes + high }
            })
            .filter(|hole| hole.beside != [NONE; 2])
            .collect();
        holes.sort_unstable_by_key(|hole| (hole.range.bytes, hole.range.start));
        holes
    }
}
