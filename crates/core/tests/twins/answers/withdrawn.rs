//! If launches are withdrawn, the rest of the program is judged as without them. If launches are confirmed late, the
//! program is judged as if each had been done at once. Other streams continue meanwhile.

use fastrand::Rng;
use millpond_core::check::{Checker, Done, Finding, Kind, Reason, Settings, Side};
use millpond_core::ids::{AllocId, DeviceId, ExecId, GraphId, HostId, StreamId};
use millpond_core::op::{Act, Memory, Names, NodeOp, Op, Place, StreamRole, Trust, What};

use super::asked::{VIOLATIONS, finding, step};
use super::program::{Kinds, Program};

/// A finding without the numbers of operations, because a withdrawn launch has a number too. All operations have lines.
#[derive(PartialEq, Debug)]
pub(crate) struct Verdict {
    kind: Kind,
    subject: Option<AllocId>,
    /// The act and the line of each side.
    earlier: Option<(Option<Act>, Option<u32>)>,
    others: Vec<(Option<Act>, Option<u32>)>,
    /// `true` if edges are missing. The choice of edges is advice: it depends on the last operations of other streams.
    is_settled_by_edges: bool,
    later: Option<u32>,
}

pub(crate) fn verdict(finding: &Finding) -> Verdict {
    let side = |side: &Side| (side.act, side.spot.line);
    Verdict {
        kind: finding.kind,
        subject: finding.subject.as_ref().map(|subject| subject.id),
        earlier: finding.earlier.as_ref().map(side),
        others: finding.others.iter().map(side).collect(),
        is_settled_by_edges: !finding.missing.is_empty(),
        later: finding.later.as_ref().and_then(|later| later.spot.line),
    }
}

/// The findings of a program, operation by operation. Its launches end as `fate` says.
struct Run {
    checker: Checker,
    names: Names,
    /// The launch that is in flight.
    flying: Option<Done>,
    asked_again: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Withdrawn,
    Confirmed,
}

impl Run {
    fn new() -> Self {
        Run { checker: Checker::new(VIOLATIONS), names: Names::new(), flying: None, asked_again: 0 }
    }

    fn land(&mut self, fate: Fate) {
        let Some(done) = self.flying.take() else { return };
        let (stream, point) = (done.stream.expect("of a stream"), done.point.expect("it was done"));
        match fate {
            Fate::Withdrawn => assert!(self.checker.retract(done), "it was not confirmed"),
            Fate::Confirmed => {
                self.checker.advance(stream, point.seq, &self.names);
                assert!(!self.checker.retract(done), "it was confirmed");
            }
        }
    }

    /// Makes a step, and confirms at once that the device has it, unless it is to be in flight.
    fn step(&mut self, op: &Op, fate: Fate, flies: bool) -> (Option<Verdict>, Option<Done>) {
        loop {
            let (done, reason) = step(&mut self.checker, op, &self.names);
            match reason {
                None => {
                    if let Some((stream, point)) = done.stream.zip(done.point).filter(|_| !flies) {
                        self.checker.advance(stream, point.seq, &self.names);
                    }
                    return (None, Some(done));
                }
                Some(Reason::AskAgain(stream)) => {
                    assert_eq!(self.flying.as_ref().and_then(|done| done.stream), Some(stream), "{op:?}");
                    self.asked_again += 1;
                    self.land(fate);
                }
                refused => return (finding(refused).as_ref().map(verdict), None),
            }
        }
    }
}

/// Returns `true` if the operation takes the ends of streams whose locks it does not hold.
fn takes_ends(op: &Op) -> bool {
    matches!(op.what, What::SynchronizeDevice { .. }) || op.what.stream().is_some_and(|stream| stream.0 == 0)
}

/// Runs a program whose launches are in flight during some operations of other streams, and the same without. Returns
/// the number of repeated steps, and the number of findings.
fn compare(seed: u64, fate: Fate) -> (u64, u64) {
    let mut rng = Rng::with_seed(seed);
    let (graphs, memory_nodes, parts) = (seed.is_multiple_of(4), seed % 4 < 2, seed.is_multiple_of(2));
    let kinds = Kinds { graphs, memory_nodes, parts, ..Kinds::of(seed) };
    let ops = Program::random(&mut rng, kinds, 40);
    let (mut run, mut plain) = (Run::new(), Run::new());
    let (mut found, mut flight) = (0, 0);
    for (at, op) in ops.iter().enumerate() {
        let flies_on = run.flying.as_ref().is_some_and(|done| {
            let stream = run.checker.stream(done.stream.expect("of a stream"));
            flight > 0 && op.what.stream() != stream && (fate == Fate::Withdrawn || !takes_ends(op))
        });
        flight -= u32::from(flies_on);
        if !flies_on {
            run.land(fate);
        }
        // Blocking streams come after a launch of the legacy default stream once that is confirmed.
        let may_fly = fate == Fate::Withdrawn || op.what.stream() != Some(StreamId::LEGACY);
        let is_work = matches!(op.what, What::Launch { .. } | What::Copy { .. } | What::GraphLaunch { .. })
            && may_fly
            && run.flying.is_none();
        if is_work && rng.bool() {
            let (told, done) = run.step(op, fate, true);
            if let Some(done) = done.filter(|done| done.point.is_some()) {
                (run.flying, flight) = (Some(done), rng.u32(0..6));
            }
            if fate == Fate::Withdrawn && told.is_none() {
                continue;
            }
            let (expected, _) = plain.step(op, fate, false);
            assert_eq!(told, expected, "program {seed}, operation {at}: {op:?}");
            continue;
        }
        let (told, _) = run.step(op, fate, false);
        let (expected, _) = plain.step(op, fate, false);
        assert_eq!(told, expected, "program {seed}, operation {at}: {op:?}, of\n{ops:#?}");
        found += u64::from(expected.is_some());
    }
    (run.asked_again, found)
}

fn compare_all(fate: Fate) {
    let (mut again, mut found) = (0, 0);
    for seed in 0..50_000 {
        let told = compare(seed, fate);
        (again, found) = (again + told.0, found + told.1);
    }
    assert!(again > 5_000 && found > 25_000, "asked again {again} times, and {found} findings");
}

#[test]
fn a_program_is_judged_as_without_the_launches_that_are_withdrawn() {
    compare_all(Fate::Withdrawn);
}

#[test]
fn a_program_is_judged_as_if_launches_were_never_in_flight() {
    compare_all(Fate::Confirmed);
}

/// A graph that allocates memory and leaves it live.
#[test]
fn the_launch_of_a_graph_begins_lives_once_the_device_has_it() {
    let (memory, stream, exec, graph) = (Memory::first(9), StreamId(1), ExecId(1), GraphId(1));
    let (mut checker, names) = (Checker::new(Settings::default()), Names::new());
    let step = |checker: &mut Checker, what| checker.step(&Op { host: HostId(0), place: Place::Unknown, what }, &names);
    let node = Box::new(NodeOp::Alloc { memory, bytes: 512 });
    for what in [
        What::StreamCreate { stream, role: StreamRole::Legacy, device: DeviceId(0) },
        What::GraphCreate { graph, symbolic: false },
        What::GraphNode { graph, node, after: Default::default(), name: None },
        What::Instantiate { graph, exec, auto_free_on_launch: false },
    ] {
        step(&mut checker, what).expect("it is right");
    }
    let withdrawn = step(&mut checker, What::GraphLaunch { exec, stream }).expect("it is right");
    assert_eq!((withdrawn.begun.len(), withdrawn.number), (0, 1));
    assert!(checker.retract(withdrawn.clone()));
    assert!(!checker.retract(withdrawn), "once");
    let refused =
        step(&mut checker, What::Free { memory, stream, trust: Trust::None }).expect_err("nothing was allocated");
    assert!(matches!(refused.reason, Reason::Finding(finding) if finding.kind == Kind::FreeBeforeAlloc));
    let launched = step(&mut checker, What::GraphLaunch { exec, stream }).expect("nothing is unfreed");
    let (handle, point) = launched.stream.zip(launched.point).expect("on a stream");
    let done = checker.advance(handle, point.seq, &Names::new());
    assert_eq!(done.begun.iter().map(|begun| begun.memory).collect::<Vec<_>>(), [memory]);
    assert!(!checker.retract(launched), "the device has it");
    let freed = step(&mut checker, What::Free { memory, stream, trust: Trust::None }).expect("it is there");
    assert_eq!(freed.ended.iter().map(|ended| ended.memory).collect::<Vec<_>>(), [memory]);
}
