//! The help of a refused operation: a small set of edges that would make it right.
//!
//! A refusal is made under the locks of the operation, and names the newest operation of each stream that has to come
//! first. Here, where none of these locks is held, the device's streams are searched for one that comes after several
//! of these operations: an event recorded on it stands for all of them. A closed stream can record no event any more.
//! Then a stream that comes after it is named instead, or the help says that the event has to be recorded before the
//! stream is destroyed. Decides no verdict.

use millpond_core::check::{Edge, Side, Spot, Way, brought, settled_by};
use millpond_core::order::Knows;

use crate::names::error::Error;
use crate::state::context::Context;
use crate::state::stream::StreamShared;

impl Context {
    /// Reduces the missing edges of a violation to those that are needed.
    #[cold]
    pub(crate) fn shorten_help(&self, error: &mut Error) {
        let Error::Violation(finding) = error else { return };
        // This device does not know the sides of other devices and processes.
        let is_ours = |side: &Side| side.process.is_none() && side.stream.is_some_and(|it| it.device().is_none());
        finding.name_nodes(|side, sought| is_ours(side).then(|| self.graphs.node_of(side, sought))?);
        // Streams of other devices are left out: their numbers mean other streams here.
        let is_ours = |edge: &Edge| edge.point().is_some() && edge.after.stream.is_some_and(|it| it.device().is_none());
        let (mut ours, others): (Vec<Edge>, Vec<Edge>) =
            std::mem::take(&mut finding.missing).into_iter().partition(is_ours);
        let live = self.streams();
        for edge in &mut ours {
            let is_there = live.iter().any(|stream| Some(stream.id) == edge.after.stream);
            edge.destroyed = (!is_there).then(Spot::default);
        }
        let streams = live.iter().filter_map(|stream| stream.way(&ours)).collect();
        finding.missing = settled_by(ours, Vec::new(), streams);
        finding.missing.extend(others);
    }
}

impl StreamShared {
    /// Returns an edge from the present end of this stream, if it covers any of the wanted edges. A busy stream is left
    /// out, because the calling thread may be the one that keeps it busy.
    fn way(&self, wanted: &[Edge]) -> Option<Way> {
        let state = self.state.try_lock()?;
        let bits = brought(wanted, |point| state.chain.covers(point));
        let is_free = !state.is_closed && state.capture.is_none();
        let op = state.op();
        drop(state);
        let after = || Side { who: self.title(), stream: Some(self.id), op: Some(op), ..Side::default() };
        (is_free && bits != 0).then(|| (bits, Edge::after(after())))
    }
}
