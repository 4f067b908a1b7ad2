//! The order beside its naive twin: random programs, plain graph reachability as the judge.
//!
//! The twin keeps every operation as a node with its predecessors and answers by search. It knows the rules of the
//! order from their definitions and shares nothing with what it judges.

use std::collections::{BTreeMap, BTreeSet};

use millpond_core::ids::Point;
use millpond_core::op::StreamRole;
use millpond_core::order::Seat;
use proptest::prelude::*;

use crate::program::{LEGACY, Program};

/// One step of a random program; numbers are taken modulo what exists.
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

/// A stream: what its maker was told before, its last operation, and whether it is a blocking one.
struct Life {
    born: usize,
    last: Option<usize>,
    blocking: bool,
}

#[derive(Default)]
struct Twin {
    /// The predecessors of each operation.
    before: Vec<Vec<usize>>,
    /// Each stream that ever lived.
    streams: BTreeMap<Seat, Life>,
    /// Lives whose number was given out again.
    former: Vec<Life>,
    legacy: Option<usize>,
    events: BTreeMap<u32, usize>,
    /// What each host thread was told.
    told: BTreeMap<u32, BTreeSet<usize>>,
}

impl Twin {
    fn node(&mut self, before: Vec<usize>) -> usize {
        self.before.push(before);
        self.before.len() - 1
    }

    fn lives(&self) -> impl Iterator<Item = &Life> {
        self.streams.values().chain(&self.former)
    }

    /// Any operation of `host` on `stream`.
    fn enter(&mut self, host: u32, stream: Seat) -> usize {
        let mut before: Vec<usize> = self.told.entry(host).or_default().iter().copied().collect();
        if stream == LEGACY {
            before.extend(self.legacy);
            before.extend(self.lives().filter(|stream| stream.blocking).filter_map(|stream| stream.last));
        } else {
            let stream = &self.streams[&stream];
            before.push(stream.born);
            before.extend(stream.last);
            before.extend(self.legacy.filter(|_| stream.blocking));
        }
        let node = self.node(before);
        self.advance(stream, node);
        node
    }

    /// What has completed once a stream has.
    fn ends(&self, stream: Seat) -> Vec<usize> {
        if stream == LEGACY {
            let blocking = self.lives().filter(|stream| stream.blocking).filter_map(|stream| stream.last);
            return self.legacy.into_iter().chain(blocking).collect();
        }
        let stream = &self.streams[&stream];
        [stream.born].into_iter().chain(stream.last).chain(self.legacy.filter(|_| stream.blocking)).collect()
    }

    fn advance(&mut self, stream: Seat, node: usize) {
        if stream == LEGACY {
            self.legacy = Some(node);
        } else {
            self.streams.get_mut(&stream).expect("a stream of the program").last = Some(node);
        }
    }

    /// A stream is made by a host: what the host was told comes before all of it.
    fn create(&mut self, host: u32, stream: Seat, blocking: bool) {
        let told = self.told.entry(host).or_default().iter().copied().collect();
        let born = self.node(told);
        let life = Life { born, last: None, blocking };
        if let Some(former) = self.streams.insert(stream, life) {
            // The number served before: that life's work still counts.
            self.former.push(former);
        }
    }

    fn reaches(&self, from: usize, to: usize) -> bool {
        let mut seen = vec![false; self.before.len()];
        let mut stack = vec![to];
        while let Some(node) = stack.pop() {
            if node == from {
                return true;
            }
            if !std::mem::replace(&mut seen[node], true) {
                stack.extend(&self.before[node]);
            }
        }
        false
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

fn pick(live: &[Seat], n: u8) -> Seat {
    live[n as usize % live.len()]
}

/// Runs one program through both and compares every answer.
fn compare(program: &[Step]) -> Result<(), TestCaseError> {
    let (mut order, mut twin) = (Program::new(), Twin::default());
    let mut live = vec![LEGACY];
    let mut points: Vec<(Point, usize)> = Vec::new();
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
                let node = twin.enter(host.into(), stream);
                let point = order.submit(host.into(), stream);
                for (earlier, other) in &points {
                    let expected = twin.reaches(*other, node);
                    prop_assert_eq!(order.covers(stream, *earlier), expected, "{} before {}", earlier, point);
                }
                points.push((point, node));
            }
            Step::Record(host, n, event) => {
                let stream = pick(&live, n);
                let node = twin.enter(host.into(), stream);
                twin.events.insert(event.into(), node);
                order.record(host.into(), stream, event.into());
            }
            Step::Wait(host, n, event) => {
                let stream = pick(&live, n);
                let node = twin.enter(host.into(), stream);
                if let Some(recorded) = twin.events.get(&event.into()).copied() {
                    twin.before[node].push(recorded);
                }
                order.wait(host.into(), stream, event.into());
            }
            Step::SynchronizeEvent(host, event) => {
                if let Some(recorded) = twin.events.get(&event.into()).copied() {
                    twin.told.entry(host.into()).or_default().insert(recorded);
                }
                order.synchronize_event(host.into(), event.into());
            }
            Step::SynchronizeStream(host, n) => {
                let stream = pick(&live, n);
                let ends = twin.ends(stream);
                twin.told.entry(host.into()).or_default().extend(ends);
                order.synchronize_stream(host.into(), stream);
            }
            Step::SynchronizeDevice(host) => {
                let all = twin.lives().filter_map(|stream| stream.last).chain(twin.legacy).collect::<Vec<_>>();
                twin.told.entry(host.into()).or_default().extend(all);
                order.synchronize_device(host.into());
            }
            Step::Tell(from, to) => {
                let told = twin.told.entry(from.into()).or_default().clone();
                twin.told.entry(to.into()).or_default().extend(told);
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
