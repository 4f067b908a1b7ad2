//! The high mark of used bytes, compared with a count by the test: exact if streams run one at a time; otherwise never
//! below the live bytes, and never above the reserved bytes.

use fastrand::Rng;
use millpond::{Buffer, MIB, Pool, PoolConfig, Stream};

use crate::common::{Subject, on_every_device};

/// A program of allocations and frees on several streams, each of which frees what it allocated, with the live bytes as
/// counted by the caller.
struct Program<'a> {
    streams: &'a [Stream],
    pool: &'a Pool,
    live: Vec<Vec<Buffer<u8>>>,
    used: u64,
    high: u64,
}

impl<'a> Program<'a> {
    fn new(streams: &'a [Stream], pool: &'a Pool) -> Self {
        let live = streams.iter().map(|_| Vec::new()).collect();
        Self { streams, pool, live, used: 0, high: 0 }
    }

    /// Allocates or frees on a stream: small and large, of few sizes, so that caches serve many requests.
    fn step(&mut self, stream: usize, random: &mut Rng) {
        let live = &mut self.live[stream];
        if live.len() < 12 && random.u64(..100) < 55 {
            let sizes = [700, 512, 64 << 10, 1 << 20, 3 << 20, (5 << 20) + 100, 40 << 20];
            let bytes = sizes[random.usize(..sizes.len())];
            live.push(self.streams[stream].alloc(self.pool, bytes).unwrap());
            self.used += bytes as u64;
            self.high = self.high.max(self.used);
        } else if !live.is_empty() {
            let buffer = live.swap_remove(random.usize(..live.len()));
            self.used -= buffer.bytes();
            match random.u64(..100) < 80 {
                true => self.streams[stream].free(buffer).unwrap(),
                false => drop(buffer),
            }
        }
    }
}

fn with_streams(on: &Subject, count: usize, body: impl FnOnce(&mut Program<'_>)) {
    let streams: Vec<Stream> = (0..count).map(|_| on.stream()).collect();
    let pool = on.pool(PoolConfig::default().release_threshold(64 * MIB));
    body(&mut Program::new(&streams, &pool));
}

#[test]
fn one_stream_is_counted_exactly() {
    on_every_device(|on| {
        for seed in 0..10 {
            with_streams(on, 1, |program| {
                let mut random = Rng::with_seed(seed);
                for _ in 0..20 {
                    // Many steps without reading the statistics, because that would update the mark.
                    (0..random.u64(..40)).for_each(|_| program.step(0, &mut random));
                    let found = program.pool.statistics();
                    assert_eq!((found.used_bytes, found.used_high_bytes), (program.used, program.high), "seed {seed}");
                }
            });
        }
    });
}

/// A large block came from the heap after many small ones were put in the cache. It was never live together with them.
#[test]
fn what_was_on_the_cache_meanwhile_does_not_count() {
    on_every_device(|on| {
        let (stream, pool) = (on.stream(), on.pool(PoolConfig::default()));
        let small = || -> Vec<Buffer<u8>> { (0..8).map(|_| stream.alloc(&pool, 1 << 20).unwrap()).collect() };
        let free = |all: Vec<Buffer<u8>>| all.into_iter().for_each(|it| stream.free(it).unwrap());
        free(small());
        // The same again, from the cache.
        free(small());
        let large = stream.alloc::<u8>(&pool, 8 << 20).unwrap();
        assert_eq!(pool.statistics().used_high_bytes, 8 << 20);
        // It is returned to the heap without a cache, while the small ones are live again.
        let all = small();
        on.device.synchronize().unwrap();
        on.device.free(large).unwrap();
        free(all);
        assert_eq!(pool.statistics().used_high_bytes, 16 << 20);
    });
}

#[test]
fn streams_in_turns_are_counted_exactly() {
    on_every_device(|on| {
        for seed in 0..10 {
            with_streams(on, 4, |program| {
                let mut random = Rng::with_seed(seed);
                for _ in 0..60 {
                    let stream = random.usize(..4);
                    (0..random.u64(..20)).for_each(|_| program.step(stream, &mut random));
                    let found = program.pool.statistics();
                    assert_eq!((found.used_bytes, found.used_high_bytes), (program.used, program.high), "seed {seed}");
                }
            });
        }
    });
}

#[test]
fn streams_side_by_side_are_counted_from_above() {
    on_every_device(|on| {
        for seed in 0..10 {
            with_streams(on, 4, |program| {
                let mut random = Rng::with_seed(seed);
                for _ in 0..30 {
                    for _ in 0..random.u64(..200) {
                        let stream = random.usize(..4);
                        program.step(stream, &mut random);
                    }
                    let found = program.pool.statistics();
                    assert_eq!(found.used_bytes, program.used, "seed {seed}");
                    let bounds = program.high..=found.reserved_high_bytes;
                    assert!(
                        bounds.contains(&found.used_high_bytes),
                        "seed {seed}: {found:?}, counted {}",
                        program.high
                    );
                }
            });
        }
    });
}
