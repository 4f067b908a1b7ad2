//! Graph memory against a list of everything that ever used a chunk, on random programs over several streams; and the
//! footprints and rules one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millpond_core::graph::{Backing, BackingStep, ExecKey, Refused};
use millpond_core::ids::{ChunkId, Point, Slot};
use millpond_core::order::{Chain, Completed, Knows, Snapshot};
use millpond_core::units::{MIB, Range};
use proptest::prelude::*;

const GRANULE: u64 = 2 * MIB;

/// What the host was told is over.
#[derive(Clone, Debug, Default)]
struct Over(Vec<Snapshot>);

impl Completed for Over {
    fn is_over(&self, point: Point) -> bool {
        self.0.iter().any(|snapshot| snapshot.covers(point))
    }
}

/// A device with streams that remembers who used what.
struct World {
    backing: Backing,
    streams: Vec<Chain>,
    over: Over,
    snapshots: BTreeMap<Point, Snapshot>,
    /// Address -> chunk, as the steps left it.
    mapped: BTreeMap<u64, ChunkId>,
    there: BTreeSet<ChunkId>,
    /// All uses of each chunk and of each address, ever.
    chunk_uses: BTreeMap<ChunkId, Vec<Point>>,
    address_uses: BTreeMap<u64, Vec<Point>>,
    last: BTreeMap<ExecKey, Point>,
    /// Unfreed: addresses, and after which launch.
    unfreed: Vec<(ExecKey, Range, Point)>,
    steps: usize,
}

impl World {
    fn new(streams: u32) -> Self {
        World {
            backing: Backing::new(GRANULE),
            streams: (0..streams).map(|slot| Chain::new(Slot(slot), 0, Arc::default())).collect(),
            over: Over::default(),
            snapshots: BTreeMap::new(),
            mapped: BTreeMap::new(),
            there: BTreeSet::new(),
            chunk_uses: BTreeMap::new(),
            address_uses: BTreeMap::new(),
            last: BTreeMap::new(),
            unfreed: Vec::new(),
            steps: 0,
        }
    }

    fn submit(&mut self, stream: usize) -> Point {
        let point = self.streams[stream].submit();
        self.snapshots.insert(point, self.streams[stream].snapshot());
        point
    }

    fn wait(&mut self, stream: usize, point: Point) {
        let snapshot = self.snapshots[&point].clone();
        self.streams[stream].wait(&snapshot);
    }

    fn join(&mut self, stream: usize, other: usize) {
        let snapshot = self.streams[other].snapshot();
        self.streams[stream].wait(&snapshot);
    }

    fn synchronize(&mut self, stream: usize) {
        self.over.0.push(self.streams[stream].snapshot());
    }

    /// Carries the steps out, the `fail`-th one not. Whether all went well.
    fn step(&mut self, fail: Option<usize>) -> bool {
        for number in 0.. {
            let Some(step) = self.backing.next_step().cloned() else { break };
            self.steps += 1;
            if Some(number) == fail && !matches!(step, BackingStep::Await { .. }) {
                self.backing.failed();
                self.backing.audit();
                return false;
            }
            match step {
                BackingStep::Await { after } => {
                    let snapshots = after.points().map(|point| self.snapshots[&point].clone());
                    self.over.0.extend(snapshots);
                }
                BackingStep::Create { chunk } => {
                    assert!(self.there.insert(chunk), "created twice");
                    self.chunk_uses.insert(chunk, Vec::new());
                }
                BackingStep::Map { chunk, at } => {
                    assert!(self.there.contains(&chunk));
                    assert_eq!(self.mapped.insert(at, chunk), None, "something is mapped there");
                    self.address_uses.insert(at, Vec::new());
                }
                BackingStep::Unmap { chunk, at } => {
                    assert_eq!(self.mapped.remove(&at), Some(chunk));
                    assert!(self.address_uses[&at].iter().all(|point| self.over.is_over(*point)), "still in use");
                    assert!(!self.is_pinned(at), "KEPT: unmapped under an unfreed allocation");
                }
                BackingStep::Destroy { chunk } => {
                    assert!(!self.mapped.values().any(|mapped| *mapped == chunk), "destroyed while mapped");
                    assert!(self.there.remove(&chunk));
                }
            }
            self.backing.applied();
        }
        self.backing.audit();
        true
    }

    fn is_pinned(&self, at: u64) -> bool {
        self.unfreed.iter().any(|(_, range, _)| range.overlaps(Range::new(at, GRANULE)))
    }

    /// A launch as a caller does it; everything that LEGAL and KEPT promise is looked up in the lists.
    fn launch(
        &mut self,
        exec: ExecKey,
        cover: &[Range],
        outputs: &[Range],
        stream: usize,
        fail: Option<usize>,
    ) -> bool {
        if let Some(&last) = self.last.get(&exec) {
            self.wait(stream, last);
        }
        let waits = match self.backing.bind(exec, &self.streams[stream], &self.over) {
            Ok(waits) => waits,
            Err(refused) => {
                let Refused::Unfreed { at } = refused else { panic!("{refused}") };
                assert!(self.is_pinned(at));
                return false;
            }
        };
        if !self.step(fail) {
            return false;
        }
        for point in waits.points() {
            self.wait(stream, point);
        }
        let pinned: BTreeSet<ChunkId> =
            self.mapped.iter().filter(|(at, _)| self.is_pinned(**at)).map(|(_, chunk)| *chunk).collect();
        let mut used = BTreeSet::new();
        for at in granules(cover) {
            let chunk = self.mapped[&at];
            assert!(used.insert(chunk), "one chunk at two places of one launch");
            assert!(!pinned.contains(&chunk), "KEPT");
            let knows = |point: &Point| self.streams[stream].covers(*point) || self.over.is_over(*point);
            assert!(self.chunk_uses[&chunk].iter().all(knows), "LEGAL: {chunk} at {at:#x}");
            assert!(self.address_uses[&at].iter().all(knows), "an address is still in use");
        }
        let point = self.submit(stream);
        self.touch(cover, point);
        self.last.insert(exec, point);
        self.backing.launched(exec, point, outputs.iter().copied());
        self.backing.audit();
        self.unfreed.extend(outputs.iter().map(|range| (exec, *range, point)));
        true
    }

    fn touch(&mut self, ranges: &[Range], point: Point) {
        for at in granules(ranges) {
            let chunk = self.mapped[&at];
            self.chunk_uses.get_mut(&chunk).unwrap().push(point);
            self.address_uses.get_mut(&at).unwrap().push(point);
        }
    }

    fn free(&mut self, number: usize, stream: usize) {
        let (_, range, launch) = self.unfreed.swap_remove(number);
        self.wait(stream, launch);
        let point = self.submit(stream);
        self.touch(&[range], point);
        self.backing.freed(range, point);
        self.backing.audit();
    }

    fn trim(&mut self) {
        self.backing.trim(&self.over);
        self.step(None);
    }

    fn reserved(&self) -> u64 {
        self.backing.statistics().reserved
    }
}

fn granules(ranges: &[Range]) -> BTreeSet<u64> {
    let of = |range: &Range| (range.start / GRANULE..range.end().div_ceil(GRANULE)).map(|it| it * GRANULE);
    ranges.iter().flat_map(of).collect()
}

#[derive(Clone, Debug)]
enum Act {
    Launch { exec: usize, stream: usize, fail: Option<usize>, auto_free: bool },
    Join(usize, usize),
    Synchronize(usize),
    Free(usize, usize),
    Trim,
    Reopen(usize),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => (0usize..5, 0usize..3, prop::option::weighted(0.1, 0usize..8), any::<bool>())
            .prop_map(|(exec, stream, fail, auto_free)| Act::Launch { exec, stream, fail, auto_free }),
        3 => (0usize..3, 0usize..3).prop_map(|(a, b)| Act::Join(a, b)),
        2 => (0usize..3).prop_map(Act::Synchronize),
        3 => (0usize..8, 0usize..3).prop_map(|(a, b)| Act::Free(a, b)),
        1 => Just(Act::Trim),
        1 => (0usize..5).prop_map(Act::Reopen),
    ]
}

/// The addresses of instance `n`: `size` granules, with the last bytes of the last one an output where `n` is odd.
fn shape(n: usize) -> (Vec<Range>, Vec<Range>) {
    let base = (n as u64 + 1) << 40;
    let size = [3, 5, 2, 4, 1][n];
    let cover = vec![Range::new(base, size * GRANULE)];
    let outputs = match n % 2 {
        0 => vec![],
        _ => vec![Range::new(base + size * GRANULE - 4096, 512), Range::new(base + size * GRANULE - 1024, 1024)],
    };
    (cover, outputs)
}

fn enroll(world: &mut World, key: ExecKey, n: usize) {
    let (cover, outputs) = shape(n);
    let kept = |at: u64| outputs.iter().any(|it| it.overlaps(Range::new(at, GRANULE)));
    let cover: Vec<_> = granules(&cover).into_iter().map(|at| (Range::new(at, GRANULE), kept(at))).collect();
    world.backing.enroll(key, &cover).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..Default::default() })]

    #[test]
    fn no_chunk_serves_two_who_are_not_ordered(acts in prop::collection::vec(act(), 1..80)) {
        let mut world = World::new(3);
        let mut keys: Vec<ExecKey> = (0..5).map(ExecKey).collect();
        (0..5).for_each(|n| enroll(&mut world, keys[n], n));
        for act in acts {
            match act {
                Act::Launch { exec, stream, fail, auto_free } => {
                    let (cover, outputs) = shape(exec);
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
                Act::Reopen(n) => {
                    world.backing.close(keys[n]);
                    world.backing.audit();
                    keys[n] = ExecKey(keys.iter().map(|key| key.0).max().unwrap() + 1);
                    enroll(&mut world, keys[n], n);
                    world.backing.audit();
                }
            }
        }
        // At the end everything can be given back.
        while !world.unfreed.is_empty() {
            world.free(0, 0);
        }
        keys.iter().for_each(|key| world.backing.close(*key));
        (0..3).for_each(|stream| world.synchronize(stream));
        world.trim();
        prop_assert_eq!(world.reserved(), 0);
        prop_assert!(world.mapped.is_empty());
    }
}

/// `count` instances of 32 x 4 MiB, the first `outputs` allocations unfreed.
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
        world.backing.enroll(ExecKey(n), &cover).unwrap();
        let ranges: Vec<Range> = cover.iter().map(|it| it.0).collect();
        let outputs: Vec<Range> = cover.iter().filter(|it| it.1).map(|it| it.0).collect();
        assert!(world.launch(ExecKey(n), &ranges, &outputs, 0, None));
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
    // The instances go; what was left stays until it is freed.
    (0..8).for_each(|n| world.backing.close(ExecKey(n)));
    world.trim();
    assert_eq!(world.reserved(), 8 * 4 * MIB);
    while !world.unfreed.is_empty() {
        world.free(0, 0);
    }
    world.synchronize(0);
    world.trim();
    assert_eq!(world.reserved(), 0);
    assert!(world.backing.is_vacant(Range::new(1 << 40, 128 * MIB)));
}

fn one(world: &mut World, n: u64, granules: u64, output: bool) -> Vec<Range> {
    let range = Range::new((n + 1) << 40, granules * GRANULE);
    world.backing.enroll(ExecKey(n), &[(range, output)]).unwrap();
    vec![range]
}

#[test]
fn concurrent_launches_take_the_sum_and_ordered_ones_the_most() {
    let mut world = World::new(2);
    let (a, b) = (one(&mut world, 0, 2, false), one(&mut world, 1, 3, false));
    world.launch(ExecKey(0), &a, &[], 0, None);
    world.launch(ExecKey(1), &b, &[], 1, None);
    assert_eq!(world.reserved(), 5 * GRANULE);
    // What is over is taken over without any edge.
    let c = one(&mut world, 2, 5, false);
    world.synchronize(0);
    world.synchronize(1);
    world.launch(ExecKey(2), &c, &[], 0, None);
    assert_eq!(world.reserved(), 5 * GRANULE);
}

#[test]
fn a_relaunch_costs_no_step_and_another_stream_none_where_it_waits() {
    let mut world = World::new(2);
    let a = one(&mut world, 0, 4, false);
    world.launch(ExecKey(0), &a, &[], 0, None);
    let steps = world.steps;
    world.launch(ExecKey(0), &a, &[], 0, None);
    world.launch(ExecKey(0), &a, &[], 1, None);
    assert_eq!(world.steps, steps);
}

#[test]
fn free_then_relaunch_in_one_stream_keeps_the_memory() {
    let mut world = World::new(2);
    let a = one(&mut world, 0, 2, true);
    for stream in [0, 0, 1] {
        assert!(world.launch(ExecKey(0), &a, &a, stream, None));
        assert!(!world.launch(ExecKey(0), &a, &a, stream, None), "unfreed");
        world.free(0, stream);
    }
    assert_eq!(world.reserved(), 2 * GRANULE);
    // Freed on a stream that knows nothing of this one: the address is the same, so the launch waits for that free.
    assert!(world.launch(ExecKey(0), &a, &a, 0, None));
    world.free(0, 1);
    let waits = world.backing.bind(ExecKey(0), &world.streams[0], &world.over).unwrap();
    assert!(waits.points().eq([world.streams[1].last()]));
}

#[test]
fn one_of_the_same_addresses_at_a_time() {
    let mut world = World::new(1);
    let a = one(&mut world, 0, 2, true);
    let taken = world.backing.enroll(ExecKey(5), &[(Range::new(a[0].start + GRANULE, GRANULE), false)]);
    assert_eq!(taken, Err(Refused::AddressesTaken(ExecKey(0))));
    world.launch(ExecKey(0), &a, &a, 0, None);
    world.backing.close(ExecKey(0));
    // Instantiated again at the same addresses, where the old allocation still lies.
    world.backing.enroll(ExecKey(6), &[(a[0], true)]).unwrap();
    assert!(!world.launch(ExecKey(6), &a, &a, 0, None));
    world.free(0, 0);
    assert!(world.launch(ExecKey(6), &a, &a, 0, None));
    assert_eq!(world.reserved(), 2 * GRANULE);
}

#[test]
fn used_falls_with_a_trim_only_and_marks_are_reset() {
    let mut world = World::new(1);
    assert_eq!(world.backing.statistics(), Default::default());
    let a = one(&mut world, 0, 2, true);
    assert_eq!(world.reserved(), 0, "nothing before the first launch");
    world.launch(ExecKey(0), &a, &a, 0, None);
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
    assert!(world.launch(ExecKey(0), &a, &[], 0, None), "trimmed instances launch again");
}

#[test]
fn memory_taken_for_a_launch_that_was_not_made_is_looked_at_again() {
    let mut world = World::new(2);
    let (a, b) = (one(&mut world, 0, 1, false), one(&mut world, 1, 1, false));
    world.launch(ExecKey(0), &a, &[], 0, None);
    world.backing.bind(ExecKey(1), &world.streams[0], &world.over).unwrap();
    assert!(world.step(None));
    // It was free for stream 0. For stream 1 it is not.
    assert!(world.launch(ExecKey(1), &b, &[], 1, None));
    assert_eq!(world.reserved(), 2 * GRANULE);
}

#[test]
fn an_upload_holds_the_memory() {
    let mut world = World::new(2);
    let (a, b) = (one(&mut world, 0, 1, false), one(&mut world, 1, 1, false));
    world.backing.bind(ExecKey(0), &world.streams[0], &world.over).unwrap();
    world.step(None);
    let point = world.submit(0);
    world.backing.uploaded(ExecKey(0), point);
    world.last.insert(ExecKey(0), point);
    world.launch(ExecKey(1), &b, &[], 1, None);
    let steps = world.steps;
    world.launch(ExecKey(0), &a, &[], 0, None);
    assert_eq!((world.steps, world.reserved()), (steps, 2 * GRANULE));
}
