//! Calls that CUDA refuses for graphs with memory nodes: nodes and edges can be removed here. Calls that would use
//! their addresses twice are refused here, too.

use millpond::check::Kind;
use millpond::graph::{CaptureMode, Graph, GraphNode, Instantiate, MemAllocNode};
use millpond::{Device, Result};

use super::made::{each, is_kind};

/// alloc -> memset -> free, and a node beside.
fn whole(device: &Device) -> Result<(Graph, [GraphNode; 4])> {
    let mut graph = device.graph()?;
    let x = graph.add_alloc::<u32>(&[], 16)?;
    let alloc = graph.node_of(x).unwrap();
    let fill = graph.add_memset(&[alloc], x.write(), 1)?;
    let side_work = graph.add_empty(&[alloc])?;
    let free = graph.add_free(&[fill], x)?;
    Ok((graph, [alloc, fill, side_work, free]))
}

fn launch(graph: &Graph, device: &Device) -> Result<()> {
    graph.instantiate(Instantiate::default())?.launch(&device.stream()?).map(|_| ())
}

#[test]
fn nodes_and_edges_can_be_removed_before_instantiation() {
    each(|on| {
        let device = &on.device;
        let (mut graph, [alloc, _, side_work, free]) = whole(device)?;
        graph.remove_edge(alloc, side_work)?;
        graph.remove_node(side_work)?;
        launch(&graph, device)?;
        // Without its free node the memory outlives the graph.
        graph.remove_node(free)?;
        let memory: MemAllocNode<u32> = graph.alloc_node(alloc, 16)?;
        launch(&graph, device)?;
        device.synchronize()?;
        device.free_address(memory.address())
    });
}

/// An instance is a snapshot: nodes that are removed later are still in it.
#[test]
fn removal_does_not_reach_an_instance() {
    each(|on| {
        let device = &on.device;
        let stream = device.stream()?;
        let (mut graph, [_, fill, side_work, free]) = whole(device)?;
        let exec = graph.instantiate(Instantiate::default())?;
        [free, fill, side_work].into_iter().try_for_each(|node| graph.remove_node(node))?;
        for _ in 0..3 {
            let _ = exec.launch(&stream)?;
        }
        assert_eq!(graph.len(), 1);
        Ok(())
    });
}

/// Two allocations share addresses because of an edge. Without it, instantiation names it. With it, the graph is right
/// again.
#[test]
fn an_edge_that_addresses_rely_on_is_missed_by_name() {
    each(|on| {
        let device = &on.device;
        let mut graph = device.graph()?;
        let x = graph.add_alloc::<u32>(&[], 16)?;
        let free = graph.add_free(&[graph.node_of(x).unwrap()], x)?;
        let y = graph.add_alloc::<u32>(&[free], 16)?;
        assert_eq!(x.address(), y.address());
        let second = graph.node_of(y).unwrap();
        graph.add_free(&[second], y)?;
        graph.remove_edge(free, second)?;
        let refused = launch(&graph, device).unwrap_err().report().to_string();
        assert!(refused.contains("has addresses of an earlier allocation"), "{refused}");
        assert!(refused.contains("help: add an edge from mem free node 1 ("), "{refused}");
        assert!(refused.contains(" to mem alloc node 2 ("), "{refused}");
        graph.add_edge(free, second)?;
        launch(&graph, device)
    });
}

/// Asserts that a graph with memory nodes is refused a second place, with these words.
#[track_caller]
fn refused<T>(done: Result<T>, says: &[&str]) {
    let error = done.err().expect("it is refused");
    assert!(is_kind(&error, Kind::GraphRefused), "{error}");
    says.iter()
        .for_each(|part| assert!(error.report().to_string().contains(part), "{part} is not in {}", error.report()));
}

/// Memory left by a dropped instance blocks the next instance, unless that frees by itself.
#[test]
fn what_an_instance_before_left_is_freed_first() {
    each(|on| {
        let device = &on.device;
        let (stream, other) = (device.stream()?, device.stream()?);
        let (mut graph, [alloc, _, _, free]) = whole(device)?;
        graph.remove_node(free)?;
        let memory: MemAllocNode<u32> = graph.alloc_node(alloc, 16)?;
        let left = graph.instantiate(Instantiate::default())?.launch(&stream)?.take(memory)?;
        let exec = graph.instantiate(Instantiate::default())?;
        let unfreed = |error: millpond::Error| assert!(is_kind(&error, Kind::UnfreedLaunch), "{error}");
        unfreed(exec.launch(&stream).unwrap_err());
        drop(exec);
        let frees = Instantiate::default().auto_free_on_launch(true);
        // Launches of the dropped instance come first.
        let again = graph.instantiate(frees)?.launch(&other)?.take(memory)?;
        assert!(stream.free(left).is_err(), "it was freed by that launch");
        // Its alloc node is removed, so no launch frees it.
        graph.nodes().into_iter().rev().try_for_each(|node| graph.remove_node(node))?;
        let next = graph.add_alloc::<u32>(&[], 16)?;
        assert_eq!(next.address(), memory.address());
        let exec = graph.instantiate(frees)?;
        unfreed(exec.launch(&stream).unwrap_err());
        other.free(again)?;
        let left = exec.launch(&stream)?.take(next)?;
        Ok(stream.free(left)?)
    });
}

/// A child graph with memory nodes is moved: it is only in that place, whatever happens to the graph around it.
#[test]
fn a_child_graph_has_one_parent_and_no_instance() {
    each(|on| {
        let device = &on.device;
        let (graph, _) = whole(device)?;
        let (mut parent, mut other) = (device.graph()?, device.graph()?);
        let exec = graph.instantiate(Instantiate::default())?;
        refused(
            parent.add_child(&[], &graph),
            &["graph 0 cannot become a child graph", "it has an instance already ("],
        );
        drop(exec);
        let node = parent.add_child(&[], &graph)?;
        refused(parent.add_child(&[node], &graph), &["it is a child of graph 1 already ("]);
        refused(other.add_child(&[], &graph), &["it is a child of graph 1 already ("]);
        refused(
            graph.instantiate(Instantiate::default()),
            &["it is a child of graph 1 already (", "the graph around it"],
        );
        launch(&parent, device)?;
        launch(&parent, device)?;
        drop(parent);
        refused(graph.instantiate(Instantiate::default()), &["it is a child of graph 1 already ("]);
        Ok(())
    });
}

/// A child graph that was moved neither gets nor loses memory nodes, because no launch would have the change.
#[test]
fn a_child_graph_keeps_the_memory_nodes_that_it_moved_with() {
    each(|on| {
        let device = &on.device;
        let (mut graph, [alloc, fill, side_work, free]) = whole(device)?;
        let ((mut other, _), mut parent) = (whole(device)?, device.graph()?);
        let (own, outer) = (graph.add_alloc::<u32>(&[], 16)?, parent.add_alloc::<u32>(&[], 16)?);
        let left = other.add_alloc::<u32>(&[], 16)?;
        let child = parent.add_child(&[parent.node_of(outer).unwrap()], &graph)?;
        let words =
            &["graph 0 cannot get or lose memory nodes: its mem alloc node 0 (", "it is a child of graph 2 already ("];
        refused(graph.add_free(&[], outer), words);
        refused(graph.add_free(&[], own), words);
        refused(graph.add_free(&[], left), words);
        refused(graph.add_alloc::<u32>(&[], 16), words);
        refused(graph.add_child(&[], &other), words);
        refused(graph.remove_node(free), words);
        // The same for nodes that a capture would add.
        let (stream, pool) = (device.stream()?, device.default_pool());
        let mode = CaptureMode::Global;
        refused(stream.capture_to(&mut graph, &[], mode, |s| s.alloc::<u32>(&pool, 16).map(drop)), words);
        refused(stream.capture_to(&mut graph, &[], mode, |s| s.free_alloc_node(outer)), words);
        // The refusals changed nothing: another graph may free that memory.
        parent.add_free(&[child], outer)?;
        parent.add_free(&[child], own)?;
        other.add_free(&[other.node_of(left).unwrap()], left)?;
        // Other nodes, and edges, can be changed.
        graph.remove_edge(alloc, side_work)?;
        graph.remove_node(side_work)?;
        graph.add_edge(alloc, free)?;
        graph.add_empty(&[fill])?;
        launch(&other, device)?;
        launch(&parent, device)?;
        drop(parent);
        refused(graph.add_alloc::<u32>(&[], 16), words);
        Ok(())
    });
}

/// Graphs without memory nodes, or with symbolic addresses, are not refused any of this.
#[test]
fn other_graphs_are_in_several_places() {
    each(|on| {
        let device = &on.device;
        let mut plain = device.graph()?;
        plain.add_empty(&[])?;
        let mut symbolic = device.symbolic_graph()?;
        let x = symbolic.add_alloc::<u32>(&[], 16)?;
        let fill = symbolic.add_memset(&[symbolic.node_of(x).unwrap()], x.write(), 1)?;
        symbolic.add_free(&[fill], x)?;
        for graph in [plain, symbolic] {
            let exec = graph.instantiate(Instantiate::default())?;
            exec.update(&graph.try_clone()?)?;
            launch(&graph, device)?;
            let mut around = device.graph()?;
            let node = around.add_child(&[], &graph)?;
            around.add_child(&[node], &graph)?;
            launch(&around.try_clone()?, device)?;
            let stream = device.stream()?;
            stream.begin_capture()?;
            exec.launch(&stream)?;
            launch(&stream.end_capture()?, device)?;
        }
        Ok(())
    });
}
