//! The sharing of graphs' memory, and the memory reserved for it.

use std::collections::BTreeSet;

use millpond::config::PoolConfig;
use millpond::device::CallKind;
use millpond::graph::{Graph, GraphExec, Instantiate, MemAllocNode};
use millpond::{Device, HostConfig, MIB, Result};

use super::made::{each, expect};
use crate::common::Subject;

/// Makes a graph of `count` allocations of `bytes`, all live at once, then freed except for `kept` of them.
fn wide(device: &Device, count: usize, bytes: usize, kept: usize) -> Result<(Graph, Vec<MemAllocNode<u8>>)> {
    let mut graph = device.graph()?;
    let mut nodes = Vec::new();
    let mut last = Vec::new();
    for _ in 0..count {
        let x = graph.add_alloc::<u8>(&last, bytes)?;
        let alloc = graph.node_of(x).unwrap();
        last = vec![graph.add_memset(&[alloc], x.write(), 1)?];
        nodes.push(x);
    }
    for x in &nodes[kept..] {
        last = vec![graph.add_free(&last, *x)?];
    }
    nodes.truncate(kept);
    Ok((graph, nodes))
}

fn instances(graphs: &[(Graph, Vec<MemAllocNode<u8>>)]) -> Vec<GraphExec> {
    graphs.iter().map(|(graph, _)| graph.instantiate(Instantiate::default()).unwrap()).collect()
}

#[test]
fn graphs_launched_in_one_stream_share_their_memory() {
    each(|on| {
        let device = &on.device;
        let stream = device.stream()?;
        let graphs: Vec<_> = (0..8).map(|_| wide(device, 32, 4 * MIB as usize, 0).unwrap()).collect();
        let execs = instances(&graphs);
        assert_eq!(device.graph_memory().reserved_bytes, 0, "no memory before the first launch");
        for _ in 0..2 {
            for exec in &execs {
                let _ = exec.launch(&stream)?;
            }
        }
        assert_eq!(device.graph_memory().reserved_high_bytes, 128 * MIB);
        stream.synchronize()?;
        device.trim_graph_memory()?;
        assert_eq!((device.graph_memory().reserved_bytes, device.graph_memory().used_bytes), (0, 0));
        assert_eq!(device.graph_memory().reserved_high_bytes, 128 * MIB);
        device.reset_graph_memory_high();
        assert_eq!(device.graph_memory().reserved_high_bytes, 0);
        // A trimmed graph is bound again.
        let _ = execs[3].launch(&stream)?;
        assert_eq!(device.graph_memory().reserved_bytes, 128 * MIB);
        Ok(())
    });
}

/// Returns the most bytes that a program of graphs reserves.
fn footprint(on: &Subject, run: impl FnOnce(&Device) -> Result<()>) -> u64 {
    let device = on.another().device;
    run(&device).expect("a right program");
    device.graph_memory().reserved_high_bytes
}

fn launched_in_turn(device: &Device, graphs: &[(Graph, Vec<MemAllocNode<u8>>)]) -> Result<()> {
    let stream = device.stream()?;
    instances(graphs).iter().try_for_each(|exec| exec.launch(&stream).map(|_| ()))
}

/// The table of footprints: what CUDA reserves (measured on an H200), and the most that we reserve.
#[test]
fn footprints_are_those_of_the_table() {
    each(|on| {
        let of_eight = |kept| {
            footprint(on, |device| {
                let graphs: Vec<_> = (0..8).map(|_| wide(device, 32, 4 * MIB as usize, kept).unwrap()).collect();
                launched_in_turn(device, &graphs)
            })
        };
        let rows = [
            ("8 graphs of 32 x 4 MiB, all live, in one stream", "128 MiB", of_eight(0), 130 * MIB),
            (
                "64 live allocations of 100000 B",
                "32 MiB",
                footprint(on, |device| launched_in_turn(device, &[wide(device, 64, 100_000, 0)?])),
                8 * MIB,
            ),
            (
                "chain of 100 kernels of 4 MiB, neighbours overlapping",
                "32 MiB",
                footprint(on, |device| launched_in_turn(device, &[(overlapping(device, 100)?, Vec::new())])),
                12 * MIB,
            ),
            ("8 graphs, each leaving 4 MiB unfreed", "one per orphan", of_eight(1), (128 + 8 * 4 + 2) * MIB),
        ];
        println!("{:<56} {:>16} {:>12} {:>12}", "program", "CUDA", "reserved", "at most");
        for (program, cuda, reserved, most) in rows {
            println!("{program:<56} {cuda:>16} {:>8} MiB {:>8} MiB", reserved / MIB, most / MIB);
            assert!(reserved <= most, "{program}: {reserved} B");
        }
        Ok(())
    });
}

/// Makes a chain of kernels with an allocation each, which is still live in the next kernel.
fn overlapping(device: &Device, count: usize) -> Result<Graph> {
    let mut graph = device.graph()?;
    let mut former: Option<(MemAllocNode<u8>, millpond::graph::GraphNode)> = None;
    for _ in 0..count {
        let after: Vec<_> = former.iter().map(|(_, node)| *node).collect();
        let x = graph.add_alloc::<u8>(&after, 4 * MIB as usize)?;
        let mut node = graph.add_memset(&[graph.node_of(x).unwrap()], x.write(), 1)?;
        if let Some((before, _)) = former {
            node = graph.add_free(&[node], before)?;
        }
        former = Some((x, node));
    }
    if let Some((last, node)) = former {
        graph.add_free(&[node], last)?;
    }
    Ok(graph)
}

#[test]
fn unfreed_outputs_keep_their_memory_and_their_bytes() {
    each(|on| {
        let device = &on.device;
        let stream = device.stream()?;
        let graphs: Vec<_> = (0..8).map(|_| wide(device, 32, 4 * MIB as usize, 1).unwrap()).collect();
        let execs = instances(&graphs);
        let mut outputs = Vec::new();
        for (round, (exec, (_, nodes))) in execs.iter().zip(&graphs).enumerate() {
            let output = exec.launch(&stream)?.take(nodes[0])?;
            stream.memset(output.write(), round as u8)?;
            outputs.push(output);
        }
        let reserved = device.graph_memory().reserved_high_bytes;
        assert!(reserved <= (128 + 8 * 4 + 2) * MIB, "{reserved}");
        stream.synchronize()?;
        device.trim_graph_memory()?;
        assert_eq!(device.graph_memory().reserved_bytes, 32 * MIB, "trim takes all but what is unfreed");
        for (round, output) in outputs.into_iter().enumerate() {
            assert!(stream.copy_to_host(output.read())?.iter().all(|byte| *byte == round as u8));
            stream.free(output)?;
        }
        Ok(())
    });
}

#[test]
fn launches_that_may_run_at_once_share_nothing() {
    each(|on| {
        let device = &on.device;
        let (left, right) = (device.stream()?, device.stream()?);
        let busy = on.hold(&left, ());
        let graphs: Vec<_> = (0..2).map(|_| wide(device, 4, 4 * MIB as usize, 0).unwrap()).collect();
        let execs = instances(&graphs);
        let _ = execs[0].launch(&left)?;
        let _ = execs[1].launch(&right)?;
        assert_eq!(device.graph_memory().reserved_bytes, 32 * MIB);
        drop(busy);
        device.synchronize()
    });
}

#[test]
fn an_upload_binds_ahead() {
    each(|on| {
        let device = &on.device;
        let stream = device.stream()?;
        let (graph, _) = wide(device, 4, 4 * MIB as usize, 0)?;
        let exec = graph.instantiate(Instantiate::default())?;
        exec.upload(&stream)?;
        assert_eq!(device.graph_memory().reserved_bytes, 16 * MIB);
        let before = device.driver_calls();
        let _ = exec.launch(&stream)?;
        assert_eq!(device.driver_calls()[CallKind::Map], before[CallKind::Map]);
        Ok(())
    });
}

/// A graph of the same shape as a dropped one gets its addresses, with the memory still mapped there, until that is
/// trimmed.
#[test]
fn a_graph_like_one_before_it_has_no_mapping_to_do() {
    each(|on| {
        let device = &on.device;
        let stream = device.stream()?;
        let used = || (device.graph_memory().used_bytes, device.graph_memory().reserved_bytes);
        let run = |count| {
            let before = device.driver_calls();
            let (graph, _) = wide(device, count, 4 * MIB as usize, 0)?;
            let exec = graph.instantiate(Instantiate::default())?;
            assert_eq!(used().0, 0, "nothing is used before the first launch");
            let _ = exec.launch(&stream)?;
            assert_eq!(used().0, 4 * count as u64 * MIB);
            stream.synchronize()?;
            Result::<_>::Ok((device.driver_calls() - before).memory())
        };
        assert!(run(4)? > 0);
        for count in [4, 3, 1, 4] {
            assert_eq!(used(), (0, 16 * MIB));
            assert_eq!(run(count)?, 0, "calls about memory");
        }
        device.trim_graph_memory()?;
        assert_eq!(used(), (0, 0));
        let calls = device.driver_calls();
        assert_eq!(calls[CallKind::Reserve] - calls[CallKind::Unreserve], 1, "the default pool's addresses are left");
        assert!(run(5)? > 0);
        Ok(())
    });
}

/// Many graphs at once leave no more addresses behind than can be used again.
#[test]
fn few_addresses_are_kept() {
    each(|on| {
        let device = &on.device;
        let held = || device.driver_calls()[CallKind::Reserve] - device.driver_calls()[CallKind::Unreserve];
        let before = held();
        let graphs: Vec<_> = (0..100).map(|_| wide(device, 1, 4096, 0).unwrap()).collect();
        assert_eq!(held() - before, 100);
        drop(graphs);
        assert!(held() - before <= 16, "{}", held() - before);
        let again: Vec<_> = (0..20).map(|_| wide(device, 1, 4096, 1).unwrap()).collect();
        let starts: BTreeSet<u64> = again.iter().map(|(_, nodes)| nodes[0].address()).collect();
        assert_eq!((held() - before, starts.len()), (20, 20), "those that are there have addresses of their own");
        Ok(())
    });
}

/// A clone's nodes are found by the nodes of its original, and of that one's original, that existed when it was cloned.
#[test]
fn a_clone_finds_what_was_copied_and_no_more() {
    each(|on| {
        let mut graph = on.device.graph()?;
        let first = graph.add_empty(&[])?;
        let mut clone = graph.try_clone()?;
        let later = graph.add_empty(&[])?;
        let own = clone.add_empty(&[])?;
        let again = clone.try_clone()?;
        assert_eq!(clone.find(first), Some(clone.nodes()[0]));
        assert_eq!((clone.find(later), clone.find(own)), (None, None));
        assert_eq!((again.find(first), again.find(own)), (Some(again.nodes()[0]), Some(again.nodes()[1])));
        assert_eq!((again.find(later), graph.find(own)), (None, None));
        // A node of another graph of the same size.
        let mut stranger = on.device.graph()?;
        assert_eq!(clone.find(stranger.add_empty(&[])?), None);
        clone.remove_node(clone.nodes()[0])?;
        assert_eq!(clone.find(first), None);
        Ok(())
    });
}

/// A graph and its child graph are live at once: their pages are different, even if they shared pages before.
#[test]
fn a_child_graph_has_pages_of_its_own() {
    each(|on| {
        let device = &on.device;
        let stream = device.stream()?;
        let len = MIB as usize;
        let pool = device.default_pool();
        let (first, second) = (stream.alloc::<u32>(&pool, len)?, stream.alloc::<u32>(&pool, len)?);
        let child = || -> Result<(Graph, MemAllocNode<u32>)> {
            let mut child = device.graph()?;
            let x = child.add_alloc::<u32>(&[], len)?;
            child.add_memset(&[child.node_of(x).unwrap()], x.write(), 1)?;
            Ok((child, x))
        };
        let ((child, x), (alone, left)) = (child()?, child()?);
        let mut parent = device.graph()?;
        let y = parent.add_alloc::<u32>(&[], len)?;
        let fill = parent.add_memset(&[parent.node_of(y).unwrap()], y.write(), 2)?;
        let node = parent.add_child(&[fill], &child)?;
        let copies =
            [parent.add_copy(&[node], x.read(), first.write())?, parent.add_copy(&[node], y.read(), second.write())?];
        parent.add_free(&copies[..1], x)?;
        parent.add_free(&copies[1..], y)?;
        let parent = parent.instantiate(Instantiate::default())?;
        let alone = alone.instantiate(Instantiate::default())?;
        for round in 0..4 {
            if round != 1 {
                let _ = alone.launch(&stream)?;
                stream.free_address(left.address())?;
            }
            let _ = parent.launch(&stream)?;
            expect(&stream, first.read(), 1);
            expect(&stream, second.read(), 2);
        }
        assert_eq!(device.graph_memory().reserved_high_bytes, 8 * MIB);
        Ok(())
    });
}

/// A launch is not refused for lack of memory that nothing uses any more: of a dropped pool, of a dropped graph, in the
/// streams' caches of another pool.
#[test]
fn a_launch_gets_what_is_idle() -> Result<()> {
    const HELD: usize = 60 * MIB as usize;
    let device = Device::host(HostConfig::default().total_bytes(64 * MIB))?;
    let stream = device.stream()?;
    let captured = |bytes: usize| -> Result<GraphExec> {
        let pool = device.default_pool();
        let (graph, ()) =
            stream.capture(|stream| stream.launch(stream.alloc::<u8>(&pool, bytes)?.write(), |x| x[0] = 1))?;
        graph.instantiate(Instantiate::default())
    };
    let exec = captured(32 * MIB as usize)?;
    // Learns of the end of the work without a synchronisation, which would give memory back.
    let over = |buffer: millpond::Buffer<u8>| -> Result<()> {
        stream.launch(buffer.write(), |x| x.fill(1))?;
        stream.free(buffer)?;
        let event = stream.record()?;
        while !event.is_over()? {
            std::thread::yield_now();
        }
        Ok(())
    };
    let gone = device.pool(PoolConfig::default())?;
    let buffer = stream.alloc::<u8>(&gone, HELD)?;
    drop(gone);
    over(buffer)?;
    let _ = exec.launch(&stream)?;
    stream.synchronize()?;
    device.trim_graph_memory()?;

    let kept = device.pool(PoolConfig::default())?;
    over(stream.alloc::<u8>(&kept, HELD)?)?;
    exec.upload(&stream)?;
    let _ = exec.launch(&stream)?;
    stream.synchronize()?;
    device.trim_graph_memory()?;

    let _ = captured(HELD)?.launch(&stream)?;
    stream.synchronize()?;
    let _ = exec.launch(&stream)?;
    stream.synchronize()
}
