//! Records that a graph has free nodes, as long as the graph or an instance of it exists. Depends on the graph's number
//! only.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millpond_core::ids::GraphId;

use crate::trace::tracer::Tracer;

/// See the module.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) graph: GraphId,
    tracer: Option<Arc<Tracer>>,
    /// `true` if the graph exists, `false` while a capture builds it.
    is_there: AtomicBool,
    /// The grant of the same graph from before a capture into it.
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

    /// Makes the grant of a graph for a capture into it. Its trace is that of `former`.
    pub(super) fn attempt(former: &Arc<Grant>) -> Arc<Self> {
        let (graph, former) = (former.graph, Some(Arc::clone(former)));
        Arc::new(Self { graph, tracer: None, is_there: AtomicBool::new(true), _former: former })
    }

    /// Records that the capture has ended and the graph exists.
    pub(super) fn is_there(&self) {
        self.is_there.store(true, Ordering::Relaxed);
    }
}
