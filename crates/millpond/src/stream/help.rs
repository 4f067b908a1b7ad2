//! The help of a refused operation: as few edges as settle it.
//!
//! A refusal names the newest operation of each stream that has to come first, under the locks of the operation. Here,
//! where none of these is held, the streams of the device are asked which of them comes after several of these: an
//! event of that one stands for all. A stream that is closed can record no event any more: one that comes after it is
//! asked instead, or the help says that it has to be done before. Decides no verdict.

use millpond_core::check::{Edge, Side, Spot, WANTED_MAX, fewest};
use millpond_core::ids::{Point, StreamId};
use millpond_core::order::Knows;

use crate::names::error::Error;
use crate::state::context::Context;
use crate::state::stream::StreamShared;

/// An edge, and which of those that are wanted it brings.
type Way = (u64, Edge);

impl Context {
    /// Leaves the edges that are needed. No lock is held.
    #[cold]
    pub(crate) fn shorten_help(&self, error: &mut Error) {
        let Error::Violation(finding) = error else { return };
        // Streams of other devices are not asked: their numbers are not this one's.
        let is_ours = |edge: &Edge| edge.point().is_some() && edge.after.stream.is_some_and(|it| it.device().is_none());
        let (ours, others): (Vec<Edge>, Vec<Edge>) =
            std::mem::take(&mut finding.missing).into_iter().partition(is_ours);
        finding.missing = if let 1..=WANTED_MAX = ours.len() { self.fewest_edges(ours) } else { ours };
        finding.missing.extend(others);
    }

    fn fewest_edges(&self, mut wanted: Vec<Edge>) -> Vec<Edge> {
        let live = self.streams();
        for edge in &mut wanted {
            let is_there = live.iter().any(|stream| Some(stream.id) == edge.after.stream);
            edge.destroyed = (!is_there).then(Spot::default);
        }
        let own = wanted.iter().enumerate().map(|(at, edge)| (1 << at, edge.clone()));
        let (mut ways, destroyed): (Vec<Way>, Vec<Way>) = own.partition(|(_, edge)| edge.destroyed.is_none());
        ways.extend(live.iter().filter_map(|stream| stream.way(&wanted)));
        ways.extend(destroyed);
        let brings: Vec<u64> = ways.iter().map(|(bits, _)| *bits).collect();
        let chosen = fewest(u64::MAX >> (WANTED_MAX - wanted.len()), &brings);
        chosen.into_iter().map(|at| ways[at].1.clone()).collect()
    }
}

impl StreamShared {
    /// An edge from this stream as it stands, if that brings anything. A stream that is busy is not asked: it may be
    /// the calling thread that keeps it so.
    fn way(&self, wanted: &[Edge]) -> Option<Way> {
        let state = self.state.try_lock()?;
        let covers = |point: Point| state.chain.covers(point);
        let brought = wanted.iter().enumerate().filter(|(_, edge)| edge.point().is_some_and(covers));
        let bits = brought.fold(0, |bits, (at, _)| bits | 1 << at);
        let is_free = !state.is_closed && state.capture.is_none();
        let op = state.op();
        drop(state);
        (is_free && bits != 0).then(|| (bits, Edge::after(stands(self.id, op, self.title()))))
    }
}

/// A stream as it stands.
fn stands(stream: StreamId, op: u64, who: String) -> Side {
    Side { who, stream: Some(stream), op: Some(op), ..Side::default() }
}
