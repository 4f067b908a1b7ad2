//! The text of faults in a graph's order, in the words of its device.

use millpond_core::check::{Finding, Subject};
use millpond_core::graph::{GraphFault, Words};
use millpond_core::op::Names;

use super::body::Body;
use crate::names::error::Error;
use crate::names::stream_names::title;

impl Body {
    /// Makes the error for faults in the order of the graph's nodes. There is at least one fault.
    #[cold]
    pub(super) fn wrong(&self, faults: &[GraphFault]) -> Error {
        let (graph, names) = (self.core.id(), Names::default());
        let title = |stream| title(self.context.number, stream);
        let finding = |fault: &GraphFault| {
            let (mut fault, subject) = (fault.clone(), self.outside(fault.subject.memory));
            if let Some(Subject { bytes, name, .. }) = &subject {
                (fault.subject.bytes, fault.subject.name) = (Some(*bytes), name.clone());
            }
            let words = Words { names: &names, node: &|path| self.core.site_at(path), stream: &title };
            let mut finding = Finding::of_graph(graph, &fault, words);
            finding.subject = subject;
            finding
        };
        let mut findings = faults.iter().map(finding);
        let mut first = findings.next().expect("a graph is refused for a fault");
        first.also = findings.collect();
        first.into()
    }
}
