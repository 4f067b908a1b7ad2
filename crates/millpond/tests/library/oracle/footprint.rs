//! The physical memory that graphs use and reserve, launch by launch.

use millpond::graph::{GraphExec, Instantiate, MemAllocNode};
use millpond::{Device, Result};

use super::compare;
use super::cuda::{Cuda, WithAlloc};
use super::lives::with_alloc;
use super::rows::Rows;
use super::table::graph_attribute;

/// A multiple of the steps in which both sides take memory.
const BYTES: usize = 64 << 20;
const GRAPHS: usize = 8;

/// Compares the used and reserved bytes of graphs on both sides.
fn compare_figures(rows: &mut Rows<'_>, what: &str, cuda: &Cuda, device: &Device) {
    let theirs = (cuda.graph_figure(graph_attribute::USED), cuda.graph_figure(graph_attribute::RESERVED));
    let ours = device.graph_memory();
    rows.equal(&format!("used and reserved {what}"), theirs, (ours.used_bytes, ours.reserved_bytes));
}

fn trim(rows: &mut Rows<'_>, cuda: &Cuda, device: &Device) {
    rows.agree("a trim", cuda.table.graph_trim(cuda.device), device.trim_graph_memory());
}

/// Makes CUDA's graph of one allocation, with or without its free node, and its instance.
fn theirs(cuda: &Cuda, has_free: bool) -> (WithAlloc, millpond_driver::cuda::abi::graph::GraphExec) {
    let it = cuda.with_alloc(BYTES);
    let touched = cuda.add_touch(it.graph, &[it.node], it.at);
    if has_free {
        let (code, _) = cuda.add_free(it.graph, &[touched], it.at);
        cuda.must("cuGraphAddMemFreeNode", code);
    }
    (it, cuda.exec(it.graph, 0))
}

/// Makes the same graph with Millpond.
fn ours(device: &Device, has_free: bool) -> Result<(MemAllocNode<u8>, GraphExec)> {
    let (mut graph, x, alloc) = with_alloc(device, BYTES)?;
    let filled = graph.add_memset(&[alloc], x.write(), 1)?;
    if has_free {
        graph.add_free(&[filled], x)?;
    }
    Ok((x, graph.instantiate(Instantiate::default())?))
}

#[test]
fn graphs_in_one_stream_share_their_memory() {
    compare(|rows, cuda, device| {
        let (their_stream, stream) = (cuda.stream(), device.stream()?);
        trim(rows, cuda, device);
        compare_figures(rows, "at first", cuda, device);
        let mut graphs = Vec::new();
        for _ in 0..GRAPHS {
            graphs.push((theirs(cuda, true), ours(device, true)?));
        }
        compare_figures(rows, "with eight instances that were not launched", cuda, device);
        for round in 0..2 {
            for (at, ((_, their_exec), (_, exec))) in graphs.iter().enumerate() {
                let launched = exec.launch(&stream).map(drop);
                rows.agree("a launch", cuda.table.launch(*their_exec, their_stream), launched);
                compare_figures(rows, &format!("after launch {at} of round {round}"), cuda, device);
            }
        }
        cuda.finish(their_stream);
        stream.synchronize()?;
        compare_figures(rows, "after a synchronise", cuda, device);
        trim(rows, cuda, device);
        compare_figures(rows, "after a trim, the instances still there", cuda, device);
        for ((it, their_exec), _) in graphs {
            cuda.must("cuGraphExecDestroy", cuda.table.exec_destroy(their_exec));
            cuda.must("cuGraphDestroy", cuda.table.graph_destroy(it.graph));
        }
        Ok(())
    });
}

#[test]
fn unfreed_memory_adds_up_until_it_is_freed_and_trimmed() {
    compare(|rows, cuda, device| {
        let (their_stream, stream) = (cuda.stream(), device.stream()?);
        trim(rows, cuda, device);
        compare_figures(rows, "at first", cuda, device);
        let mut graphs = Vec::new();
        for at in 0..GRAPHS {
            let ((it, their_exec), (x, exec)) = (theirs(cuda, false), ours(device, false)?);
            let launched = exec.launch(&stream).map(drop);
            rows.agree("a launch", cuda.table.launch(their_exec, their_stream), launched);
            compare_figures(rows, &format!("after launch {at}"), cuda, device);
            graphs.push((it, their_exec, x, exec));
        }
        cuda.finish(their_stream);
        stream.synchronize()?;
        trim(rows, cuda, device);
        compare_figures(rows, "after a trim, all still live", cuda, device);
        for (it, _, x, _) in &graphs {
            rows.agree("a free without a stream", cuda.table.free_now(it.at), device.free_address(x.address()));
        }
        compare_figures(rows, "after the frees", cuda, device);
        trim(rows, cuda, device);
        compare_figures(rows, "after a trim", cuda, device);
        for (it, their_exec, _, _) in graphs {
            cuda.must("cuGraphExecDestroy", cuda.table.exec_destroy(their_exec));
            cuda.must("cuGraphDestroy", cuda.table.graph_destroy(it.graph));
        }
        Ok(())
    });
}
