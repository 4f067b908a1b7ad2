//! Which bytes are free, for whom, after what.
//!
//! A pool is a virtual heap over one large reservation, with physical chunks mapped only where blocks need them.
//! Requests are served in two steps. [`fit`](Pool::fit) takes, in constant time, a free block that is wholly mapped and
//! that the stream may use. Where there is none, [`grow`](Pool::grow) finds addresses, moves idle chunks there or asks
//! for new ones, and leaves [`Step`]s for the caller to carry out: the pool decides and never acts.
//!
//! The simple version keeps all memory it ever got; a best-fit heap then needs 2 to 11 % more than the peak of
//! what the program holds. The departure is that idle chunks are given back or mapped elsewhere before the pool grows
//! (`slack.rs`: when; `grow.rs`: how), so that what is reserved follows what is held.
//!
//! Knows points of an order by [`Knows`](crate::order::Knows) and [`Completed`] only; nothing of streams, drivers,
//! threads or time.
//!
//! Invariants, re-derived by [`Pool::audit`]; those of the parts are named there:
//! * APART: no two held blocks share a byte, and a held block that is ready is wholly mapped.
//! * LEGAL: a block goes to a stream that stands after its frees, or they have completed, or [`Grant::after`] names
//!   them.
//! * SAFE: a chunk is unmapped when the frees on it have completed, mapped a second time when they precede the stream
//!   that gets it, and destroyed only when mapped nowhere. Never under a held block.
//! * STEPWISE: the state changes when a step has succeeded. A step that fails loses nothing.
//! * BOUND: see `slack.rs`.

mod audit;
mod bins;
mod block;
mod cache;
mod config;
mod defragment;
mod fit;
mod freed;
mod frontier;
mod grow;
mod heap;
mod landmarks;
mod lanes;
mod locate;
mod shadow;
mod slack;
mod steps;
mod trim;
mod window;

pub use cache::StreamCache;
pub use config::{Exhausted, Grant, PoolConfig, ReusePolicy, Shortage, Slack};
pub use freed::Freed;
pub use frontier::Frontier;
pub use locate::{Located, Neighbour};
pub use steps::Step;

use crate::ids::{BlockId, ChunkId};
use crate::order::Completed;
use crate::space::Space;
use crate::units::{Range, round_down, round_up};
use block::State;
use heap::Heap;
use slack::Budget;
use steps::Plan;

/// One pool's memory: see the module.
#[derive(Debug)]
pub struct Pool {
    config: PoolConfig,
    heap: Heap,
    space: Space,
    budget: Budget,
    plan: Plan,
    /// Old mappings of chunks that were moved early, until they are taken away.
    closed: Vec<Closed>,
    /// Memory was moved, and holes that this left were not looked for since.
    is_holed: bool,
    held: u64,
    /// Changes since the last audit, in builds with debug assertions.
    unaudited: usize,
}

/// The old mapping of a chunk that was moved before its last use had completed.
#[derive(Debug)]
struct Closed {
    chunk: ChunkId,
    range: Range,
    block: u32,
}

impl Pool {
    /// An empty pool over a reservation of addresses. What does not fill a granule at its ends is not used.
    ///
    /// # Panics
    /// Where `grain` or `granularity` is not a power of two, `grain` passes `granularity`, or `range` holds no granule.
    pub fn new(config: PoolConfig, range: Range) -> Pool {
        let PoolConfig { grain, granularity, .. } = config;
        assert!(grain.is_power_of_two() && granularity.is_power_of_two() && grain <= granularity);
        let start = round_up(range.start, granularity).expect("the range lies in the address space");
        let range = Range::between(start, round_down(range.end(), granularity).max(start));
        assert!(!range.is_empty(), "the range holds a granule");
        Pool {
            heap: Heap::new(range, grain.trailing_zeros()),
            space: Space::new(range.start, granularity),
            budget: Budget::new(&config),
            plan: Plan::default(),
            closed: Vec::new(),
            is_holed: false,
            held: 0,
            unaudited: 0,
            config,
        }
    }

    /// The settings.
    pub fn config(&self) -> &PoolConfig {
        &self.config
    }

    /// Changes the reuse policy, for later requests.
    pub fn set_reuse(&mut self, reuse: ReusePolicy) {
        self.config.reuse = reuse;
    }

    /// Changes the bytes to keep at a synchronisation.
    pub fn set_release_threshold(&mut self, bytes: u64) {
        self.config.release_threshold = bytes;
    }

    /// Changes the most that may be reserved; 0 is no limit.
    pub fn set_max_bytes(&mut self, bytes: u64) {
        self.config.max_bytes = bytes;
    }

    /// `bytes` rounded up to what a block for them has; `None` where that passes the pool's range.
    #[inline]
    pub fn rounded(&self, bytes: u64) -> Option<u64> {
        round_up(bytes.max(1), self.config.grain).filter(|&rounded| rounded <= self.heap.range.bytes)
    }

    /// Frees a held block: it may be used again after the points of `freed`, and merges with neighbours whose frees
    /// were known there.
    ///
    /// # Panics
    /// Where `block` is not held: ask [`locate`](Self::locate) first about numbers and addresses that are not certain.
    #[inline]
    pub fn free(&mut self, block: BlockId, freed: Freed<'_>) {
        let at = self.heap.blocks.lookup(block).filter(|at| at.state == State::Held).expect("the block is held");
        let range = at.range();
        self.held -= range.bytes;
        self.space.unpin(range);
        self.budget.earn(1);
        let Freed { after, who } = freed;
        self.heap.shadow.free(range, &after);
        match who {
            Some(who) if self.config.reuse.follow_event_dependencies => {
                self.heap.release(block.0, State::Free, after, |other| other.is_known_to(&who));
            }
            _ => self.heap.release(block.0, State::Free, after, |_| false),
        }
        self.audit_in_turn();
    }

    /// Opens to all streams what was freed before points that have completed, and merges it.
    ///
    /// To be called at a synchronisation with what that has made certain; and before [`grow`](Self::grow) with what the
    /// device is known to be past, where opportunistic reuse is allowed.
    pub fn retire(&mut self, completed: &impl Completed) {
        self.heap.retire(completed);
    }

    /// Counts requests that caches served, so that the allowance for moving memory follows the program's pace.
    pub fn count_served(&mut self, requests: u64) {
        self.budget.earn(requests);
    }

    /// Bytes of physical memory that the pool has.
    pub fn reserved(&self) -> u64 {
        self.space.reserved()
    }

    /// The most that was reserved since the last reset.
    pub fn reserved_high(&self) -> u64 {
        self.space.reserved_high()
    }

    /// Bytes of held blocks: in the program's hands or in caches.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Bytes of chunks that are mapped with no held block on them.
    pub fn idle(&self) -> u64 {
        self.space.idle()
    }

    /// Of the idle bytes, those of chunks that nothing uses any more, as far as the pool knows.
    pub fn idle_over(&self) -> u64 {
        let over = self.space.idle_chunks().filter(|&chunk| self.is_late(chunk));
        over.map(|chunk| self.space.chunk(chunk).bytes).sum()
    }

    /// How many blocks the range is cut into, held and free: 1 when all is free, over and given back.
    pub fn block_count(&self) -> usize {
        self.heap.blocks.count()
    }

    /// The most that `reserved` rises to, at what is held now, while an idle chunk could be used instead (BOUND).
    pub fn bound(&self) -> u64 {
        self.budget.limits(self.held).loose
    }

    /// Sets the high mark of reserved bytes to the current value.
    pub fn reset_reserved_high(&mut self) {
        self.space.reset_high();
    }
}
