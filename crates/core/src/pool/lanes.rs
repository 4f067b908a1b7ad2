//! Lanes: the blocks that one chain may use already and others only later. Each chain that freed has an index and a
//! queue.
//!
//! Depends on blocks and points; on nothing about memory.
//!
//! Invariants:
//! * QUEUE: a lane's queue holds exactly its blocks, in the order of their points on its chain.
//! * MIXED: lane 0 holds the blocks that are free after points of several chains; its queue has no order.
//! * BUSY: a bit is set exactly if its lane has blocks.

use super::bins::Bins;
use super::block::{Blocks, NONE};
use super::frontier::Frontier;
use crate::ids::ChainIndex;

/// The lane of blocks that are free after points of several chains.
pub(super) const MIXED: u32 = 0;

/// The free blocks of one chain that others may not use yet.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) bins: Bins,
    pub(super) earliest: u32,
    pub(super) latest: u32,
}

/// All lanes.
#[derive(Debug)]
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    /// The lane of each chain; 0 for a chain without one.
    by_chain: Vec<u32>,
    busy: Vec<u64>,
    grain_shift: u32,
}

impl Lanes {
    pub(super) fn new(grain_shift: u32) -> Self {
        let mut lanes = Self { lanes: Vec::new(), by_chain: Vec::new(), busy: Vec::new(), grain_shift };
        lanes.add();
        lanes
    }

    /// Returns the lane of a chain, if it has ever had blocks.
    #[inline]
    pub(super) fn of(&self, chain: ChainIndex) -> Option<u32> {
        self.by_chain.get(chain.index()).copied().filter(|&lane| lane != MIXED)
    }

    #[inline]
    pub(super) fn lane(&self, lane: u32) -> &Lane {
        &self.lanes[lane as usize]
    }

    /// Returns the lanes that have blocks.
    pub(super) fn busy(&self) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(self.next_busy(0), |lane| self.next_busy(lane + 1))
    }

    /// Returns the next lane that has blocks, from `lane` on.
    pub(super) fn next_busy(&self, lane: u32) -> Option<u32> {
        let mut index = (lane / 64) as usize;
        let mut word = self.busy.get(index)? & (u64::MAX << (lane % 64));
        while word == 0 {
            index += 1;
            word = *self.busy.get(index)?;
        }
        Some(index as u32 * 64 + word.trailing_zeros())
    }

    /// Adds a block to the lane of its frontier, which is not empty.
    #[inline]
    pub(super) fn insert(&mut self, blocks: &mut Blocks, id: u32) -> u32 {
        let lane = match blocks[id].after.single() {
            Some(point) => self.of(point.chain).unwrap_or_else(|| self.open(point.chain)),
            None => MIXED,
        };
        let at = &mut self.lanes[lane as usize];
        at.bins.insert(blocks, id);
        at.enqueue(blocks, id);
        self.busy[lane as usize / 64] |= 1 << (lane % 64);
        lane
    }

    #[inline]
    pub(super) fn remove(&mut self, blocks: &mut Blocks, lane: u32, id: u32) {
        let at = &mut self.lanes[lane as usize];
        at.bins.remove(blocks, id);
        at.dequeue(blocks, id);
        if at.earliest == NONE {
            self.busy[lane as usize / 64] &= !(1 << (lane % 64));
        }
    }

    /// Removes a block of a lane from its bin, but not from the queue, because its size is about to change.
    #[inline]
    pub(super) fn unbin(&mut self, blocks: &mut Blocks, lane: u32, id: u32) {
        self.lanes[lane as usize].bins.remove(blocks, id);
    }

    /// Adds a block to the bin of its new size.
    #[inline]
    pub(super) fn rebin(&mut self, blocks: &mut Blocks, lane: u32, id: u32) {
        self.lanes[lane as usize].bins.insert(blocks, id);
    }

    #[cold]
    fn open(&mut self, chain: ChainIndex) -> u32 {
        if self.by_chain.len() <= chain.index() {
            self.by_chain.resize(chain.index() + 1, MIXED);
        }
        let lane = self.add();
        self.by_chain[chain.index()] = lane;
        lane
    }

    fn add(&mut self) -> u32 {
        let lane = self.lanes.len() as u32;
        self.lanes.push(Lane { bins: Bins::new(self.grain_shift), earliest: NONE, latest: NONE });
        self.busy.resize(self.lanes.len().div_ceil(64), 0);
        lane
    }
}

impl Lane {
    /// Adds a block to the queue, nearly always at the end. A block that lay in a cache is inserted a little earlier.
    #[inline]
    fn enqueue(&mut self, blocks: &mut Blocks, id: u32) {
        let comes_after = |other: &Frontier| match (other.single(), blocks[id].after.single()) {
            (Some(other), Some(own)) => other.seq <= own.seq,
            _ => true,
        };
        let mut earlier = self.latest;
        while earlier != NONE && !comes_after(&blocks[earlier].after) {
            earlier = blocks[earlier].earlier;
        }
        let later = match earlier {
            NONE => std::mem::replace(&mut self.earliest, id),
            _ => std::mem::replace(&mut blocks[earlier].later, id),
        };
        match later {
            NONE => self.latest = id,
            _ => blocks[later].earlier = id,
        }
        (blocks[id].earlier, blocks[id].later) = (earlier, later);
    }

    #[inline]
    fn dequeue(&mut self, blocks: &mut Blocks, id: u32) {
        let (earlier, later) = (blocks[id].earlier, blocks[id].later);
        match earlier {
            NONE => self.earliest = later,
            _ => blocks[earlier].later = later,
        }
        match later {
            NONE => self.latest = earlier,
            _ => blocks[later].earlier = earlier,
        }
    }
}
