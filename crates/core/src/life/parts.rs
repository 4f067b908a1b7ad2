//! The uses of a life whose parts are used each by itself.
//!
//! Knows uses and bytes; not which use conflicts with which. The bytes are divided into segments, each with the uses of
//! all its bytes: where a part begins or ends a segment is divided, and neighbours with the same uses are one. A step
//! costs the logarithm of how many there are, and what it overlaps.

use std::collections::BTreeMap;

use super::kept::{Done, Kept};
use crate::op::Part;

/// Segments, by their first byte. The first begins with the allocation; each ends where the next begins.
#[derive(Clone, Debug)]
pub(super) struct Parts<D: Done> {
    segments: BTreeMap<u64, Kept<D>>,
    /// How often one was changed since they were settled.
    changed: usize,
}

impl<D: Done> Parts<D> {
    /// One segment of all bytes.
    pub(super) fn new(uses: Kept<D>) -> Self {
        Self { segments: BTreeMap::from([(0, uses)]), changed: 0 }
    }

    /// How many segments there are.
    pub(super) fn len(&self) -> usize {
        self.segments.len()
    }

    /// Whether as much was done since they were settled as settling costs, so that doing so again is cheap.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.changed > 2 * self.segments.len()
    }

    /// They are settled.
    pub(super) fn settled(&mut self) {
        self.changed = 0;
    }

    /// Whether all bytes have the same uses.
    pub(super) fn is_whole(&self) -> bool {
        self.segments.len() == 1
    }

    /// Those of the first.
    pub(super) fn into_whole(self) -> Kept<D> {
        self.segments.into_values().next().unwrap_or_else(Kept::new)
    }

    /// The uses of the segments that have bytes of a part; one may come several times.
    pub(super) fn of(&self, part: Part) -> impl Iterator<Item = &D> + Clone {
        self.with_bytes_of(part).flat_map(Kept::all)
    }

    fn with_bytes_of(&self, part: Part) -> impl Iterator<Item = &Kept<D>> + Clone {
        let first = self.segments.range(..=part.from()).next_back().map_or(0, |(at, _)| *at);
        self.segments.range(first..part.to()).map(|(_, uses)| uses)
    }

    /// The segments, each with its bytes.
    pub(super) fn all(&self) -> impl Iterator<Item = (Part, &[D])> {
        let ends = self.segments.keys().skip(1).copied().chain([Part::WHOLE.to()]);
        let segments = self.segments.iter().zip(ends);
        segments.filter_map(|((from, uses), to)| Some((Part::new(*from, to)?, uses.all())))
    }

    /// What is found in the first segment with bytes of a part that has it.
    #[cold]
    pub(super) fn find<'a, R>(&'a self, part: Part, find: impl Fn(&'a Kept<D>) -> Option<R>) -> Option<R> {
        self.with_bytes_of(part).find_map(find)
    }

    /// Changes the uses of a part, segment by segment.
    pub(super) fn change(&mut self, part: Part, mut change: impl FnMut(Part, &mut Kept<D>)) {
        self.divide(part.from());
        self.divide(part.to());
        let mut segments = self.segments.range_mut(part.from()..part.to()).peekable();
        while let Some((from, uses)) = segments.next() {
            let to = segments.peek().map_or(part.to(), |next| *next.0);
            if let Some(segment) = Part::new(*from, to) {
                change(segment, uses);
            }
            self.changed += 1;
        }
        self.join(part);
    }

    /// A segment begins here from now on.
    fn divide(&mut self, at: u64) {
        if at == Part::WHOLE.to() || self.segments.contains_key(&at) {
            return;
        }
        let uses = self.segments.range(..at).next_back().map_or_else(Kept::new, |(_, uses)| uses.clone());
        self.segments.insert(at, uses);
    }

    /// Makes neighbours one that have the same uses, within a part and at both its ends.
    fn join(&mut self, part: Part) {
        let before = self.segments.range(..part.from()).next_back().map_or(part.from(), |(at, _)| *at);
        let near = || self.segments.range(before..=part.to());
        let same = near().zip(near().skip(1)).filter(|((_, uses), (_, next))| uses == next);
        let same: Vec<u64> = same.map(|(_, (at, _))| *at).collect();
        same.into_iter().for_each(|at| drop(self.segments.remove(&at)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Point, Seq, Slot, StreamId};
    use crate::life::{Site, Use};
    use crate::op::{Act, Place};

    fn by(seq: Seq) -> Use {
        let site = Site { act: Act::Write, stream: StreamId(0), op: seq, place: Place::Unknown };
        Use { point: Point { slot: Slot(0), seq }, site }
    }

    fn part(from: u64, to: u64) -> Part {
        Part::new(from, to).expect("it has bytes")
    }

    fn kept(uses: &[Use]) -> Kept<Use> {
        let mut kept = Kept::new();
        uses.iter().for_each(|it| kept.push(*it));
        kept
    }

    fn seqs(parts: &Parts<Use>, from: u64, to: u64) -> Vec<Seq> {
        parts.of(part(from, to)).map(|it| it.point.seq).collect()
    }

    #[test]
    fn a_part_has_its_own_uses() {
        let mut parts = Parts::new(kept(&[by(1)]));
        parts.change(part(100, 200), |_, uses| uses.push(by(2)));
        assert_eq!(seqs(&parts, 0, 100), [1]);
        assert_eq!(seqs(&parts, 99, 101), [1, 1, 2]);
        assert_eq!(seqs(&parts, 150, 151), [1, 2]);
        assert_eq!(seqs(&parts, 200, u64::MAX), [1]);
        parts.change(part(150, 250), |_, uses| uses.push(by(3)));
        assert_eq!(seqs(&parts, 140, 150), [1, 2]);
        assert_eq!(seqs(&parts, 150, 200), [1, 2, 3]);
        assert_eq!(seqs(&parts, 200, 250), [1, 3]);
        assert_eq!(parts.segments.len(), 5);
    }

    #[test]
    fn neighbours_with_the_same_uses_are_one() {
        let mut parts = Parts::new(Kept::new());
        for from in [0, 10, 30, 20] {
            parts.change(part(from, from + 10), |_, uses| uses.push(by(1)));
        }
        assert_eq!(parts.segments.keys().copied().collect::<Vec<_>>(), [0, 40]);
        parts.change(Part::WHOLE, |_, uses| *uses = kept(&[by(2)]));
        assert!(parts.is_whole());
        assert_eq!(parts.into_whole().all(), [by(2)]);
    }
}
