//! The waits and the points learned that the checker tells are all that orders a program: repeated in plain
//! reachability, they give the checker's order.

use std::collections::BTreeMap;
use std::iter::once;

use fastrand::Rng;
use millpond_core::check::{Checker, Effects, Settings};
use millpond_core::ids::{ChainIndex, DeviceId, EventId, ExecId, GraphId, HostId, Point, Seq, StreamId};
use millpond_core::op::{Access, Act, EventKind, Memory, Names, Op, Place, Space, StreamRole, Trust, What};
use millpond_reach::Past;

const STREAMS: u32 = 6;

/// A chain: what comes before its next operation, and what came before each of its positions.
#[derive(Default)]
struct Chain {
    past: Past,
    positions: BTreeMap<Seq, Past>,
}

/// A checker, and a device that gets only the effects that it tells. The device has no event and no default stream.
struct Twins {
    checker: Checker,
    chains: BTreeMap<ChainIndex, Chain>,
    /// The work that the threads of the process know to have completed.
    known: Past,
    waits: usize,
}

impl Twins {
    fn new() -> Self {
        let checker = Checker::new(Settings { leaks: false, ..Settings::default() });
        let mut twins = Twins { checker, chains: BTreeMap::new(), known: Past::default(), waits: 0 };
        twins.step(What::GraphCreate { graph: GraphId(0), symbolic: false });
        twins.step(What::Instantiate { graph: GraphId(0), exec: ExecId(0), auto_free_on_launch: false });
        twins
    }

    fn at(&self, point: Point) -> Past {
        let positions = &self.chains[&point.chain].positions;
        positions.range(..=point.seq).next_back().map_or_else(Past::default, |(_, past)| past.clone())
    }

    /// Makes an operation. Returns its point and what the device has before it, if it is one of a stream, and `true` if
    /// it is done.
    fn step(&mut self, what: What) -> (Option<(millpond_reach::Point, Past)>, bool) {
        let op = Op { host: HostId(0), place: Place::Unknown, what };
        let (effects, is_done) = self.checker.check_with_effects(&op, &Names::new(), &mut Vec::new());
        let Effects { point, waits, learned, .. } = effects;
        self.waits += waits.len();
        let waits: Vec<Past> = waits.iter().map(|point| self.at(*point)).collect();
        let made = point.map(|point| {
            let chain = self.chains.entry(point.chain).or_default();
            waits.iter().chain(once(&self.known)).for_each(|before| chain.past.join(before));
            let before = chain.past.clone();
            let made = chain.past.step(point.chain.index());
            chain.positions.insert(point.seq, chain.past.clone());
            (made, before)
        });
        assert!(made.is_some() || waits.is_empty(), "{op:?}: of which stream?");
        for point in learned {
            let before = self.at(point);
            self.known.join(&before);
        }
        (made, is_done)
    }

    fn launch(&mut self, stream: StreamId, memory: Memory, act: Act) -> (Option<(millpond_reach::Point, Past)>, bool) {
        let accesses = once(Access::whole(memory, act)).collect();
        self.step(What::Launch { stream, accesses, trust: Trust::None, name: None })
    }
}

/// Runs a random program, each of whose launches writes memory of its own. At its end, each stream reads all memory.
fn run(seed: u64) -> [usize; 3] {
    let (mut rng, mut twins) = (Rng::with_seed(seed), Twins::new());
    let create = |twins: &mut Twins, rng: &mut Rng, stream: u32| {
        let role = match stream {
            0 => StreamRole::Legacy,
            _ => [StreamRole::NonBlocking, StreamRole::Blocking, StreamRole::PerThread][rng.usize(0..3)],
        };
        twins.step(What::StreamCreate { stream: StreamId(stream), role, device: DeviceId(0) });
    };
    (0..STREAMS).for_each(|stream| create(&mut twins, &mut rng, stream));
    let mut written = Vec::new();
    for at in 0..40 {
        let (number, event) = (rng.u32(0..STREAMS), EventId(rng.u32(0..4)));
        let stream = StreamId(number);
        let what = match rng.u8(0..32) {
            0..=9 => {
                let memory = Memory::first(at);
                twins.step(What::AllocNow { memory, space: Space::Device(DeviceId(0)), bytes: 64, name: None });
                let (made, _) = twins.launch(stream, memory, Act::Write);
                written.push((memory, made.expect("it is one of a stream").0));
                continue;
            }
            10..=16 => What::EventRecord { event, stream, external: false, kind: EventKind::Completion },
            17..=24 => What::EventWait { event, stream, external: false },
            25 => What::EventSynchronize { event },
            26 => What::EventQuery { event, is_over: rng.bool() },
            27 => What::StreamSynchronize { stream },
            28 => What::DeviceSynchronize,
            29..=30 => What::GraphLaunch { exec: ExecId(0), stream },
            _ => {
                twins.step(What::StreamDestroy { stream });
                create(&mut twins, &mut rng, number);
                continue;
            }
        };
        twins.step(what);
    }
    let mut ordered = 0;
    for (memory, write) in &written {
        for stream in (0..STREAMS).map(StreamId) {
            let (made, is_done) = twins.launch(stream, *memory, Act::Read);
            let is_told = made.expect("it is one of a stream").1.covers(*write);
            assert_eq!(is_done, is_told, "program {seed}: {stream} after the write of {memory:?}");
            ordered += usize::from(is_done);
        }
    }
    [twins.waits, ordered, written.len() * STREAMS as usize - ordered]
}

#[test]
fn the_effects_that_are_told_give_the_order_that_is_judged() {
    let [mut waits, mut ordered, mut unordered] = [0; 3];
    for seed in 0..5_000 {
        let told = run(seed);
        [waits, ordered, unordered] = [waits + told[0], ordered + told[1], unordered + told[2]];
    }
    assert!(waits > 10_000 && ordered > 10_000 && unordered > 10_000, "{waits}, {ordered}, {unordered}");
}
