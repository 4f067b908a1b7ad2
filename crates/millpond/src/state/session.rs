//! A capture in progress, as its streams, its memory and its events know it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use millpond_core::graph::{CaptureId, CapturedEvent, GraphId};

use crate::state::context::Context;
use crate::trace::tracer::Tracer;

/// What ends a capture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ends {
    /// `end_capture`, which hands out the graph.
    ByCall,
    /// The end of the closure that it was begun for: the graph is its caller's.
    WithClosure,
}

/// A capture, as its streams and its memory know it.
#[derive(Debug)]
pub(crate) struct Session {
    /// The graph that comes of it.
    pub(crate) id: GraphId,
    pub(crate) capture: CaptureId,
    pub(crate) context: Arc<Context>,
    pub(crate) ends: Ends,
    pub(crate) is_open: AtomicBool,
    /// How many numbers of nodes and allocations the graph has given out.
    pub(crate) nodes: AtomicU32,
    pub(crate) allocs: AtomicU32,
}

impl Session {
    /// Whether the capture goes on.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// Who writes down what its streams do.
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
