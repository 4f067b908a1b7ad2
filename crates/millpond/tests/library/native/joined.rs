//! Random graphs of fills and copies: no matter which fills are joined, each launch has the results of its nodes, in
//! the order of their edges. `counted` checks that some are joined.

use fastrand::Rng;
use millpond::graph::{Graph, GraphNode, Instantiate, MemAllocNode};
use millpond::{Buffer, Device, MIB, Result, Stream};

use super::{expect, subject};

/// A graph with the final value of each of its outputs.
struct Made {
    graph: Graph,
    outs: Vec<(MemAllocNode<u8>, u8)>,
}

/// Removes duplicate edges.
fn once(mut after: Vec<GraphNode>) -> Vec<GraphNode> {
    let mut seen = Vec::new();
    after.retain(|node| {
        !seen.contains(node) && {
            seen.push(*node);
            true
        }
    });
    after
}

/// Makes a graph of outputs side by side, filled and copied in a random order with the edges that this needs, and some
/// more.
fn made(device: &Device, seed: u64) -> Result<Made> {
    const BYTES: usize = 512;
    let mut random = Rng::with_seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut graph = device.graph()?;
    let count = 2 + random.usize(..6);
    let outs: Vec<MemAllocNode<u8>> = (0..count).map(|_| graph.add_alloc(&[], BYTES)).collect::<Result<_>>()?;
    // For each output its value, its last writer, and its readers since.
    let first = |out: &MemAllocNode<u8>| (0, graph.node_of(*out).expect("its own"), Vec::new());
    let mut state: Vec<(u8, GraphNode, Vec<GraphNode>)> = outs.iter().map(first).collect();
    let mut nodes: Vec<GraphNode> = Vec::new();
    for step in 0..count + random.usize(..16) {
        let to = if step < count { step } else { random.usize(..count) };
        let from = random.usize(..count);
        let (value, node) = if step >= count && random.usize(..3) == 0 && from != to {
            let mut after: Vec<GraphNode> = vec![state[to].1, state[from].1];
            after.extend(&state[to].2);
            let node = graph.add_copy(&once(after), outs[from].read(), outs[to].write())?;
            state[from].2.push(node);
            (state[from].0, node)
        } else {
            let value = 1 + random.usize(..2) as u8;
            let mut after: Vec<GraphNode> = vec![state[to].1];
            after.extend(&state[to].2);
            if random.usize(..4) > 0 {
                after.extend(nodes.last());
            }
            after.extend((random.usize(..4) == 0 && !nodes.is_empty()).then(|| nodes[random.usize(..nodes.len())]));
            (value, graph.add_memset(&once(after), outs[to].write(), value)?)
        };
        nodes.push(node);
        state[to] = (value, node, Vec::new());
    }
    Ok(Made { graph, outs: outs.into_iter().zip(state).map(|(out, (value, ..))| (out, value)).collect() })
}

fn launch_and_look(made: &Made, stream: &Stream, launches: usize) -> Result<()> {
    let exec = made.graph.instantiate(Instantiate::default())?;
    for _ in 0..launches {
        let launch = exec.launch(stream)?;
        for (out, value) in &made.outs {
            let out: Buffer<u8> = launch.take(*out)?;
            expect(stream, &out, *value);
            // The next launch must not find it there.
            stream.memset(out.write(), 99)?;
            stream.free(out).map_err(|refused| refused.error)?;
        }
    }
    Ok(())
}

#[test]
fn every_launch_leaves_what_its_nodes_say() -> Result<()> {
    let Some(subject) = subject() else { return Ok(()) };
    let (device, stream) = (&subject.device, subject.device.stream()?);
    for seed in 1..=150 {
        let graph = made(device, seed)?;
        launch_and_look(&graph, &stream, 2)?;
        if seed % 3 == 0 {
            // Other graphs take its memory in the meantime.
            let mut other = device.graph()?;
            let x = other.add_alloc::<u8>(&[], 4 * MIB as usize)?;
            let alloc = other.node_of(x).expect("its own");
            let fill = other.add_memset(&[alloc], x.write(), 77)?;
            other.add_free(&[fill], x)?;
            let _ = other.instantiate(Instantiate::default())?.launch(&stream)?;
        }
        if seed % 7 == 0 {
            device.trim_graph_memory()?;
        }
        launch_and_look(&graph, &stream, 1)?;
        drop(graph);
        // The same graph again.
        launch_and_look(&made(device, seed)?, &stream, 2)?;
    }
    stream.synchronize()
}
