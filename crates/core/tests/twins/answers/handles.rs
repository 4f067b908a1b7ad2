//! Records and waits by handle give the same findings, waits and points as those by name.

use std::collections::BTreeMap;

use fastrand::Rng;
use millpond_core::check::{Checker, Finding, Recorded, StreamHandle, Wait};
use millpond_core::ids::{EventId, Point, StreamId};
use millpond_core::op::{EventKind, Names, Op, What};

use super::asked::{VIOLATIONS, finding, step_at_once};
use super::program::{Kinds, Program};

/// The compared results of a step.
#[derive(PartialEq, Debug, Default)]
struct Told {
    point: Option<Point>,
    waits: Vec<Wait>,
    learned: Vec<Point>,
    finding: Option<Finding>,
}

fn told(checker: &mut Checker, op: &Op, names: &Names) -> (Told, Option<StreamHandle>) {
    let (done, reason) = step_at_once(checker, op, names);
    let finding = finding(reason);
    (Told { point: done.point, waits: done.waits, learned: done.learned, finding }, done.stream)
}

/// A library that keeps its streams' handles and its events' records.
struct Library {
    checker: Checker,
    names: Names,
    streams: BTreeMap<StreamId, StreamHandle>,
    records: BTreeMap<EventId, Recorded>,
    by_handle: u64,
}

impl Library {
    fn step(&mut self, op: &Op) -> Told {
        let at = (op.host, op.place);
        let mut waits = Vec::new();
        let by_handle = match op.what {
            What::EventRecord { event, stream, .. } => self.streams.get(&stream).and_then(|&stream| {
                let before = self.records.get(&event).cloned();
                let recorded = self.checker.record_end(at, stream, EventKind::Completion, before, &mut waits)?;
                let point = recorded.snapshot().point();
                self.records.insert(event, recorded);
                Some(point)
            }),
            What::EventWait { event, stream, .. } => self
                .streams
                .get(&stream)
                .and_then(|&stream| self.checker.wait_end(at, stream, self.records.get_mut(&event)?, &mut waits)),
            _ => None,
        };
        if by_handle.is_some() {
            self.by_handle += 1;
            return Told { point: by_handle, waits, ..Told::default() };
        }
        // By name: the events get their records back for that.
        for (event, recorded) in std::mem::take(&mut self.records) {
            self.checker.set_record(event, recorded);
        }
        let (mut told, stream) = told(&mut self.checker, op, &self.names);
        told.waits.splice(0..0, waits);
        if let Some(stream) = op.what.stream().zip(stream) {
            self.streams.insert(stream.0, stream.1);
        } else if let What::StreamDestroy { stream } = op.what {
            self.streams.remove(&stream);
        }
        self.records = (0..8).map(EventId).filter_map(|it| Some((it, self.checker.take_record(it)?))).collect();
        told
    }
}

#[test]
fn records_and_waits_by_handle_are_those_by_name() {
    let (mut by_handle, mut found) = (0, 0);
    for seed in 0..20_000_u64 {
        let kinds = Kinds { graphs: seed.is_multiple_of(2), ..Kinds::of(seed) };
        let ops = Program::random(&mut Rng::with_seed(seed), kinds, 40);
        let (mut named, names) = (Checker::new(VIOLATIONS), Names::new());
        let mut library = Library {
            checker: Checker::new(VIOLATIONS),
            names: Names::new(),
            streams: BTreeMap::new(),
            records: BTreeMap::new(),
            by_handle: 0,
        };
        for (at, op) in ops.iter().enumerate() {
            let (expected, is) = (told(&mut named, op, &names).0, library.step(op));
            assert_eq!(is, expected, "program {seed}, operation {at}: {op:?}");
            found += u64::from(is.finding.is_some());
        }
        by_handle += library.by_handle;
    }
    assert!(by_handle > 100_000 && found > 10_000, "{by_handle} steps by handle and {found} findings say little");
}
