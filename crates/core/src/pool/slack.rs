//! How much more than it needs a pool may reserve, and what it may spend to stay below that.
//!
//! BOUND, exactly. *Held* are the bytes of held blocks, each rounded up to the grain. When a request makes `reserved`
//! rise, then after it
//!
//! > reserved <= held + slack + one granule, or no chunk was left that is idle and over.
//!
//! A *fixed* slack is a part of the held bytes. The *adaptive* one is 0.5 % of them and another 3 %, these at most 48
//! granules (96 MiB): a small pool may use more for its size than a large one, as a driver call costs the same in both.
//!
//! A chunk is *over* when the pool knows all frees on it to have completed (those of a block merged with a later one
//! count from then on) and no older mapping of it is left. Of chunks that are idle but not over, those whose frees
//! precede the request are used too where they fit; at most 256 of the others are passed by. A chunk that is not idle
//! can never be used: one held block of 512 bytes pins the whole chunk that it is in. So what the bound leaves open is
//! the free part of chunks that held blocks overlap, and memory whose last use is still to come. The former is kept
//! small by placing blocks in the smallest free blocks that fit, which lie in such chunks, and by the size of chunks.
//! It is measured (docs/slack.md), not promised: no allocator that may not move a block can.
//!
//! A request that does not make `reserved` rise leaves it as it is: idle memory goes back at a synchronisation (release
//! threshold), by trimming, or when something must grow.
//!
//! *Adaptive* slack has two limits. Growth up to the tight one, 0.5 %, is free. Between the two, idle chunks are used
//! first as long as the allowance lasts: each request and each free adds a little time to it, each call to a driver
//! takes what it was measured to cost. Beyond the loose limit chunks are used regardless of cost. So a program for
//! which little moving is enough stays tight, and one that would have to move all the time pays for it with a little
//! memory instead.
//!
//! *Chunks.* Calls are paid by the chunk, hardly by the byte, but one block pins the whole of a chunk. So a large
//! request gets chunks of its own size: the block that it leaves frees them. Small ones, of which many come to lie on a
//! chunk, get chunks that are a small part of what is held. And no chunk passes what is left below the loose limit: a
//! pool that has its fill of pinned memory grows in small ones, which can be moved.
//!
//! Knows costs and sums; neither blocks nor chunks.

use super::{PoolConfig, Slack};
use crate::units::{MIB, round_down, round_up};

/// What a call costs, in nanoseconds, whatever the size of the chunk.
pub(super) const MAP_NS: u64 = 23_000;
pub(super) const UNMAP_NS: u64 = 19_000;
pub(super) const CREATE_NS: u64 = 8_000;
/// What it costs to move a chunk.
pub(super) const MOVE_NS: u64 = UNMAP_NS + MAP_NS;
pub(super) const DESTROY_NS: u64 = 9_000;
/// Destroying a chunk also costs this for each MiB.
pub(super) const DESTROY_NS_PER_MIB: u64 = 280;

/// What a request or a free adds to the allowance.
const EARNED_NS: i64 = 50;
/// The allowance does not pass this.
const ALLOWANCE_MAX_NS: i64 = 20_000_000;
/// Adaptive slack: the tight limit; what the loose one adds to it, and the most of that in granules.
const TIGHT: f64 = 0.005;
const LOOSER: f64 = 0.03;
const LOOSER_GRANULES: u64 = 48;
/// A chunk is at most this part of the held bytes, but for large requests.
const CHUNK_PART: u64 = 512;
/// In granules: what a request must lack at least to get chunks of its size, and the largest of these.
const LARGE_GRANULES: u64 = 4;
const LARGE_CHUNK_GRANULES: u64 = 16;

/// What it costs to unmap and destroy a chunk.
pub(super) fn release_cost(bytes: u64) -> u64 {
    UNMAP_NS + DESTROY_NS + DESTROY_NS_PER_MIB * (bytes / MIB)
}

/// Bytes that may be reserved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Limits {
    /// Up to here growth needs no reason.
    pub(super) tight: u64,
    /// Beyond this idle chunks are used regardless of cost.
    pub(super) loose: u64,
}

/// The limits and the allowance of a pool.
#[derive(Debug)]
pub(super) struct Budget {
    slack: Slack,
    granule: u64,
    chunk_max: u64,
    allowance: i64,
}

impl Budget {
    pub(super) fn new(config: &PoolConfig) -> Self {
        Self {
            slack: config.slack,
            granule: config.granularity,
            chunk_max: round_down(config.chunk_bytes_max, config.granularity).max(config.granularity),
            allowance: 0,
        }
    }

    /// So many requests and frees went by.
    #[inline]
    pub(super) fn earn(&mut self, events: u64) {
        self.allowance = (self.allowance + EARNED_NS * events as i64).min(ALLOWANCE_MAX_NS);
    }

    /// Whether the allowance is enough for `cost`.
    pub(super) fn affords(&self, cost: u64) -> bool {
        self.allowance >= cost as i64
    }

    /// What may be spent on what no request waits for.
    pub(super) fn half(&self) -> u64 {
        (self.allowance / 2).max(0) as u64
    }

    /// Memory was moved. What had to be done regardless of cost leaves no debt: a program that is short of memory once
    /// would otherwise grow loosely for long after.
    pub(super) fn spend(&mut self, cost: u64) {
        self.allowance = (self.allowance - cost as i64).max(0);
    }

    /// The limits when `held` bytes are held.
    pub(super) fn limits(&self, held: u64) -> Limits {
        let part = |slack: f64| (held as f64 * slack.max(0.0)) as u64;
        let limit = |slack: u64| held.saturating_add(slack).saturating_add(self.granule);
        match self.slack {
            Slack::Adaptive => {
                let (tight, looser) = (part(TIGHT), part(LOOSER).min(LOOSER_GRANULES * self.granule));
                Limits { tight: limit(tight), loose: limit(tight + looser) }
            }
            Slack::Fixed(slack) => Limits { tight: limit(part(slack)), loose: limit(part(slack)) },
        }
    }

    /// How large chunks are when `held` bytes are held, for a hole that lacks `lacks`, with `room` bytes left below the
    /// loose limit.
    pub(super) fn chunk_bytes(&self, held: u64, lacks: u64, room: u64) -> u64 {
        let part = match self.slack {
            Slack::Adaptive => held / CHUNK_PART,
            Slack::Fixed(slack) => (held as f64 * slack.clamp(0.0, 1.0) / 8.0) as u64,
        };
        let own = match lacks >= LARGE_GRANULES * self.granule {
            true => lacks.min(room).min(LARGE_CHUNK_GRANULES * self.granule),
            false => 0,
        };
        let bytes = round_up(part.max(own), self.granule).unwrap_or(self.chunk_max);
        bytes.clamp(self.granule, self.chunk_max)
    }
}
