//! Defragmentation: holes that moving memory left are filled while much of it is idle.
//!
//! Growth takes idle chunks from where they lie to where they are needed, and leaves a hole. Once the blocks around
//! it are freed, the hole still cuts the mapped memory: into *islands*, each of which ends with a piece that is too
//! small for the next request. Without that, the islands of a training loop triple within eight rounds, and what
//! is reserved rises with them (docs/slack.md).
//!
//! Holes are filled, the smallest first, with chunks of other free blocks, the smallest first and each from the side
//! where it ends already. A block gives only to one that becomes at least twice as large: the sum of the squares of
//! the free blocks' sizes rises with each hole that is filled, so that it comes to an end and never runs in a
//! circle. Nothing is created or destroyed; a hole that no chunks fill exactly stays.
//!
//! It is done where the host has synchronised: a loop is then at its lowest, and waits anyway. It spends at most half
//! of the allowance (`slack.rs`); the other half is left to requests.
//!
//! Knows the heap and the space; not who takes the steps.

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
    /// The free blocks beside it: [`NONE`] where it ends at another.
    beside: [u32; 2],
    /// The block there will be.
    bytes: u64,
}

/// A chunk that can be moved, in the order in which they are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Source {
    /// The free block that it is part of: its size and number.
    from: (u64, u32),
    /// How far it is from the end at which that block is taken from.
    depth: u64,
    chunk: ChunkId,
}

impl Pool {
    /// Whether memory was moved since it was last defragmented, a quarter of what is reserved is idle, and the
    /// allowance is enough for a move.
    #[inline]
    pub fn is_fragmented(&self) -> bool {
        self.is_holed && self.space.idle() >= self.space.reserved() / 4 && self.budget.half() >= MOVE_NS
    }

    /// Plans to fill holes between mapped memory and leaves steps: to be called again when they are taken, until there
    /// are none. Returns whether there are.
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

    /// Which sources fill so many bytes exactly, by their index, upwards; `None` where they do not.
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

    /// The chunks that can be moved: idle, over, in a block that is free for all.
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

    /// The holes beside free blocks, the smallest first. Not that above everything: it has no end to be joined.
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
