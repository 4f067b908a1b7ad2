//! A capture in progress, as its streams, its memory and its events know it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use millpond_core::graph::{CaptureId, CapturedEvent, GraphId};

/// A capture, as its streams and its memory know it.
#[derive(Debug)]
pub(crate) struct Session<C> {
    /// The graph that comes of it.
    pub(crate) id: GraphId,
    pub(crate) capture: CaptureId,
    pub(crate) context: Arc<C>,
    pub(crate) is_open: AtomicBool,
    /// Whether a trace has it as a capture; else it has nodes.
    pub(crate) is_traced: bool,
    /// How many numbers of nodes and allocations the graph has given out.
    pub(crate) nodes: AtomicU32,
    pub(crate) allocs: AtomicU32,
}

impl<C> Session<C> {
    /// Whether the capture goes on.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }
}

/// An event recorded in a capture.
#[derive(Debug)]
pub(crate) struct CapturedAt<C> {
    pub(crate) session: Arc<Session<C>>,
    pub(crate) event: CapturedEvent,
}
