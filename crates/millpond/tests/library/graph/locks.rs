//! No lock of the library is held while the program's own code runs, or while a launch waits for the device. So what a
//! kernel owns may use streams when it is dropped, and kernels may use the streams of launches.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use millpond::graph::{GraphExec, Instantiate};
use millpond::{Buffer, Device, Error, Event, HostConfig, Pool, Result, Stream};

use super::made::is_of_graph;
use crate::common::watchdog::ends;

fn device() -> (Device, Pool) {
    let device = Device::host(HostConfig::default()).unwrap();
    let pool = device.default_pool();
    (device, pool)
}

/// Uses a stream when it is dropped.
struct Asks(Stream, Arc<AtomicBool>);

impl Drop for Asks {
    fn drop(&mut self) {
        self.1.store(self.0.is_capturing().is_ok(), Ordering::Release);
    }
}

/// A capture of two streams, and memory that the first one wrote without an order for the second.
struct Captured {
    main: Stream,
    side: Stream,
    x: Buffer<u8>,
    scratch: Buffer<u8>,
}

fn captured(device: &Device, pool: &Pool) -> Result<Captured> {
    let (main, side) = (device.stream()?, device.stream()?);
    main.begin_capture()?;
    let x = main.alloc::<u8>(pool, 4096)?;
    let scratch = main.alloc::<u8>(pool, 4096)?;
    side.wait(&main.record()?)?;
    main.launch(x.write(), |x| x.fill(1))?;
    Ok(Captured { main, side, x, scratch })
}

/// Joins the second stream, and ends the capture.
fn assert_goes_on(main: &Stream, side: &Stream, nodes: usize) {
    main.wait(&side.record().unwrap()).unwrap();
    assert_eq!(main.end_capture().unwrap().len(), nodes, "the refused node is not there, and all others are");
}

#[test]
fn a_node_refused_in_a_capture_may_own_memory_of_the_capture() {
    let (device, pool) = device();
    let Captured { main, side, x, scratch } = captured(&device, &pool).unwrap();
    let refused = ends(|| side.launch(x.write(), move |x| x.fill(scratch.len() as u8)));
    assert!(is_of_order(refused));
    // The kernel was dropped, and its memory with it: that got a free node.
    assert_goes_on(&main, &side, 4);
}

#[test]
fn a_node_refused_in_a_capture_may_own_what_uses_streams_when_it_is_dropped() {
    for is_side in [false, true] {
        let (device, pool) = device();
        let Captured { main, side, x, scratch } = captured(&device, &pool).unwrap();
        let asked = Arc::new(AtomicBool::new(false));
        let asks = Asks(if is_side { side.clone() } else { main.clone() }, Arc::clone(&asked));
        let refused = ends(|| {
            side.launch(x.write(), move |x| {
                let _ = &asks;
                x.fill(2);
            })
        });
        assert!(is_of_order(refused));
        assert!(asked.load(Ordering::Acquire));
        assert_goes_on(&main, &side, 3);
        drop(scratch);
    }
}

fn is_of_order(refused: Result<()>) -> bool {
    is_of_graph(&refused.unwrap_err())
}

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("a drop of the program's");
        }
    }
}

/// If dropping a refused kernel panics, the caller gets the panic, and the capture is as without the kernel.
#[test]
fn a_refused_node_whose_drop_panics_leaves_the_capture_whole() {
    for panics in [false, true] {
        let (device, pool) = device();
        let Captured { main, side, x, scratch } = captured(&device, &pool).unwrap();
        let bomb = panics.then(|| Bomb);
        let refused = catch_unwind(AssertUnwindSafe(|| {
            side.launch(x.write(), move |_| {
                let _ = &bomb;
            })
            .is_err()
        }));
        assert_eq!(refused.is_err(), panics);
        assert_goes_on(&main, &side, 3);
        drop(scratch);
    }
}

/// If a stream is dropped while it captures, its capture ends, even if that panics.
#[test]
fn a_capture_that_is_abandoned_may_own_what_panics_and_what_uses_streams() {
    let (device, pool) = device();
    let Captured { main, side, x, scratch } = captured(&device, &pool).unwrap();
    let asked = Arc::new(AtomicBool::new(false));
    let (bomb, asks) = (Bomb, Asks(side.clone(), Arc::clone(&asked)));
    main.launch(scratch.write(), move |_| {
        let _ = (&bomb, &asks);
    })
    .unwrap();
    drop((x, scratch));
    assert!(ends(|| catch_unwind(AssertUnwindSafe(|| drop(main)))).is_err(), "the panic is the caller's");
    assert!(asked.load(Ordering::Acquire));
    assert!(!side.is_capturing().unwrap());
    side.launch((), |()| ()).unwrap();
    ends(|| device.synchronize()).unwrap();
}

#[test]
fn a_refused_kernel_may_own_the_last_handles_of_a_stream_and_an_event() {
    let (device, pool) = device();
    let Captured { main, side, x, scratch } = captured(&device, &pool).unwrap();
    let other = device.stream().unwrap();
    let owned: (Stream, Event) = (other.clone(), other.record().unwrap());
    drop(other);
    let refused = ends(|| {
        side.launch(x.write(), move |_| {
            let _ = &owned;
        })
    });
    assert!(is_of_order(refused));
    assert_goes_on(&main, &side, 3);
    drop(scratch);
}

/// Makes a graph with memory of its own.
fn graph(device: &Device) -> Result<GraphExec> {
    let mut graph = device.graph()?;
    let x = graph.add_alloc::<u8>(&[], 4096)?;
    let fill = graph.add_kernel(&[graph.node_of(x).unwrap()], x.write(), |x| x.fill(1))?;
    graph.add_free(&[fill], x)?;
    graph.instantiate(Instantiate::default())
}

/// Makes two graphs that share memory because their launches were ordered, and two streams. The first stream has both
/// graphs behind `gate`, so that neither's memory is free for a launch on the second stream.
fn contended(device: &Device, gate: impl FnMut(()) + Send + 'static) -> Result<([GraphExec; 2], [Stream; 2])> {
    let (busy, free) = (device.stream()?, device.stream()?);
    let (a, b) = (graph(device)?, graph(device)?);
    let _ = (b.launch(&busy)?, a.launch(&busy)?);
    device.synchronize()?;
    busy.launch((), gate)?;
    let _ = (b.launch(&busy)?, a.launch(&busy)?);
    Ok(([a, b], [busy, free]))
}

/// The device waits for memory that another graph's launch still uses. The host does not.
#[test]
fn a_launch_does_not_wait_for_memory_that_another_launch_uses() {
    let (device, _) = device();
    let (go, gate) = channel::<()>();
    let gate = move |()| {
        let _ = gate.recv();
    };
    let ([_, b], [_, free]) = contended(&device, gate).unwrap();
    let _ = ends(|| b.launch(&free)).unwrap();
    assert!(!free.is_idle().unwrap(), "it comes after the launches before");
    drop(go);
    ends(|| device.synchronize()).unwrap();
}

/// Kernels can use the stream of a launch, whatever the launch waits for.
#[test]
fn a_kernel_may_use_the_stream_of_a_launch_that_waits_for_it() {
    let (device, _) = device();
    let (streams, stream) = channel::<Stream>();
    let (answers, answer) = channel();
    let gate = move |()| {
        if let Ok(stream) = stream.recv() {
            for _ in 0..200 {
                std::thread::sleep(Duration::from_millis(1));
                let _ = answers.send(stream.is_capturing());
            }
        }
    };
    let ([a, b], [busy, free]) = contended(&device, gate).unwrap();
    streams.send(free.clone()).unwrap();
    // They meet repeatedly: some launches wait so that the two graphs can have memory of their own.
    for _ in 0..40 {
        let _ = ends(|| Ok::<_, Error>((b.launch(&free)?, a.launch(&busy)?))).unwrap();
    }
    drop(streams);
    ends(|| device.synchronize()).unwrap();
    let answers: Vec<_> = answer.try_iter().collect();
    assert_eq!(answers, vec![Ok(false); 200]);
}

/// Two graphs that meet on one stream share memory. They get memory of their own once they run at the same time.
#[test]
fn graphs_that_run_side_by_side_get_memory_of_their_own() {
    let (device, _) = device();
    let gate = |()| std::thread::sleep(Duration::from_millis(100));
    let ([a, b], [busy, free]) = contended(&device, gate).unwrap();
    let granule = device.properties().granularity;
    assert_eq!(device.graph_memory().reserved_bytes, granule);
    let until = Instant::now() + Duration::from_secs(30);
    while device.graph_memory().reserved_bytes < 2 * granule {
        assert!(Instant::now() < until, "they share for ever");
        let _ = ends(|| Ok::<_, Error>((b.launch(&free)?, a.launch(&busy)?))).unwrap();
    }
    ends(|| device.synchronize()).unwrap();
}

/// Waits for a stream when it is dropped.
struct Waits(Stream, Sender<Result<()>>);

impl Drop for Waits {
    fn drop(&mut self) {
        let _ = self.1.send(self.0.synchronize());
    }
}

/// Two branches of a graph that is dropped before they run. The device drops their kernels, and the launch does not
/// wait for that.
#[test]
fn a_kernel_of_a_graph_that_is_gone_may_wait_for_its_launch_when_it_is_dropped() {
    let (device, _) = device();
    for _ in 0..20 {
        let stream = device.stream().unwrap();
        let (go, gate) = channel::<()>();
        let (said, heard) = channel();
        let mut graph = device.graph().unwrap();
        for _ in 0..2 {
            let waits = Waits(stream.clone(), said.clone());
            graph.add_kernel(&[], (), move |()| _ = &waits).unwrap();
        }
        let exec = graph.instantiate(Instantiate::default()).unwrap();
        stream.launch((), move |()| _ = gate.recv()).unwrap();
        let _ = exec.launch(&stream).unwrap();
        stream.launch((), |()| ()).unwrap();
        drop((exec, graph));
        drop(go);
        for _ in 0..2 {
            assert_eq!(ends(|| heard.recv()).unwrap(), Ok(()));
        }
    }
}
