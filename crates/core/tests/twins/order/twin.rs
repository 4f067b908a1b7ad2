//! The order compared with its naive twin: random programs, judged by plain reachability.
//!
//! For each stream, event and host, the twin keeps the set of operations that come before. It follows the rules of the
//! order from their definitions and shares nothing with the code that it judges.

use std::collections::BTreeMap;

use millpond_core::ids::Point;
use millpond_core::op::StreamRole;
use millpond_core::order::StreamIndex;
use millpond_reach::Past;
use proptest::prelude::*;

use super::program::{LEGACY, Program};

/// One step of a random program. Numbers are taken modulo what exists.
#[derive(Clone, Debug)]
enum Step {
    Create(u8, bool),
    PerThread(u8),
    Destroy(u8),
    Submit(u8, u8),
    Record(u8, u8, u8),
    Wait(u8, u8, u8),
    SynchronizeEvent(u8, u8),
    SynchronizeStream(u8, u8),
    SynchronizeDevice(u8),
    Tell(u8, u8),
}

/// A stream: its chain, what comes before its next operation, and its relation to the legacy default stream.
struct Life {
    chain: usize,
    past: Past,
    has_worked: bool,
    blocking: bool,
}

/// The chain of the legacy default stream.
const LEGACY_CHAIN: usize = 0;

#[derive(Default)]
struct Twin {
    /// Every stream that ever existed.
    streams: BTreeMap<StreamIndex, Life>,
    /// Streams whose number was used again.
    former: Vec<Life>,
    legacy: Past,
    events: BTreeMap<u32, Past>,
    /// The work that each host thread knows to have completed.
    told: BTreeMap<u32, Past>,
}

impl Twin {
    /// Returns what comes before the next operation of a stream, as far as it follows from the streams.
    fn ends(&self, stream: StreamIndex) -> Past {
        let mut ends = Past::default();
        if stream == LEGACY {
            self.worked().filter(|life| life.blocking).for_each(|life| ends.join(&life.past));
        } else {
            ends.join(&self.streams[&stream].past);
        }
        if stream == LEGACY || self.streams[&stream].blocking {
            ends.join(&self.legacy);
        }
        ends
    }

    /// Returns the streams with an operation. What only a stream's creator knew does not count.
    fn worked(&self) -> impl Iterator<Item = &Life> {
        self.streams.values().chain(&self.former).filter(|life| life.has_worked)
    }

    /// Makes any operation of `host` on `stream`. It also comes after `event`.
    fn enter(&mut self, host: u32, stream: StreamIndex, event: Option<&Past>) -> millpond_reach::Point {
        let mut past = self.ends(stream);
        [self.told.get(&host), event].into_iter().flatten().for_each(|before| past.join(before));
        if stream == LEGACY {
            self.legacy = past;
            return self.legacy.step(LEGACY_CHAIN);
        }
        let life = self.streams.get_mut(&stream).expect("a stream of the program");
        (life.past, life.has_worked) = (past, true);
        life.past.step(life.chain)
    }

    /// Returns what comes before the next operation of a stream that has just been entered.
    fn past(&self, stream: StreamIndex) -> &Past {
        if stream == LEGACY { &self.legacy } else { &self.streams[&stream].past }
    }

    fn learn(&mut self, host: u32, past: &Past) {
        self.told.entry(host).or_default().join(past);
    }

    /// Creates a stream on a host: what the host knows to have completed comes before all of the stream.
    fn create(&mut self, host: u32, stream: StreamIndex, blocking: bool) {
        let chain = LEGACY_CHAIN + 1 + self.streams.len() + self.former.len();
        let past = self.told.get(&host).cloned().unwrap_or_default();
        let life = Life { chain, past, has_worked: false, blocking };
        // If the number was used before, the work of that stream still counts.
        self.former.extend(self.streams.insert(stream, life));
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => (0u8..3, any::<bool>()).prop_map(|(h, b)| Step::Create(h, b)),
        1 => (0u8..3).prop_map(Step::PerThread),
        1 => any::<u8>().prop_map(Step::Destroy),
        12 => (0u8..3, any::<u8>()).prop_map(|(h, s)| Step::Submit(h, s)),
        6 => (0u8..3, any::<u8>(), 0u8..4).prop_map(|(h, s, e)| Step::Record(h, s, e)),
        6 => (0u8..3, any::<u8>(), 0u8..4).prop_map(|(h, s, e)| Step::Wait(h, s, e)),
        1 => (0u8..3, 0u8..4).prop_map(|(h, e)| Step::SynchronizeEvent(h, e)),
        1 => (0u8..3, any::<u8>()).prop_map(|(h, s)| Step::SynchronizeStream(h, s)),
        1 => (0u8..3).prop_map(Step::SynchronizeDevice),
        1 => (0u8..3, 0u8..3).prop_map(|(a, b)| Step::Tell(a, b)),
    ];
    prop::collection::vec(step, 1..120)
}

fn pick(live: &[StreamIndex], n: u8) -> StreamIndex {
    live[n as usize % live.len()]
}

/// Runs one program through both and compares every answer.
fn compare(program: &[Step]) -> Result<(), TestCaseError> {
    let (mut order, mut twin) = (Program::new(), Twin::default());
    let mut live = vec![LEGACY];
    let mut points: Vec<(Point, millpond_reach::Point)> = Vec::new();
    for step in program {
        match *step {
            Step::Create(host, blocking) => {
                let kind = if blocking { StreamRole::Blocking } else { StreamRole::NonBlocking };
                let id = order.create(host.into(), kind);
                twin.create(host.into(), id, blocking);
                live.push(id);
            }
            Step::PerThread(host) => {
                let id = order.per_thread(host.into());
                if !live.contains(&id) {
                    twin.create(host.into(), id, true);
                    live.push(id);
                }
            }
            Step::Destroy(n) => {
                let id = pick(&live, n);
                if order.destroy(id) {
                    live.retain(|stream| *stream != id);
                }
            }
            Step::Submit(host, n) => {
                let stream = pick(&live, n);
                let named = twin.enter(host.into(), stream, None);
                let point = order.submit(host.into(), stream);
                for (earlier, other) in &points {
                    let expected = twin.past(stream).covers(*other);
                    prop_assert_eq!(order.covers(stream, *earlier), expected, "{} before {}", earlier, point);
                }
                points.push((point, named));
            }
            Step::Record(host, n, event) => {
                let stream = pick(&live, n);
                twin.enter(host.into(), stream, None);
                twin.events.insert(event.into(), twin.past(stream).clone());
                order.record(host.into(), stream, event.into());
            }
            Step::Wait(host, n, event) => {
                let stream = pick(&live, n);
                let recorded = twin.events.get(&event.into()).cloned();
                twin.enter(host.into(), stream, recorded.as_ref());
                order.wait(host.into(), stream, event.into());
            }
            Step::SynchronizeEvent(host, event) => {
                if let Some(recorded) = twin.events.get(&event.into()).cloned() {
                    twin.learn(host.into(), &recorded);
                }
                order.synchronize_event(host.into(), event.into());
            }
            Step::SynchronizeStream(host, n) => {
                let stream = pick(&live, n);
                twin.learn(host.into(), &twin.ends(stream));
                order.synchronize_stream(host.into(), stream);
            }
            Step::SynchronizeDevice(host) => {
                let mut all = twin.legacy.clone();
                twin.worked().for_each(|life| all.join(&life.past));
                twin.learn(host.into(), &all);
                order.synchronize_device(host.into());
            }
            Step::Tell(from, to) => {
                let told = twin.told.get(&from.into()).cloned().unwrap_or_default();
                twin.learn(to.into(), &told);
                order.tell(from.into(), to.into());
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 2000 },
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn random_programs_agree_with_reachability(program in steps()) {
        compare(&program)?;
    }
}
