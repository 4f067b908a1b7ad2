//! The rule of `Slack::Pressure`, case by case: loose with room, tight without, and no flapping in between.

use millpond_core::ids::{BlockId, ChainIndex, Point, Seq};
use millpond_core::order::{Completed, Knows, Learns};
use millpond_core::pool::{DeviceRoom, Freed, Grant, Pool, PoolConfig, Slack, Step};
use millpond_core::units::{GIB, MIB, Range};

/// A stream that is alone, with a device that has completed everything.
struct Alone;

impl Knows for Alone {
    fn chain(&self) -> ChainIndex {
        ChainIndex(0)
    }

    fn covers(&self, _: Point) -> bool {
        true
    }
}

impl Learns for Alone {
    fn learned(&self) -> Seq {
        0
    }
}

impl Completed for Alone {
    fn is_over(&self, _: Point) -> bool {
        true
    }
}

/// A pool on a device that others use, too.
struct Device {
    pool: Pool,
    total: u64,
    others: u64,
}

impl Device {
    fn new(total: u64, config: PoolConfig) -> Self {
        Self { pool: Pool::new(config, Range::new(1 << 40, 64 * GIB)), total, others: 0 }
    }

    /// With chunks of a granule, so that each block of 2 MiB that is freed can be moved.
    fn pressure(total: u64) -> Self {
        let config = PoolConfig { slack: Slack::Pressure, chunk_bytes_max: 2 * MIB, ..PoolConfig::default() };
        Self::new(total, config)
    }

    fn free_bytes(&self) -> u64 {
        self.total - self.others - self.pool.reserved()
    }

    fn see_room(&mut self) {
        let room = DeviceRoom { free: self.free_bytes(), total: self.total };
        self.pool.see_room(Some(room));
    }

    /// Returns the steps that a request takes, or `None` if it is refused.
    fn try_alloc(&mut self, bytes: u64) -> Option<(Grant, Vec<Step>)> {
        if let Ok(grant) = self.pool.fit(bytes, &Alone) {
            return Some((grant, Vec::new()));
        }
        let mut steps = Vec::new();
        for refusals in 0.. {
            self.see_room();
            let grant = self.pool.grow(bytes, &Alone, &Alone, refusals).ok()?;
            loop {
                match self.pool.next_step() {
                    None => return Some((grant, steps)),
                    Some(Step::Create { bytes, .. }) if bytes > self.free_bytes() => break,
                    Some(step) => {
                        steps.push(step);
                        self.pool.applied();
                    }
                }
            }
            self.pool.failed();
        }
        None
    }

    fn alloc(&mut self, bytes: u64) -> (BlockId, Vec<Step>) {
        let (grant, steps) = self.try_alloc(bytes).expect("there is memory");
        self.pool.audit().unwrap();
        (grant.block, steps)
    }

    fn free(&mut self, block: BlockId) {
        self.pool.free(block, Freed::at(&Alone, 1));
    }

    /// Allocates so many blocks of 2 MiB, and frees every second: idle memory in which nothing larger fits.
    fn riddle(&mut self, count: usize) {
        let blocks: Vec<_> = (0..count).map(|_| self.alloc(2 * MIB).0).collect();
        blocks.into_iter().step_by(2).for_each(|block| self.free(block));
        self.pool.retire(&Alone);
    }
}

fn is_move(step: &Step) -> bool {
    matches!(step, Step::Unmap { .. } | Step::Destroy { .. })
}

#[test]
fn with_room_nothing_is_moved_or_given_back() {
    let mut device = Device::pressure(16 * GIB);
    device.riddle(256);
    let before = device.pool.reserved();
    let (_, steps) = device.alloc(128 * MIB);
    assert!(!steps.iter().any(is_move), "{steps:?}");
    assert_eq!((device.pool.reserved(), device.pool.idle_over()), (before + 128 * MIB, 256 * MIB));
}

/// A large free block is whole when the next large request comes, whatever was asked for in between and did not fit.
#[test]
fn with_room_a_large_free_block_is_kept_whole() {
    for (slack, is_whole) in [(Slack::Pressure, true), (Slack::Fixed(0.0), false)] {
        let mut device = Device::new(16 * GIB, PoolConfig { slack, ..PoolConfig::default() });
        let (large, _) = device.alloc(256 * MIB);
        let (_, _) = device.alloc(2 * MIB);
        device.free(large);
        let (_, _) = device.alloc(300 * MIB);
        let steps = device.alloc(256 * MIB).1;
        assert_eq!(steps.is_empty(), is_whole, "{slack:?}: {steps:?}");
    }
}

#[test]
fn without_room_idle_memory_is_moved_before_the_pool_grows() {
    let mut device = Device::pressure(16 * GIB);
    device.others = 9 * GIB;
    device.riddle(256);
    let before = device.pool.reserved();
    let (_, steps) = device.alloc(128 * MIB);
    assert!(steps.iter().any(is_move), "{steps:?}");
    assert!(device.pool.reserved() <= before.max(device.pool.bound()));
}

/// Whoever fills the device, this pool or others: from half of it on the pool is tight.
#[test]
fn a_pool_takes_half_of_the_device_for_no_reason_and_no_more() {
    let mut device = Device::pressure(GIB);
    device.riddle(240);
    assert!(!device.alloc(32 * MIB).1.iter().any(is_move), "there is room for this one");
    let (_, steps) = device.alloc(128 * MIB);
    assert!(steps.iter().any(is_move), "{steps:?}");
    assert_eq!(device.pool.reserved(), 512 * MIB);
}

#[test]
fn it_does_not_flap_where_the_free_memory_hovers() {
    let mut device = Device::pressure(1000 * MIB);
    let mut is_loose = |free: u64| {
        device.others = device.total - free * MIB;
        device.see_room();
        device.pool.bound() > 2 * MIB
    };
    assert_eq!([590, 599, 600].map(&mut is_loose), [false, false, true], "loose from 60 % free on");
    assert_eq!([599, 510, 505, 590, 503].map(&mut is_loose), [true; 5], "and until less than half is free");
    assert_eq!([499, 501, 550, 599, 499].map(&mut is_loose), [false; 5], "then tight, until 60 % are free again");
    assert!(is_loose(600));
}

#[test]
fn the_limit_of_a_pool_counts_as_a_device() {
    let mut device = Device::pressure(64 * GIB);
    device.pool.set_max_bytes(1000 * MIB);
    device.see_room();
    assert_eq!(device.pool.bound(), 500 * MIB, "half of the limit");
    device.others = 63 * GIB;
    device.see_room();
    assert_eq!(device.pool.bound(), 2 * MIB, "the device has no room");
    device.others = 0;
    device.riddle(400);
    let before = device.pool.reserved();
    assert!(device.alloc(128 * MIB).1.iter().any(is_move), "the limit has no room");
    assert!(device.pool.reserved() <= before.max(500 * MIB));
}

/// Between loose and full, what makes moves urgent comes closer: a sixteenth of the free memory, and in the end 96 MiB.
#[test]
fn the_limit_comes_closer_as_the_device_fills() {
    let mut device = Device::new(64 * GIB, PoolConfig { slack: Slack::Pressure, ..PoolConfig::default() });
    device.others = 40 * GIB;
    device.alloc(16 * GIB);
    let mut over = |free: u64| {
        device.others = device.total - device.pool.reserved() - free * MIB;
        device.see_room();
        (device.pool.bound() - device.pool.held() - 2 * MIB) / MIB - 16 * 1024 / 200
    };
    assert_eq!([8192, 4096, 2048, 1536, 1024, 0].map(&mut over), [492, 256, 128, 96, 96, 96], "3 % are 492 MiB");
    device.pool.set_max_bytes(18 * GIB);
    device.others = 40 * GIB;
    device.see_room();
    let bound = device.pool.held() + 2 * MIB + 16 * GIB / 200 + 128 * MIB;
    assert_eq!(device.pool.bound(), bound, "a sixteenth of what the limit leaves");
}

/// Idle memory is in pieces of 2 MiB, and the device has none left: a request that fits only once they are moved is
/// served, and one that is larger than everything that can be moved is refused.
#[test]
fn everything_movable_is_moved_before_a_request_is_refused() {
    for others in [0, 700 * MIB] {
        let mut device = Device::pressure(GIB);
        device.others = others;
        device.riddle(((GIB - others) / (2 * MIB)) as usize);
        let idle = device.pool.idle_over() + device.free_bytes();
        assert_eq!(idle, (GIB - others) / 2, "the device is full, and half of the pool idle");
        let (block, steps) = device.alloc(idle);
        let moves = steps.iter().filter(|step| is_move(step)).count();
        assert!(moves > 80, "{moves}");
        assert!(device.try_alloc(2 * MIB).is_none(), "everything is held");
        device.free(block);
        assert!(device.try_alloc(idle + 2 * MIB).is_none(), "more than can be moved");
        device.pool.audit().unwrap();
    }
}

/// The same program with the same answers takes the same steps, whatever is asked in between.
#[test]
fn where_nobody_knows_the_room_it_is_adaptive() {
    let played = |slack: Slack| {
        let mut pool = Pool::new(PoolConfig { slack, ..PoolConfig::default() }, Range::new(1 << 40, 64 * GIB));
        let (mut random, mut live, mut all) = (0x9E37_79B9_7F4A_7C15_u64, Vec::<BlockId>::new(), Vec::new());
        for _ in 0..2000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            if live.len() > 40 {
                pool.free(live.swap_remove(random as usize % live.len()), Freed::at(&Alone, 1));
                continue;
            }
            let bytes = 1 << (9 + random % 17);
            live.push(match pool.fit(bytes, &Alone) {
                Ok(grant) => grant.block,
                Err(_) => {
                    if pool.asks_room() {
                        pool.see_room(None);
                    }
                    pool.grow(bytes, &Alone, &Alone, 0).unwrap().block
                }
            });
            while let Some(step) = pool.next_step() {
                all.push(step);
                pool.applied();
            }
        }
        all
    };
    let steps = played(Slack::Adaptive);
    assert!(steps.iter().any(is_move) && steps == played(Slack::Pressure));
}
