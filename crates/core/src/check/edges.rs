//! Which edges are added to settle what is missing: few.
//!
//! The simple version asks for an event of each stream that has to come first. Departures: an event that is recorded
//! already is taken where one will do; a stream that comes after several of them stands for all; a stream that was
//! destroyed cannot record any more, so that another one which comes after it is asked, if there is one. Of these the
//! edge that brings most is taken, again and again: that is not always the fewest.
//!
//! Cold: help for a person. Decides no verdict.

use std::collections::BTreeMap;

use super::checker::{Call, Checker, Stands};
use super::finding::{Edge, Spot};
use super::timeline::Stream;
use crate::ids::{Point, StreamId};
use crate::life::{Site, Use};
use crate::op::Act;
use crate::order::Knows;

/// So many wanted edges are looked at together.
const WANTED_MAX: usize = 64;

/// An edge, and which of those that are wanted it brings.
pub type Way = (u64, Edge);

/// Which of the wanted edges, as bits, end at points that are covered.
pub fn brought(wanted: &[Edge], covers: impl Fn(Point) -> bool) -> u64 {
    let all = wanted.iter().take(WANTED_MAX).enumerate();
    let brought = all.filter(|(_, edge)| edge.point().is_some_and(&covers));
    brought.fold(0, |bits, (at, _)| bits | 1 << at)
}

/// Few edges that bring all that these do: by events that are recorded already, by the streams themselves, by
/// streams that come after several, and of streams that are destroyed where nothing else brings them. Where there are
/// more than 64 each has its own.
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

/// Which of `brings` bring all `wanted` bits together: always the one that brings most of those that are left, of equal
/// ones the first. Empty where they cannot be brought.
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
    /// The edge from an operation that has to come first.
    pub(super) fn edge(&self, call: Call<'_>, end: &Use) -> Edge {
        let stream = end.site.stream;
        let is_there = stream == StreamId::HOST || self.time.stream(stream).is_some();
        let ended = || self.time.was(stream).flatten();
        let spot = || ended().map_or_else(Spot::default, |(site, _)| Spot::new(site.place, call.names));
        Edge { destroyed: (!is_there).then(spot), ..Edge::of(self.act_side(call, end.site), end.point) }
    }

    /// Few edges that bring all that these bring.
    #[cold]
    pub(super) fn few_edges(&self, call: Call<'_>, wanted: Vec<Edge>) -> Vec<Edge> {
        let (recorded, streams) = (self.recorded_edges(call, &wanted), self.stream_edges(call, &wanted));
        settled_by(wanted, recorded, streams)
    }

    /// By events that are recorded already: of those that bring the same, the first.
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

    /// By streams that come after more than what they did themselves.
    fn stream_edges(&self, call: Call<'_>, wanted: &[Edge]) -> Vec<Way> {
        let is_free = |stream: &&Stream| !self.graphs.is_captured(stream.kept.id);
        let way = |stream: &Stream| {
            let bits = brought(wanted, |point| stream.chain.covers(point));
            let (verb, op, place) = stream.newest(stream.end().point().seq).filter(|_| bits != 0)?;
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
