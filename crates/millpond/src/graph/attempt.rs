//! Captures into an existing graph (CUDA: `cudaStreamBeginCaptureToGraph`).
//!
//! Depends on captures and graphs. The graph is unchanged unless the whole capture succeeds.

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use millpond_core::graph::{Addressing, CaptureMode};

use super::build::Graph;
use crate::names::error::{Invalid, Result};
use crate::state::named::GraphNode;
use crate::state::session::{Ends, Session};
use crate::stream::handle::Stream;

/// A capture into an existing graph. If it fails, the names of its allocations are retired, so that they name nothing
/// else later.
struct Attempt<'g> {
    session: Arc<Session>,
    graph: &'g mut Graph,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let [nodes, allocs] = [&self.session.nodes, &self.session.allocs].map(|it| it.load(Ordering::Relaxed));
        // If the capture has become the graph, there is nothing to do.
        if nodes as usize > self.graph.body.core.len() {
            Arc::make_mut(&mut self.graph.body).core.retire(nodes as usize, allocs as usize);
        }
    }
}

impl Stream {
    /// Captures into an existing graph. The first nodes come after `dependencies` (CUDA:
    /// `cudaStreamBeginCaptureToGraph`). If anything is refused, the graph is unchanged.
    ///
    /// # Errors
    /// As for [`capture`](Self::capture); a bad dependency; the graph is of another device, or has symbolic addresses.
    #[track_caller]
    pub fn capture_to<R>(
        &self,
        graph: &mut Graph,
        dependencies: &[GraphNode],
        mode: CaptureMode,
        record: impl FnOnce(&Stream) -> Result<R>,
    ) -> Result<R> {
        if graph.body.context.number != self.shared.context.number {
            let what = format!("a graph of {}", graph.body.context.name());
            return Err(Invalid::OtherDevice { what, with: self.shared.titled() }.into());
        }
        if graph.body.core.addressing() == Addressing::Symbolic {
            return Err(Invalid::SymbolicCapture(graph.body.core.id()).into());
        }
        let tails = graph.dependencies(dependencies)?;
        let session = self.begin(graph.body.attempt(), Some(&tails), mode, Ends::WithClosure, Location::caller())?;
        let attempt = Attempt { session, graph };
        let (captured, recorded) = self.record_until_end(&attempt.session, record)?;
        *attempt.graph = captured;
        Ok(recorded)
    }
}
