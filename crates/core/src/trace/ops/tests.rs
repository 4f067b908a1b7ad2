//! Tests that any program is read as it was written, that damage is found, and that complete frames before it are
//! kept.

use proptest::prelude::*;
use smallvec::SmallVec;

use super::frame::{FRAME_HEAD, HEADER};
use super::*;
use crate::ids::*;
use crate::op::{
    Access, Act, CaptureMode, EventKind, Memory, Name, Names, NodeOp, Op, Part, Place, Reach, Space, StreamRole, Trust,
    What,
};

/// Mostly small numbers, and sometimes any number.
fn number() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 0_u32..40, 1 => any::<u32>()]
}

fn memory() -> impl Strategy<Value = Memory> {
    (number(), prop_oneof![0_u64..40, any::<u64>()]).prop_map(|(id, generation)| Memory { id: AllocId(id), generation })
}

fn accesses() -> impl Strategy<Value = SmallVec<[Access; 2]>> {
    let act = prop_oneof![Just(Act::Read), Just(Act::Write)];
    let part = prop_oneof![
        3 => Just(Part::WHOLE),
        1 => (any::<u64>(), any::<u64>()).prop_filter_map("it has bytes", |(from, to)| Part::new(from, to)),
    ];
    prop::collection::vec((memory(), act, part).prop_map(|(memory, act, part)| Access { memory, act, part }), 0..5)
        .prop_map(SmallVec::from_vec)
}

/// Names of a table of `TEXTS`.
fn name() -> impl Strategy<Value = Name> {
    (0..TEXTS).prop_map(Name)
}

const TEXTS: u32 = 9;

fn names() -> Names {
    let mut names = Names::new();
    for text in 0..TEXTS {
        names.intern(&"\u{e9}x/".repeat(text as usize));
    }
    names
}

fn place() -> impl Strategy<Value = Place> {
    prop_oneof![
        Just(Place::Unknown),
        number().prop_map(Place::Line),
        number().prop_map(Place::Process),
        (name(), 0_u32..30).prop_map(|(file, line)| Place::File { file, line }),
    ]
}

fn node() -> impl Strategy<Value = NodeOp> {
    prop_oneof![
        accesses().prop_map(NodeOp::Kernel),
        accesses().prop_map(NodeOp::Copy),
        accesses().prop_map(NodeOp::Fill),
        accesses().prop_map(NodeOp::HostFunction),
        Just(NodeOp::Empty),
        number().prop_map(|event| NodeOp::EventRecord(EventId(event))),
        number().prop_map(|event| NodeOp::EventWait(EventId(event))),
        (memory(), any::<u64>()).prop_map(|(memory, bytes)| NodeOp::Alloc { memory, bytes }),
        memory().prop_map(NodeOp::Free),
        number().prop_map(|graph| NodeOp::Child(GraphId(graph))),
    ]
}

/// Operations of streams, events, pools and memory.
fn stream_op() -> impl Strategy<Value = What> {
    let role = prop_oneof![
        Just(StreamRole::Blocking),
        Just(StreamRole::NonBlocking),
        Just(StreamRole::PerThread),
        Just(StreamRole::Legacy)
    ];
    let event_kind = prop_oneof![Just(EventKind::Completion), Just(EventKind::Progress), Just(EventKind::Asked)];
    let device = any::<u32>().prop_map(|number| Space::Device(DeviceId(number)));
    let space = prop_oneof![device, Just(Space::Host), Just(Space::Managed)];
    let small = (number(), number(), any::<bool>(), any::<bool>(), name(), any::<u64>());
    (0_u8..30, small, role, event_kind, space, memory(), accesses(), prop::option::of(name())).prop_map(
        |(kind, (a, b, yes, also, text, bytes), role, event_kind, space, memory, accesses, name)| {
            let (stream, event, pool, process) = (StreamId(a), EventId(b), PoolId(b), ProcessId(a));
            let trust = [Trust::None, Trust::Races, Trust::Order][(yes as usize) + (yes && also) as usize];
            match kind {
                0 => What::HostStart { process },
                1 => What::Tell { to: HostId(a) },
                2 => What::StreamCreate { stream, role, device: DeviceId(b) },
                3 => What::StreamDestroy { stream },
                4 => What::StreamName { stream, name: text },
                5 => What::StreamSynchronize { stream },
                6 => What::StreamQuery { stream, is_idle: yes },
                7 => What::DeviceSynchronize,
                8 => What::EventCreate { event, device: DeviceId(a), shared: yes },
                9 => What::EventDestroy { event },
                10 => What::EventRecord { event, stream, external: yes, kind: event_kind },
                11 => What::EventWait { event, stream, external: yes },
                12 => What::EventSynchronize { event },
                13 => What::EventQuery { event, is_over: yes },
                14 => What::PoolCreate { pool, exportable: also, device: yes.then_some(DeviceId(a)) },
                15 => What::PoolDestroy { pool },
                16 => What::Alloc { memory, pool, stream, bytes, name },
                17 => What::AllocNow { memory, space, bytes, name },
                18 => What::SetName { memory, name: text },
                19 => What::Free { memory, stream, trust },
                20 => What::FreeNow { memory },
                21 => What::Drop { memory },
                22 => What::Launch { stream, accesses, trust, name },
                23 => What::PoolAccess {
                    pool,
                    device: DeviceId(a),
                    reach: if yes { Reach::Read } else { Reach::ReadWrite },
                },
                24 => What::EventCopy { event, from: EventId(b) },
                25 => What::SynchronizeDevice { device: DeviceId(a) },
                26 => What::Copy { stream, accesses },
                27 => What::PeerAccess { owner: DeviceId(a), device: DeviceId(b), is_enabled: yes },
                28 => What::Follow { stream, after: StreamId(b) },
                _ => What::HostAccess { accesses },
            }
        },
    )
}

/// Operations of graphs and processes.
fn graph_op() -> impl Strategy<Value = What> {
    let mode = prop_oneof![Just(CaptureMode::Global), Just(CaptureMode::ThreadLocal), Just(CaptureMode::Relaxed)];
    let after = prop::collection::vec(number().prop_map(NodeId), 0..4).prop_map(SmallVec::from_vec);
    (0_u8..20, (number(), number(), number()), any::<bool>(), mode, node(), after, memory(), prop::option::of(name()))
        .prop_map(|(kind, (a, b, c), yes, mode, node, after, memory, name)| {
            let (graph, exec, stream, ticket) = (GraphId(a), ExecId(b), StreamId(c), TicketId(c));
            let (from, to) = (NodeId(b), NodeId(c));
            match kind {
                0 => What::GraphCreate { graph, symbolic: yes },
                1 => What::GraphNode { graph, node: Box::new(node), after, name },
                2 => What::GraphEdge { graph, from, to },
                3 => What::GraphEdgeRemove { graph, from, to },
                4 => What::GraphNodeRemove { graph, node: to },
                5 => What::GraphClone { graph, copy: GraphId(b) },
                6 => What::GraphDestroy { graph },
                7 => What::CaptureBegin { stream, graph, mode, symbolic: yes },
                8 => What::CaptureEnd { stream },
                9 => What::Instantiate { graph, exec, auto_free_on_launch: yes },
                10 => What::ExecUpdate { exec, graph },
                11 => What::GraphLaunch { exec, stream },
                12 => What::Take { exec, node: memory, memory: Memory::first(a) },
                13 => What::ExecDestroy { exec },
                14 => What::Export { memory, ticket },
                15 => What::Import { ticket, memory },
                16 => What::GraphUpload { exec, stream },
                17 => What::CopyName { graph, node: memory, memory: Memory::first(b) },
                18 => What::CaptureToGraph { stream, graph, after, mode },
                _ => What::CaptureModeExchange { mode },
            }
        })
}

fn op() -> impl Strategy<Value = Op> {
    let host = prop_oneof![6 => Just(0_u32), 1 => number()].prop_map(HostId);
    (host, place(), prop_oneof![stream_op(), graph_op()]).prop_map(|(host, place, what)| Op { host, place, what })
}

/// Shows names by their texts, because tables number them differently.
fn shown(op: &Op, names: &Names) -> String {
    let mut text = format!("{op:?}").replace(&format!("{:?}", op.place), &op.place.describe(names));
    for number in (0..TEXTS).rev() {
        let shown = names.text(Name(number)).map_or("none", |text| text);
        text = text.replace(&format!("Name({number})"), &format!("{shown:?}"));
    }
    text
}

fn written(ops: &[Op], frame: usize) -> Vec<u8> {
    let (mut writer, names, mut trace) = (Writer::new(), names(), Vec::new());
    for ops in ops.chunks(frame) {
        ops.iter().for_each(|op| writer.push(op, &names));
        trace.append(&mut writer.seal());
    }
    trace.append(&mut writer.finish());
    trace
}

/// Returns the result of reading some bytes, fed in parts: the operations in words, and the end or the error.
fn read(trace: &[u8], part: usize) -> (Vec<String>, Result<bool, Damage>) {
    let (mut reader, mut ops) = (Reader::new(), Vec::new());
    for bytes in trace.chunks(part.max(1)) {
        reader.feed(bytes);
        loop {
            match reader.next_op() {
                Ok(Some(op)) => ops.push(shown(&op, reader.names())),
                Ok(None) => break,
                Err(damage) => return (ops, Err(damage)),
            }
        }
    }
    let end = reader.end();
    (ops, end.map(|()| reader.is_finished()))
}

proptest! {
    #[test]
    fn a_trace_comes_back(ops in prop::collection::vec(op(), 0..60), frame in 1_usize..20, part in 1_usize..200) {
        let names = names();
        let (back, end) = read(&written(&ops, frame), part);
        let given: Vec<String> = ops.iter().map(|op| shown(op, &names)).collect();
        prop_assert_eq!(back, given);
        prop_assert_eq!(end, Ok(true));
    }

    #[test]
    fn a_cut_trace_keeps_its_whole_frames(ops in prop::collection::vec(op(), 1..40), cut in 0.0..1.0_f64) {
        let names = names();
        let trace = written(&ops, 4);
        let length = (trace.len() as f64 * cut) as usize;
        let (back, end) = read(&trace[..length], 64);
        let given: Vec<String> = ops.iter().map(|op| shown(op, &names)).collect();
        prop_assert_eq!(&back[..], &given[..back.len()]);
        prop_assert!(back.len() % 4 == 0 || back.len() == given.len(), "whole-or-not: {} operations", back.len());
        match end {
            Ok(finished) => prop_assert!(!finished),
            Err(damage) => prop_assert_eq!((damage.reason, damage.offset <= length as u64), (Reason::Cut, true)),
        }
    }

    #[test]
    fn a_trace_that_goes_on_behind_its_end_is_not_whole(
        ops in prop::collection::vec(op(), 0..20),
        more in 1_usize..40,
        part in 1_usize..200,
    ) {
        // The end of another trace, cut: if two programs wrote to one file, frames may follow the end frame.
        let trace = written(&ops, 4);
        let whole = [&trace[..], &trace[frame::header().len()..]].concat();
        let more = more.min(whole.len() - trace.len() - 1);
        let mut reader = Reader::new();
        for bytes in whole[..trace.len() + more].chunks(part) {
            reader.feed(bytes);
            while matches!(reader.next_op(), Ok(Some(_))) {}
        }
        prop_assert!(!reader.is_finished(), "{more} bytes more");
    }

    #[test]
    fn a_changed_byte_is_found(
        ops in prop::collection::vec(op(), 1..40),
        at in any::<prop::sample::Index>(),
        by in 1_u8..,
    ) {
        let names = names();
        let mut trace = written(&ops, 4);
        let at = at.index(trace.len());
        trace[at] ^= by;
        let (back, end) = read(&trace, 1000);
        let given: Vec<String> = ops.iter().map(|op| shown(op, &names)).collect();
        prop_assert_eq!(&back[..], &given[..back.len()]);
        prop_assert!(end.is_err_and(|damage| damage.offset <= at as u64), "byte {}", at);
    }

    #[test]
    fn any_bytes_with_right_checksums_do_no_harm(
        payload in prop::collection::vec(any::<u8>(), 0..200),
        ops in 0_u32..50,
    ) {
        let mut trace = frame::header().to_vec();
        let mut frame = vec![0; FRAME_HEAD];
        frame.extend_from_slice(&payload);
        frame::seal(&mut frame, ops, false);
        trace.append(&mut frame);
        let (back, end) = read(&trace, 50);
        prop_assert!(back.len() <= ops as usize);
        prop_assert!(back.len() == ops as usize || end.is_err());
    }
}

#[test]
fn damage_says_where_and_why() {
    let op = Op { host: HostId(0), place: Place::Line(7), what: What::DeviceSynchronize };
    let trace = written(&[op.clone(), op], 1);
    let reason = |bytes: &[u8]| read(bytes, 9).1.map_err(|damage| (damage.offset, damage.reason));
    assert_eq!(reason(b"hello, this is text"), Err((0, Reason::NotATrace)));
    assert_eq!(reason(b"no"), Err((0, Reason::NotATrace)));
    assert_eq!(reason(b""), Err((0, Reason::Cut)));
    let changed = |at: usize, to: &[u8]| {
        let mut trace = trace.clone();
        trace[at..at + to.len()].copy_from_slice(to);
        trace
    };
    assert_eq!(reason(&changed(8, &[9])), Err((0, Reason::Version(9))));
    assert_eq!(reason(&changed(HEADER, b"up")), Err((12, Reason::NoFrame)));
    assert_eq!(reason(&changed(HEADER + 7, &[255])), Err((12, Reason::TooLarge(0xff00_0004))));
    assert_eq!(reason(&changed(HEADER + FRAME_HEAD, &[1])), Err((12, Reason::Checksum)));
    assert_eq!(reason(&[&trace[..], b"x"].concat()), Err((trace.len() as u64, Reason::Cut)));
    assert_eq!(reason(&[&trace[..], &[b'x'; 16]].concat()), Err((trace.len() as u64, Reason::NoFrame)));
    assert_eq!(reason(&trace), Ok(true));
    let text = read(&changed(HEADER + 7, &[255]), 9).1.unwrap_err().to_string();
    assert_eq!(text, "a frame of 4278190084 bytes; 268435456 are the most");
}

/// A launch once had a field for an early start, which is read and ignored.
#[test]
fn a_launch_of_an_older_trace_is_a_launch() {
    let traced = |start| {
        let (mut trace, mut frame) = (frame::header().to_vec(), vec![0; FRAME_HEAD]);
        frame.extend_from_slice(&[22, 3, 0, start, 0]);
        frame::seal(&mut frame, 1, false);
        trace.append(&mut frame);
        trace
    };
    let what = What::Launch { stream: StreamId(3), accesses: SmallVec::new(), trust: Trust::None, name: None };
    let launch = shown(&Op { host: HostId(0), place: Place::Unknown, what }, &names());
    for start in [0, 1] {
        assert_eq!(read(&traced(start), 50).0, std::slice::from_ref(&launch), "{start}");
    }
    assert_eq!(read(&traced(2), 50).1.map_err(|damage| damage.reason), Err(Reason::Field));
}

/// Pools once had no device, and no operation had a trust.
#[test]
fn an_older_trace_is_read() {
    let (mut trace, mut frame) = (frame::header().to_vec(), vec![0; FRAME_HEAD]);
    frame.extend_from_slice(&[14, 5, 1, 19, 8, 0, 3]);
    frame::seal(&mut frame, 2, false);
    trace.append(&mut frame);
    let pool = What::PoolCreate { pool: PoolId(5), exportable: true, device: None };
    let free = What::Free { memory: Memory::first(1), stream: StreamId(3), trust: Trust::None };
    let ops = [pool, free].map(|what| shown(&Op { host: HostId(0), place: Place::Unknown, what }, &names()));
    assert_eq!(read(&trace, 50).0, ops);
}

/// The end of a process was once an operation.
#[test]
fn an_operation_of_an_earlier_version_is_refused_by_its_name() {
    let (mut trace, mut frame) = (frame::header().to_vec(), vec![0; FRAME_HEAD]);
    frame.extend_from_slice(&[7, 40, 2]);
    frame::seal(&mut frame, 2, false);
    trace.append(&mut frame);
    let (ops, end) = read(&trace, 50);
    assert_eq!(ops.len(), 1, "what stands before it is read");
    let damage = end.expect_err("it is not read on");
    assert_eq!(damage.reason, Reason::Former("the end of a process"));
    assert!(damage.to_string().starts_with("the end of a process is an operation of an earlier version"), "{damage}");
}

#[test]
fn most_operations_take_few_bytes() {
    let (mut writer, names) = (Writer::new(), Names::new());
    let mut push = |what| {
        writer.push(&Op { host: HostId(0), place: Place::Source(std::panic::Location::caller()), what }, &names);
    };
    for turn in 0..1000_u32 {
        let memory = Memory { id: AllocId(turn % 50), generation: u64::from(turn / 50) };
        let stream = StreamId(turn % 4);
        push(What::Alloc { memory, pool: PoolId(0), stream, bytes: 1 << 20, name: None });
        let accesses = SmallVec::from_slice(&[Access::whole(memory, Act::Write)]);
        push(What::Launch { stream, accesses, trust: Trust::None, name: None });
        push(What::Free { memory, stream, trust: Trust::None });
    }
    let bytes = writer.finish().len() as f64 / 3000.0;
    assert!(bytes < 8.0, "{bytes} bytes an operation");
}
