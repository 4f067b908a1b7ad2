//! Graph memory compared with a list of every use of a chunk, on random programs over several streams; and the
//! footprints and rules one by one.

mod world;

use std::collections::BTreeSet;

use millpond_core::graph::ArenaKey;
use millpond_core::ids::ChunkId;
use millpond_core::units::{MIB, Range};
use proptest::prelude::*;

use self::world::{GRANULE, World, granules};

#[derive(Clone, Debug)]
enum Act {
    Launch {
        exec: usize,
        stream: usize,
        fail: Option<usize>,
        auto_free: bool,
    },
    Join(usize, usize),
    Synchronize(usize),
    Free(usize, usize),
    Trim,
    /// The graph is destroyed, with its addresses or without; another one gets them.
    Reopen(usize, bool),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => (0usize..5, 0usize..3, prop::option::weighted(0.1, 0usize..8), any::<bool>())
            .prop_map(|(exec, stream, fail, auto_free)| Act::Launch { exec, stream, fail, auto_free }),
        3 => (0usize..3, 0usize..3).prop_map(|(a, b)| Act::Join(a, b)),
        2 => (0usize..3).prop_map(Act::Synchronize),
        3 => (0usize..8, 0usize..3).prop_map(|(a, b)| Act::Free(a, b)),
        1 => Just(Act::Trim),
        2 => (0usize..5, any::<bool>()).prop_map(|(n, is_closed)| Act::Reopen(n, is_closed)),
    ]
}

/// Returns the addresses of instance `n`: `size` granules. If `n` is odd, the last bytes of the last one are an output.
fn shape(n: usize, size: u64) -> (Vec<Range>, Vec<Range>) {
    let base = (n as u64 + 1) << 40;
    let cover = vec![Range::new(base, size * GRANULE)];
    let outputs = match n % 2 {
        0 => vec![],
        _ => vec![Range::new(base + size * GRANULE - 4096, 512), Range::new(base + size * GRANULE - 1024, 1024)],
    };
    (cover, outputs)
}

/// Returns all addresses that instance `n` could have.
fn room(n: usize) -> Range {
    Range::new((n as u64 + 1) << 40, 1 << 40)
}

fn enroll(world: &mut World, key: ArenaKey, n: usize, size: u64) {
    let (cover, outputs) = shape(n, size);
    let kept = |at: u64| outputs.iter().any(|it| it.overlaps(Range::new(at, GRANULE)));
    let cover: Vec<_> = granules(&cover).into_iter().map(|at| (Range::new(at, GRANULE), kept(at))).collect();
    world.backing.enroll(key, &cover);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..Default::default() })]

    #[test]
    fn no_chunk_serves_two_who_are_not_ordered(acts in prop::collection::vec(act(), 1..80)) {
        let mut world = World::new(3);
        let mut keys: Vec<ArenaKey> = (0..5).map(ArenaKey).collect();
        let mut sizes = [3, 5, 2, 4, 1];
        (0..5).for_each(|n| enroll(&mut world, keys[n], n, sizes[n]));
        for act in acts {
            match act {
                Act::Launch { exec, stream, fail, auto_free } => {
                    let (cover, outputs) = shape(exec, sizes[exec]);
                    while auto_free
                        && let Some(at) = world.unfreed.iter().position(|it| it.0 == keys[exec])
                    {
                        world.free(at, stream);
                    }
                    world.launch(keys[exec], &cover, &outputs, stream, fail);
                }
                Act::Join(a, b) => world.join(a, b),
                Act::Synchronize(stream) => world.synchronize(stream),
                Act::Free(number, stream) if !world.unfreed.is_empty() => {
                    let number = number % world.unfreed.len();
                    world.free(number, stream);
                }
                Act::Free(..) => {}
                Act::Trim => world.trim(),
                Act::Reopen(n, _) if world.unfreed.iter().any(|it| it.0 == keys[n]) => {}
                Act::Reopen(n, is_closed) => {
                    match is_closed {
                        true => world.close(keys[n], room(n)),
                        false => world.retire(keys[n]),
                    }
                    keys[n] = ArenaKey(keys.iter().map(|key| key.0).max().unwrap() + 1);
                    sizes[n] = 1 + 3 * sizes[n] % 5;
                    enroll(&mut world, keys[n], n, sizes[n]);
                    world.backing.audit();
                }
            }
        }
        // At the end everything can be given back.
        while !world.unfreed.is_empty() {
            world.free(0, 0);
        }
        keys.iter().enumerate().for_each(|(n, key)| world.close(*key, room(n)));
        world.trim();
        prop_assert_eq!(world.reserved(), 0);
        prop_assert!(world.mapped.is_empty());
    }
}

/// Makes 8 instances of 32 x 4 MiB, with the first `outputs` allocations unfreed.
fn eight(outputs: u64) -> World {
    let mut world = World::new(1);
    for n in 0..8 {
        let base = (n + 1) << 40;
        // A different place for the output in each graph.
        let output = Range::new(base + n * 4 * MIB, outputs * 4 * MIB);
        let cover: Vec<(Range, bool)> = (0..32)
            .map(|it| Range::new(base + it * 4 * MIB, 4 * MIB))
            .map(|range| (range, range.overlaps(output)))
            .collect();
        world.backing.enroll(ArenaKey(n), &cover);
        let ranges: Vec<Range> = cover.iter().map(|it| it.0).collect();
        let outputs: Vec<Range> = cover.iter().filter(|it| it.1).map(|it| it.0).collect();
        assert!(world.launch(ArenaKey(n), &ranges, &outputs, 0, None));
    }
    world
}

#[test]
fn graphs_of_one_stream_share() {
    let world = eight(0);
    assert!(world.reserved() <= (128 + 2) * MIB, "{}", world.reserved());
    assert_eq!(world.backing.statistics().reserved_high, 128 * MIB);
}

#[test]
fn orphans_keep_no_more_than_theirs() {
    let mut world = eight(1);
    assert!(world.reserved() <= (128 + 8 * 4 + 2) * MIB, "{}", world.reserved());
    world.synchronize(0);
    world.trim();
    assert_eq!(world.reserved(), 8 * 4 * MIB);
    while !world.unfreed.is_empty() {
        world.free(0, 0);
    }
    // Nothing is mapped where an arena was. Its chunks stay until they are trimmed.
    world.close(ArenaKey(0), room(0));
    assert_eq!(world.reserved(), 8 * 4 * MIB);
    world.trim();
    assert_eq!(world.reserved(), 0);
}

fn one(world: &mut World, n: u64, granules: u64, output: bool) -> Vec<Range> {
    let range = Range::new((n + 1) << 40, granules * GRANULE);
    world.backing.enroll(ArenaKey(n), &[(range, output)]);
    vec![range]
}

#[test]
fn concurrent_launches_take_the_sum_and_ordered_ones_the_most() {
    let mut world = World::new(2);
    let (a, b) = (one(&mut world, 0, 2, false), one(&mut world, 1, 3, false));
    world.launch(ArenaKey(0), &a, &[], 0, None);
    world.launch(ArenaKey(1), &b, &[], 1, None);
    assert_eq!(world.reserved(), 5 * GRANULE);
    // The chunks of completed launches are reused without any edge.
    let c = one(&mut world, 2, 5, false);
    world.synchronize(0);
    world.synchronize(1);
    world.launch(ArenaKey(2), &c, &[], 0, None);
    assert_eq!(world.reserved(), 5 * GRANULE);
}

/// Graphs that share memory, launched by streams that are not ordered: the device waits, and the host waits only if
/// they meet repeatedly. After that they have memory of their own.
#[test]
fn who_meets_again_and_again_gets_memory_of_its_own() {
    let mut world = World::new(2);
    let (a, b) = (one(&mut world, 0, 2, false), one(&mut world, 1, 2, false));
    world.launch(ArenaKey(1), &b, &[], 0, None);
    world.launch(ArenaKey(0), &a, &[], 0, None);
    let (steps, over) = (world.steps, world.over.0.len());
    for _ in 0..4 {
        assert!(world.launch(ArenaKey(1), &b, &[], 1, None));
        assert!(world.launch(ArenaKey(0), &a, &[], 0, None));
    }
    assert_eq!(
        (world.steps, world.reserved(), world.over.0.len()),
        (steps, 2 * GRANULE, over),
        "the host waits for nothing"
    );
    assert!(world.launch(ArenaKey(1), &b, &[], 1, None));
    assert_eq!(world.reserved(), 4 * GRANULE);
    let (steps, over) = (world.steps, world.over.0.len());
    for _ in 0..4 {
        assert!(world.launch(ArenaKey(0), &a, &[], 0, None));
        assert!(world.launch(ArenaKey(1), &b, &[], 1, None));
    }
    assert_eq!((world.steps, world.over.0.len()), (steps, over), "nor any more");
}

/// A chunk under an unfreed output is not shared, even if the device waits: the host waits.
#[test]
fn an_unfreed_output_of_another_graph_is_worth_a_wait_of_the_host() {
    let mut world = World::new(2);
    let (a, b) = (one(&mut world, 0, 2, true), one(&mut world, 1, 2, false));
    world.launch(ArenaKey(1), &b, &[], 0, None);
    world.launch(ArenaKey(0), &a, &a, 0, None);
    assert_eq!(world.reserved(), 2 * GRANULE);
    assert!(world.backing.bind(&[ArenaKey(1)], &world.streams[1], &world.over).is_err());
    assert!(world.launch(ArenaKey(1), &b, &[], 1, None));
    assert_eq!(world.reserved(), 4 * GRANULE);
}

#[test]
fn a_relaunch_costs_no_step_and_another_stream_none_where_it_waits() {
    let mut world = World::new(2);
    let a = one(&mut world, 0, 4, false);
    world.launch(ArenaKey(0), &a, &[], 0, None);
    let steps = world.steps;
    world.launch(ArenaKey(0), &a, &[], 0, None);
    world.launch(ArenaKey(0), &a, &[], 1, None);
    assert_eq!(world.steps, steps);
}

#[test]
fn free_then_relaunch_in_one_stream_keeps_the_memory() {
    let mut world = World::new(2);
    let a = one(&mut world, 0, 2, true);
    for stream in [0, 0, 1] {
        assert!(world.launch(ArenaKey(0), &a, &a, stream, None));
        assert!(!world.launch(ArenaKey(0), &a, &a, stream, None), "unfreed");
        world.free(0, stream);
    }
    assert_eq!(world.reserved(), 2 * GRANULE);
    // Freed on a stream that is not ordered with this one. The address is the same, so the launch waits for that free.
    assert!(world.launch(ArenaKey(0), &a, &a, 0, None));
    world.free(0, 1);
    let waits = world.bind(&[ArenaKey(0)], 0);
    assert!(waits.points().eq([world.streams[1].last()]));
}

/// A second instance of a graph needs more of the same addresses. The unfreed output of the first one is respected.
#[test]
fn instances_share_an_arena() {
    let mut world = World::new(1);
    let a = one(&mut world, 0, 2, true);
    assert!(world.launch(ArenaKey(0), &a, &a, 0, None));
    let more = vec![Range::new(a[0].start + GRANULE, 3 * GRANULE)];
    world.backing.enroll(ArenaKey(0), &[(more[0], false)]);
    world.backing.audit();
    assert_eq!(world.backing.unfreed(ArenaKey(0)), &a[..]);
    assert!(!world.launch(ArenaKey(0), &more, &[], 0, None), "unfreed");
    // A launch elsewhere in the arena is fine, and leaves the unfreed memory alone.
    let apart = vec![Range::new(a[0].start + 2 * GRANULE, 2 * GRANULE)];
    world.bind(&[ArenaKey(0)], 0);
    assert!(world.step(None));
    let kept = world.mapped[&a[0].start];
    let point = world.submit(0);
    world.backing.launched(&[ArenaKey(0)], point, []);
    world.touch(&apart, point);
    assert_eq!(world.mapped[&a[0].start], kept);
    world.free(0, 0);
    assert!(world.launch(ArenaKey(0), &more, &[], 0, None));
    assert_eq!(world.reserved(), 4 * GRANULE);
}

/// A launch that frees its own output of the launch before keeps the output's chunk where it is.
#[test]
fn a_relaunch_that_frees_by_itself_costs_no_step() {
    let mut world = World::new(1);
    let a = one(&mut world, 0, 2, true);
    assert!(world.launch(ArenaKey(0), &a, &a, 0, None));
    let steps = world.steps;
    for _ in 0..3 {
        assert!(world.bind(&[ArenaKey(0)], 0).is_empty());
        let point = world.submit(0);
        world.backing.freed(a[0], point);
        world.backing.launched(&[ArenaKey(0)], point, a.iter().copied());
        world.backing.audit();
        // The same if nothing is recorded for an output that takes the place of the one before.
        assert!(world.bind(&[ArenaKey(0)], 0).is_empty());
        let point = world.submit(0);
        world.backing.launched(&[ArenaKey(0)], point, []);
        world.backing.audit();
        assert_eq!(world.backing.unfreed(ArenaKey(0)), &a[..]);
    }
    assert_eq!(world.steps, steps);
}

/// A graph and its child graph have an arena each, and one launch binds both: it uses no chunk at two places.
#[test]
fn one_launch_in_two_arenas_has_a_chunk_for_each_granule() {
    let mut world = World::new(2);
    let (a, b) = (one(&mut world, 0, 2, false), one(&mut world, 1, 3, false));
    // Launched separately, in one stream, they share.
    world.launch(ArenaKey(0), &a, &[], 0, None);
    world.launch(ArenaKey(1), &b, &[], 0, None);
    assert_eq!(world.reserved(), 3 * GRANULE);
    let both = [ArenaKey(0), ArenaKey(1)];
    for stream in [0, 1, 0] {
        world.join(stream, 1 - stream);
        let waits = world.bind(&both, stream);
        assert!(world.step(None));
        waits.points().for_each(|point| world.wait(stream, point));
        let chunks: BTreeSet<ChunkId> = granules(&[a[0], b[0]]).iter().map(|at| world.mapped[at]).collect();
        assert_eq!(chunks.len(), 5);
        let point = world.submit(stream);
        world.touch(&[a[0], b[0]], point);
        world.backing.launched(&both, point, []);
        world.backing.audit();
    }
    assert_eq!(world.reserved(), 5 * GRANULE);
}

#[test]
fn used_falls_with_a_trim_only_and_marks_are_reset() {
    let mut world = World::new(1);
    assert_eq!(world.backing.statistics(), Default::default());
    let a = one(&mut world, 0, 2, true);
    assert_eq!(world.reserved(), 0, "nothing before the first launch");
    world.launch(ArenaKey(0), &a, &a, 0, None);
    world.free(0, 0);
    assert_eq!(world.backing.statistics().used, 2 * GRANULE);
    world.trim();
    assert_eq!(world.backing.statistics().used, 2 * GRANULE, "not over yet");
    world.synchronize(0);
    world.trim();
    let statistics = world.backing.statistics();
    assert_eq!((statistics.used, statistics.reserved), (0, 0));
    assert_eq!((statistics.used_high, statistics.reserved_high), (2 * GRANULE, 2 * GRANULE));
    world.backing.reset_used_high();
    world.backing.reset_reserved_high();
    assert_eq!(world.backing.statistics(), Default::default());
    assert!(world.launch(ArenaKey(0), &a, &[], 0, None), "trimmed instances launch again");
}

/// A graph of the same shape at the addresses of a retired one finds its memory mapped. What a smaller graph does not
/// need does not count as used, and is unmapped by a trim or when the addresses are given back.
#[test]
fn who_has_the_addresses_next_finds_the_memory() {
    let mut world = World::new(2);
    let a = one(&mut world, 0, 4, true);
    world.launch(ArenaKey(0), &a, &a, 0, None);
    world.free(0, 0);
    world.retire(ArenaKey(0));
    let statistics = world.backing.statistics();
    assert_eq!((statistics.used, statistics.reserved), (0, 4 * GRANULE));
    let steps = world.steps;
    world.backing.enroll(ArenaKey(10), &[(Range::new(a[0].start, 3 * GRANULE), false)]);
    assert_eq!(world.backing.statistics().used, 0, "nothing before the first launch");
    assert!(world.launch(ArenaKey(10), &[Range::new(a[0].start, 3 * GRANULE)], &[], 1, None));
    assert_eq!((world.steps, world.backing.statistics().used), (steps, 3 * GRANULE));
    // The fourth chunk is used by another graph. It is then mapped at two places, one of which has no owner.
    let b = one(&mut world, 1, 1, false);
    world.launch(ArenaKey(1), &b, &[], 0, None);
    assert_eq!((world.steps, world.reserved()), (steps + 1, 4 * GRANULE));
    assert!(!world.backing.is_vacant(room(0)));
    world.close(ArenaKey(10), room(0));
    assert_eq!(world.mapped.len(), 1);
    // If other work uses the chunks, a graph at those addresses gets other memory.
    world.close(ArenaKey(1), room(1));
    let c = one(&mut world, 2, 4, false);
    world.launch(ArenaKey(2), &c, &[], 0, None);
    world.retire(ArenaKey(2));
    let d = one(&mut world, 3, 4, false);
    world.launch(ArenaKey(3), &d, &[], 0, None);
    world.backing.enroll(ArenaKey(12), &[(c[0], false)]);
    world.launch(ArenaKey(12), &c, &[], 1, None);
    assert_eq!(world.reserved(), 8 * GRANULE);
    world.synchronize(0);
    world.synchronize(1);
    world.trim();
    assert_eq!((world.reserved(), world.mapped.len()), (0, 0));
}

#[test]
fn memory_taken_for_a_launch_that_was_not_made_is_looked_at_again() {
    let mut world = World::new(2);
    let (a, b) = (one(&mut world, 0, 1, false), one(&mut world, 1, 1, false));
    world.launch(ArenaKey(0), &a, &[], 0, None);
    world.bind(&[ArenaKey(1)], 0);
    assert!(world.step(None));
    // It was free for stream 0, but is not for stream 1.
    assert!(world.launch(ArenaKey(1), &b, &[], 1, None));
    assert_eq!(world.reserved(), 2 * GRANULE);
}

#[test]
fn an_upload_holds_the_memory() {
    let mut world = World::new(2);
    let (a, b) = (one(&mut world, 0, 1, false), one(&mut world, 1, 1, false));
    world.bind(&[ArenaKey(0)], 0);
    world.step(None);
    let point = world.submit(0);
    world.backing.uploaded(&[ArenaKey(0)], point);
    world.last.insert(ArenaKey(0), point);
    world.launch(ArenaKey(1), &b, &[], 1, None);
    let steps = world.steps;
    world.launch(ArenaKey(0), &a, &[], 0, None);
    assert_eq!((world.steps, world.reserved()), (steps, 2 * GRANULE));
}
