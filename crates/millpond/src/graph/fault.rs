//! What is wrong with the order of a graph, in the words of its device.

use millpond_core::check::{Finding, Subject};
use millpond_core::graph::{GraphFault, Words};
use millpond_core::op::Names;

use super::body::Body;
use crate::names::graph_error::GraphError;
use crate::names::stream_names::title;

impl GraphError {
    /// What is wrong with the order of a graph's nodes.
    pub(crate) fn faults(body: &Body, faults: &[GraphFault]) -> Self {
        let (graph, names) = (body.core.id(), Names::default());
        let title = |stream| title(body.context.number, stream);
        let finding = |fault: &GraphFault| {
            let (mut fault, subject) = (fault.clone(), body.outside(fault.subject.memory));
            if let Some(Subject { bytes, name, .. }) = &subject {
                (fault.subject.bytes, fault.subject.name) = (Some(*bytes), name.clone());
            }
            let words = Words { names: &names, node: &|path| body.core.site_at(path), stream: &title };
            let mut finding = Finding::of_graph(graph, &fault, words);
            finding.subject = subject;
            finding
        };
        GraphError::Faults(faults.iter().map(finding).collect())
    }
}
