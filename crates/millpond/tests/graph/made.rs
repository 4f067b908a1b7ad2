//! What tests begin with.

use millpond::{Device, Error, Graph, GraphError, GraphNode, HostConfig, MemAllocNode};
use millpond_core::graph::GraphError as Change;

pub(crate) fn device() -> Device {
    Device::host(HostConfig::default()).unwrap()
}

/// The refusal of a change of a graph.
pub(crate) fn change(error: Error) -> Change {
    match error.graph() {
        Some(GraphError::Change(change)) => change.clone(),
        _ => panic!("{error}"),
    }
}

/// A graph with one allocation of 16 elements and its alloc node.
pub(crate) fn with_alloc(device: &Device) -> (Graph, MemAllocNode<u32>, GraphNode) {
    let mut graph = device.graph().unwrap();
    let x = graph.add_alloc::<u32>(&[], 16).unwrap();
    let node = graph.node_of(x).unwrap();
    (graph, x, node)
}
