//! What CUDA refuses for graphs with memory nodes and is allowed here; and the same refused, where that is asked for.

use millpond::error::GraphError;
use millpond::graph::{Graph, GraphNode, Instantiate, MemAllocNode};
use millpond::{Device, Error, Result};

use crate::common::Subject;
use crate::made::each;

/// alloc -> memset -> free, and a node beside.
fn whole(device: &Device) -> Result<(Graph, [GraphNode; 4])> {
    let mut graph = device.graph()?;
    let x = graph.add_alloc::<u32>(&[], 16)?;
    let alloc = graph.node_of(x).unwrap();
    let fill = graph.add_memset(&[alloc], x.write(), 1)?;
    let stray = graph.add_empty(&[alloc])?;
    let free = graph.add_free(&[fill], x)?;
    Ok((graph, [alloc, fill, stray, free]))
}

fn launch(graph: &Graph, device: &Device) -> Result<()> {
    graph.instantiate(Instantiate::default())?.launch(&device.stream()?).map(|_| ())
}

#[test]
fn nodes_and_edges_can_be_removed_before_instantiation() {
    each(|on| {
        let device = &on.device;
        let (mut graph, [alloc, _, stray, free]) = whole(device)?;
        graph.remove_edge(alloc, stray)?;
        graph.remove_node(stray)?;
        launch(&graph, device)?;
        // Without its free node the memory outlives the graph.
        graph.remove_node(free)?;
        let memory: MemAllocNode<u32> = graph.alloc_node(alloc, 16)?;
        launch(&graph, device)?;
        device.synchronize()?;
        device.free_address(memory.address())
    });
}

/// An instance is a snapshot: what is removed later is still in it.
#[test]
fn removal_does_not_reach_an_instance() {
    each(|on| {
        let device = &on.device;
        let stream = device.stream()?;
        let (mut graph, [_, fill, stray, free]) = whole(device)?;
        let exec = graph.instantiate(Instantiate::default())?;
        [free, fill, stray].into_iter().try_for_each(|node| graph.remove_node(node))?;
        for _ in 0..3 {
            let _ = exec.launch(&stream)?;
        }
        assert_eq!(graph.len(), 1);
        Ok(())
    });
}

/// Two allocations share addresses along an edge; without it instantiation says so, with it again it is right.
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

#[test]
fn a_graph_has_several_instances_clones_and_parents() {
    each(|on| {
        let device = &on.device;
        let stream = device.stream()?;
        let (graph, _) = whole(device)?;
        let (first, second) = (graph.instantiate(Instantiate::default())?, graph.instantiate(Instantiate::default())?);
        let clone = graph.clone().instantiate(Instantiate::default())?;
        let mut parent = device.graph()?;
        parent.add_child(&[], &graph)?;
        let parent = parent.instantiate(Instantiate::default())?;
        for exec in [&first, &second, &clone, &parent, &first] {
            let _ = exec.launch(&stream)?;
        }
        drop((first, second));
        launch(&graph, device)
    });
}

fn limited(error: Error) -> bool {
    assert!(error.report().to_string().contains("in CUDA"), "{error}");
    matches!(error.graph(), Some(GraphError::CudaLimit { .. }))
}

fn limits(on: &Subject) -> Result<(&Device, Graph, [GraphNode; 4])> {
    let (mut graph, nodes) = whole(&on.device)?;
    graph.set_cuda_limits(true);
    Ok((&on.device, graph, nodes))
}

#[test]
fn with_cudas_limits_a_second_instance_is_refused_while_one_lives() {
    each(|on| {
        let (device, graph, _) = limits(on)?;
        let exec = graph.instantiate(Instantiate::default())?;
        assert!(limited(graph.instantiate(Instantiate::default()).unwrap_err()));
        drop(exec);
        launch(&graph, device)?;
        // So it is for a graph with nothing but a free node.
        let mut owner = device.graph()?;
        let x = owner.add_alloc::<u32>(&[], 16)?;
        let mut freeing = device.graph()?;
        freeing.add_free(&[], x)?;
        freeing.set_cuda_limits(true);
        let _exec = freeing.instantiate(Instantiate::default())?;
        assert!(limited(freeing.instantiate(Instantiate::default()).unwrap_err()));
        Ok(())
    });
}

#[test]
fn with_cudas_limits_an_edge_stays() {
    each(|on| {
        let (device, mut graph, [alloc, _, stray, _]) = limits(on)?;
        assert!(limited(graph.remove_edge(alloc, stray).unwrap_err()));
        launch(&graph, device)
    });
}

#[test]
fn with_cudas_limits_a_node_stays() {
    each(|on| {
        let (device, mut graph, nodes) = limits(on)?;
        nodes.into_iter().for_each(|node| assert!(limited(graph.remove_node(node).unwrap_err())));
        launch(&graph, device)
    });
}

#[test]
fn with_cudas_limits_a_graph_is_no_child() {
    each(|on| {
        let (device, graph, _) = limits(on)?;
        assert!(limited(device.graph()?.add_child(&[], &graph).unwrap_err()));
        launch(&graph, device)
    });
}

/// `Clone` cannot refuse: the copy is refused where it is used.
#[test]
fn with_cudas_limits_a_clone_is_good_for_nothing() {
    each(|on| {
        let (device, graph, _) = limits(on)?;
        let mut clone = graph.clone();
        assert!(limited(clone.instantiate(Instantiate::default()).unwrap_err()));
        launch(&graph, device)?;
        clone.set_cuda_limits(false);
        launch(&clone, device)
    });
}

#[test]
fn with_cudas_limits_nothing_is_limited_without_memory_nodes() {
    each(|on| {
        let device = &on.device;
        let mut plain = device.graph()?;
        let node = plain.add_empty(&[])?;
        let other = plain.add_empty(&[node])?;
        plain.set_cuda_limits(true);
        let _both = (plain.instantiate(Instantiate::default())?, plain.instantiate(Instantiate::default())?);
        device.graph()?.add_child(&[], &plain)?;
        launch(&plain.clone(), device)?;
        plain.remove_edge(node, other)?;
        plain.remove_node(node)
    });
}
