//! Says that a graph has free nodes, for as long as it or an instance of it lives. Knows the graph's number only.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millpond_core::ids::GraphId;

use crate::trace::tracer::Tracer;

/// See the module.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) graph: GraphId,
    tracer: Option<Arc<Tracer>>,
    /// Whether the graph is there, and not being captured.
    is_there: AtomicBool,
    /// What it adds to, where a capture goes on in a graph.
    _former: Option<Arc<Grant>>,
}

impl Drop for Grant {
    fn drop(&mut self) {
        if let Some(tracer) = &self.tracer {
            tracer.graph_closed(self.graph, *self.is_there.get_mut());
        }
    }
}

impl Grant {
    pub(super) fn new(graph: GraphId, tracer: Option<&Arc<Tracer>>, is_there: bool) -> Arc<Self> {
        Arc::new(Self { graph, tracer: tracer.cloned(), is_there: is_there.into(), _former: None })
    }

    /// Of the same graph, which is captured into: its trace is that of the `former` one.
    pub(super) fn attempt(former: &Arc<Grant>) -> Arc<Self> {
        let (graph, former) = (former.graph, Some(Arc::clone(former)));
        Arc::new(Self { graph, tracer: None, is_there: AtomicBool::new(true), _former: former })
    }

    /// The capture has ended, and the graph is there.
    pub(super) fn is_there(&self) {
        self.is_there.store(true, Ordering::Relaxed);
    }
}
