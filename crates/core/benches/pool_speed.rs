//! Time of the pool's own work, without a driver: pairs, random replacement, many holes.
//!
//! `cargo bench -p millpond-core --bench pool_speed -- [cache|pairs|holes|replacement|random]`. Prints nanoseconds per
//! pair, the least and the median of many short runs. The machine is shared; the least is the cost of the code. RMM's
//! `random_allocations` are run with each slack; *full* is a device that others have filled.

use millpond_core::ids::{BlockId, ChainIndex, Point, Seq};
use millpond_core::order::{Completed, Knows, Learns};
use millpond_core::pool::{DeviceRoom, Freed, Grant, Pool, PoolConfig, Slack, Step, StreamCache};
use millpond_core::units::{GIB, KIB, MIB, Range};
use std::time::Instant;

struct One(u64);

impl Knows for One {
    fn chain(&self) -> ChainIndex {
        ChainIndex(0)
    }

    fn covers(&self, _: Point) -> bool {
        true
    }
}

impl Learns for One {
    fn learned(&self) -> Seq {
        0
    }
}

impl Completed for One {
    fn is_over(&self, _: Point) -> bool {
        true
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The bytes of an H200.
const DEVICE: u64 = 139 * GIB;

struct Bench {
    pool: Pool,
    who: One,
    /// The bytes of the device that others use.
    others: u64,
    priced_ns: u64,
    calls: u64,
    grown: u64,
}

impl Bench {
    fn new() -> Self {
        Self::with(Slack::Adaptive, 0)
    }

    fn with(slack: Slack, others: u64) -> Self {
        let pool = Pool::new(PoolConfig { slack, ..PoolConfig::default() }, Range::new(1 << 40, 4096 * GIB));
        Self { pool, who: One(0), others, priced_ns: 0, calls: 0, grown: 0 }
    }

    fn alloc(&mut self, bytes: u64) -> BlockId {
        self.who.0 += 1;
        match self.pool.fit(bytes, &self.who) {
            Ok(grant) => grant.block,
            Err(_) => self.shortage(bytes).block,
        }
    }

    #[cold]
    fn shortage(&mut self, bytes: u64) -> Grant {
        self.pool.retire(&self.who);
        if let Ok(grant) = self.pool.fit(bytes, &self.who) {
            return grant;
        }
        self.grown += 1;
        if self.pool.asks_room() {
            self.priced_ns += 5_000;
            self.calls += 1;
            let free = DEVICE.saturating_sub(self.pool.reserved() + self.others);
            self.pool.see_room(Some(DeviceRoom { free, total: DEVICE }));
        }
        let grant = self.pool.grow(bytes, &self.who, &self.who, 0).expect("there is no limit");
        while let Some(step) = self.pool.next_step() {
            self.priced_ns += match step {
                Step::Create { .. } => 8_000,
                Step::Map { .. } => 23_000,
                Step::Unmap { .. } => 19_000,
                Step::Destroy { bytes, .. } => 9_000 + 280 * (bytes / MIB),
            };
            self.calls += 1;
            self.pool.applied();
        }
        grant
    }

    fn free(&mut self, block: BlockId) {
        self.who.0 += 1;
        self.pool.free(block, Freed::at(&self.who, self.who.0));
    }
}

/// Returns the least and the median.
fn summary(mut runs: Vec<f64>) -> String {
    runs.sort_by(f64::total_cmp);
    format!("{:.1} ns (median {:.1})", runs[0], runs[runs.len() / 2])
}

/// Returns the nanoseconds of one of `count` calls.
fn timed(count: u32, mut call: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..count).for_each(|_| call());
    start.elapsed().as_nanos() as f64 / f64::from(count)
}

fn pairs(bytes: u64) -> String {
    let mut bench = Bench::new();
    let keep = bench.alloc(64 * MIB);
    bench.free(keep);
    let pair = |bench: &mut Bench| {
        let block = bench.alloc(bytes);
        bench.free(block);
    };
    summary((0..31).map(|_| timed(20_000, || pair(&mut bench))).collect())
}

fn cache_pairs() -> String {
    let mut cache = StreamCache::new();
    cache.put(64 * KIB, (BlockId(1), Point { chain: ChainIndex(0), seq: 1 })).expect("there is room");
    let pair = |cache: &mut StreamCache<_>| {
        let block = cache.take(std::hint::black_box(64 * KIB)).expect("it was put");
        cache.put(std::hint::black_box(64 * KIB), block).expect("there is room");
    };
    summary((0..31).map(|_| timed(50_000, || pair(&mut cache))).collect())
}

/// 1 KiB pairs among `holes` free holes of 1 KiB.
fn among_holes(holes: u32) -> String {
    let mut bench = Bench::new();
    let blocks: Vec<BlockId> = (0..2 * holes).map(|_| bench.alloc(KIB)).collect();
    blocks.iter().step_by(2).for_each(|&block| bench.free(block));
    let pair = |bench: &mut Bench| {
        let block = bench.alloc(KIB);
        bench.free(block);
    };
    summary((0..31).map(|_| timed(20_000, || pair(&mut bench))).collect())
}

/// Returns a log-uniform size, 512 B to 16 MiB.
fn size(random: &mut Random) -> u64 {
    (512.0 * 32_768f64.powf(random.unit())) as u64
}

/// 1000 live, log-uniform 512 B to 16 MiB: free a random one, allocate another.
fn replacement() {
    let mut random = Random(88_172_645_463_325_252);
    let mut bench = Bench::new();
    let (mut live, mut requested, mut peak) = (Vec::new(), 0, 0);
    for _ in 0..1000 {
        let bytes = size(&mut random);
        requested += bytes;
        live.push((bench.alloc(bytes), bytes));
    }
    let pairs = 20_000;
    let mut runs = Vec::new();
    for part in ["first", "second"] {
        let (moved, grown) = (bench.priced_ns, bench.grown);
        runs = (0..25)
            .map(|_| {
                timed(pairs, || {
                    let at = (random.next() % 1000) as usize;
                    bench.free(live[at].0);
                    requested -= live[at].1;
                    let bytes = size(&mut random);
                    requested += bytes;
                    peak = peak.max(requested);
                    live[at] = (bench.alloc(bytes), bytes);
                })
            })
            .collect();
        println!(
            "random replacement, {part} 500 000 pairs: ratio {:.4}, driver calls {:.0} ns a pair, {} growths",
            bench.pool.reserved_high() as f64 / peak as f64,
            (bench.priced_ns - moved) as f64 / 500_000.0,
            bench.grown - grown,
        );
    }
    println!("random replacement pair: {}", summary(runs));
    println!("  of which choosing: {}", summary((0..25).map(|_| timed(pairs, || choose(&mut random))).collect()));
}

/// The work of the random replacement outside the pool.
fn choose(random: &mut Random) {
    std::hint::black_box((random.next() % 1000, size(random)));
}

/// RMM's `random_allocations` with its parameters, 2 N steps over at most 16 000 MiB: the price of a step's driver
/// calls, the time of its own work, and the ratio.
fn random_allocations(count: u64, most: u64, slack: Slack, others: u64) {
    let mut random = Random(0x1234_5678_9ABC_DEF1);
    let mut bench = Bench::with(slack, others);
    let mut live: Vec<(BlockId, u64)> = Vec::new();
    let (mut bytes, mut peak, mut made) = (0, 0, 0);
    let start = Instant::now();
    for _ in 0..2 * count {
        let size = (1 + random.next() % most) * MIB;
        let (chance, index) = (random.next() % 100, random.next() % count);
        if live.is_empty() || (chance < 73 && made < count && bytes + size < 16_000 * MIB) {
            live.push((bench.alloc(size), size));
            (bytes, made) = (bytes + size, made + 1);
            peak = peak.max(bytes);
        } else {
            let (block, size) = live.swap_remove(index as usize % live.len());
            bytes -= size;
            bench.free(block);
        }
    }
    let host_ns = start.elapsed().as_nanos() as f64;
    let a_step = |sum: f64| sum / (2 * count) as f64;
    println!(
        "random_allocations {count} x {most} MiB, {slack:?}{}: ratio {:.4}, a step: driver calls {:.0} ns ({:.4} \
         calls), host {:.0} ns; {} growths",
        if others > 0 { ", full" } else { "" },
        bench.pool.reserved_high() as f64 / peak as f64,
        a_step(bench.priced_ns as f64),
        a_step(bench.calls as f64),
        a_step(host_ns),
        bench.grown,
    );
}

fn main() {
    let wanted = std::env::args().skip(1).find(|word| !word.starts_with('-')).unwrap_or_default();
    if "cache".contains(&wanted) {
        println!("cache, 64 KiB pair: {}", cache_pairs());
    }
    if "pairs".contains(&wanted) {
        for bytes in [512, 64 * KIB, MIB, 32 * MIB] {
            println!("pool, {bytes} B pair: {}", pairs(bytes));
        }
    }
    if "holes".contains(&wanted) {
        for holes in [4096, 16_384, 65_536] {
            println!("pool, 1 KiB pair among {holes} holes: {}", among_holes(holes));
        }
    }
    if "replacement".contains(&wanted) {
        replacement();
    }
    if "random".contains(&wanted) {
        for count in [1_000, 10_000] {
            for most in [1, 64, 1024] {
                random_allocations(count, most, Slack::Adaptive, 0);
                random_allocations(count, most, Slack::Pressure, 0);
                random_allocations(count, most, Slack::Pressure, DEVICE - 20 * GIB);
            }
        }
    }
}
