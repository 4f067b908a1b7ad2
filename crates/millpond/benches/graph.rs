//! Host time of graphs: instantiation, a launch's own checks, and launches with memory beside the same without.
//!
//! Run with `cargo bench -p millpond --bench graph`. Checks are timed on the simulator, runs on the host device.

use std::time::Instant;

use millpond::{Buffer, Device, Graph, GraphNode, HostConfig, Instantiate, MIB, Result, SimConfig};

const ROUNDS: usize = 9;

fn main() -> Result<()> {
    if std::env::args().any(|arg| arg == "--test") {
        return Ok(());
    }
    println!("{:<60} {:>12}", "work", "");
    instantiation()?;
    own_checks()?;
    with_and_without_memory()
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// `chains` chains of empty nodes that meet now and then.
fn wide(device: &Device, nodes: usize, chains: usize) -> Result<Graph> {
    let mut graph = device.graph()?;
    let mut last: Vec<GraphNode> = Vec::new();
    for at in 0..nodes {
        let lane = at % chains;
        let node = match at {
            _ if at < chains => graph.add_empty(&[])?,
            _ if at % 97 == 0 => graph.add_empty(&[last[lane], last[(lane + 1) % chains]])?,
            _ => graph.add_empty(&[last[lane]])?,
        };
        if at < chains { last.push(node) } else { last[lane] = node }
    }
    Ok(graph)
}

fn instantiation() -> Result<()> {
    let device = Device::sim(SimConfig::default())?;
    let graph = wide(&device, 100_000, 8)?;
    let times = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        let exec = graph.instantiate(Instantiate::default()).expect("a right graph");
        let time = start.elapsed().as_secs_f64() * 1e3;
        drop(exec);
        time
    });
    println!("{:<60} {:>9.2} ms", "instantiate 100000 nodes, 8 chains", median(times.collect()));
    Ok(())
}

/// Launches of graphs of different sizes that use four outside buffers and whose nodes do nothing.
fn own_checks() -> Result<()> {
    let device = Device::sim(SimConfig::default())?;
    let stream = device.stream()?;
    let buffers: Vec<Buffer<u8>> = (0..4).map(|_| stream.alloc(&device.default_pool(), 4096)).collect::<Result<_>>()?;
    for nodes in [10, 1_000, 100_000] {
        let mut graph = device.graph()?;
        let mut last = Vec::new();
        for at in 0..nodes {
            // Of no elements, so that nothing but the checks is left.
            let node = match buffers.get(at) {
                Some(buffer) => graph.add_copy_from_host(&last, buffer.view().slice(0..0)?.write(), &[])?,
                None => graph.add_empty(&last)?,
            };
            last = vec![node];
        }
        let exec = graph.instantiate(Instantiate::default())?;
        let times = (0..ROUNDS).map(|_| {
            let start = Instant::now();
            for _ in 0..10_000 {
                let _ = exec.launch(&stream).expect("a right launch");
            }
            start.elapsed().as_secs_f64() / 10_000.0 * 1e9
        });
        println!("{:<60} {:>9.0} ns", format!("launch, checks of 4 buffers, {nodes} nodes"), median(times.collect()));
    }
    Ok(())
}

/// A chain of kernels that touch 4 MiB each, with lives that overlap the next.
fn chain(device: &Device, length: usize, buffers: Option<&[Buffer<u8>]>) -> Result<Graph> {
    let mut graph = device.graph()?;
    let mut after: Vec<GraphNode> = Vec::new();
    let mut former = None;
    for at in 0..length {
        let touch = |x: &mut [u8]| x.iter_mut().step_by(4096).for_each(|x| *x = 1);
        match buffers {
            Some(buffers) => after = vec![graph.add_kernel(&after, buffers[at % 2].write(), touch)?],
            None => {
                let x = graph.add_alloc::<u8>(&after, 4 * MIB as usize)?;
                let alloc = graph.node_of(x).expect("made by this graph");
                after = vec![graph.add_kernel(&[alloc], x.write(), touch)?];
                if let Some(former) = former.replace(x) {
                    after = vec![graph.add_free(&after, former)?];
                }
            }
        }
    }
    if let Some(former) = former {
        graph.add_free(&after, former)?;
    }
    Ok(graph)
}

fn with_and_without_memory() -> Result<()> {
    let device = Device::host(HostConfig::default())?;
    let stream = device.stream()?;
    let buffers: Vec<Buffer<u8>> =
        (0..2).map(|_| stream.alloc(&device.default_pool(), 4 * MIB as usize)).collect::<Result<_>>()?;
    for length in [1, 10, 100] {
        let execs = [None, Some(&buffers[..])].map(|buffers| {
            chain(&device, length, buffers)
                .and_then(|it| it.instantiate(Instantiate::default()))
                .expect("a right graph")
        });
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..101 {
            for (exec, times) in execs.iter().zip(&mut times) {
                let start = Instant::now();
                let _ = exec.launch(&stream)?;
                stream.synchronize()?;
                times.push(start.elapsed().as_secs_f64() * 1e6);
            }
        }
        let [with, without] = times.map(median);
        let name = format!("launch + synchronise, {length} kernels of 4 MiB: memory nodes");
        println!("{name:<60} {with:>9.1} us");
        println!("{:<60} {without:>9.1} us, {:.2}x", "    the same, preallocated", with / without);
    }
    Ok(())
}
