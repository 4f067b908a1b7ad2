//! Operations that this project's programs never make, as a damaged trace may contain them: findings, but no panic.

use millpond_core::check::{Checker, Finding, Settings};
use millpond_core::ids::{DeviceId, ExecId, GraphId, HostId, StreamId};
use millpond_core::op::{Access, Act, CaptureMode, Memory, Names, NodeOp, Op, Place, StreamRole, Trust, What};
use smallvec::smallvec;

fn check(all: Vec<What>) -> Vec<Finding> {
    let (mut checker, mut findings, names) = (Checker::new(Settings::default()), Vec::new(), Names::new());
    for what in all {
        checker.check(&Op { host: HostId(0), place: Place::Unknown, what }, &names, &mut findings);
    }
    checker.finish(&names, &mut findings);
    findings
}

fn stream(stream: StreamId, role: StreamRole) -> What {
    What::StreamCreate { stream, role, device: DeviceId(0) }
}

fn graph_that_leaves(graph: GraphId, memory: Memory) -> [What; 2] {
    let node = Box::new(NodeOp::Alloc { memory, bytes: 512 });
    [
        What::GraphCreate { graph, symbolic: false },
        What::GraphNode { graph, node, after: Default::default(), name: None },
    ]
}

/// A second instance with the number of the first one is refused; the later operations still name the first one's
/// memory.
#[test]
fn an_instance_keeps_its_number() {
    let (m, s, t, exec) = (Memory::first(1), StreamId(1), StreamId(2), ExecId(0));
    let instantiate = |graph| What::Instantiate { graph, exec, auto_free_on_launch: false };
    let mut begin = vec![stream(s, StreamRole::NonBlocking), stream(t, StreamRole::NonBlocking)];
    begin.extend(graph_that_leaves(GraphId(1), m));
    begin.extend([instantiate(GraphId(1)), What::GraphLaunch { exec, stream: s }]);
    begin.extend([What::GraphCreate { graph: GraphId(2), symbolic: false }, instantiate(GraphId(2))]);
    let in_capture = [
        What::CaptureBegin { stream: t, graph: GraphId(3), mode: CaptureMode::Relaxed, symbolic: false },
        What::Free { memory: m, stream: t, trust: Trust::None },
    ];
    let read =
        What::Launch { stream: s, accesses: smallvec![Access::whole(m, Act::Read)], trust: Trust::None, name: None };
    for end in [in_capture.to_vec(), vec![What::Free { memory: m, stream: s, trust: Trust::None }, read]] {
        let findings = check(begin.iter().cloned().chain(end).collect());
        assert!(findings.iter().any(|it| it.sentence == "instance 0 exists already"), "{findings:?}");
    }
}

#[test]
fn a_graph_keeps_its_number() {
    let m = Memory::first(1);
    let mut all = vec![stream(StreamId(1), StreamRole::NonBlocking)];
    all.extend(graph_that_leaves(GraphId(1), m));
    all.extend(graph_that_leaves(GraphId(1), Memory::first(2)));
    all.push(What::GraphClone { graph: GraphId(1), copy: GraphId(1) });
    all.push(What::CaptureBegin {
        stream: StreamId(1),
        graph: GraphId(1),
        mode: CaptureMode::Relaxed,
        symbolic: false,
    });
    let findings = check(all);
    let taken = findings.iter().filter(|it| it.sentence == "graph 1 exists already").count();
    assert_eq!(taken, 3, "{findings:?}");
}

/// Naming a stream orders nothing, so no rule of streams and captures applies to it.
#[test]
fn a_stream_is_named_at_any_time() {
    let (mut names, legacy, s) = (Names::new(), StreamId::LEGACY, StreamId(1));
    let name = names.intern("main");
    let (mut checker, mut findings) = (Checker::new(Settings::default()), Vec::new());
    for what in [
        stream(legacy, StreamRole::Legacy),
        stream(s, StreamRole::Blocking),
        What::CaptureBegin { stream: s, graph: GraphId(1), mode: CaptureMode::Global, symbolic: false },
        What::StreamName { stream: legacy, name },
        What::StreamName { stream: s, name },
        What::CaptureEnd { stream: s },
    ] {
        checker.check(&Op { host: HostId(0), place: Place::Unknown, what }, &names, &mut findings);
    }
    assert_eq!(findings, []);
}
