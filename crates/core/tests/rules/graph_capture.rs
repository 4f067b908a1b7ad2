//! Captures: the nodes and dependencies of captured operations, and CUDA's error for each misuse.

use std::ops::{Deref, DerefMut};

use millpond_core::check::Site;
use millpond_core::graph::{
    Addressing, Caller, CaptureError, CaptureId, CaptureMode, Captures, Graph, GraphAllocId, GraphError, GraphId,
    Label, Memory, NodeId, Work,
};
use millpond_core::ids::StreamId;
use millpond_core::op::StreamRole;
use millpond_core::units::{MIB, Range};
use proptest::prelude::*;

const A: StreamId = StreamId(1);
const B: StreamId = StreamId(2);
const C: StreamId = StreamId(3);

const BLOCKING: StreamRole = StreamRole::Blocking;

fn graph(id: u32) -> Graph {
    let mut graph = Graph::new(GraphId(id), 2 * MIB, Addressing::Fixed);
    graph.extend(Range::new(u64::from(id + 1) << 40, 1 << 36));
    graph
}

fn calling(thread: u64) -> Caller {
    Caller { driver: 0, thread }
}

/// Captures of graphs.
#[derive(Default)]
struct Program(Captures<Graph>);

impl Deref for Program {
    type Target = Captures<Graph>;

    fn deref(&self) -> &Captures<Graph> {
        &self.0
    }
}

impl DerefMut for Program {
    fn deref_mut(&mut self) -> &mut Captures<Graph> {
        &mut self.0
    }
}

impl Program {
    fn begin(
        &mut self,
        origin: (StreamId, StreamRole),
        graph: Graph,
        tails: &[NodeId],
        thread: u64,
        mode: CaptureMode,
    ) -> Result<CaptureId, CaptureError> {
        self.check_begin(origin, &graph, tails)?;
        Ok(self.0.begin(origin.0, graph, tails, (calling(thread), mode), Site::default()))
    }

    /// Adds a node after the tails of a stream.
    fn operate<R>(
        &mut self,
        stream: StreamId,
        add: impl FnOnce(&mut Graph, &[NodeId]) -> Result<(NodeId, R), GraphError>,
    ) -> Result<R, CaptureError> {
        Ok(self.add(stream, |adding| add(adding.graph, adding.tails))??)
    }

    /// Ends a capture. Returns its graph and the streams that were in it.
    fn end(
        &mut self,
        stream: StreamId,
        thread: u64,
    ) -> Result<(Result<Graph, CaptureError>, Vec<StreamId>), CaptureError> {
        let mut ended = self.0.end(stream, calling(thread))?;
        let (checked, streams) = (ended.check(), ended.streams.clone());
        Ok((checked.map(|()| ended.into_graph()), streams))
    }
}

fn begin(captures: &mut Program, stream: StreamId) -> CaptureId {
    captures.begin((stream, BLOCKING), graph(stream.0), &[], 0, CaptureMode::Global).unwrap()
}

fn kernel(captures: &mut Program, stream: StreamId) -> Result<NodeId, CaptureError> {
    let add = |graph: &mut Graph, after: &[NodeId]| {
        graph.add_work(Work::Kernel, after, &[], "k".into()).map(|node| (node, node))
    };
    captures.operate(stream, add)
}

fn free(captures: &mut Program, stream: StreamId, memory: Memory) -> Result<NodeId, CaptureError> {
    let add = |graph: &mut Graph, after: &[NodeId]| graph.add_free(after, memory, "f".into()).map(|node| (node, node));
    captures.operate(stream, add)
}

fn alloc(captures: &mut Program, stream: StreamId) -> GraphAllocId {
    captures.operate(stream, |graph, after| graph.add_alloc(after, 8, "a".into())).unwrap()
}

/// Makes `stream` wait for an event recorded on `other` now.
fn wait(captures: &mut Program, stream: StreamId, other: StreamId) -> Result<(), CaptureError> {
    let event = captures.record(other).expect("the stream is captured")?;
    captures.wait((stream, BLOCKING), &event)
}

fn end(captures: &mut Program, stream: StreamId) -> Result<Graph, CaptureError> {
    captures.end(stream, 0).unwrap().0
}

#[test]
fn side_streams_fork_and_join() {
    let mut captures = Program::default();
    let id = begin(&mut captures, A);
    let first = kernel(&mut captures, A).unwrap();
    wait(&mut captures, B, A).unwrap();
    assert_eq!(captures.of(B), Some(id));
    let (left, right) = (kernel(&mut captures, A).unwrap(), kernel(&mut captures, B).unwrap());
    wait(&mut captures, A, B).unwrap();
    let last = kernel(&mut captures, A).unwrap();
    let (graph, streams) = captures.end(A, 0).unwrap();
    assert_eq!(streams, [A, B]);
    assert_eq!((captures.of(A), captures.of(B)), (None, None));
    let mut graph = graph.unwrap();
    assert_eq!(graph.node(last).unwrap().dependencies(), [left, right]);
    assert_eq!(graph.node(right).unwrap().dependencies(), [first]);
    assert!(!graph.reaches(left, right) && !graph.reaches(right, left));
}

#[test]
fn a_free_keeps_what_a_wait_merged() {
    let mut captures = Program::default();
    begin(&mut captures, A);
    let memory = Memory::Own(alloc(&mut captures, A));
    wait(&mut captures, B, A).unwrap();
    let side = kernel(&mut captures, B).unwrap();
    wait(&mut captures, A, B).unwrap();
    let freed = free(&mut captures, A, memory).unwrap();
    let next = kernel(&mut captures, A).unwrap();
    // Only the free joins the side stream.
    let mut graph = end(&mut captures, A).unwrap();
    assert!(graph.reaches(side, freed) && graph.reaches(side, next));
}

#[test]
fn a_free_on_a_side_stream_must_be_joined() {
    let mut captures = Program::default();
    begin(&mut captures, A);
    let memory = Memory::Own(alloc(&mut captures, A));
    wait(&mut captures, B, A).unwrap();
    let leaf = free(&mut captures, B, memory).unwrap();
    let error = end(&mut captures, A).unwrap_err();
    assert!(matches!(&error, CaptureError::Unjoined { stream: B, origin: A, leaf: it, .. } if *it == leaf));
    assert_eq!(
        error.to_string(),
        "the capture ends, and stream 2 was not joined: its last node is mem free `f`; make stream 1 wait for an event \
         recorded on stream 2 after its last operation"
    );
    assert_eq!(captures.of(B), None, "the capture is over all the same");
}

#[test]
fn an_event_stands_for_the_moment_of_its_record() {
    let mut captures = Program::default();
    begin(&mut captures, A);
    let first = kernel(&mut captures, A).unwrap();
    let event = captures.record(A).unwrap().unwrap();
    kernel(&mut captures, A).unwrap();
    captures.wait((B, BLOCKING), &event).unwrap();
    assert_eq!(captures.tails(B), Some(&[first][..]));
    // A wait for something that comes before the stream's own tail changes nothing.
    captures.wait((A, BLOCKING), &event).unwrap();
    assert_eq!(captures.tails(A).unwrap().len(), 1);
}

#[test]
fn begin_is_refused_on_the_legacy_stream_and_twice() {
    let mut captures = Program::default();
    let refused = |captures: &mut Program, stream, tails: &[NodeId]| {
        let role = if stream == StreamId::LEGACY { StreamRole::Legacy } else { BLOCKING };
        captures.begin((stream, role), graph(0), tails, 0, CaptureMode::Global).unwrap_err()
    };
    assert_eq!(refused(&mut captures, StreamId(0), &[]), CaptureError::LegacyStream);
    let stray = NodeId(3);
    assert_eq!(refused(&mut captures, A, &[stray]), CaptureError::Graph(GraphError::UnknownNode(stray)));
    let id = begin(&mut captures, A);
    assert_eq!(refused(&mut captures, A, &[]), CaptureError::AlreadyCapturing(A));
    assert!(captures.is_valid(id));
}

#[test]
fn a_capture_goes_on_in_a_graph_that_is_there() {
    let mut captures = Program::default();
    let mut there = graph(0);
    let node = there.add_work(Work::Empty, &[], &[], Label::default()).unwrap();
    captures.begin((A, BLOCKING), there, &[node], 0, CaptureMode::Global).unwrap();
    let first = kernel(&mut captures, A).unwrap();
    assert_eq!(end(&mut captures, A).unwrap().node(first).unwrap().dependencies(), [node]);
}

#[test]
fn an_event_from_outside_ends_it() {
    let mut captures = Program::default();
    captures.wait_outside(B).unwrap();
    let id = begin(&mut captures, A);
    assert_eq!(captures.wait_outside(A), Err(CaptureError::Isolation(A)));
    assert_eq!(kernel(&mut captures, A), Err(CaptureError::Invalidated(id)));
    assert_eq!(captures.record(A), Some(Err(CaptureError::Invalidated(id))));
    assert_eq!(end(&mut captures, A).unwrap_err(), CaptureError::Invalidated(id));
    begin(&mut captures, A);
    assert!(end(&mut captures, A).unwrap().is_empty(), "begun anew");
}

#[test]
fn two_captures_do_not_merge() {
    let mut captures = Program::default();
    let (a, b) = (begin(&mut captures, A), begin(&mut captures, B));
    assert_eq!(wait(&mut captures, A, B), Err(CaptureError::Merge { stream: A, here: a, there: b }));
    assert!(!captures.is_valid(a) && !captures.is_valid(b));
}

#[test]
fn an_event_of_a_capture_is_of_no_use_after_it() {
    let mut captures = Program::default();
    let id = begin(&mut captures, A);
    let event = captures.record(A).unwrap().unwrap();
    assert_eq!(captures.wait((StreamId(7), StreamRole::Legacy), &event), Err(CaptureError::LegacyStream));
    assert!(end(&mut captures, A).is_err());
    assert_eq!(captures.wait((B, BLOCKING), &event), Err(CaptureError::CapturedEvent(id)));
    assert_eq!(captures.of(B), None);
    let id = begin(&mut captures, A);
    let event = captures.record(A).unwrap().unwrap();
    assert_eq!(captures.check_event(&event), Err(CaptureError::CapturedEvent(id)));
    assert!(!captures.is_valid(id));
}

#[test]
fn synchronising_and_acting_at_once_invalidate() {
    let mut captures = Program::default();
    captures.check_stream(A, "synchronize").unwrap();
    captures.check_unsafe((calling(0), CaptureMode::Global), "alloc").unwrap();
    let capture = begin(&mut captures, A);
    wait(&mut captures, B, A).unwrap();
    captures.check_stream(C, "synchronize").unwrap();
    assert!(captures.is_valid(capture));
    let error = CaptureError::Unsupported { call: "synchronize", capture };
    assert_eq!(captures.check_stream(B, "synchronize"), Err(error));
    assert!(!captures.is_valid(capture));
    // CUDA's rule (cudaThreadExchangeStreamCaptureMode): what a thread of each mode may do during a capture of its own,
    // and during another thread's.
    use CaptureMode::{Global, Relaxed, ThreadLocal};
    for (mode, of_thread, own, other) in [
        (Global, Global, false, false),
        (Global, ThreadLocal, false, true),
        (Global, Relaxed, true, true),
        (ThreadLocal, Global, false, true),
        (ThreadLocal, ThreadLocal, false, true),
        (ThreadLocal, Relaxed, true, true),
        (Relaxed, Global, true, true),
        (Relaxed, ThreadLocal, true, true),
        (Relaxed, Relaxed, true, true),
    ] {
        for (thread, is_fine) in [(0, own), (1, other)] {
            let mut captures = Program::default();
            let id = captures.begin((A, BLOCKING), graph(0), &[], 0, mode).unwrap();
            let checked = captures.check_unsafe((calling(thread), of_thread), "alloc");
            assert_eq!(checked.is_ok(), is_fine, "{mode:?}, thread {thread}, {of_thread:?}");
            assert_eq!(captures.is_valid(id), is_fine);
            if !is_fine {
                let again = captures.check_unsafe((calling(thread), of_thread), "alloc");
                assert_eq!(again, Err(CaptureError::Invalidated(id)), "why it is invalid was said");
            }
        }
    }
}

/// As the host devices of the library.
#[test]
fn calls_of_another_driver_are_not_forbidden() {
    let mut captures = Program::default();
    let id = begin(&mut captures, A);
    let [same, other] = [0, 1].map(|driver| Caller { driver, thread: 7 });
    captures.check_unsafe((other, CaptureMode::Global), "alloc").unwrap();
    assert!(captures.is_valid(id));
    captures.check_unsafe((same, CaptureMode::Global), "alloc").unwrap_err();
}

proptest! {
    /// Runs the same program on streams and as a capture: a node comes before another if and only if the vector clocks
    /// of the streams say so.
    #[test]
    fn captured_order_is_stream_order(steps in prop::collection::vec((0usize..4, 0usize..4, any::<bool>()), 1..60)) {
        let streams = [A, B, C, StreamId(4)];
        let mut captures = Program::default();
        begin(&mut captures, A);
        // For each stream, the set of nodes that come before its next node.
        let mut known: Vec<Option<Vec<NodeId>>> = vec![Some(Vec::new()), None, None, None];
        let mut before: Vec<Vec<NodeId>> = Vec::new();
        for (stream, other, is_kernel) in steps {
            match (is_kernel, known[stream].clone(), known[other].clone()) {
                (true, Some(mine), _) => {
                    let node = kernel(&mut captures, streams[stream]).unwrap();
                    before.push(mine);
                    known[stream].as_mut().unwrap().push(node);
                }
                (false, mine, Some(theirs)) => {
                    wait(&mut captures, streams[stream], streams[other]).unwrap();
                    let mut all = mine.unwrap_or_default();
                    all.extend(theirs);
                    all.sort_unstable();
                    all.dedup();
                    known[stream] = Some(all);
                }
                _ => {}
            }
        }
        let nodes = before.len();
        let origin = known[0].clone().unwrap();
        let unjoined = known.iter().flatten().flatten().any(|node| !origin.contains(node));
        match end(&mut captures, A) {
            Err(CaptureError::Unjoined { leaf, .. }) => prop_assert!(unjoined && !origin.contains(&leaf)),
            Err(other) => panic!("{other}"),
            Ok(mut graph) => {
                prop_assert!(!unjoined);
                for (b, before) in before.iter().enumerate() {
                    for a in 0..nodes {
                        let (a, b) = (NodeId(a as u32), NodeId(b as u32));
                        prop_assert_eq!(graph.reaches(a, b), before.contains(&a), "{} {}", a, b);
                    }
                }
            }
        }
    }
}
