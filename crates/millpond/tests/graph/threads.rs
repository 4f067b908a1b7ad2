//! Several host threads and one exec: launches come one after the other, whoever makes them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use millpond::{Device, GraphError, HostConfig, Instantiate, Result};

/// Each launch takes the memory to be its own for as long as it runs; two that overlapped would see each other.
#[test]
fn threads_launch_one_exec_on_their_own_streams() -> Result<()> {
    const THREADS: usize = 4;
    const ROUNDS: usize = 25;
    let device = Device::host(HostConfig::default())?;
    let (running, runs) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut graph = device.graph()?;
    let x = graph.add_alloc::<u32>(&[], 4096)?;
    let alloc = graph.node_of(x).unwrap();
    let (inside, count) = (Arc::clone(&running), Arc::clone(&runs));
    let kernel = graph.add_kernel(&[alloc], x.write(), move |x| {
        assert_eq!(inside.fetch_add(1, Ordering::AcqRel), 0, "no exec overlaps itself");
        let round = count.fetch_add(1, Ordering::AcqRel);
        x.fill(round);
        std::thread::yield_now();
        assert!(x.iter().all(|x| *x == round));
        inside.fetch_sub(1, Ordering::AcqRel);
    })?;
    graph.add_free(&[kernel], x)?;
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
}

/// Of threads that race for a graph with an output one gets it at a time; the others are told that it is unfreed, or
/// that their free or launch is not ordered, and nothing is lost.
#[test]
fn threads_race_for_an_output() -> Result<()> {
    let device = Device::host(HostConfig::default())?;
    let mut graph = device.graph()?;
    let out = graph.add_alloc::<u32>(&[], 1024)?;
    let alloc = graph.node_of(out).unwrap();
    graph.add_kernel(&[alloc], out.write(), |x| x.fill(9))?;
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
                            assert_eq!(stream.copy_to_host(buffer.read()).unwrap(), [9; 1024]);
                            stream.free(buffer).unwrap();
                            taken.fetch_add(1, Ordering::AcqRel);
                        }
                        Err(error) => assert!(matches!(error.graph(), Some(GraphError::Unfreed(_))), "{error}"),
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
}

/// Each thread has a graph of its own, and memory changes hands by trims and uploads all the time: what is bound for a
/// launch stays its own until that is over.
#[test]
fn threads_launch_graphs_of_their_own_beside_trims() -> Result<()> {
    const THREADS: u32 = 3;
    let device = Device::host(HostConfig::default())?;
    let wrong = Arc::new(AtomicU32::new(0));
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for own in 1..=THREADS {
            let (device, wrong) = (device.clone(), Arc::clone(&wrong));
            threads.push(scope.spawn(move || -> Result<()> {
                let stream = device.stream()?;
                let mut graph = device.graph()?;
                let x = graph.add_alloc::<u32>(&[], 4096)?;
                let fill = graph.add_kernel(&[graph.node_of(x).unwrap()], x.write(), move |x| x.fill(own))?;
                let check = graph.add_kernel(&[fill], x.read(), move |x| {
                    wrong.fetch_add(x.iter().filter(|x| **x != own).count() as u32, Ordering::AcqRel);
                })?;
                graph.add_free(&[check], x)?;
                let exec = graph.instantiate(Instantiate::default())?;
                for round in 0..60 {
                    match round % 5 {
                        0 => device.trim_graph_memory()?,
                        1 => exec.upload(&stream)?,
                        2 => stream.synchronize()?,
                        _ => {}
                    }
                    let _ = exec.launch(&stream)?;
                }
                stream.synchronize()
            }));
        }
        threads.into_iter().try_for_each(|thread| thread.join().unwrap())
    })?;
    device.synchronize()?;
    assert_eq!(wrong.load(Ordering::Acquire), 0);
    Ok(())
}
