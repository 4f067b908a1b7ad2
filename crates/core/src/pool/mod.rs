//! The pool of device memory: free bytes, the streams that may use them, and after what.
//!
//! A pool is a virtual heap over one large reservation of addresses, with physical chunks mapped only where blocks
//! need them. A request is served in two steps. [`fit`](Pool::fit) takes, in constant time, a free block that is
//! wholly mapped and that the stream may use. If there is none, [`grow`](Pool::grow) finds addresses, moves idle
//! chunks there or asks for new ones, and leaves [`Step`]s for the caller to carry out: the pool decides and never
//! acts.
//!
//! The simple version keeps all memory it ever got. A best-fit heap then needs 2 to 11 % more than the peak of what
//! the program holds. Here idle chunks are given back or mapped elsewhere before the pool grows (`slack.rs` has the
//! conditions, `grow.rs` the way), so that what is reserved follows what is held.
//!
//! Uses points of an order through [`Knows`](crate::order::Knows) and [`Completed`] only; depends on nothing about
//! streams, drivers, threads or time.
//!
//! Invariants, re-derived by [`Pool::audit`]. Those of the parts are listed in their files.
//! * APART: no two held blocks share a byte, and a held block that is ready is wholly mapped.
//! * LEGAL: a block goes to a stream that comes after its frees, or the frees have completed, or [`Grant::after`] has
//!   them.
//! * SAFE: a chunk is unmapped only when the frees on it have completed, mapped a second time only when they precede
//!   the stream that gets it, and destroyed only when it is mapped nowhere. None of these happens under a held block.
//! * STEPWISE: the state changes only when a step has succeeded. A step that fails loses nothing.
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
pub use config::{DeviceRoom, Exhausted, Grant, PoolConfig, ReusePolicy, Shortage, Slack};
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

/// The memory of one pool. See the module.
#[derive(Debug)]
pub struct Pool {
    config: PoolConfig,
    heap: Heap,
    space: Space,
    budget: Budget,
    plan: Plan,
    /// Old mappings of chunks that were moved early, until they are unmapped.
    closed: Vec<Closed>,
    /// `true` if memory was moved and the holes that this left were not searched since.
    is_holed: bool,
    held: u64,
    /// The number of changes since the last audit, in builds with debug assertions.
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
    /// Makes an empty pool over a reservation of addresses. Incomplete granules at its ends are not used.
    ///
    /// # Panics
    /// If `grain` or `granularity` is not a power of two, `grain` exceeds `granularity`, or `range` holds no granule.
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

    /// Returns the settings.
    pub fn config(&self) -> &PoolConfig {
        &self.config
    }

    /// Changes the reuse policy, for later requests.
    pub fn set_reuse(&mut self, reuse: ReusePolicy) {
        self.config.reuse = reuse;
    }

    /// Changes the number of bytes to keep at a synchronisation.
    pub fn set_release_threshold(&mut self, bytes: u64) {
        self.config.release_threshold = bytes;
    }

    /// Changes the limit of reserved bytes; 0 is no limit.
    pub fn set_max_bytes(&mut self, bytes: u64) {
        self.config.max_bytes = bytes;
    }

    /// Returns the size of a block for `bytes`, or `None` if it exceeds the pool's range.
    #[inline]
    pub fn rounded(&self, bytes: u64) -> Option<u64> {
        round_up(bytes.max(1), self.config.grain).filter(|&rounded| rounded <= self.heap.range.bytes)
    }

    /// Frees a held block. It may be used again after the points of `freed`, and merges with neighbours whose frees
    /// were known there.
    ///
    /// # Panics
    /// If `block` is not held. Call [`locate`](Self::locate) first for numbers and addresses that are not certain.
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

    /// Opens to all streams the blocks whose frees have completed, and merges them.
    ///
    /// Call it at a synchronisation, with what that has shown to be completed; and before [`grow`](Self::grow), with
    /// the known progress of the device, if opportunistic reuse is allowed.
    pub fn retire(&mut self, completed: &impl Completed) {
        self.heap.retire(completed);
    }

    /// Counts requests that caches served, so that the allowance for moving memory follows the program's pace.
    pub fn count_served(&mut self, requests: u64) {
        self.budget.earn(requests);
    }

    /// Returns the bytes of physical memory that the pool has.
    pub fn reserved(&self) -> u64 {
        self.space.reserved()
    }

    /// Returns the highest number of reserved bytes since the last reset.
    pub fn reserved_high(&self) -> u64 {
        self.space.reserved_high()
    }

    /// Returns the bytes of held blocks: those of the program and those in caches.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Returns the bytes of chunks that are mapped with no held block on them.
    pub fn idle(&self) -> u64 {
        self.space.idle()
    }

    /// Returns the idle bytes in chunks that are not in use any more, as far as the pool knows.
    pub fn idle_over(&self) -> u64 {
        let over = self.space.idle_chunks().filter(|&chunk| self.is_late(chunk));
        over.map(|chunk| self.space.chunk(chunk).bytes).sum()
    }

    /// Returns the number of blocks, held and free, in the range: 1 when everything is free, over and given back.
    pub fn block_count(&self) -> usize {
        self.heap.blocks.count()
    }

    /// Returns the most that `reserved` rises to at the present held bytes while an idle chunk could be used instead
    /// (BOUND).
    pub fn bound(&self) -> u64 {
        self.budget.limits(self.held).loose
    }

    /// Resets [`reserved_high`](Self::reserved_high) to the current value.
    pub fn reset_reserved_high(&mut self) {
        self.space.reset_high();
    }
}
