//! Host time of graphs: instantiation, a launch's own checks, and launches with memory compared with those without.
//!
//! Run with `cargo bench -p millpond --bench graph`. Checks are timed on a device without memory, runs on one with it.

use std::time::Instant;

use millpond::graph::{Graph, GraphExec, GraphNode, Instantiate, MemAllocNode};
use millpond::{Buffer, Device, HostConfig, MIB, Result, Stream};

const ROUNDS: usize = 9;

fn main() -> Result<()> {
    if std::env::args().any(|arg| arg == "--test") {
        return Ok(());
    }
    println!("{:<72} {:>12}", "work", "");
    // `-- checks` runs only those, for a profiler.
    if std::env::args().any(|arg| arg == "checks") {
        return own_checks();
    }
    instantiation()?;
    own_checks()?;
    with_and_without_memory()
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Makes a graph of `chains` chains of empty nodes that sometimes meet.
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

/// The same with allocations, kernels that use them and what the chain before left, and frees.
fn with_memory(device: &Device, nodes: usize, chains: usize) -> Result<Graph> {
    let mut graph = device.graph()?;
    let mut last: Vec<Vec<GraphNode>> = vec![Vec::new(); chains];
    let mut held: Vec<Option<MemAllocNode<u8>>> = vec![None; chains];
    let mut made = 0;
    while made < nodes {
        for lane in 0..chains {
            let x = graph.add_alloc::<u8>(&last[lane], 1000 + 512 * lane)?;
            let mut after = vec![graph.node_of(x).expect("made by this graph")];
            if made % 97 == 0 {
                after.extend(last[(lane + 1) % chains].first());
            }
            let mut node = graph.add_kernel(&after, x.write(), |_| ())?;
            made += 4;
            if let Some(former) = held[lane].replace(x) {
                node = graph.add_kernel(&[node], (former.read(), x.write()), |_| ())?;
                node = graph.add_free(&[node], former)?;
            }
            last[lane] = vec![node];
        }
    }
    Ok(graph)
}

fn instantiation() -> Result<()> {
    let device = Device::host(HostConfig::default().memory(false))?;
    instantiate("instantiate 100000 empty nodes, 8 chains", &wide(&device, 100_000, 8)?);
    instantiate("instantiate 100000 nodes with memory, 8 chains", &with_memory(&device, 100_000, 8)?);
    Ok(())
}

fn instantiate(name: &str, graph: &Graph) {
    let times = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        let exec = graph.instantiate(Instantiate::default()).expect("a right graph");
        let time = start.elapsed().as_secs_f64() * 1e3;
        drop(exec);
        time
    });
    println!("{name:<72} {:>9.2} ms", median(times.collect()));
}

/// Launches graphs of different sizes that use four outside buffers and whose nodes do nothing.
fn own_checks() -> Result<()> {
    let device = Device::host(HostConfig::default().memory(false))?;
    let stream = device.stream()?;
    let buffers: Vec<Buffer<u8>> = (0..4).map(|_| stream.alloc(&device.default_pool(), 4096)).collect::<Result<_>>()?;
    for nodes in [10, 1_000, 100_000] {
        let mut graph = device.graph()?;
        let mut last = Vec::new();
        for at in 0..nodes {
            // Without elements: no lifetime is checked, and only the launch itself is left.
            let node = match buffers.get(at) {
                Some(buffer) => graph.add_copy_from_host(&last, buffer.view().slice(0..0)?.write(), &[])?,
                None => graph.add_empty(&last)?,
            };
            last = vec![node];
        }
        let exec = graph.instantiate(Instantiate::default())?;
        launches(&format!("launch, 4 buffers of which no byte is used, {nodes} nodes"), &exec, &stream);
    }
    // Declared in a capture, so that there is no work either. All of each buffer is written.
    stream.begin_capture()?;
    buffers.iter().try_for_each(|buffer| stream.declare(buffer.write()))?;
    let exec = stream.end_capture()?.instantiate(Instantiate::default())?;
    launches("launch, checks of 4 buffers that are written", &exec, &stream);
    Ok(())
}

fn launches(name: &str, exec: &GraphExec, stream: &Stream) {
    let times = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        for _ in 0..10_000 {
            let _ = exec.launch(stream).expect("a right launch");
        }
        start.elapsed().as_secs_f64() / 10_000.0 * 1e9
    });
    println!("{name:<72} {:>9.0} ns", median(times.collect()));
}

/// Makes a chain of kernels with an allocation of 4 MiB each, which is still live in the next kernel. A kernel writes
/// its memory in steps.
fn chain(device: &Device, length: usize, step: usize, buffers: Option<&[Buffer<u8>]>) -> Result<Graph> {
    let mut graph = device.graph()?;
    let mut after: Vec<GraphNode> = Vec::new();
    let mut former = None;
    for at in 0..length {
        let touch = move |x: &mut [u8]| x.iter_mut().step_by(step).for_each(|x| *x = 1);
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

/// Returns the times of a launch and a synchronisation on a device of its own: with memory nodes, and without.
fn pair(length: usize, step: usize) -> Result<[f64; 2]> {
    let device = Device::host(HostConfig::default())?;
    let stream = device.stream()?;
    let buffers: Vec<Buffer<u8>> =
        (0..2).map(|_| stream.alloc(&device.default_pool(), 4 * MIB as usize)).collect::<Result<_>>()?;
    let execs = [None, Some(&buffers[..])]
        .map(|it| chain(&device, length, step, it).and_then(|it| it.instantiate(Instantiate::default())));
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..51 {
        for (exec, times) in execs.iter().zip(&mut times) {
            let exec = exec.as_ref().expect("a right graph");
            let start = Instant::now();
            let _ = exec.launch(&stream)?;
            stream.synchronize()?;
            times.push(start.elapsed().as_secs_f64() * 1e6);
        }
    }
    Ok(times.map(median))
}

/// Medians over several devices: if a kernel writes much memory, the places of its pages in the caches matter more than
/// everything else, and each device has new ones.
fn with_and_without_memory() -> Result<()> {
    for (work, step) in [("that touch 1 byte", usize::MAX), ("that touch 4 MiB", 4096)] {
        for length in [1, 10, 100] {
            let pairs: Vec<[f64; 2]> = (0..ROUNDS).map(|_| pair(length, step)).collect::<Result<_>>()?;
            let [with, without] = [0, 1].map(|which| median(pairs.iter().map(|pair| pair[which]).collect()));
            let ratio = median(pairs.iter().map(|[with, without]| with / without).collect());
            let name = format!("launch + synchronise, {length} kernels {work}: memory nodes");
            println!("{name:<72} {with:>9.1} us");
            println!("{:<72} {without:>9.1} us, {ratio:.2}x", "    the same, preallocated");
        }
    }
    Ok(())
}
