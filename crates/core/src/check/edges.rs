//! The choice of the missing edges that a finding names: few edges that give the whole order.
//!
//! The simple version asks for one event on each stream that has to come first. This version needs fewer:
//! * It uses an event that is already recorded, if there is a suitable one.
//! * A stream that comes after several of the streams stands for all of them.
//! * A destroyed stream can record no more, so another stream that comes after it is used, if there is one.
//!
//! The edge that gives most of the remaining order is taken, again and again. That is not always the smallest set.
//!
//! Off the hot path: help for the reader of a finding. Decides no verdict.

use std::collections::BTreeMap;

use super::checker::{Call, Checker, Stands};
use super::finding::{Edge, Spot};
use super::timeline::Stream;
use crate::ids::{Point, StreamId};
use crate::life::{Site, Use};
use crate::op::Act;
use crate::order::Knows;

/// The largest number of wanted edges that are looked at together: one bit each.
const WANTED_MAX: usize = 64;

/// An edge, and the wanted edges that it provides, as bits.
pub type Way = (u64, Edge);

/// Returns the wanted edges, as bits, whose points are covered.
pub fn brought(wanted: &[Edge], covers: impl Fn(Point) -> bool) -> u64 {
    let all = wanted.iter().take(WANTED_MAX).enumerate();
    let brought = all.filter(|(_, edge)| edge.point().is_some_and(&covers));
    brought.fold(0, |bits, (at, _)| bits | 1 << at)
}

/// Returns few edges that provide everything that the wanted ones do. They come from events that are already recorded,
/// from the streams themselves, from streams that come after several of them, and from destroyed streams if nothing
/// else provides the edge. If more than 64 edges are wanted, returns all of them.
pub fn settled_by(wanted: Vec<Edge>, recorded: Vec<Way>, streams: Vec<Way>) -> Vec<Edge> {
    if wanted.is_empty() || wanted.len() > WANTED_MAX {
        return wanted;
    }
    let all = u64::MAX >> (WANTED_MAX - wanted.len());
    let own = wanted.into_iter().enumerate().map(|(at, edge)| (1 << at, edge));
    let (living, destroyed): (Vec<Way>, Vec<Way>) = own.partition(|(_, edge)| edge.destroyed.is_none());
    let ways: Vec<Way> = recorded.into_iter().chain(living).chain(streams).chain(destroyed).collect();
    let brings: Vec<u64> = ways.iter().map(|(bits, _)| *bits).collect();
    few(all, &brings).into_iter().map(|at| ways[at].1.clone()).collect()
}

/// Returns the indices in `brings` that together provide all `wanted` bits. Each step takes the one that provides most
/// of the remaining bits, and the first of equal ones. Empty if a bit cannot be provided.
fn few(mut wanted: u64, brings: &[u64]) -> Vec<usize> {
    let mut chosen = Vec::new();
    while wanted != 0 {
        let gain = |at: &usize| (brings[*at] & wanted).count_ones();
        let Some(best) = (0..brings.len()).rev().max_by_key(gain).filter(|at| gain(at) > 0) else {
            return Vec::new();
        };
        wanted &= !brings[best];
        chosen.push(best);
    }
    chosen
}

impl Checker {
    /// Returns the edge from an operation that has to come first.
    pub(super) fn edge(&self, call: Call<'_>, end: &Use) -> Edge {
        let stream = end.site.stream;
        let is_there = stream == StreamId::HOST || self.time.stream(stream).is_some();
        let ended = || self.time.was(stream).flatten();
        let spot = || ended().map_or_else(Spot::default, |(site, _)| Spot::new(site.place, call.names));
        Edge { destroyed: (!is_there).then(spot), ..Edge::of(self.act_side(call, end.site), end.point) }
    }

    /// Returns few edges that provide everything that the wanted ones do.
    #[cold]
    pub(super) fn few_edges(&self, call: Call<'_>, wanted: Vec<Edge>) -> Vec<Edge> {
        let (recorded, streams) = (self.recorded_edges(call, &wanted), self.stream_edges(call, &wanted));
        settled_by(wanted, recorded, streams)
    }

    /// Returns the edges from events that are already recorded. If several provide the same, only the event with the
    /// lowest number counts.
    fn recorded_edges(&self, call: Call<'_>, wanted: &[Edge]) -> Vec<Way> {
        let mut found: BTreeMap<u64, (u32, Site)> = BTreeMap::new();
        let process = self.time.process(call.op.host);
        for (id, event) in self.events.iter().filter(|(_, event)| event.is_for(process)) {
            if let Stands::Recorded(recorded) = &event.stands {
                let bits = brought(wanted, |point| recorded.snapshot.covers(point));
                let first = found.entry(bits).or_insert((id.0, recorded.site));
                *first = if id.0 < first.0 { (id.0, recorded.site) } else { *first };
            }
        }
        found.remove(&0);
        let mut found: Vec<(u64, (u32, Site))> = found.into_iter().collect();
        found.sort_by_key(|(_, (id, _))| *id);
        let edge = |(bits, (_, site)): (u64, (u32, Site))| {
            let record = self.side(call, site, "recorded");
            let after = match bits.is_power_of_two() {
                true => wanted[bits.trailing_zeros() as usize].after.clone(),
                false => record.clone(),
            };
            (bits, Edge { recorded: Some(record), ..Edge::after(after) })
        };
        found.into_iter().map(edge).collect()
    }

    /// Returns the edges from the newest operations of streams, each with the wanted edges that the stream already
    /// comes after.
    fn stream_edges(&self, call: Call<'_>, wanted: &[Edge]) -> Vec<Way> {
        let is_free = |stream: &&Stream| !self.graphs.is_captured(stream.kept.id);
        let way = |stream: &Stream| {
            let bits = brought(wanted, |point| stream.chain.covers(point));
            let (verb, op, place) = stream.newest(stream.chain.seq()).filter(|_| bits != 0)?;
            let site = Site { act: Act::Read, stream: stream.kept.id, op, place };
            Some((stream.kept.id, (bits, Edge::after(self.side(call, site, verb)))))
        };
        let mut ways: Vec<(StreamId, Way)> =
            self.time.streams_of(call.op.host).filter(is_free).filter_map(way).collect();
        ways.sort_by_key(|(id, _)| *id);
        ways.into_iter().map(|(_, way)| way).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::few;

    #[test]
    fn the_first_of_those_that_bring_the_same_is_taken() {
        assert_eq!(few(0b11, &[0b01, 0b11, 0b11]), [1]);
        assert_eq!(few(0b11, &[0b01, 0b10]), [0, 1]);
        assert!(few(0b11, &[0b01]).is_empty());
    }

    #[test]
    fn many_are_brought_by_the_widest() {
        let brings: Vec<u64> = (0..64).map(|at| 1 << at).collect();
        assert_eq!(few(u64::MAX, &brings).len(), 64);
        let wide = [brings, vec![u64::MAX >> 1, 1 << 63]].concat();
        assert_eq!(few(u64::MAX, &wide).len(), 2);
    }
}
