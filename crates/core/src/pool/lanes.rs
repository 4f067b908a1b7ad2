//! Blocks that are free for one chain already and for others later: an index and a queue for each chain that freed.
//!
//! Knows blocks and points; nothing of memory.
//!
//! Invariants: QUEUE: a lane's queue holds exactly its blocks, in the order of their points on its chain. MIXED: the
//! lane 0 holds the blocks that are free after points of several chains; its queue has no order. BUSY: a bit is set
//! exactly where a lane has blocks.

use super::bins::Bins;
use super::block::{Blocks, NONE};
use super::frontier::Frontier;
use crate::ids::ChainIndex;

/// The number of the lane of blocks that are free after points of several chains.
pub(super) const MIXED: u32 = 0;

/// The pending free blocks of one chain.
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
    /// Chain -> lane; 0 where it has none.
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

    /// The lane of a chain, if it has ever had blocks.
    #[inline]
    pub(super) fn of(&self, chain: ChainIndex) -> Option<u32> {
        self.by_chain.get(chain.index()).copied().filter(|&lane| lane != MIXED)
    }

    #[inline]
    pub(super) fn lane(&self, lane: u32) -> &Lane {
        &self.lanes[lane as usize]
    }

    /// The lanes that have blocks.
    pub(super) fn busy(&self) -> impl Iterator<Item = u32> + '_ {
        self.busy.iter().enumerate().flat_map(|(index, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros())?;
                rest &= rest - 1;
                Some(index as u32 * 64 + bit)
            })
        })
    }

    /// The next lane that has blocks, from `lane` on.
    pub(super) fn next_busy(&self, lane: u32) -> Option<u32> {
        let mut index = (lane / 64) as usize;
        let mut word = self.busy.get(index)? & (u64::MAX << (lane % 64));
        while word == 0 {
            index += 1;
            word = *self.busy.get(index)?;
        }
        Some(index as u32 * 64 + word.trailing_zeros())
    }

    /// Puts a block in the lane that its frontier, which is not empty, asks for.
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

    /// A block of a lane is about to change its size: out of its bin, not of the queue.
    #[inline]
    pub(super) fn unbin(&mut self, blocks: &mut Blocks, lane: u32, id: u32) {
        self.lanes[lane as usize].bins.remove(blocks, id);
    }

    /// The size has changed.
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
    /// Nearly always at the end; a block that lay in a cache goes a little before.
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
