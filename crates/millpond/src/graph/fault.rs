//! What is wrong with the order of a graph, in the words of its device.

use millpond_core::check::Finding;
use millpond_core::graph::GraphFault;
use millpond_core::op::Names;

use super::body::Body;
use crate::names::graph_error::GraphError;
use crate::names::stream_names::title;

impl GraphError {
    /// What is wrong with the order of a graph's nodes.
    pub(crate) fn faults(body: &Body, faults: &[GraphFault]) -> Self {
        let (graph, names) = (body.core.id(), Names::default());
        let title = |stream| title(body.context.number, stream);
        GraphError::Faults(faults.iter().map(|fault| Finding::of_graph(graph, fault, &names, &title)).collect())
    }
}
