//! The virtual heap: free blocks, indexed by the streams that may use them, cut and merged.
//!
//! There are three kinds of index: *open* blocks are free for all streams; the *lane* of a chain holds the blocks
//! that it freed and that others may not use yet; *holes* are free addresses without memory. A free block is either
//! wholly mapped or a hole, so that a fit among mapped blocks is found without a look at the page table.
//!
//! Depends on blocks, frontiers and addresses; on neither chunks nor drivers.
//!
//! Invariants:
//! * HOME: a free block is in the index that its state and frontier require, and in no other.
//! * MERGED: no two neighbours are both holes, or both open, or both free after one point of the same chain.
//! * KEEPS: a merged block does not become usable earlier than each of its parts was (`shadow.rs` checks it).

use super::bins::Bins;
use super::block::{Block, Blocks, NONE, State};
use super::frontier::Frontier;
use super::landmarks::Landmarks;
use super::lanes::Lanes;
use super::shadow::Shadow;
use crate::order::{Completed, Knows};
use crate::units::Range;

/// The home of open blocks. Lanes are numbered from 0.
const OPEN: u32 = NONE - 1;
const HOLES: u32 = NONE - 2;

/// The heap of one pool.
#[derive(Debug)]
pub(super) struct Heap {
    pub(super) blocks: Blocks,
    pub(super) open: Bins,
    pub(super) holes: Bins,
    pub(super) lanes: Lanes,
    landmarks: Landmarks,
    pub(super) shadow: Shadow,
    pub(super) range: Range,
}

impl Heap {
    pub(super) fn new(range: Range, grain_shift: u32) -> Self {
        let mut heap = Self {
            blocks: Blocks::new(range),
            open: Bins::new(grain_shift),
            holes: Bins::new(grain_shift),
            lanes: Lanes::new(grain_shift),
            landmarks: Landmarks::new(range.start, grain_shift),
            shadow: Shadow::default(),
            range,
        };
        heap.landmarks.insert(&heap.blocks, 0);
        heap.index(0);
        heap
    }

    /// Adds a free block to its index.
    #[inline]
    fn index(&mut self, id: u32) {
        let block = &self.blocks[id];
        let home = match block.state {
            State::Hole => {
                self.holes.insert(&mut self.blocks, id);
                HOLES
            }
            State::Free if block.after.is_empty() => {
                self.open.insert(&mut self.blocks, id);
                OPEN
            }
            State::Free => self.lanes.insert(&mut self.blocks, id),
            State::Held | State::Closed | State::Unused => return,
        };
        self.blocks[id].home = home;
    }

    /// Removes a block from its index, if it is in one.
    #[inline]
    fn unindex(&mut self, id: u32) {
        match std::mem::replace(&mut self.blocks[id].home, NONE) {
            NONE => {}
            OPEN => self.open.remove(&mut self.blocks, id),
            HOLES => self.holes.remove(&mut self.blocks, id),
            lane => self.lanes.remove(&mut self.blocks, lane, id),
        }
    }

    /// Hands out the lowest `bytes` of a free block.
    #[inline]
    pub(super) fn take(&mut self, id: u32, bytes: u64) -> u32 {
        if self.blocks[id].bytes == bytes {
            self.unindex(id);
            self.blocks.hold(id);
            return id;
        }
        let home = self.blocks[id].home;
        match home {
            OPEN => self.open.remove(&mut self.blocks, id),
            lane => self.lanes.unbin(&mut self.blocks, lane, id),
        }
        let start = self.blocks[id].start;
        let held = self.blocks.cut_low(id, bytes, State::Held);
        match home {
            OPEN => self.open.insert(&mut self.blocks, id),
            lane => self.lanes.rebin(&mut self.blocks, lane, id),
        }
        self.landmarks.replace(start, id, held);
        self.landmarks.insert(&self.blocks, id);
        held
    }

    /// Frees a block that is in no index, and merges it with its neighbours if that satisfies KEEPS: both have the
    /// same kind, and one frontier covers the other and becomes that of both. `knows` tells whether the block's own
    /// frontier covers that of a neighbour by what the freeing chain knew.
    #[inline]
    pub(super) fn release(&mut self, id: u32, state: State, after: Frontier, knows: impl Fn(&Frontier) -> bool) {
        let block = &mut self.blocks[id];
        (block.state, block.after) = (state, after);
        let mut id = id;
        loop {
            let above = self.blocks[id].above;
            if above == NONE || !self.merges(id, above, &knows) {
                break;
            }
            self.unindex(above);
            if self.blocks[above].after.covers(&self.blocks[id].after) {
                self.blocks[id].after = std::mem::take(&mut self.blocks[above].after);
            }
            self.join_above(id);
        }
        loop {
            let below = self.blocks[id].below;
            if below == NONE || !self.merges(id, below, &knows) {
                break;
            }
            self.unindex(below);
            if !self.blocks[below].after.covers(&self.blocks[id].after) {
                self.blocks[below].after = std::mem::take(&mut self.blocks[id].after);
            }
            self.join_above(below);
            id = below;
        }
        self.index(id);
    }

    /// Returns `true` if `other`, which is in an index, is to be merged into `id`, which is in none.
    #[inline]
    fn merges(&self, id: u32, other: u32, knows: &impl Fn(&Frontier) -> bool) -> bool {
        let (block, other) = (&self.blocks[id], &self.blocks[other]);
        block.state == other.state && self.agree(block, other, knows)
    }

    /// Returns `true` if one of the two frontiers may count for both.
    #[inline]
    fn agree(&self, block: &Block, other: &Block, knows: &impl Fn(&Frontier) -> bool) -> bool {
        match (block.after.is_empty(), other.after.is_empty()) {
            (true, both) => both,
            // Any stream may use the neighbour. A small block must not take a large one with it into its lane.
            (false, true) => other.bytes <= block.bytes,
            (false, false) => {
                block.after.covers(&other.after) || other.after.covers(&block.after) || knows(&other.after)
            }
        }
    }

    /// Joins the block above `id` to it, both in no index, and removes the landmark of its start.
    fn join_above(&mut self, id: u32) {
        let above = self.blocks[id].above;
        let start = self.blocks[above].start;
        let gone = self.blocks.join_above(id);
        self.landmarks.remove(&self.blocks, gone, start, self.blocks[id].above);
    }

    /// Cuts a block that is in no index in two.
    fn cut(&mut self, id: u32, bytes: u64) -> u32 {
        let upper = self.blocks.cut(id, bytes);
        self.landmarks.insert(&self.blocks, upper);
        upper
    }

    /// Makes one block, in no index, of the free blocks under `range`, and cuts those at its ends. Its frontier joins
    /// those of all of them. The caller sets its state.
    pub(super) fn carve(&mut self, range: Range) -> u32 {
        let mut first = self.at(range.start);
        if self.blocks[first].start < range.start {
            self.unindex(first);
            let upper = self.cut(first, range.start - self.blocks[first].start);
            self.index(first);
            first = upper;
        } else {
            self.unindex(first);
        }
        while self.blocks[first].end() < range.end() {
            let above = self.blocks[first].above;
            self.unindex(above);
            let after = std::mem::take(&mut self.blocks[above].after);
            self.blocks[first].after.join(&after);
            if self.blocks[above].end() > range.end() {
                let rest = self.cut(above, range.end() - self.blocks[above].start);
                self.blocks[rest].after = after;
                self.index(rest);
            }
            self.join_above(first);
        }
        if self.blocks[first].end() > range.end() {
            let rest = self.cut(first, range.bytes);
            self.index(rest);
        }
        first
    }

    /// Cuts a block that is in no index at `address`. Returns the upper part.
    pub(super) fn split(&mut self, id: u32, address: u64) -> u32 {
        self.cut(id, address - self.blocks[id].start)
    }

    /// Opens the blocks whose frontier has completed to all streams, beginning with the earliest of each lane.
    pub(super) fn retire(&mut self, completed: &impl Completed) {
        let mut next = self.lanes.next_busy(0);
        while let Some(lane) = next {
            let mut id = self.lanes.lane(lane).earliest;
            while id != NONE {
                let later = self.blocks[id].later;
                if self.blocks[id].after.is_over(completed) {
                    self.unindex(id);
                    self.shadow.free(self.blocks[id].range(), &Frontier::EMPTY);
                    self.release(id, State::Free, Frontier::EMPTY, |_| false);
                } else if lane != super::lanes::MIXED {
                    break;
                }
                id = later;
            }
            next = self.lanes.next_busy(lane + 1);
        }
    }

    /// Returns the block that contains an address of the range.
    pub(super) fn at(&self, address: u64) -> u32 {
        self.landmarks.locate(&self.blocks, address)
    }

    /// Returns the joined frontier of all free blocks that overlap `range`.
    pub(super) fn after(&self, range: Range) -> Frontier {
        let mut after = Frontier::EMPTY;
        for id in self.over(range) {
            after.join(&self.blocks[id].after);
        }
        after
    }

    /// Returns the blocks that overlap `range`, in ascending order.
    pub(super) fn over(&self, range: Range) -> impl Iterator<Item = u32> + '_ {
        let mut id = self.at(range.start);
        std::iter::from_fn(move || {
            if id == NONE || self.blocks[id].start >= range.end() {
                return None;
            }
            let above = self.blocks[id].above;
            Some(std::mem::replace(&mut id, above))
        })
    }

    /// Returns `true` if `who` may use a block at once.
    #[inline]
    pub(super) fn is_legal(&self, block: &Block, who: &impl Knows, follow: bool) -> bool {
        match block.state {
            State::Hole => true,
            State::Free => is_past(&block.after, who, follow),
            State::Held | State::Closed | State::Unused => false,
        }
    }

    /// Returns all blocks, in ascending order.
    pub(super) fn all(&self) -> impl Iterator<Item = u32> + '_ {
        self.over(self.range)
    }

    /// Checks that each free block is in its index, and that the indexes hold nothing else.
    pub(super) fn audit(&self) -> Result<(), String> {
        let ids: Vec<u32> = self.all().collect();
        self.landmarks.audit(&self.blocks, &ids)?;
        if ids.len() != self.blocks.count() {
            return Err(format!("PARTITION: {} blocks linked, {} made", ids.len(), self.blocks.count()));
        }
        let mut end = self.range.start;
        for (&id, below) in ids.iter().zip(std::iter::once(NONE).chain(ids.iter().copied())) {
            let block = &self.blocks[id];
            if block.start != end || block.below != below || block.bytes == 0 || block.state == State::Unused {
                return Err(format!("PARTITION: {block:?} does not follow {end:#x}"));
            }
            end = block.end();
            let unmerged = |other: &Block| match (block.after.single(), other.after.single()) {
                (Some(one), Some(two)) => one.chain == two.chain,
                _ => block.after.is_empty() && other.after.is_empty(),
            };
            if below != NONE && matches!(block.state, State::Free | State::Hole) {
                let other = &self.blocks[below];
                if other.state == block.state && unmerged(other) {
                    return Err(format!("MERGED: {other:?} and {block:?} are apart"));
                }
            }
        }
        if end != self.range.end() {
            return Err("PARTITION: the blocks end before the range".into());
        }
        self.audit_homes(&ids)
    }

    fn audit_homes(&self, ids: &[u32]) -> Result<(), String> {
        let mut found: Vec<(u32, u32)> = self.open.from(&self.blocks, 0).map(|id| (id, OPEN)).collect();
        found.extend(self.holes.from(&self.blocks, 0).map(|id| (id, HOLES)));
        for lane in self.lanes.busy() {
            let at = self.lanes.lane(lane);
            let mut binned: Vec<u32> = at.bins.from(&self.blocks, 0).collect();
            let mut queued = Vec::new();
            let (mut id, mut last) = (at.earliest, 0);
            while id != NONE {
                queued.push(id);
                let seq = self.blocks[id].after.single().map_or(last, |point| point.seq);
                if seq < last {
                    return Err(format!("QUEUE: lane {lane} is out of order"));
                }
                (id, last) = (self.blocks[id].later, seq);
            }
            found.extend(binned.iter().map(|&id| (id, lane)));
            binned.sort_unstable();
            queued.sort_unstable();
            if binned.is_empty() || binned != queued {
                return Err(format!("QUEUE: lane {lane} has {binned:?} in bins, {queued:?} in its queue"));
            }
        }
        let home = |id: u32| match (self.blocks[id].state, self.blocks[id].after.single()) {
            (State::Hole, _) => HOLES,
            (State::Free, Some(point)) => self.lanes.of(point.chain).unwrap_or(NONE),
            (State::Free, None) if self.blocks[id].after.is_empty() => OPEN,
            (State::Free, None) => super::lanes::MIXED,
            _ => NONE,
        };
        let mut expected: Vec<(u32, u32)> =
            ids.iter().map(|&id| (id, home(id))).filter(|&(_, at)| at != NONE).collect();
        expected.sort_unstable();
        found.sort_unstable();
        match expected == found && found.iter().all(|&(id, at)| self.blocks[id].home == at) {
            true => Ok(()),
            false => Err("HOME: a free block is not in the index that it belongs to".into()),
        }
    }
}

/// Returns `true` if a frontier comes before the next point of `who`. Without `follow` only stream order counts, not
/// events.
#[inline]
pub(super) fn is_past(after: &Frontier, who: &impl Knows, follow: bool) -> bool {
    after.points().all(|point| (follow || point.chain == who.chain()) && who.covers(point))
}
