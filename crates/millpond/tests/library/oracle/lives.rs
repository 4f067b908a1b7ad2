//! Lifetimes of a graph's memory: when and by whom it may be freed, and when the graph may be launched again.

use millpond::check::Kind;
use millpond::graph::{Graph, GraphNode, Instantiate, MemAllocNode};
use millpond::{Device, Result};
use millpond_driver::cuda::abi::Code;

use super::compare;
use super::pointers::is_violation;

const BYTES: usize = 64 << 10;

/// Makes a graph with one alloc node.
pub(crate) fn with_alloc(device: &Device, bytes: usize) -> Result<(Graph, MemAllocNode<u8>, GraphNode)> {
    let mut graph = device.graph()?;
    let x = graph.add_alloc::<u8>(&[], bytes)?;
    let node = graph.node_of(x).expect("its own");
    Ok((graph, x, node))
}

const PLAIN: Instantiate = Instantiate::new();

#[test]
fn memory_is_live_from_launch_to_free() {
    compare(|rows, cuda, device| {
        let (theirs, stream) = (cuda.stream(), device.stream()?);
        let it = cuda.with_alloc(BYTES);
        let (graph, x, _) = with_alloc(device, BYTES)?;
        let free = |rows: &mut super::rows::Rows<'_>, what: &str| {
            rows.agree(what, cuda.free(it.at, theirs), stream.free_address(x.address()));
        };
        free(rows, "free before it is instantiated");
        let (their_exec, exec) = (cuda.exec(it.graph, 0), graph.instantiate(PLAIN)?);
        free(rows, "free before the first launch");
        for launch in ["the first launch", "the second launch"] {
            let launched = exec.launch(&stream);
            rows.agree(launch, cuda.table.launch(their_exec, theirs), launched.map(drop));
            for _ in 0..2 {
                let again = exec.launch(&stream).map(drop);
                rows.agree("a launch with its memory not freed", cuda.table.launch(their_exec, theirs), again);
            }
            rows.agree("a use", cuda.touch(it.at, theirs), stream.memset(x.write(), 1));
            free(rows, "a free");
            free(rows, "a second free");
        }
        let updated = exec.clone().update(&graph);
        rows.agree("an update from its own graph", cuda.update(their_exec, it.graph), updated);
        let launched = exec.launch(&stream).map(drop);
        rows.agree("the third launch", cuda.table.launch(their_exec, theirs), launched);
        drop((exec, graph));
        rows.silent("the instance goes", cuda.table.exec_destroy(their_exec));
        rows.silent("the graph goes", cuda.table.graph_destroy(it.graph));
        rows.agree("a use of what lives on", cuda.touch(it.at, theirs), stream.memset(x.write(), 1));
        free(rows, "its free");
        free(rows, "a second free of it");
        Ok(())
    });
}

#[test]
fn addresses_are_fixed_and_apart() {
    compare(|rows, cuda, device| {
        let (theirs, stream) = (cuda.stream(), device.stream()?);
        let (it, other) = (cuda.with_alloc(BYTES), cuda.with_alloc(BYTES));
        let ((graph, x, _), (_graph, y, _)) = (with_alloc(device, BYTES)?, with_alloc(device, BYTES)?);
        rows.equal("two graphs have other addresses", it.at != other.at, x.address() != y.address());
        for round in 0..2 {
            let (their_exec, exec) = (cuda.exec(it.graph, 0), graph.instantiate(PLAIN)?);
            let launched = exec.launch(&stream).map(drop);
            rows.agree(&format!("launch of instance {round}"), cuda.table.launch(their_exec, theirs), launched);
            // The address of the node is that of each launch's memory, so it can be freed by that address.
            let freed = stream.free_address(x.address());
            rows.agree("free by the node's address", cuda.free(it.at, theirs), freed);
            cuda.must("cuGraphExecDestroy", cuda.table.exec_destroy(their_exec));
        }
        Ok(())
    });
}

#[test]
fn what_a_graph_frees_itself_is_freed_by_nobody_else() {
    compare(|rows, cuda, device| {
        let (theirs, stream) = (cuda.stream(), device.stream()?);
        let it = cuda.with_alloc(BYTES);
        let (mut graph, x, alloc) = with_alloc(device, BYTES)?;
        let touched = cuda.add_touch(it.graph, &[it.node], it.at);
        let filled = graph.add_memset(&[alloc], x.write(), 1)?;
        let (code, _) = cuda.add_free(it.graph, &[touched], it.at);
        rows.agree("its free node", code, graph.add_free(&[filled], x));
        let (their_exec, exec) = (cuda.exec(it.graph, 0), graph.instantiate(PLAIN)?);
        for _ in 0..2 {
            let launched = exec.launch(&stream).map(drop);
            rows.agree("a launch", cuda.table.launch(their_exec, theirs), launched);
            rows.agree("a free", cuda.free(it.at, theirs), stream.free_address(x.address()));
            cuda.finish(theirs);
            stream.synchronize()?;
            rows.agree("a free without a stream", cuda.table.free_now(it.at), device.free_address(x.address()));
        }
        Ok(())
    });
}

#[test]
fn another_graph_frees_what_is_live() {
    compare(|rows, cuda, device| {
        let (theirs, stream) = (cuda.stream(), device.stream()?);
        let it = cuda.with_alloc(BYTES);
        let (graph, x, _) = with_alloc(device, BYTES)?;
        let (their_freeing, mut freeing) = (cuda.graph(), device.graph()?);
        let (code, _) = cuda.add_free(their_freeing, &[], it.at);
        rows.agree("a free node in another graph", code, freeing.add_free(&[], x));
        let (their_make, make) = (cuda.exec(it.graph, 0), graph.instantiate(PLAIN)?);
        let (their_free, free) = (cuda.exec(their_freeing, 0), freeing.instantiate(PLAIN)?);
        let launched = free.launch(&stream).map(drop);
        rows.agree("it is launched before there is memory", cuda.table.launch(their_free, theirs), launched);
        for _ in 0..2 {
            let made = make.launch(&stream).map(drop);
            rows.agree("the owner's launch", cuda.table.launch(their_make, theirs), made);
            let freed = free.launch(&stream).map(drop);
            rows.agree("the other's launch", cuda.table.launch(their_free, theirs), freed);
            rows.agree("a free after it", cuda.free(it.at, theirs), stream.free_address(x.address()));
            let again = free.launch(&stream).map(drop);
            rows.differ(
                "the other's second launch",
                "both frees are named",
                (cuda.table.launch(their_free, theirs), Code::INVALID_VALUE),
                again,
                |ours| is_violation(ours, Kind::DoubleFree),
            );
        }
        Ok(())
    });
}

#[test]
fn a_launch_that_frees_by_itself() {
    compare(|rows, cuda, device| {
        let (theirs, stream) = (cuda.stream(), device.stream()?);
        let settings = Instantiate::default().auto_free_on_launch(true);
        let it = cuda.with_alloc(BYTES);
        let (graph, x, _) = with_alloc(device, BYTES)?;
        let (their_exec, exec) = (cuda.exec(it.graph, super::cuda::AUTO_FREE), graph.instantiate(settings)?);
        for launch in 0..3 {
            let launched = exec.launch(&stream).map(drop);
            rows.agree(&format!("launch {launch}"), cuda.table.launch(their_exec, theirs), launched);
        }
        drop((exec, graph));
        cuda.must("cuGraphExecDestroy", cuda.table.exec_destroy(their_exec));
        rows.agree("a use of what the last one left", cuda.touch(it.at, theirs), stream.memset(x.write(), 1));
        rows.agree("its free", cuda.free(it.at, theirs), stream.free_address(x.address()));
        rows.agree("a second free", cuda.free(it.at, theirs), stream.free_address(x.address()));

        // If nothing is left unfreed it is allowed, and has no effect.
        let it = cuda.with_alloc(BYTES);
        let (mut graph, x, alloc) = with_alloc(device, BYTES)?;
        let (code, _) = cuda.add_free(it.graph, &[it.node], it.at);
        rows.agree("a free node", code, graph.add_free(&[alloc], x));
        let (code, their_exec) = cuda.instantiate(it.graph, super::cuda::AUTO_FREE);
        if let Some(exec) = rows.agree("an instance of a graph that frees all", code, graph.instantiate(settings)) {
            for _ in 0..2 {
                let launched = exec.launch(&stream).map(drop);
                rows.agree("its launch", cuda.table.launch(their_exec, theirs), launched);
            }
        }
        Ok(())
    });
}

/// Captured memory that was never launched.
#[test]
fn memory_of_a_capture_is_freed_by_nobody_before_its_launch() {
    compare(|rows, cuda, device| {
        let (theirs, stream) = (cuda.stream(), device.stream()?);
        cuda.must("cuStreamBeginCapture", cuda.begin_capture(theirs));
        let mut at = 0;
        let code = cuda.table.alloc_async(&mut at, BYTES, theirs);
        let (ended, _graph) = cuda.end_capture(theirs);
        let captured = stream.capture(|s| Ok(s.alloc::<u8>(&device.default_pool(), BYTES)?.into_alloc_node()));
        rows.holds("CUDA captures an allocation", code == Code::SUCCESS, cuda.table.explain(code));
        if let Some((_graph, x)) = rows.agree("a capture with an allocation", ended, captured) {
            rows.agree("a free before any launch", cuda.free(at, theirs), stream.free_address(x.address()));
        }
        Ok(())
    });
}
