//! The pool's contract, case by case: which streams may reuse a block, how memory moves, and what is given back when.

use millpond_core::ids::{ChainIndex, ChunkId, Point, Seq};
use millpond_core::order::{Completed, Knows, Learns};
use millpond_core::pool::{Freed, Frontier, Grant, Located, Pool, PoolConfig, ReusePolicy, Slack, Step};
use millpond_core::units::{MIB, Range};

const BASE: u64 = 1 << 40;

/// A stream that knows all of its own past and, of other streams, the points up to those given.
struct Stream {
    chain: u32,
    known: Vec<(u32, u64)>,
}

impl Knows for Stream {
    fn chain(&self) -> ChainIndex {
        ChainIndex(self.chain)
    }

    fn covers(&self, point: Point) -> bool {
        point.chain.0 == self.chain || self.known.iter().any(|&(chain, seq)| chain == point.chain.0 && seq >= point.seq)
    }
}

impl Learns for Stream {
    fn learned(&self) -> Seq {
        0
    }
}

/// The device has passed every point up to this number, on every stream.
struct Past(u64);

impl Completed for Past {
    fn is_over(&self, point: Point) -> bool {
        point.seq <= self.0
    }
}

fn stream(chain: u32) -> Stream {
    Stream { chain, known: Vec::new() }
}

fn at(chain: u32, seq: u64) -> Point {
    Point { chain: ChainIndex(chain), seq }
}

fn pool(config: PoolConfig) -> Pool {
    Pool::new(config, Range::new(BASE, 1 << 30))
}

fn apply_all(pool: &mut Pool) -> Vec<Step> {
    let mut steps = Vec::new();
    while let Some(step) = pool.next_step() {
        steps.push(step);
        pool.applied();
        pool.audit().unwrap();
    }
    steps
}

/// Fits a request, or else grows and takes every step.
fn alloc(pool: &mut Pool, bytes: u64, who: &Stream) -> Grant {
    if let Ok(grant) = pool.fit(bytes, who) {
        return grant;
    }
    let grant = pool.grow(bytes, who, &Past(0), 0).unwrap();
    apply_all(pool);
    grant
}

#[test]
fn a_stream_gets_back_at_once_what_it_freed() {
    let (mut pool, own) = (pool(PoolConfig::default()), stream(0));
    let first = alloc(&mut pool, 1000, &own);
    assert_eq!(first.range, Range::new(BASE, 1024));
    pool.free(first.block, Freed::at(&own, 2));
    assert_eq!(pool.fit(1000, &own).unwrap().range, first.range);
}

/// The holder sets the name. Blocks that come from a split or a merge, or are held again, have none.
#[test]
fn a_held_block_has_the_name_that_its_holder_gave_it() {
    let (mut pool, own) = (pool(PoolConfig::default()), stream(0));
    let blocks: Vec<_> = (0..4).map(|_| alloc(&mut pool, 1024, &own).block).collect();
    assert!(blocks.iter().all(|&block| pool.name(block).is_none()));
    blocks.iter().enumerate().for_each(|(name, &block)| pool.set_name(block, name as u32));
    for &block in &blocks[1..3] {
        pool.free(block, Freed::at(&own, 2));
        assert_eq!(pool.name(block), None, "it is free");
    }
    pool.audit().unwrap();
    let merged = pool.fit(2048, &own).unwrap();
    assert_eq!(pool.name(merged.block), None);
    pool.set_name(merged.block, 9);
    assert_eq!((pool.name(blocks[0]), pool.name(merged.block), pool.name(blocks[3])), (Some(0), Some(9), Some(3)));
    pool.free(merged.block, Freed::at(&own, 3));
    let cut = pool.fit(1024, &own).unwrap();
    assert_eq!(pool.name(cut.block), None);
    pool.audit().unwrap();
}

#[test]
fn another_stream_gets_it_when_the_free_comes_before_or_is_over() {
    for (follow, retired, expected) in
        [(true, false, true), (false, false, false), (false, true, true), (true, true, true)]
    {
        let reuse = ReusePolicy { follow_event_dependencies: follow, ..ReusePolicy::default() };
        let mut pool = pool(PoolConfig { reuse, ..PoolConfig::default() });
        let freed = alloc(&mut pool, 2 * MIB, &stream(0));
        pool.free(freed.block, Freed::after(at(0, 5)));
        assert!(pool.fit(2 * MIB, &stream(1)).is_err(), "nothing orders stream 1 after the free");
        if retired {
            pool.retire(&Past(5));
        }
        let early = Stream { chain: 1, known: vec![(0, 4)] };
        assert_eq!(pool.fit(MIB, &early).is_ok(), retired, "the event was recorded before the free");
        let late = Stream { chain: 1, known: vec![(0, 5)] };
        assert_eq!(pool.fit(MIB, &late).is_ok(), expected, "follow {follow}, retired {retired}");
    }
}

/// A free that a cache returns late does not come after what its own stream did since. Of its two neighbours it merges
/// with the one that must wait for it, and not with the one whose last use is later still.
#[test]
fn a_free_that_comes_back_late_opens_no_later_one_beside_it() {
    for is_upwards in [false, true] {
        let (mut pool, own) = (pool(PoolConfig::default()), stream(0));
        let mut blocks: Vec<_> = (0..3).map(|_| alloc(&mut pool, 2 * MIB, &own)).collect();
        if is_upwards {
            blocks.reverse();
        }
        pool.free(blocks[0].block, Freed::after(at(0, 7)));
        pool.free(blocks[1].block, Freed::after(Frontier::of([at(0, 6), at(3, 1)])));
        pool.free(blocks[2].block, Freed::at(&own, 5));
        pool.retire(&Past(6));
        pool.audit().unwrap();
        for _ in 0..2 {
            let grant = pool.fit(2 * MIB, &stream(1)).unwrap();
            assert_ne!(grant.range, blocks[0].range, "stream 0 uses it until 7");
        }
        assert!(pool.fit(2 * MIB, &stream(1)).is_err());
    }
}

#[test]
fn the_last_resort_is_a_wait() {
    let limited = PoolConfig { max_bytes: 3 * MIB, ..PoolConfig::default() };
    let mut pool = pool(limited.clone());
    let freed = alloc(&mut pool, 4 * MIB, &stream(0));
    pool.free(freed.block, Freed::after(Frontier::of([at(0, 5), at(2, 1)])));
    let half = Stream { chain: 1, known: vec![(2, 1)] };
    let grant = pool.grow(4 * MIB, &half, &Past(0), 0).unwrap();
    assert_eq!((grant.range, grant.after.points().collect::<Vec<_>>()), (freed.range, vec![at(0, 5)]));
    assert_eq!(pool.reserved(), 4 * MIB, "the limit is rounded up to the granularity");

    let reuse = ReusePolicy { allow_internal_dependencies: false, ..ReusePolicy::default() };
    let mut pool = self::pool(PoolConfig { reuse, ..limited });
    let freed = alloc(&mut pool, 4 * MIB, &stream(0));
    pool.free(freed.block, Freed::after(at(0, 5)));
    let refused = pool.grow(MIB, &stream(1), &Past(0), 0).unwrap_err();
    assert_eq!((refused.requested, refused.held, refused.reserved), (MIB, 0, 4 * MIB));
    assert_eq!((refused.idle, refused.limit), (4 * MIB, Some(3 * MIB)));
    assert!(pool.next_step().is_none());
}

#[test]
fn memory_in_use_is_mapped_a_second_time_for_a_stream_that_comes_after() {
    let (mut pool, own) = (pool(PoolConfig { slack: Slack::Fixed(0.0), ..PoolConfig::default() }), stream(0));
    let low = alloc(&mut pool, 6 * MIB, &own);
    let kept = alloc(&mut pool, 2 * MIB, &own);
    pool.free(low.block, Freed::at(&own, 3));
    let grant = pool.grow(8 * MIB, &own, &Past(0), 0).unwrap();
    let steps = apply_all(&mut pool);
    let moved = |chunk: u32| (ChunkId(chunk), grant.range.start + u64::from(chunk) * 2 * MIB);
    for (step, (chunk, at)) in steps.iter().zip([moved(0), moved(1)]) {
        assert_eq!(*step, Step::Map { chunk, at, bytes: 2 * MIB }, "moved without waiting");
    }
    assert!(grant.after.is_empty() && pool.reserved() == pool.bound());

    // The old addresses are used by nobody until the free has completed.
    pool.retire(&Past(2));
    let other = alloc(&mut pool, 4 * MIB, &own);
    assert!(!other.range.overlaps(Range::new(low.range.start, 4 * MIB)));
    pool.trim(0, &Past(2));
    assert_eq!(apply_all(&mut pool), []);
    pool.trim(0, &Past(3));
    let taken: Vec<Step> = apply_all(&mut pool);
    let old = |chunk: u32| low.range.start + u64::from(chunk) * 2 * MIB;
    for chunk in [0, 1] {
        assert!(taken.contains(&Step::Unmap { chunk: ChunkId(chunk), at: old(chunk), bytes: 2 * MIB }), "{taken:?}");
    }

    for (block, seq) in [(kept.block, 4), (grant.block, 5), (other.block, 6)] {
        pool.free(block, Freed::at(&own, seq));
    }
    pool.trim(0, &Past(6));
    apply_all(&mut pool);
    assert_eq!((pool.reserved(), pool.block_count()), (0, 1));
}

#[test]
fn idle_memory_is_moved_before_the_pool_grows() {
    let (mut pool, own) = (pool(PoolConfig { slack: Slack::Fixed(0.0), ..PoolConfig::default() }), stream(0));
    let blocks: Vec<Grant> = (0..8).map(|_| alloc(&mut pool, 2 * MIB, &own)).collect();
    for (seq, grant) in blocks.iter().step_by(2).enumerate() {
        pool.free(grant.block, Freed::at(&own, seq as u64));
    }
    let grant = pool.grow(8 * MIB, &own, &Past(9), 0).unwrap();
    let steps = apply_all(&mut pool);
    let of = |kind: fn(&Step) -> bool| steps.iter().filter(|step| kind(step)).count();
    assert_eq!(of(|step| matches!(step, Step::Unmap { .. })), 3);
    assert_eq!(of(|step| matches!(step, Step::Create { .. })), 1, "within one granule of what is held: {steps:?}");
    assert_eq!((pool.reserved(), pool.bound(), pool.held()), (18 * MIB, 18 * MIB, 16 * MIB));
    assert_eq!(grant.range.bytes, 8 * MIB);
}

#[test]
fn refused_memory_is_looked_for_among_the_idle() {
    let (mut pool, own) = (pool(PoolConfig { slack: Slack::Fixed(9.0), ..PoolConfig::default() }), stream(0));
    let low = alloc(&mut pool, 2 * MIB, &own);
    let kept = alloc(&mut pool, 2 * MIB, &own);
    pool.free(low.block, Freed::at(&own, 1));
    pool.retire(&Past(1));
    let grant = pool.grow(4 * MIB, &own, &Past(1), 0).unwrap();
    assert!(matches!(pool.next_step(), Some(Step::Create { .. })), "there is slack enough");
    assert_eq!(pool.failed(), Some(grant.block));
    pool.audit().unwrap();
    let grant = pool.grow(4 * MIB, &own, &Past(1), 1).unwrap();
    let mut created = 0;
    while let Some(step) = pool.next_step() {
        created += if let Step::Create { bytes, .. } = step { bytes } else { 0 };
        pool.applied();
    }
    assert_eq!((created, pool.reserved()), (2 * MIB, 6 * MIB), "idle memory first, the rest new");
    pool.free(grant.block, Freed::at(&own, 2));
    pool.free(kept.block, Freed::at(&own, 3));
    let grant = pool.grow(8 * MIB, &own, &Past(3), 2);
    assert!(grant.is_err(), "no more than was given back");
    assert!(pool.grow(6 * MIB, &own, &Past(3), 3).is_err(), "three refusals are the end");
    pool.audit().unwrap();
}

#[test]
fn a_chunk_left_over_by_a_failure_does_not_stand_in_the_way() {
    let config = PoolConfig { max_bytes: 64 * MIB, slack: Slack::Fixed(1.0), ..PoolConfig::default() };
    let (mut pool, own) = (pool(config), stream(0));
    pool.grow(64 * MIB, &own, &Past(0), 0).unwrap();
    assert!(matches!(pool.next_step(), Some(Step::Create { bytes, .. }) if bytes == 32 * MIB));
    pool.applied();
    assert!(pool.failed().is_some(), "the mapping fails");
    assert_eq!(pool.reserved(), 32 * MIB, "the chunk is kept");
    for _ in 0..32 {
        assert_eq!(alloc(&mut pool, 2 * MIB, &own).range.bytes, 2 * MIB);
    }
    assert_eq!(pool.reserved(), 64 * MIB, "too large to map, it went back when the limit was reached");
}

#[test]
fn a_synchronisation_gives_back_what_passes_the_threshold() {
    let mut pool = pool(PoolConfig { release_threshold: 3 * MIB, ..PoolConfig::default() });
    let blocks: Vec<Grant> = (0..4).map(|_| alloc(&mut pool, 2 * MIB, &stream(0))).collect();
    for (grant, (chain, seq)) in blocks.iter().zip([(0, 1), (1, 3), (2, 1), (3, 3)]) {
        pool.free(grant.block, Freed::after(at(chain, seq)));
    }
    pool.synchronized(&Past(2));
    apply_all(&mut pool);
    assert_eq!(pool.reserved(), 4 * MIB, "two frees are over, and two not");
    pool.synchronized(&Past(3));
    apply_all(&mut pool);
    assert_eq!(pool.reserved(), 4 * MIB, "at least the threshold stays");
    pool.trim(0, &Past(3));
    apply_all(&mut pool);
    assert_eq!((pool.reserved(), pool.reserved_high()), (0, 8 * MIB));
    pool.reset_reserved_high();
    assert_eq!(pool.reserved_high(), 0);
}

/// Free ranges of 8 and 20 MiB with a gap of 2 MiB between them; above them a held block, then 8 MiB free.
fn fragmented() -> Pool {
    let config = PoolConfig { release_threshold: u64::MAX, slack: Slack::Fixed(0.0), ..PoolConfig::default() };
    let (mut pool, own) = (pool(config), stream(0));
    let [low, middle, high, _held, top] = [8, 4, 18, 2, 2].map(|mib| alloc(&mut pool, mib * MIB, &own));
    // Half of the middle is moved to the top, where there is more room.
    pool.free(middle.block, Freed::at(&own, 1));
    pool.free(top.block, Freed::at(&own, 1));
    pool.retire(&Past(1));
    let large = alloc(&mut pool, 8 * MIB, &own);
    for free in [low, high, large] {
        pool.free(free.block, Freed::at(&own, 2));
    }
    pool.synchronized(&Past(2));
    apply_all(&mut pool);
    pool
}

#[test]
fn holes_are_filled_when_moves_are_earned() {
    let mut pool = fragmented();
    let reserved = pool.reserved();
    assert_eq!(pool.block_count(), 6, "two islands and the hole between them, the held block, a free one, the rest");
    assert!(pool.fit(22 * MIB, &stream(0)).is_err());
    pool.count_served(1600);
    assert!(!pool.is_fragmented(), "a move takes 42 us, and half of 81 was earned for it");
    pool.count_served(100);
    assert!(pool.is_fragmented() && pool.defragment());
    let steps = apply_all(&mut pool);
    let (top, hole, bytes) = (BASE + 38 * MIB, BASE + 8 * MIB, 2 * MIB);
    let [Step::Unmap { chunk, .. }, ..] = steps[..] else { panic!("{steps:?}") };
    assert_eq!(steps, [Step::Unmap { chunk, at: top, bytes }, Step::Map { chunk, at: hole, bytes }]);
    assert_eq!((pool.block_count(), pool.reserved()), (4, reserved));
    pool.count_served(16_000);
    assert!(!pool.defragment() && !pool.is_fragmented(), "nothing is left to fill");
    assert_eq!(pool.fit(30 * MIB, &stream(0)).unwrap().range.start, BASE);
}

#[test]
fn without_a_synchronisation_nothing_goes_back() {
    let (mut pool, own) = (pool(PoolConfig::default()), stream(0));
    let grant = alloc(&mut pool, 32 * MIB, &own);
    pool.free(grant.block, Freed::at(&own, 1));
    pool.retire(&Past(1));
    assert_eq!((pool.reserved(), pool.next_step()), (32 * MIB, None));
}

#[test]
fn a_grant_that_is_cancelled_goes_back() {
    let (mut pool, own) = (pool(PoolConfig::default()), stream(0));
    let grant = alloc(&mut pool, MIB, &own);
    pool.cancel(grant.block);
    pool.audit().unwrap();
    assert_eq!((pool.held(), pool.idle()), (0, 2 * MIB));
    assert_eq!(pool.fit(MIB, &own).unwrap().range, grant.range);
}

#[test]
fn a_large_free_block_is_not_taken_along_by_a_small_one() {
    let mut pool = pool(PoolConfig::default());
    let grant = alloc(&mut pool, 32 * MIB, &stream(0));
    pool.free(grant.block, Freed::after(at(0, 1)));
    pool.retire(&Past(1));
    let small = pool.fit(512, &stream(0)).unwrap();
    pool.free(small.block, Freed::at(&stream(0), 2));
    assert!(pool.fit(31 * MIB, &stream(1)).is_ok(), "open to everybody before, and now");
}

#[test]
#[should_panic(expected = "the block is held")]
fn a_second_free_is_refused() {
    let (mut pool, own) = (pool(PoolConfig::default()), stream(0));
    let grant = alloc(&mut pool, 512, &own);
    pool.free(grant.block, Freed::at(&own, 1));
    pool.free(grant.block, Freed::at(&own, 2));
}

#[test]
fn sizes_beyond_all_measure_are_refused() {
    let (mut pool, own) = (pool(PoolConfig::default()), stream(0));
    for bytes in [(1 << 30) + 1, 1 << 50, u64::MAX - 100, u64::MAX] {
        assert!(pool.fit(bytes, &own).is_err());
        assert_eq!(pool.grow(bytes, &own, &Past(0), 0).unwrap_err().requested, bytes);
    }
    assert_eq!(alloc(&mut pool, 0, &own).range.bytes, 512, "no block is empty");
    assert_eq!(pool.locate(BASE - 1), Located::Outside);
    assert_eq!(pool.locate(BASE + (1 << 30)), Located::Outside);
}
