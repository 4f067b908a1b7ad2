//! Graphs by handle.

use std::sync::Arc;

use millpond_driver::locks::Mutex;

use millpond::graph::{Graph, GraphNode};

use super::alloc_nodes::AllocNodes;
use super::device::DeviceEntry;
use super::handle::Table;
use super::ranks;
use crate::status::Result;

/// Not a type to look into: a graph's handle points to it in name only.
pub enum millpond_graph {}
/// A graph (CUDA: cudaGraph_t).
pub type millpond_graph_t = *mut millpond_graph;

/// A graph, its nodes in the order in which the caller got them, and what it and its children allocate.
pub(crate) struct GraphEntry {
    pub(crate) graph: Graph,
    pub(crate) nodes: Vec<GraphNode>,
    pub(crate) alloc_nodes: Arc<AllocNodes>,
    pub(crate) children: Vec<Arc<AllocNodes>>,
    pub(crate) device: Arc<DeviceEntry>,
}

pub(crate) static GRAPHS: Table<Arc<Mutex<ranks::Graph, GraphEntry>>> = Table::new("graph", 5);

/// A handle for a graph.
pub(crate) fn add(graph: Graph, alloc_nodes: Arc<AllocNodes>, device: Arc<DeviceEntry>) -> Result<millpond_graph_t> {
    let nodes = graph.nodes();
    GRAPHS.insert(Arc::new(Mutex::new(GraphEntry { graph, nodes, alloc_nodes, children: Vec::new(), device })))
}
