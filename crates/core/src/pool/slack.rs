//! The slack of a pool: how much more than it needs it may reserve, and what it may spend to stay below that.
//!
//! The exact BOUND: *held* is the sum of the held blocks' bytes, each rounded up to the grain. When a request makes
//! `reserved` rise, then afterwards
//!
//! > reserved <= held + slack + one granule, or no chunk was left that is idle and over.
//!
//! A *fixed* slack is a fraction of the held bytes. The *adaptive* slack is 0.5 % of them plus another 3 %, where the
//! latter is at most 48 granules (96 MiB). So a small pool may use more in proportion to its size than a large one,
//! because a driver call costs the same in both.
//!
//! The *pressure* slack depends on how full the device is. R bytes were reserved, and F of the device's T bytes were
//! free, when the caller last reported that. The slack is the adaptive one with F / 16 in place of 48 granules, if that
//! is more. While the pool is loose (below), the right side of the BOUND is R + F - T / 2, if that is more.
//!
//! A chunk is *over* when the pool knows that all frees on it have completed and no older mapping of it is left. (If
//! a block was merged with a later one, the later frees count.) Chunks that are idle but not over are used, too, if
//! their frees precede the request and they fit; at most 256 chunks that cannot be used are passed by. A chunk that
//! is not idle can never be used: one held block of 512 bytes pins its whole chunk.
//!
//! So the bound leaves two things open: the free part of chunks that held blocks overlap, and memory whose last use
//! is still to come. The former is kept small by the size of chunks and by placing blocks in the smallest free blocks
//! that fit, which lie in such chunks. It is measured (docs/slack.md), not promised: no allocator that may not move
//! blocks can promise it.
//!
//! A request that does not make `reserved` rise leaves it unchanged. Idle memory goes back at a synchronisation
//! (release threshold), by trimming, or when the pool must grow.
//!
//! *Adaptive* slack has two limits. Growth up to the tight one, 0.5 %, is free. Between the two, idle chunks are used
//! first as long as the allowance lasts: each request and each free adds a little time to it, and each driver call
//! takes its measured cost. Beyond the loose limit, chunks are used regardless of cost. So a program that needs
//! little moving stays tight, and one that would have to move all the time uses a little more memory instead.
//!
//! *Pressure* slack knows how full the device is. The caller reports that before the pool grows. The pool is *loose*
//! from 60 % of the device free on, until less than 50 % is free. While it is loose, growth until half of the device is
//! left needs no reason: idle chunks are neither moved nor given back, so that no free block loses a part. Everything
//! beyond follows the adaptive rules with a loose limit that comes closer as the device fills. The limit of a pool
//! counts as a device that only this pool uses: there must be room on both, and the fuller one counts. Without a report
//! the slack is adaptive.
//!
//! Whatever the slack: if the system refuses memory, or the limit does, all idle chunks are used, at any cost, before a
//! request fails.
//!
//! *Chunks.* A driver call costs about the same for any size of chunk, but one block pins a whole chunk. So a large
//! request gets chunks of its own size: the free of its block makes them idle. Small requests, of which many share a
//! chunk, get chunks that are a small fraction of what is held. And no chunk is larger than the room below the loose
//! limit: a pool full of pinned memory grows in small chunks, which can be moved.
//!
//! A loose pool gets chunks of its requests' sizes, or of a third of the held bytes if that is more (32 MiB at least,
//! 2 % of its room at most): few calls create it. They become as small as other pools' chunks before the room is used
//! up, because what one block pins counts from then on (docs/slack.md).
//!
//! Depends on costs and sums; on neither blocks nor chunks.

use super::{DeviceRoom, PoolConfig, Slack};
use crate::units::{MIB, round_down, round_up};

/// The cost of a call in nanoseconds, whatever the size of the chunk.
pub(super) const MAP_NS: u64 = 23_000;
pub(super) const UNMAP_NS: u64 = 19_000;
pub(super) const CREATE_NS: u64 = 8_000;
/// The cost of moving a chunk.
pub(super) const MOVE_NS: u64 = UNMAP_NS + MAP_NS;
pub(super) const DESTROY_NS: u64 = 9_000;
/// The additional cost of destroying a chunk, for each MiB.
pub(super) const DESTROY_NS_PER_MIB: u64 = 280;

/// The nanoseconds that a request or a free adds to the allowance.
const EARNED_NS: i64 = 50;
/// The most that the allowance can be.
const ALLOWANCE_MAX_NS: i64 = 20_000_000;
/// Adaptive slack: the tight limit, what the loose limit adds to it, and the most that this may be in granules.
const TIGHT: f64 = 0.005;
const LOOSER: f64 = 0.03;
const LOOSER_GRANULES: u64 = 48;
/// Except for large requests, a chunk is at most the held bytes divided by this.
const CHUNK_PART: u64 = 512;
/// In granules: the least that a request must lack to get chunks of its own size, and the largest such chunk.
const LARGE_GRANULES: u64 = 4;
const LARGE_CHUNK_GRANULES: u64 = 16;

/// Pressure slack: the free part of the device in per cent from which on a pool is loose, and below which it is tight.
const LOOSE_FROM: u64 = 60;
const TIGHT_BELOW: u64 = 50;
/// The chunks of a loose pool: the held bytes divided by the first, and at most the room divided by the second.
const ROOMY_PART: u64 = 3;
const ROOM_PART: u64 = 50;
/// What the loose limit adds to the tight one is at most the free memory divided by this, or what it adds with adaptive
/// slack.
const FREE_PART: u64 = 16;

/// Returns the cost of unmapping and destroying a chunk.
pub(super) fn release_cost(bytes: u64) -> u64 {
    UNMAP_NS + DESTROY_NS + DESTROY_NS_PER_MIB * (bytes / MIB)
}

/// Limits of the reserved bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Limits {
    /// Growth up to here needs no reason.
    pub(super) tight: u64,
    /// Beyond this, idle chunks are used regardless of cost.
    pub(super) loose: u64,
}

/// The limits and the allowance of a pool.
#[derive(Debug)]
pub(super) struct Budget {
    slack: Slack,
    granule: u64,
    chunk_max: u64,
    allowance: i64,
    /// Pressure slack: `true` if the device had room at the last report.
    is_loose: bool,
    /// The reserved bytes up to which the pool may grow for no reason since the last report; 0 while it is not loose.
    roomy: u64,
    /// Pressure slack: the bytes that were free at the last report.
    free: u64,
}

impl Budget {
    pub(super) fn new(config: &PoolConfig) -> Self {
        Self {
            slack: config.slack,
            granule: config.granularity,
            chunk_max: round_down(config.chunk_bytes_max, config.granularity).max(config.granularity),
            allowance: 0,
            is_loose: false,
            roomy: 0,
            free: 0,
        }
    }

    /// Returns `true` if the limits depend on how full the device is.
    pub(super) fn asks_room(&self) -> bool {
        self.slack == Slack::Pressure
    }

    /// Takes a report while `reserved` bytes are reserved: the memory of the device, if its driver knows it, and that
    /// of the pool's limit, if it has one.
    pub(super) fn see_room(&mut self, reserved: u64, device: Option<DeviceRoom>, limit: Option<DeviceRoom>) {
        (self.roomy, self.free) = (0, 0);
        let Some(device) = device.filter(|_| self.asks_room()) else {
            self.is_loose = false;
            return;
        };
        let part = |room: &DeviceRoom, percent: u64| (u128::from(room.total) * u128::from(percent) / 100) as u64;
        let percent = if self.is_loose { TIGHT_BELOW } else { LOOSE_FROM };
        let rooms = [device, limit.unwrap_or(device)];
        let [one, other] = rooms.map(|room| room.free.saturating_sub(part(&room, TIGHT_BELOW)));
        self.is_loose = rooms.iter().all(|room| room.free >= part(room, percent));
        self.free = rooms[0].free.min(rooms[1].free);
        if self.is_loose {
            self.roomy = reserved.saturating_add(one.min(other));
        }
    }

    /// Adds the allowance of this many requests and frees.
    #[inline]
    pub(super) fn earn(&mut self, events: u64) {
        self.allowance = (self.allowance + EARNED_NS * events as i64).min(ALLOWANCE_MAX_NS);
    }

    /// Returns `true` if the allowance covers `cost`.
    pub(super) fn affords(&self, cost: u64) -> bool {
        self.allowance >= cost as i64
    }

    /// Returns what may be spent on work that no request waits for.
    pub(super) fn half(&self) -> u64 {
        (self.allowance / 2).max(0) as u64
    }

    /// Takes the cost of moved memory from the allowance. It never goes below 0, because moves that were made
    /// regardless of cost must leave no debt: a program that was short of memory once would otherwise grow loosely
    /// for a long time.
    pub(super) fn spend(&mut self, cost: u64) {
        self.allowance = (self.allowance - cost as i64).max(0);
    }

    /// Returns the limits while `held` bytes are held.
    pub(super) fn limits(&self, held: u64) -> Limits {
        let part = |slack: f64| (held as f64 * slack.max(0.0)) as u64;
        let limit = |slack: u64| held.saturating_add(slack).saturating_add(self.granule);
        let Limits { tight, loose } = match self.slack {
            Slack::Adaptive | Slack::Pressure => {
                let most = (LOOSER_GRANULES * self.granule).max(self.free / FREE_PART);
                let (tight, looser) = (part(TIGHT), part(LOOSER).min(most));
                Limits { tight: limit(tight), loose: limit(tight + looser) }
            }
            Slack::Fixed(slack) => Limits { tight: limit(part(slack)), loose: limit(part(slack)) },
        };
        Limits { tight: tight.max(self.roomy), loose: loose.max(self.roomy) }
    }

    /// Returns the size of new chunks while `held` bytes are held, for a hole that lacks `lacks` bytes, with `room`
    /// bytes left below the loose limit.
    pub(super) fn chunk_bytes(&self, held: u64, lacks: u64, room: u64) -> u64 {
        let large = LARGE_CHUNK_GRANULES * self.granule;
        let (part, own_max) = match self.slack {
            Slack::Pressure if self.roomy > 0 => {
                let part = (held / ROOMY_PART).max(large).min(room / ROOM_PART);
                (part.max(held / CHUNK_PART), self.chunk_max)
            }
            Slack::Adaptive => (held / CHUNK_PART, large),
            Slack::Pressure => (held / CHUNK_PART, 2 * large),
            Slack::Fixed(slack) => ((held as f64 * slack.clamp(0.0, 1.0) / 8.0) as u64, large),
        };
        let own = if lacks >= LARGE_GRANULES * self.granule { lacks.min(room).min(own_max) } else { 0 };
        let bytes = round_up(part.max(own), self.granule).unwrap_or(self.chunk_max);
        bytes.clamp(self.granule, self.chunk_max)
    }
}
