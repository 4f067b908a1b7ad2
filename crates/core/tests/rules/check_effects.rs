//! The effects of an operation: what it waits for, the events that it names, known or new, and its capture.

use millpond_core::check::{Captured, Checker, Effects, Settings};
use millpond_core::ids::{DeviceId, EventId, ExecId, GraphId, HostId, NodeId, PoolId, StreamId};
use millpond_core::op::{
    Access, Act, CaptureMode, EventKind, Memory, Names, NodeOp, Op, Place, StreamRole, Trust, What,
};

const LEFT: StreamId = StreamId(1);
const RIGHT: StreamId = StreamId(2);
const EVENT: EventId = EventId(0);
const GRAPH: GraphId = GraphId(0);

struct Asked(Checker, Names);

impl Asked {
    fn new() -> Self {
        let mut asked = Self(Checker::new(Settings::default()), Names::new());
        for stream in [LEFT, RIGHT] {
            asked.done(What::StreamCreate { stream, role: StreamRole::NonBlocking, device: DeviceId(0) });
        }
        asked
    }

    /// Returns the effects of an operation, and `true` if it is right.
    fn step(&mut self, what: What) -> (Effects, bool) {
        let op = Op { host: HostId(0), place: Place::Unknown, what };
        self.0.check_with_effects(&op, &self.1, &mut Vec::new())
    }

    fn done(&mut self, what: What) -> Effects {
        let (effects, is_done) = self.step(what);
        assert!(is_done, "{effects:?}");
        effects
    }
}

fn record(stream: StreamId) -> What {
    What::EventRecord { event: EVENT, stream, external: false, kind: EventKind::Completion }
}

fn wait(stream: StreamId) -> What {
    What::EventWait { event: EVENT, stream, external: false }
}

fn alloc(stream: StreamId, number: u32) -> What {
    What::Alloc { memory: memory(number), pool: PoolId(0), stream, bytes: 64, name: None }
}

fn memory(number: u32) -> Memory {
    Memory::first(number)
}

fn write(stream: StreamId, number: u32) -> What {
    let accesses = [Access::whole(memory(number), Act::Write)].into_iter().collect();
    What::Launch { stream, accesses, trust: Trust::None, name: None }
}

#[test]
fn waits_name_their_events_whether_or_not_they_are_news() {
    let mut asked = Asked::new();
    assert_eq!(asked.done(wait(RIGHT)).awaited, [], "the event stands for nothing");
    let point = asked.done(alloc(LEFT, 0)).point;
    assert_eq!(asked.done(record(LEFT)).recorded, [EVENT]);
    let (first, again) = (asked.done(wait(RIGHT)), asked.done(wait(RIGHT)));
    assert_eq!((first.awaited, first.waits), (vec![(EVENT, point)], Vec::from_iter(point)));
    assert_eq!((again.awaited, again.waits), (vec![(EVENT, point)], vec![]));
    let (first, again) = (What::EventSynchronize { event: EVENT }, What::EventQuery { event: EVENT, is_over: true });
    let (first, again) = (asked.done(first), asked.done(again));
    assert_eq!((first.awaited, first.learned), (vec![(EVENT, point)], Vec::from_iter(point)));
    assert_eq!((again.awaited, again.learned), (vec![(EVENT, point)], vec![]));
    let no = asked.done(What::EventQuery { event: EVENT, is_over: false });
    assert_eq!(no.awaited, []);
}

#[test]
fn a_launch_names_the_events_of_its_nodes() {
    let mut asked = Asked::new();
    let (exec, other) = (ExecId(0), EventId(1));
    asked.done(What::GraphCreate { graph: GRAPH, symbolic: false });
    for (node, after) in [(NodeOp::EventWait(EVENT), vec![]), (NodeOp::EventRecord(other), vec![NodeId(0)])] {
        asked.done(What::GraphNode { graph: GRAPH, node: Box::new(node), after: after.into(), name: None });
    }
    asked.done(What::Instantiate { graph: GRAPH, exec, auto_free_on_launch: false });
    let point = asked.done(alloc(LEFT, 0)).point;
    asked.done(record(LEFT));
    let launched = asked.done(What::GraphLaunch { exec, stream: RIGHT });
    assert_eq!((launched.awaited, launched.recorded), (vec![(EVENT, point)], vec![other]));
    assert_eq!(launched.waits, [], "a node waits");
    let waited = asked.done(What::EventWait { event: other, stream: LEFT, external: false });
    assert_eq!(waited.awaited.len(), 1, "the event stands for the launch's record");
}

#[test]
fn work_of_a_capture_names_its_graph_and_the_nodes_before_it() {
    let mut asked = Asked::new();
    let captured =
        |after: &[u32]| Some(Captured { graph: GRAPH, after: after.iter().map(|node| NodeId(*node)).collect() });
    let mode = CaptureMode::Relaxed;
    asked.done(What::CaptureBegin { stream: LEFT, graph: GRAPH, mode, symbolic: false });
    let first = asked.done(alloc(LEFT, 0));
    assert_eq!((first.captured, first.point), (captured(&[]), None));
    assert_eq!(asked.done(write(LEFT, 0)).captured, captured(&[0]));
    assert_eq!(asked.done(record(LEFT)).recorded, [EVENT]);
    let joined = asked.done(wait(RIGHT));
    assert_eq!((joined.captured, joined.awaited), (captured(&[1]), vec![(EVENT, None)]));
    assert_eq!(asked.done(write(RIGHT, 0)).captured, captured(&[1]));
    assert_eq!(asked.done(What::Drop { memory: memory(0) }).captured, captured(&[2]));
    let (refused, is_done) = asked.step(write(LEFT, 7));
    assert_eq!((refused.captured, is_done), (captured(&[1]), false), "where it would have been");
}

#[test]
fn launches_of_an_instance_wait_for_each_other() {
    let mut asked = Asked::new();
    let exec = ExecId(0);
    asked.done(What::GraphCreate { graph: GRAPH, symbolic: false });
    asked.done(What::Instantiate { graph: GRAPH, exec, auto_free_on_launch: false });
    let first = asked.done(What::GraphLaunch { exec, stream: LEFT });
    let second = asked.done(What::GraphLaunch { exec, stream: RIGHT });
    assert_eq!((first.waits, second.waits), (vec![], Vec::from_iter(first.point)));
}

#[test]
fn a_launch_that_is_judged_is_not_done() {
    let mut asked = Asked::new();
    let launch = Op { host: HostId(0), place: Place::Unknown, what: write(RIGHT, 0) };
    asked.done(alloc(LEFT, 0));
    asked.done(record(LEFT));
    let refused = asked.0.judge_launch(&launch, &asked.1).expect_err("the allocation does not come before it");
    assert_eq!(refused.missing.iter().map(|edge| edge.after.stream).collect::<Vec<_>>(), [Some(LEFT)]);
    asked.done(wait(RIGHT));
    asked.0.judge_launch(&launch, &asked.1).expect("it is in order");
    assert_eq!(asked.done(What::Free { memory: memory(0), stream: LEFT, trust: Trust::None }).number, 3);
}
