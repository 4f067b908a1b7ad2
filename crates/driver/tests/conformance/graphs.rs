//! Cases about the device's own graphs. A device without graphs refuses their calls.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use millpond_driver::{CopyKind, DriverError, Node, NodeWork, RawExec, RawGraph, RawStream, Work};

use crate::subject::Subject;

fn node(work: NodeWork, after: &[u32]) -> Node {
    Node { work, after: after.to_vec() }
}

fn run(after: &[u32], task: impl Fn() + Send + Sync + 'static) -> Node {
    node(NodeWork::Run(Arc::new(task)), after)
}

/// Returns `true` if the device has graphs. Otherwise checks that it refuses them.
fn has_graphs(subject: &Subject) -> bool {
    let has = subject.driver.has_graphs();
    if !has {
        // SAFETY: a node that does nothing.
        let refused = unsafe { subject.driver.instantiate(&[node(NodeWork::Nothing, &[])]) };
        assert!(matches!(refused, Err(DriverError::Failed { .. })), "{refused:?}");
        let stream = subject.stream();
        assert!(subject.driver.begin_capture(stream).is_err());
        subject.close(stream);
    }
    has
}

impl Subject {
    fn instantiate(&self, nodes: &[Node]) -> RawExec {
        // SAFETY: the cases map what their nodes use, and wait for launches before they unmap.
        unsafe { self.driver.instantiate(nodes) }.expect("a graph")
    }

    fn launch(&self, exec: RawExec, stream: RawStream) {
        // SAFETY: as above.
        unsafe { self.driver.launch(exec, stream) }.expect("a launch");
    }
}

/// Returns the address of one granule of mapped memory.
fn memory(subject: &Subject) -> u64 {
    let (granule, driver) = (subject.granule(), &subject.driver);
    let (at, chunk) = (driver.reserve(granule).unwrap(), driver.create(granule).unwrap());
    subject.map(chunk, at, granule).unwrap();
    driver.destroy(chunk).unwrap();
    at
}

fn give_back(subject: &Subject, at: u64) {
    subject.unmap(at, subject.granule()).unwrap();
    subject.unreserve(at, subject.granule()).unwrap();
}

pub(crate) fn edges_are_kept(subject: &Subject) {
    if !has_graphs(subject) {
        return;
    }
    let stream = subject.stream();
    for seed in 0..20u64 {
        // For each node, edges to some of the nodes before it. Every third node does nothing.
        let count = 4 + seed as usize;
        let edges: Vec<Vec<u32>> = (0..count)
            .map(|at| (0..at as u32).filter(|to| (seed * 31 + at as u64 * 7 + u64::from(*to) * 13) % 5 < 2).collect())
            .collect();
        let log: Arc<Mutex<Vec<u32>>> = Arc::default();
        let nodes: Vec<Node> = (0..count as u32)
            .map(|at| {
                let (log, after) = (log.clone(), &edges[at as usize]);
                match at % 3 {
                    2 => node(NodeWork::Nothing, after),
                    _ => run(after, move || log.lock().unwrap().push(at)),
                }
            })
            .collect();
        let exec = subject.instantiate(&nodes);
        subject.driver.upload(exec, stream).unwrap();
        // Which nodes come before which, also through nodes that do nothing.
        let mut before = vec![0u64; count];
        for at in 0..count {
            before[at] = edges[at].iter().fold(0, |all, to| all | before[*to as usize] | 1 << to);
        }
        for _ in 0..3 {
            subject.launch(exec, stream);
            subject.finish(stream);
            let ran = std::mem::take(&mut *log.lock().unwrap());
            assert_eq!(ran.len(), (0..count).filter(|at| at % 3 != 2).count(), "seed {seed}");
            for (place, at) in ran.iter().enumerate() {
                let early = ran[place..].iter().find(|other| before[*at as usize] >> **other & 1 == 1);
                assert_eq!(early, None, "seed {seed}: {at} ran before it, in {ran:?}");
            }
        }
        subject.driver.destroy_exec(exec).unwrap();
    }
    subject.close(stream);
}

pub(crate) fn nodes_work_on_memory(subject: &Subject) {
    if !has_graphs(subject) {
        return;
    }
    let (stream, at) = (subject.stream(), memory(subject));
    let bytes: Arc<Vec<u8>> = (0..=255).collect::<Vec<u8>>().into();
    let exec = subject.instantiate(&[
        node(NodeWork::Fill { at, bytes: 4096, value: 7 }, &[]),
        node(NodeWork::Copy { to: at + 8192, from: at, bytes: 4096 }, &[0]),
        node(NodeWork::Upload { to: at + 1024, from: bytes.clone() }, &[1]),
    ]);
    for _ in 0..3 {
        subject.submit(stream, Work::Fill { at, bytes: subject.granule(), value: 1 });
        subject.launch(exec, stream);
        subject.finish(stream);
        subject.expect(at, 1024, 7);
        assert!(!subject.has_memory || subject.read(at + 1024, 256) == *bytes);
        subject.expect(at + 1280, 4096 - 1280, 7);
        subject.expect(at + 4096, 4096, 1);
        subject.expect(at + 8192, 4096, 7);
    }
    // The graph still has the bytes. Without it nobody has.
    subject.driver.destroy_exec(exec).unwrap();
    wait_for(|| Arc::strong_count(&bytes) == 1);
    subject.close(stream);
    give_back(subject, at);
}

/// Waits for something that another thread will do soon.
#[track_caller]
fn wait_for(done: impl Fn() -> bool) {
    let patience = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < patience, "it does not get done");
        std::thread::yield_now();
    }
}

pub(crate) fn launches_are_work_of_their_stream(subject: &Subject) {
    if !has_graphs(subject) {
        return;
    }
    let (a, b) = (subject.stream(), subject.stream());
    let log: Arc<Mutex<Vec<u64>>> = Arc::default();
    let launches = Arc::new(AtomicU64::new(0));
    let (first, second) = (log.clone(), log.clone());
    let counter = launches.clone();
    let exec = subject.instantiate(&[
        run(&[], move || {
            std::thread::sleep(Duration::from_millis(5));
            first.lock().unwrap().push(10 + counter.fetch_add(1, Ordering::Relaxed));
        }),
        run(&[0], move || second.lock().unwrap().push(20)),
    ]);
    let note = |stream, what| {
        let log = log.clone();
        subject.run(stream, move || log.lock().unwrap().push(what));
    };
    note(a, 1);
    subject.launch(exec, a);
    note(a, 2);
    // Launches of one graph come one after the other, on any streams.
    subject.launch(exec, b);
    note(b, 3);
    subject.finish(b);
    subject.finish(a);
    let ran = log.lock().unwrap().clone();
    let place = |what| ran.iter().position(|it| *it == what).expect("it ran");
    assert!(place(1) < place(10) && place(10) < place(20) && place(20) < place(2), "{ran:?}");
    assert!(place(20) < place(11) && place(11) < place(3) && ran.len() == 7, "{ran:?}");
    subject.driver.destroy_exec(exec).unwrap();
    subject.close(a);
    subject.close(b);
}

pub(crate) fn a_destroyed_graph_ends_its_launches(subject: &Subject) {
    if !has_graphs(subject) {
        return;
    }
    let stream = subject.stream();
    let ran = Arc::new(AtomicU64::new(0));
    let counter = ran.clone();
    let exec = subject.instantiate(&[run(&[], move || {
        std::thread::sleep(Duration::from_millis(10));
        counter.fetch_add(1, Ordering::Relaxed);
    })]);
    for _ in 0..3 {
        subject.launch(exec, stream);
    }
    subject.driver.destroy_exec(exec).unwrap();
    subject.finish(stream);
    assert_eq!(ran.load(Ordering::Relaxed), 3);
    // Everything that the nodes own is dropped.
    wait_for(|| Arc::strong_count(&ran) == 1);
    subject.close(stream);
}

/// Captures work of a stream.
fn captured(subject: &Subject, stream: RawStream, works: impl IntoIterator<Item = Work>) -> Option<RawGraph> {
    subject.driver.begin_capture(stream).expect("a capture");
    works.into_iter().for_each(|work| subject.submit(stream, work));
    subject.driver.end_capture(stream).expect("the end of a capture")
}

pub(crate) fn captured_work_is_a_node(subject: &Subject) {
    if !has_graphs(subject) {
        return;
    }
    let (stream, at) = (subject.stream(), memory(subject));
    subject.fill(at, 8192, 1);
    let kind = CopyKind::DeviceToDevice;
    let works = [Work::Fill { at, bytes: 64, value: 5 }, Work::Copy { to: at + 4096, from: at, bytes: 64, kind }];
    let graph = captured(subject, stream, works).expect("something was captured");
    subject.finish(stream);
    subject.expect(at, 8192, 1);
    let nodes = [
        node(NodeWork::Fill { at: at + 4096, bytes: 4096, value: 2 }, &[]),
        node(NodeWork::Captured(graph), &[0]),
        node(NodeWork::Copy { to: at + 64, from: at + 4096, bytes: 64 }, &[1]),
    ];
    let (exec, again) = (subject.instantiate(&nodes), subject.instantiate(&nodes));
    // Instances have copies.
    subject.driver.destroy_graph(graph).unwrap();
    assert!(matches!(subject.driver.destroy_graph(graph), Err(DriverError::UnknownHandle { .. })));
    for exec in [exec, again, exec] {
        subject.fill(at, 8192, 1);
        subject.launch(exec, stream);
        subject.finish(stream);
        subject.expect(at, 128, 5);
        subject.expect(at + 128, 4096 - 128, 1);
        subject.expect(at + 4096, 64, 5);
        subject.expect(at + 4160, 4096 - 64, 2);
    }
    for exec in [exec, again] {
        subject.driver.destroy_exec(exec).unwrap();
    }
    assert_eq!(captured(subject, stream, []), None, "nothing was captured");
    subject.close(stream);
    give_back(subject, at);
}

pub(crate) fn a_capture_is_apart_from_the_streams_work(subject: &Subject) {
    if !has_graphs(subject) {
        return;
    }
    let driver = &subject.driver;
    let (stream, other, at) = (subject.stream(), subject.stream(), memory(subject));
    let log: Arc<Mutex<Vec<u32>>> = Arc::default();
    let note = |stream, what, late: bool| {
        let log = log.clone();
        subject.run(stream, move || {
            std::thread::sleep(Duration::from_millis(if late { 20 } else { 0 }));
            log.lock().unwrap().push(what);
        });
    };
    note(stream, 1, true);
    let elsewhere = subject.record(other);
    driver.begin_capture(stream).unwrap();
    assert!(driver.begin_capture(stream).is_err(), "it captures already");
    // An event covers what the stream had before the capture.
    let before = subject.record(stream);
    assert!(driver.wait(stream, elsewhere).is_err(), "it is not made to wait");
    let mut task = Some(Work::Run(Box::new(|| panic!("it was refused"))));
    // SAFETY: it touches no memory.
    assert!(unsafe { driver.submit(stream, &mut task) }.is_err(), "a closure runs once, and a graph many times");
    assert!(task.is_some(), "what is refused is left");
    subject.submit(stream, Work::Fill { at, bytes: 64, value: 9 });
    subject.wait(other, before);
    note(other, 2, false);
    subject.finish(other);
    assert_eq!(*log.lock().unwrap(), [1, 2]);
    // None of this has invalidated the capture.
    let graph = driver.end_capture(stream).unwrap().expect("something was captured");
    assert!(driver.end_capture(stream).is_err(), "it is over");
    note(stream, 3, false);
    subject.finish(stream);
    assert_eq!(*log.lock().unwrap(), [1, 2, 3]);
    driver.destroy_graph(graph).unwrap();
    for event in [elsewhere, before] {
        driver.forget(event);
    }
    subject.close(stream);
    subject.close(other);
    give_back(subject, at);
}

pub(crate) fn graphs_refuse_what_is_not_there(subject: &Subject) {
    if !has_graphs(subject) {
        return;
    }
    let (driver, stream) = (&subject.driver, subject.stream());
    let is_unknown = |error| matches!(error, DriverError::UnknownHandle { .. });
    // SAFETY: here and below: what is refused does nothing.
    let instantiate = |nodes: &[Node]| unsafe { driver.instantiate(nodes) };
    // SAFETY: as above.
    let launch = |exec| unsafe { driver.launch(exec, stream) };
    assert!(instantiate(&[node(NodeWork::Nothing, &[0])]).is_err(), "a node after itself");
    let captured = NodeWork::Captured(RawGraph(u64::MAX));
    assert!(instantiate(&[node(captured, &[])]).is_err_and(is_unknown));
    assert!(launch(RawExec(77)).is_err_and(is_unknown));
    let exec = subject.instantiate(&[]);
    subject.launch(exec, stream);
    driver.destroy_exec(exec).unwrap();
    assert!(driver.destroy_exec(exec).is_err_and(is_unknown));
    assert!(driver.upload(exec, stream).is_err_and(is_unknown));
    // A number that is used again has another name than before.
    let next = subject.instantiate(&[]);
    assert_ne!(next, exec);
    assert!(launch(exec).is_err_and(is_unknown));
    driver.destroy_exec(next).unwrap();
    subject.finish(stream);
    subject.close(stream);
}
