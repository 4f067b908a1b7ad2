//! Graphs by handle.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millpond_driver::locks::Mutex;

use millpond::graph::{Graph, GraphNode};

use super::device::DeviceEntry;
use super::handle::Table;
use super::ranks;
use crate::status::{Failure, Result};

/// Opaque handle.
pub enum millpond_graph {}
/// A graph (CUDA: cudaGraph_t).
pub type millpond_graph_t = *mut millpond_graph;

/// A node of a graph (CUDA: cudaGraphNode_t): a number that is valid for its graph only. 0 is no node.
pub type millpond_graph_node_t = u64;

/// The number of the process's next node. No number is used twice, so a number of a destroyed graph is not valid for
/// another. They start so high that an index or a count is never taken for one.
static NEXT_NODE: AtomicU64 = AtomicU64::new(1 << 32);

/// A graph, and its nodes by the numbers that the caller has, in ascending order.
pub(crate) struct GraphEntry {
    pub(crate) graph: Graph,
    nodes: Vec<(millpond_graph_node_t, GraphNode)>,
    pub(crate) device: Arc<DeviceEntry>,
}

pub(crate) static GRAPHS: Table<Arc<Mutex<ranks::Graph, GraphEntry>>> = Table::new("graph", 5);

impl GraphEntry {
    /// Returns a number for a new node.
    pub(crate) fn number(&mut self, node: GraphNode) -> millpond_graph_node_t {
        let number = NEXT_NODE.fetch_add(1, Ordering::Relaxed);
        self.nodes.push((number, node));
        number
    }

    /// Returns the node of a number.
    pub(crate) fn node(&self, number: millpond_graph_node_t) -> Result<GraphNode> {
        let found = self.nodes.binary_search_by_key(&number, |(number, _)| *number);
        found.map(|at| self.nodes[at].1).map_err(|_| Failure::Node)
    }
}

/// Makes a handle for a graph.
pub(crate) fn add(graph: Graph, device: Arc<DeviceEntry>) -> Result<millpond_graph_t> {
    GRAPHS.insert(Arc::new(Mutex::new(GraphEntry { graph, nodes: Vec::new(), device })))
}
