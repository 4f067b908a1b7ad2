//! A capture in progress, as its streams, its memory and its events see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use millpond_core::graph::{CaptureId, CapturedEvent, GraphId};

use crate::state::context::Context;
use crate::trace::tracer::Tracer;

/// The way in which a capture ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ends {
    /// By `end_capture`, which returns the graph.
    ByCall,
    /// With the closure that it was begun for. The graph is its caller's.
    WithClosure,
}

/// A capture, as its streams and its memory see it.
#[derive(Debug)]
pub(crate) struct Session {
    /// The graph that it makes.
    pub(crate) id: GraphId,
    pub(crate) capture: CaptureId,
    pub(crate) context: Arc<Context>,
    pub(crate) ends: Ends,
    pub(crate) is_open: AtomicBool,
    /// The counts of nodes and allocations to which the graph has given numbers.
    pub(crate) nodes: AtomicU32,
    pub(crate) allocs: AtomicU32,
}

impl Session {
    /// Returns `true` if the capture goes on.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// Returns the tracer of its streams' operations.
    pub(crate) fn tracer(&self) -> Option<&Arc<Tracer>> {
        self.context.tracer.as_ref()
    }
}

/// An event recorded in a capture.
#[derive(Debug)]
pub(crate) struct CapturedAt {
    pub(crate) session: Arc<Session>,
    pub(crate) event: CapturedEvent,
}

impl CapturedAt {
    pub(crate) fn device(&self) -> u32 {
        self.session.context.number
    }
}
