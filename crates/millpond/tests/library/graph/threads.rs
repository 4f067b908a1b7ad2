//! Several host threads and one instance: launches come one after the other, from any thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use millpond::check::Kind;
use millpond::graph::{CaptureMode, Instantiate};
use millpond::{Buffer, Device, Error, HostConfig, Result};

use super::made::{each, expect, is_kind};
use crate::common::on_parallel_devices_that_run_closures;
use crate::common::watchdog::ends;

/// Two graphs use one chunk alternately. A kernel of the first waits for something that the host does after the launch
/// of the second.
#[test]
fn a_launch_waits_for_no_kernel_that_waits_for_the_host() {
    on_parallel_devices_that_run_closures(|on| {
        let (device, pool) = (&on.device, on.device.default_pool());
        let [left, right] = on.streams();
        let (go, gate) = std::sync::mpsc::channel::<()>();
        let late = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&late);
        let (graph, ()) = right.capture(|stream| {
            let x = stream.alloc::<u32>(&pool, 1000)?;
            stream.launch(x.write(), move |_| {
                let came = gate.recv_timeout(Duration::from_secs(10)).is_ok();
                count.fetch_add(u32::from(!came), Ordering::AcqRel);
            })
        })?;
        let waits = graph.instantiate(Instantiate::default())?;
        let (graph, ()) = left.capture(|stream| {
            let x = stream.alloc::<u32>(&pool, 1000)?;
            stream.launch(x.write(), |x| x.fill(2))
        })?;
        let meets = graph.instantiate(Instantiate::default())?;
        for round in 0..20 {
            let _ = waits.launch(&right)?;
            left.wait(&right.record()?)?;
            let _ = meets.launch(&left)?;
            if round > 0 {
                go.send(()).unwrap();
            }
        }
        go.send(()).unwrap();
        device.synchronize()?;
        assert_eq!(late.load(Ordering::Acquire), 0, "kernels that nobody let go");
        Ok(())
    });
}

/// Each launch has the memory to itself while it runs. Two overlapping launches would see each other's bytes.
#[test]
fn threads_launch_one_exec_on_their_own_streams() {
    each(|on| {
        const THREADS: usize = 4;
        const ROUNDS: usize = 25;
        let device = &on.device;
        let (running, runs) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let mut graph = device.graph()?;
        let x = graph.add_alloc::<u32>(&[], 4096)?;
        let alloc = graph.node_of(x).unwrap();
        let (inside, count) = (Arc::clone(&running), Arc::clone(&runs));
        let begin = graph.add_host_function(&[alloc], move || {
            assert_eq!(inside.fetch_add(1, Ordering::AcqRel), 0, "no exec overlaps itself");
            count.fetch_add(1, Ordering::AcqRel);
        })?;
        let fill = graph.add_memset(&[begin], x.write(), 1)?;
        let end = graph.add_host_function(&[fill], move || {
            std::thread::yield_now();
            running.fetch_sub(1, Ordering::AcqRel);
        })?;
        graph.add_free(&[end], x)?;
        let exec = graph.instantiate(Instantiate::default())?;
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let stream = device.stream().unwrap();
                    for round in 0..ROUNDS {
                        let _ = exec.launch(&stream).unwrap();
                        match round % 8 {
                            3 => exec.upload(&stream).unwrap(),
                            5 => device.trim_graph_memory().unwrap(),
                            7 => stream.synchronize().unwrap(),
                            _ => {}
                        }
                    }
                });
            }
        });
        device.synchronize()?;
        assert_eq!(runs.load(Ordering::Acquire) as usize, THREADS * ROUNDS);
        Ok(())
    });
}

/// Threads compete for a graph with an output. One at a time gets it. The others get an error that it is unfreed, or
/// that their free or launch is not ordered, and nothing is lost.
#[test]
fn threads_race_for_an_output() {
    each(|on| {
        let device = &on.device;
        let mut graph = device.graph()?;
        let out = graph.add_alloc::<u32>(&[], 1024)?;
        let alloc = graph.node_of(out).unwrap();
        graph.add_memset(&[alloc], out.write(), 9)?;
        let exec = graph.instantiate(Instantiate::default())?;
        let taken = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let stream = device.stream().unwrap();
                    for _ in 0..50 {
                        match exec.launch(&stream) {
                            Ok(launch) => {
                                let buffer = launch.take(out).unwrap();
                                expect(&stream, buffer.read(), 9);
                                stream.free(buffer).unwrap();
                                taken.fetch_add(1, Ordering::AcqRel);
                            }
                            Err(error) => assert!(is_kind(&error, Kind::UnfreedLaunch), "{error}"),
                        }
                    }
                });
            }
        });
        assert!(taken.load(Ordering::Acquire) > 0);
        device.synchronize()?;
        device.trim_graph_memory()?;
        assert_eq!(device.graph_memory().reserved_bytes, 0);
        Ok(())
    });
}

/// Each thread has a graph of its own, and memory moves between them by trims and uploads all the time: memory bound
/// for a launch stays the launch's own until it has completed.
#[test]
fn threads_launch_graphs_of_their_own_beside_trims() {
    each(|on| {
        const THREADS: u8 = 3;
        let device = &on.device;
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for own in 1..=THREADS {
                let device = device.clone();
                threads.push(scope.spawn(move || -> Result<()> {
                    let stream = device.stream()?;
                    let mut graph = device.graph()?;
                    let x = graph.add_alloc::<u32>(&[], 4096)?;
                    let found: Vec<Buffer<u32>> =
                        (0..2).map(|_| stream.alloc(&device.default_pool(), 4096)).collect::<Result<_>>()?;
                    let fill = graph.add_memset(&[graph.node_of(x).unwrap()], x.write(), own)?;
                    let early = graph.add_copy(&[fill], x.read(), found[0].write())?;
                    let late = graph.add_copy(&[early], x.read(), found[1].write())?;
                    graph.add_free(&[late], x)?;
                    let exec = graph.instantiate(Instantiate::default())?;
                    for round in 0..60 {
                        match round % 5 {
                            0 => device.trim_graph_memory()?,
                            1 => exec.upload(&stream)?,
                            2 => stream.synchronize()?,
                            _ => {}
                        }
                        let _ = exec.launch(&stream)?;
                        if round % 3 == 0 {
                            found.iter().for_each(|x| expect(&stream, x.read(), own));
                        }
                    }
                    stream.synchronize()
                }));
            }
            threads.into_iter().try_for_each(|thread| thread.join().unwrap())
        })?;
        device.synchronize()
    });
}

/// Graphs that share memory, launched by threads on unordered streams, while memory is trimmed: each sees only its own
/// bytes, and nothing hangs.
#[test]
fn threads_launch_graphs_that_share_memory() {
    on_parallel_devices_that_run_closures(|on| {
        const ROUNDS: u32 = 60;
        let device = &on.device;
        let graph = |value: u32| {
            let mut graph = device.graph()?;
            let x = graph.add_alloc::<u32>(&[], 1 << 16)?;
            let fill = graph.add_kernel(&[graph.node_of(x).unwrap()], x.write(), move |x| x.fill(value))?;
            let right = move |x: &[u32]| assert!(x.iter().all(|it| *it == value), "another graph's bytes");
            let look = graph.add_kernel(&[fill], x.read(), right)?;
            graph.add_free(&[look], x)?;
            graph.instantiate(Instantiate::default())
        };
        let execs = (1..=4).map(graph).collect::<Result<Vec<_>>>()?;
        // On one stream, one after the other, they share memory.
        let together = device.stream()?;
        for exec in &execs {
            let _ = exec.launch(&together)?;
        }
        ends(|| {
            std::thread::scope(|scope| {
                for (thread, exec) in execs.iter().enumerate() {
                    let (next, together) = (&execs[(thread + 1) % execs.len()], &together);
                    scope.spawn(move || {
                        let stream = device.stream().unwrap();
                        for round in 0..ROUNDS {
                            let _ = exec.launch(&stream).unwrap();
                            match round % 8 {
                                2 => exec.upload(together).unwrap(),
                                3 => drop(next.launch(&stream).unwrap()),
                                5 => device.trim_graph_memory().unwrap(),
                                6 => drop(exec.launch(together).unwrap()),
                                7 => stream.synchronize().unwrap(),
                                _ => {}
                            }
                        }
                    });
                }
            });
            device.synchronize()
        })
    });
}

/// A copy to the host that another thread's capture refuses has not begun: nothing has to come after it.
#[test]
fn a_copy_to_the_host_is_refused_whole_or_not_at_all() {
    let device = Device::host(HostConfig::default()).unwrap();
    let pool = device.default_pool();
    let (legacy, other) = (device.legacy_stream(), device.non_blocking_stream().unwrap());
    let captured = device.stream().unwrap();
    let buffer = other.alloc::<u8>(&pool, 4096).unwrap();
    other.memset(buffer.write(), 7).unwrap();
    other.synchronize().unwrap();
    let is_over = AtomicBool::new(false);
    let copies = || {
        let mut refused = 0;
        for round in 0..2_000_000 {
            // On a machine with many cores they may not meet for long.
            if round >= 20_000 && refused > 0 {
                break;
            }
            match legacy.copy_to_host(buffer.read()) {
                Ok(bytes) => assert_eq!(bytes[..4], [7; 4]),
                Err(Error::Violation(it)) if it.kind.is_about_captures() => refused += 1,
                Err(error) => return Err(error),
            }
            other.memset(buffer.write(), 7)?;
            other.synchronize()?;
        }
        Ok(refused)
    };
    let refused = std::thread::scope(|threads| {
        threads.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                // A refused copy invalidates the capture. Meanwhile the host may wait for other streams.
                let _ = captured.begin_capture_in(CaptureMode::Relaxed);
                let _ = captured.end_capture();
            }
        });
        let refused = copies();
        is_over.store(true, Ordering::Release);
        refused
    });
    assert!(refused.unwrap() > 0, "no capture met a copy");
}
