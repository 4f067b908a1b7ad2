//! The help of a refused operation: as few edges as settle it.
//!
//! A refusal names the newest operation of each stream that has to come first, under the locks of the operation. Here,
//! where none of these is held, the streams of the device are asked which of them comes after several of these: an
//! event of that one stands for all. A stream that is closed can record no event any more: one that comes after it is
//! asked instead, or the help says that it has to be done before. Decides no verdict.

use millpond_core::check::{Edge, Side, Spot, Way, brought, settled_by};
use millpond_core::order::Knows;

use crate::names::error::Error;
use crate::state::context::Context;
use crate::state::stream::StreamShared;

impl Context {
    /// Leaves the edges that are needed.
    #[cold]
    pub(crate) fn shorten_help(&self, error: &mut Error) {
        let Error::Violation(finding) = error else { return };
        // Sides of other devices and processes are not this one's to know.
        let is_ours = |side: &Side| side.process.is_none() && side.stream.is_some_and(|it| it.device().is_none());
        finding.name_nodes(|side, sought| is_ours(side).then(|| self.graphs.node_of(side, sought))?);
        // Streams of other devices are not asked: their numbers are not this one's.
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
    /// An edge from this stream as it stands, if that brings anything. A stream that is busy is not asked: it may be
    /// the calling thread that keeps it so.
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
