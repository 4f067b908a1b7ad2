//! Wrong graphs are refused when they are built or launched: the messages, case by case. Each message names both sides
//! with their places, and the missing order between them.

use millpond::check::Kind;
use millpond::graph::{CaptureMode, GraphNode, Instantiate, MemAllocNode};
use millpond::{Buffer, Device, Result, Stream};

use super::made::{each, is_of_graph, kind};
use crate::common::{Subject, visit};

fn device(on: &Subject) -> (&Device, Stream, Stream) {
    let [a, b] = on.streams();
    (&on.device, a, b)
}

/// Asserts that the message contains each of the parts, in this order.
#[track_caller]
fn assert_says(error: &dyn std::fmt::Debug, parts: &[&str]) {
    let text = format!("{error:?}");
    let mut rest = text.as_str();
    for part in parts {
        let at = rest.find(part).unwrap_or_else(|| panic!("`{part}` is not (or not there) in:\n{text}"));
        rest = &rest[at + part.len()..];
    }
}

/// Makes a graph with one named allocation, its alloc node, and a named fill that writes it, with no edge between them.
fn pair(device: &Device) -> Result<(millpond::graph::Graph, MemAllocNode<u32>, GraphNode, GraphNode)> {
    let mut graph = device.graph()?;
    let x = graph.add_alloc::<u32>(&[], 16)?;
    let alloc = graph.node_of(x).unwrap();
    let fill = graph.add_memset(&[], x.write(), 0)?;
    graph.set_name(alloc, "activations")?;
    graph.set_name(fill, "zero")?;
    Ok((graph, x, alloc, fill))
}

#[test]
fn a_use_without_a_path_from_the_alloc_node() {
    each(|on| {
        let (device, a, b) = device(on);
        let (graph, ..) = pair(device)?;
        let refused = graph.instantiate(Instantiate::default()).unwrap_err();
        assert_eq!(kind(&refused), Kind::UseBeforeAlloc);
        let parts = [
            "`activations` (graph allocation 0, 64 B) is written by memset `zero` with no path from its alloc node",
            "allocated  mem alloc `activations`",
            "wrong_graphs.rs:",
            "written    memset `zero`",
            "wrong_graphs.rs:",
            "help: add an edge from mem alloc `activations` to memset `zero`",
        ];
        assert_says(&refused, &parts);
        // In a capture, at its line.
        a.begin_capture_in(CaptureMode::Relaxed)?;
        b.wait(&a.record()?)?;
        let x = a.alloc::<u32>(&device.default_pool(), 16)?;
        x.set_name("x");
        let refused = visit(&b, x.read()).unwrap_err();
        assert_eq!(kind(&refused), Kind::UseBeforeAlloc);
        assert_says(&refused, &["`x`", "is read by kernel node 1 (", "before it captures kernel node 1 ("]);
        // In a child graph, by the path to it.
        let mut parent = device.graph()?;
        parent.add_child(&[], &graph)?;
        assert_says(
            &parent.instantiate(Instantiate::default()).unwrap_err(),
            &["add an edge from mem alloc `activations` (node 0.0) to memset `zero` (node 0.1)"],
        );
        Ok(())
    });
}

#[test]
fn a_free_without_a_path_from_every_use() {
    each(|on| {
        let (device, a, b) = device(on);
        let (mut graph, x, alloc, fill) = pair(device)?;
        graph.add_edge(alloc, fill)?;
        graph.add_free(&[alloc], x)?;
        let refused = graph.instantiate(Instantiate::default()).unwrap_err();
        assert_eq!(kind(&refused), Kind::FreeBeforeUse);
        let parts = [
            "`activations`",
            "is freed by mem free node 2 (",
            "with no path from memset `zero`, which writes it, to that",
            "written    memset `zero`",
            "freed      mem free node 2",
            "help: add an edge from memset `zero` to mem free node 2 (",
        ];
        assert_says(&refused, &parts);
        a.begin_capture()?;
        let y = a.alloc::<u32>(&device.default_pool(), 16)?;
        b.wait(&a.record()?)?;
        visit(&a, y.read())?;
        let refused = b.free(y).unwrap_err();
        assert_eq!(kind(&refused.error), Kind::FreeBeforeUse);
        assert_says(
            &refused,
            &["with no path from kernel node 1 (", "), which reads it", "before it captures mem free node 2 ("],
        );
        Ok(())
    });
}

/// Every missing edge is listed, not only the first.
#[test]
fn every_missing_edge_is_a_fault() {
    each(|on| {
        let (device, a, _) = device(on);
        let (mut graph, x, alloc, fill) = pair(device)?;
        graph.remove_node(fill)?;
        let sinks: Vec<_> = (0..3).map(|_| a.alloc::<u32>(&device.default_pool(), 16).unwrap()).collect();
        let mut read = |sink: &Buffer<u32>| graph.add_copy(&[alloc], x.read(), sink.write());
        let reads: Vec<_> = sinks.iter().map(|sink| read(sink).unwrap()).collect();
        let free = graph.add_free(&[alloc], x)?;
        for missing in (1..=3).rev() {
            let refused = graph.instantiate(Instantiate::default()).unwrap_err();
            assert!(is_of_graph(&refused) && refused.violation().unwrap().also.len() < missing);
            assert_says(&refused, &["help: add an edge from copy node", "to mem free node 5 ("]);
            graph.add_edge(reads[missing - 1], free)?;
        }
        graph.instantiate(Instantiate::default()).map(|_| ())
    });
}

#[test]
fn two_frees() {
    each(|on| {
        let (device, a, _) = device(on);
        let (mut graph, x, alloc, fill) = pair(device)?;
        graph.add_edge(alloc, fill)?;
        graph.add_free(&[fill], x)?;
        let refused = graph.add_free(&[fill], x).unwrap_err();
        let parts = ["`activations` (graph allocation 0) is freed already, by mem free node 2 at ", "wrong_graphs.rs:"];
        assert_says(&refused, &parts);
        assert_says(
            &device.graph()?.add_free(&[], x).unwrap_err(),
            &["graph 0 has a free node for its graph allocation 0 already"],
        );
        // One node in the graph and one in its child: the fault is found when the two are combined.
        let mut parent = device.graph()?;
        let child = parent.add_child(&[], &graph)?;
        parent.add_free(&[child], x)?;
        let refused = parent.instantiate(Instantiate::default()).unwrap_err();
        assert_eq!(kind(&refused), Kind::DoubleFree);
        assert_says(&refused, &["but it is freed already", "mem free node 0.2", "mem free node 1", "help: remove "]);
        a.begin_capture()?;
        let address = a.alloc::<u32>(&device.default_pool(), 16)?.into_address();
        a.free_address(address)?;
        let refused = a.free_address(address).unwrap_err();
        assert_eq!(kind(&refused), Kind::DoubleFree);
        assert_says(
            &refused,
            &["is freed by mem free node 2 (", "but it is freed already", "mem free node 1", "help: remove"],
        );
        Ok(())
    });
}

#[test]
fn foreign_pointers() {
    each(|on| {
        let (device, a, _) = device(on);
        let on_the_host = 0u64;
        a.begin_capture()?;
        for address in [0x7000, (&raw const on_the_host) as u64] {
            let refused = a.free_address(address).unwrap_err();
            assert_says(&refused, &[&format!("{address:#x} is not the start of a live allocation")]);
        }
        a.end_capture()?;
        let plain = a.alloc::<u32>(&device.default_pool(), 16)?;
        let refused = device.graph()?.add_free(&[], plain.into_alloc_node()).unwrap_err();
        assert_says(&refused, &["a free node frees memory of an alloc node; this is none"]);
        Ok(())
    });
}

#[test]
fn a_side_stream_that_is_not_joined() {
    each(|on| {
        let (_device, a, b) = device(on);
        a.begin_capture()?;
        b.wait(&a.record()?)?;
        visit(&b, ())?;
        let parts = [
            "stream 2 was not joined: its last node is kernel node 0 at ",
            "wrong_graphs.rs:",
            "make stream 1 wait for an event recorded on stream 2 after its last operation",
        ];
        assert_says(&a.end_capture().unwrap_err(), &parts);
        Ok(())
    });
}

#[test]
fn an_event_from_outside() {
    each(|on| {
        let (_device, a, b) = device(on);
        a.begin_capture()?;
        let parts = ["stream 1 is being captured and waits for an event from outside", "wait with the external flag"];
        assert_says(&a.wait(&b.record()?).unwrap_err(), &parts);
        assert_says(&a.end_capture().unwrap_err(), &["its end makes no graph", "help: begin another capture"]);
        Ok(())
    });
}

#[test]
fn a_synchronise_or_an_immediate_free_while_capturing() {
    each(|on| {
        let (device, a, _) = device(on);
        a.begin_capture()?;
        assert_says(
            &a.synchronize().unwrap_err(),
            &[
                "synchronize while stream 1 is captured: that makes the capture invalid",
                "wrong_graphs.rs:",
                "help: do it",
            ],
        );
        let _ = a.end_capture();
        a.begin_capture()?;
        let x = a.alloc::<u32>(&device.default_pool(), 16)?;
        assert_says(&device.free(x).unwrap_err(), &["free while stream 1 is captured: that makes the capture invalid"]);
        let _ = a.end_capture();
        Ok(())
    });
}

#[test]
fn a_free_of_uncaptured_memory_inside_a_capture() {
    each(|on| {
        let (device, a, _) = device(on);
        let plain = a.alloc::<u32>(&device.default_pool(), 16)?;
        plain.set_name("weights");
        a.begin_capture()?;
        let refused = a.free(plain).unwrap_err();
        let parts = [
            "`weights`",
            "64 B",
            "wrong_graphs.rs:",
            "is freed in a capture, but it is not memory of a graph",
            "help: free it outside of the capture",
        ];
        assert_says(&refused, &parts);
        a.end_capture().map(|_| ())
    });
}

#[test]
fn an_auto_free_relaunch_while_a_consumer_is_not_ordered_before_it() {
    each(|on| {
        let (device, a, b) = device(on);
        let (mut graph, x, alloc, fill) = pair(device)?;
        graph.add_edge(alloc, fill)?;
        let exec = graph.instantiate(Instantiate::default().auto_free_on_launch(true))?;
        let _ = exec.launch(&a)?;
        b.wait(&a.record()?)?;
        visit(&b, x.read())?;
        let parts = [
            "`activations`",
            "is freed on stream 1, but nothing makes that free wait for the read on stream 2",
            "read       stream 2, op 2",
            "wrong_graphs.rs:",
            "freed      stream 1, op",
            "(auto free on launch)",
            "help: make stream 1 wait for an event recorded on stream 2 at or after op 2",
        ];
        assert_says(&exec.launch(&a).unwrap_err(), &parts);
        Ok(())
    });
}

/// The node that uses it is named, no matter if another allocation has its place by now.
#[test]
fn a_kernel_captured_with_memory_that_was_freed_since() {
    each(|on| {
        let (device, a, _) = device(on);
        let x = a.alloc::<u32>(&device.default_pool(), 16)?;
        x.set_name("weights");
        let (graph, ()) = a.capture(|s| visit(s, x.read()))?;
        let exec = graph.instantiate(Instantiate::default())?;
        a.free(x)?;
        let parts = [
            "`weights`",
            "is read on stream 1, but it is freed already",
            "freed      stream 1",
            "read       stream 1",
            "kernel node 0 (",
            "wrong_graphs.rs:",
        ];
        assert_says(&exec.launch(&a).unwrap_err(), &parts);
        let _again = a.alloc::<u32>(&device.default_pool(), 16)?;
        let parts = [
            "allocation 0 is read on stream 1, by a name from before it was freed and allocated anew",
            "freed      stream 1",
            "read       stream 1",
            "kernel node 0 (",
            "allocated anew: stream 1",
        ];
        assert_says(&exec.launch(&a).unwrap_err(), &parts);
        Ok(())
    });
}

/// A node is added for memory that was freed. The message has the next allocation in that place, and the free if it was
/// the last one.
#[test]
fn a_node_for_memory_that_was_freed_before() {
    each(|on| {
        let (device, a, _) = device(on);
        let mut graph = device.graph()?;
        let x = a.alloc::<u32>(&device.default_pool(), 16)?;
        let view = x.view();
        a.free(x)?;
        let refused = graph.add_memset(&[], view.write(), 1).unwrap_err();
        assert_says(&refused, &["is written by a node of graph", "freed      stream 1, op 2", "help"]);
        let again = a.alloc::<u32>(&device.default_pool(), 16)?;
        let refused = graph.add_memset(&[], view.write(), 1).unwrap_err();
        let parts = ["freed and allocated anew", "freed      stream 1, op 2", "allocated anew: stream 1, op 3", "help"];
        assert_says(&refused, &parts);
        a.free(again)?;
        let _last = a.alloc::<u32>(&device.default_pool(), 16)?;
        let refused = graph.add_memset(&[], view.write(), 1).unwrap_err();
        assert_says(&refused, &["freed and allocated anew", "allocated anew: stream 1, op 5", "help"]);
        Ok(())
    });
}

/// A graph's use of outside memory that is not ordered after a stream: the node is named, too.
#[test]
fn a_node_that_is_not_ordered_after_a_stream() {
    each(|on| {
        let (device, a, b) = device(on);
        let x = a.alloc::<u32>(&device.default_pool(), 16)?;
        let mut graph = device.graph()?;
        graph.add_empty(&[])?;
        let fill = graph.add_memset(&[], x.write(), 0)?;
        graph.set_name(fill, "zero")?;
        let exec = graph.instantiate(Instantiate::default())?;
        let parts =
            ["is written on stream 2", "memset `zero` (", "help: make stream 2 wait for an event recorded on stream 1"];
        assert_says(&exec.launch(&b).unwrap_err(), &parts);
        Ok(())
    });
}

/// A use by an earlier launch that is not ordered with a stream: its node is named, as long as the instance has it.
#[test]
fn a_node_of_an_earlier_launch() {
    each(|on| {
        let (device, a, b) = device(on);
        let x = a.alloc::<u32>(&device.default_pool(), 16)?;
        b.wait(&a.record()?)?;
        let mut child = device.graph()?;
        let fill = child.add_memset(&[], x.write(), 0)?;
        child.set_name(fill, "zero")?;
        let mut graph = device.graph()?;
        graph.add_empty(&[])?;
        graph.add_child(&[], &child)?;
        let left = graph.add_alloc::<u32>(&[], 16)?;
        let exec = graph.instantiate(Instantiate::default())?;

        let y = exec.launch(&a)?.take(left)?;
        let zero = "memset `zero` (node 1.0) (";
        assert_says(
            &b.memset(x.write(), 0).unwrap_err(),
            &["written    stream 1, op 3: ", zero, "written    stream 2"],
        );
        assert_says(&b.memset(y.write(), 0).unwrap_err(), &["allocated  stream 1, op 3: mem alloc node 2 ("]);
        a.free(y)?;

        exec.update(&graph)?;
        let unknown = format!("{:?}", b.memset(x.write(), 0).unwrap_err());
        assert!(unknown.contains("written    stream 1, op 3 ") && !unknown.contains(zero), "{unknown}");
        Ok(())
    });
}

/// The same for a free of a launch.
#[test]
fn a_free_node_of_an_earlier_launch() {
    each(|on| {
        let (device, a, _) = device(on);
        let (mut makes, mut frees) = (device.graph()?, device.graph()?);
        let left = makes.add_alloc::<u32>(&[], 16)?;
        frees.add_empty(&[])?;
        frees.add_free(&[], left)?;
        let (makes, frees) = (makes.instantiate(Instantiate::default())?, frees.instantiate(Instantiate::default())?);
        let y = makes.launch(&a)?.take(left)?;
        let _ = frees.launch(&a)?;
        assert_says(&a.memset(y.write(), 0).unwrap_err(), &["freed      stream 1, op 2: mem free node 1 ("]);
        Ok(())
    });
}

/// The same for an auto-free of a launch.
#[test]
fn an_auto_free_of_an_earlier_launch() {
    each(|on| {
        let (device, a, _) = device(on);
        let mut graph = device.graph()?;
        let left = graph.add_alloc::<u32>(&[], 16)?;
        let exec = graph.instantiate(Instantiate::new().auto_free_on_launch(true))?;
        let y = exec.launch(&a)?.take(left)?;
        let _ = exec.launch(&a)?;
        assert_says(&a.memset(y.write(), 0).unwrap_err(), &["freed      stream 1, op 2: auto free on launch"]);
        Ok(())
    });
}

#[test]
fn a_relaunch_with_unfreed_memory() {
    each(|on| {
        let (device, a, _) = device(on);
        let (mut graph, _, alloc, fill) = pair(device)?;
        graph.add_edge(alloc, fill)?;
        let exec = graph.instantiate(Instantiate::default())?;
        let _ = exec.launch(&a)?;
        let parts = [
            "and `activations` (allocation ",
            "of its last launch is not freed",
            "allocated  stream 1, op 1",
            "launched   stream 1, op 2",
            "free it, or instantiate with auto free on launch",
        ];
        assert_says(&exec.launch(&a).unwrap_err(), &parts);
        Ok(())
    });
}

#[test]
fn two_unordered_nodes_of_which_one_writes() {
    each(|on| {
        let (device, ..) = device(on);
        let (mut graph, x, alloc, fill) = pair(device)?;
        graph.add_edge(alloc, fill)?;
        graph.add_memset(&[alloc], x.write(), 0)?;
        let refused = graph.instantiate(Instantiate::default()).unwrap_err();
        assert_eq!(kind(&refused), Kind::Race);
        assert_says(
            &refused,
            &[
                "with no path between them",
                "help: add an edge between memset `zero` and memset node 2 (",
                "), either way",
            ],
        );
        Ok(())
    });
}
