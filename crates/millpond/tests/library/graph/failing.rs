//! Every driver call fails once, in a program of graphs: a failed call has no effect, or leaves nothing behind, and can
//! be repeated. No data is lost, and in the end all memory is given back.

use std::sync::Arc;

use millpond::config::Schedule;
use millpond::graph::{ExternalEvent, Graph, GraphExec, Instantiate, MemAllocNode};
use millpond::{Buffer, Device, DeviceConfig, GIB, Stream};
use millpond_driver::{CallKind, CudaDriver, DriverError, Failing, HostConfig, HostDriver};

use crate::common::again::again;
use crate::common::each_call::{fail_each_call, free_again};
use crate::common::watchdog::ends;
use crate::common::{Make, cuda, makes, sim};

const LEN: usize = 3 << 18;

struct Program {
    device: Device,
    a: Stream,
    b: Stream,
    event: ExternalEvent,
}

impl Program {
    fn new(device: Device) -> Self {
        let (a, b) = (again(|| device.stream()), again(|| device.stream()));
        Program { event: device.external_event(), device, a, b }
    }

    #[track_caller]
    fn check(&self, stream: &Stream, x: &Buffer<u32>, value: u32) {
        let found = again(|| stream.copy_to_host(x.read()));
        assert!(!self.device.properties().has_memory || found.iter().all(|x| *x == value), "{:?}", found.first());
    }

    /// Two branches that meet, an output, an event record. Each call of the capture is repeated separately.
    fn captured(&self) -> (Graph, MemAllocNode<u32>) {
        let Program { device, a, b, event } = self;
        let pool = device.default_pool();
        let capture = a.capture(|s| {
            let out: Buffer<u32> = again(|| s.alloc(&pool, LEN));
            let scratch: Buffer<u32> = again(|| s.alloc(&pool, LEN));
            let fork = again(|| s.record());
            again(|| b.wait(&fork));
            again(|| b.memset(scratch.write(), 3));
            again(|| s.memset(out.write(), 1));
            let join = again(|| b.record());
            again(|| s.wait(&join));
            again(|| s.copy(scratch.read(), out.write()));
            again(|| s.record_external(event));
            Ok(out.into_alloc_node())
        });
        capture.expect("nothing of it fails twice")
    }

    /// alloc, copies, a fill, a free.
    fn by_hand(&self, result: &Buffer<u32>) -> Graph {
        let mut graph = again(|| self.device.graph());
        let x: MemAllocNode<u32> = again(|| graph.add_alloc(&[], LEN));
        let alloc = graph.node_of(x).expect("made by this graph");
        let fill = again(|| graph.add_memset(&[alloc], x.write(), 3));
        let copy = again(|| graph.add_copy(&[fill], x.read(), result.write()));
        again(|| graph.add_free(&[copy], x));
        graph
    }

    fn run(&self) {
        let Program { device, a, b, event } = self;
        let (graph, out) = self.captured();
        let auto: GraphExec = again(|| graph.instantiate(Instantiate::default().auto_free_on_launch(true)));
        let (another, theirs) = self.captured();
        let plain: GraphExec = again(|| another.instantiate(Instantiate::default()));
        for _ in 0..2 {
            let buffer = again(|| auto.launch(a)).take(out).expect("this launch's");
            again(|| b.wait_external(event));
            self.check(b, &buffer, 0x0303_0303);
            let used = again(|| b.record());
            again(|| a.wait(&used));
        }
        let last = again(|| auto.launch(a)).take(out).expect("this launch's");
        free_again(a, last);
        let result: Buffer<u32> = again(|| a.alloc(&device.default_pool(), LEN));
        let hand = self.by_hand(&result);
        let hand = again(|| hand.instantiate(Instantiate::default()));
        again(|| hand.upload(a));
        let _ = again(|| hand.launch(a));
        self.check(a, &result, 0x0303_0303);
        again(|| device.trim_graph_memory());
        // Another stream and other pages; then work that a dropped instance leaves behind.
        let done = again(|| a.record());
        again(|| b.wait(&done));
        let _ = again(|| hand.launch(b));
        self.check(b, &result, 0x0303_0303);
        let left = again(|| plain.launch(b)).take(theirs).expect("this launch's");
        drop((auto, plain, hand, graph));
        drop(left);
        let done = again(|| b.record());
        again(|| a.wait(&done));
        free_again(a, result);
    }

    /// At the end nothing is used, and nothing reserved.
    fn end(self) {
        again(|| self.device.synchronize());
        again(|| self.device.synchronize());
        // If the device does not report completed work, a trim takes it for running. The next trim asks again.
        again(|| self.device.trim_graph_memory());
        again(|| self.device.trim_graph_memory());
        let statistics = self.device.graph_memory();
        assert_eq!((statistics.used_bytes, statistics.reserved_bytes), (0, 0));
    }
}

fn run(device: Device) {
    let program = Program::new(device);
    program.run();
    program.end();
}

/// Returns the selected kinds of devices among these.
fn asked(of: impl Fn(Make) -> bool) -> Vec<Make> {
    let asked: Vec<_> = makes().into_iter().filter(|make| of(*make)).collect();
    if asked.is_empty() {
        eprintln!("skipped: MILLPOND_TEST_DEVICE asks for other devices");
    }
    asked
}

#[test]
fn every_call_fails_once_without_memory() {
    for make in asked(|make| matches!(make, Make::Sim(_))) {
        let Make::Sim(schedule) = make else { unreachable!() };
        let kinds = fail_each_call(100, run, || {
            let sim = sim(schedule, 64 * GIB);
            (sim.clone(), Some(sim))
        });
        for kind in
            [CallKind::Create, CallKind::Map, CallKind::Unmap, CallKind::Submit, CallKind::Record, CallKind::Wait]
        {
            assert!(kinds.contains(&kind), "{kind:?} has failed");
        }
    }
}

#[test]
fn every_call_fails_once_on_the_host() {
    for make in asked(|make| matches!(make, Make::Parallel | Make::Seeded(1))) {
        let schedule = if make == Make::Parallel { Schedule::Parallel } else { Schedule::Seeded(1) };
        fail_each_call(100, run, || {
            let config = HostConfig { schedule, ..Default::default() };
            (Arc::new(HostDriver::new(config).expect("a host device")), None)
        });
    }
}

#[test]
fn every_call_fails_once_on_cuda() {
    for make in asked(|make| matches!(make, Make::Fake | Make::Cuda)) {
        let kinds = fail_each_call(100, run, || {
            (Arc::new(CudaDriver::new(cuda(make, 64 * GIB)).expect("a CUDA device")), None)
        });
        for kind in [CallKind::Create, CallKind::Map, CallKind::Instantiate, CallKind::LaunchGraph, CallKind::Record] {
            assert!(kinds.contains(&kind), "{kind:?} has failed");
        }
    }
}

/// A launch finds another graph's output in its memory, and waits for its own last use of those addresses. After one
/// wait that use has completed, whether or not the device reports it.
#[test]
fn a_launch_whose_device_does_not_say_what_is_over_waits_once() {
    let driver = Arc::new(Failing::new(sim(Schedule::AtWait, 64 * GIB)));
    let device = Device::with_driver(driver.clone(), DeviceConfig::default()).unwrap();
    let (a, b) = (device.stream().unwrap(), device.stream().unwrap());
    let graph = |frees: bool| {
        let mut graph = device.graph().unwrap();
        let x: MemAllocNode<u32> = graph.add_alloc(&[], LEN).unwrap();
        let alloc = graph.node_of(x).unwrap();
        let fill = graph.add_memset(&[alloc], x.write(), 3).unwrap();
        if frees {
            graph.add_free(&[fill], x).unwrap();
        }
        graph.instantiate(Instantiate::default()).unwrap()
    };
    let (inner, output) = (graph(true), graph(false));
    let _ = inner.launch(&a).unwrap();
    b.wait(&a.record().unwrap()).unwrap();
    let _ = output.launch(&b).unwrap();
    driver.fail_every(CallKind::IsOver, DriverError::Failed { call: "is_over", reason: "made to fail".into() });
    let _ = ends(|| inner.launch(&a)).unwrap();
    driver.disarm();
    device.synchronize().unwrap();
}

/// No event can be recorded at the end of a launch. The next launch, on another stream, comes after it all the same.
#[test]
fn a_launch_comes_after_one_whose_end_was_not_recorded() {
    let driver = Arc::new(Failing::new(sim(Schedule::AtOnce, 64 * GIB)));
    let device = Device::with_driver(driver.clone(), DeviceConfig::default()).unwrap();
    let (a, b) = (device.non_blocking_stream().unwrap(), device.non_blocking_stream().unwrap());
    let mut graph = device.graph().unwrap();
    graph.add_empty(&[]).unwrap();
    let exec = graph.instantiate(Instantiate::default()).unwrap();
    let x: Buffer<u32> = a.alloc(&device.default_pool(), LEN).unwrap();
    a.memset(x.write(), 1).unwrap();
    let _ = exec.launch(&a).unwrap();
    a.memset(x.write(), 2).unwrap();
    driver.fail_every(CallKind::Record, DriverError::Failed { call: "record", reason: "made to fail".into() });
    let _ = exec.launch(&a).unwrap();
    assert!(exec.launch(&b).is_err(), "it would run at the same time");
    driver.disarm();
    let _ = exec.launch(&b).unwrap();
    b.free(x).unwrap();
}

/// The device accepts both branches of a graph, but then neither their end nor a wait that would put the stream after
/// the second branch. That branch has not completed when the stream's own work has, and it keeps its memory.
#[test]
fn what_a_launch_has_left_on_a_lane_is_not_over_before_it_is() {
    let driver = Arc::new(Failing::new(HostDriver::new(HostConfig::default()).unwrap()));
    let device = Device::with_driver(driver.clone(), DeviceConfig::default()).unwrap();
    let stream = device.stream().unwrap();
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let mut graph = device.graph().unwrap();
    let [x, y]: [MemAllocNode<u32>; 2] = [(); 2].map(|()| graph.add_alloc(&[], LEN).unwrap());
    let [on_x, on_y] = [x, y].map(|it| graph.node_of(it).unwrap());
    let filled = graph.add_kernel(&[on_x], x.write(), |x: &mut [u32]| x.fill(1)).unwrap();
    let held = graph
        .add_kernel(&[on_y], y.write(), move |y: &mut [u32]| {
            let _ = gate.recv();
            y.fill(2);
        })
        .unwrap();
    graph.add_free(&[filled], x).unwrap();
    graph.add_free(&[held], y).unwrap();
    let exec = graph.instantiate(Instantiate::default()).unwrap();
    // The first wait puts the lane after the stream, the others put the stream after the lane.
    (1..=4).for_each(|nth| driver.fail_at_kind(CallKind::Wait, nth));
    assert!(exec.launch(&stream).is_err());
    driver.disarm();
    drop((exec, graph));
    let until = std::time::Instant::now() + std::time::Duration::from_millis(200);
    while std::time::Instant::now() < until {
        assert!(!stream.is_idle().unwrap());
        device.trim_graph_memory().unwrap();
        assert!(device.graph_memory().reserved_bytes > 0);
    }
    drop(go);
    ends(|| device.synchronize()).unwrap();
    assert!(stream.is_idle().unwrap());
    device.trim_graph_memory().unwrap();
    assert_eq!(device.graph_memory().reserved_bytes, 0);
}
