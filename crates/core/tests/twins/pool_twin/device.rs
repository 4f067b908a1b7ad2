//! The twin's device: the mappings of chunks, and the uses of addresses and of physical bytes that are not completed.

use super::order::Order;
use millpond_core::ids::ChunkId;
use millpond_core::pool::{Frontier, Step};
use millpond_core::units::Range;
use std::collections::HashMap;

/// A use that ended with a free.
#[derive(Clone, Debug)]
pub(crate) struct Freed {
    pub(crate) range: Range,
    pub(crate) after: Frontier,
}

#[derive(Default)]
pub(crate) struct Device {
    pub(crate) chunks: HashMap<ChunkId, u64>,
    /// Each mapping, with `true` if it is the latest of its chunk.
    pub(crate) mappings: Vec<(Range, ChunkId, bool)>,
    /// Frees by address.
    pub(crate) freed: Vec<Freed>,
    /// Frees by physical place: (chunk, offsets).
    pub(crate) physical: Vec<(ChunkId, Freed)>,
    pub(crate) granule: u64,
}

impl Device {
    pub(crate) fn reserved(&self) -> u64 {
        self.chunks.values().sum()
    }

    /// Takes a step, and refuses what no device allows.
    pub(crate) fn apply(&mut self, step: Step, order: &Order, held: &[Range]) {
        match step {
            Step::Create { chunk, bytes } => {
                assert!(bytes > 0 && bytes.is_multiple_of(self.granule), "{step:?}");
                assert!(self.chunks.insert(chunk, bytes).is_none(), "{chunk} exists already");
            }
            Step::Destroy { chunk, bytes } => {
                assert!(self.mappings.iter().all(|mapping| mapping.1 != chunk), "{chunk} is destroyed while mapped");
                assert_eq!(self.chunks.remove(&chunk), Some(bytes));
                self.physical.retain(|(of, _)| *of != chunk);
            }
            Step::Map { chunk, at, bytes } => {
                let range = Range::new(at, bytes);
                assert_eq!(self.chunks.get(&chunk), Some(&bytes), "a chunk is mapped whole");
                assert!(at.is_multiple_of(self.granule));
                assert!(self.mappings.iter().all(|mapping| !mapping.0.overlaps(range)), "{step:?} over a mapping");
                for mapping in self.mappings.iter_mut().filter(|mapping| mapping.1 == chunk) {
                    assert!(held.iter().all(|held| !held.overlaps(mapping.0)), "{step:?} under a held block");
                    mapping.2 = false;
                }
                self.mappings.push((range, chunk, true));
            }
            Step::Unmap { chunk, at, bytes } => {
                let range = Range::new(at, bytes);
                assert!(held.iter().all(|held| !held.overlaps(range)), "{step:?} under a held block");
                let in_use = |freed: &&Freed| freed.range.overlaps(range) && !freed.after.is_over(&order.over);
                assert!(!self.freed.iter().any(|freed| in_use(&freed)), "{step:?} under a use that is not over");
                let place = self.mappings.iter().position(|mapping| (mapping.0, mapping.1) == (range, chunk));
                self.mappings.remove(place.expect("a mapping as it was made"));
                self.freed.retain(|freed| !range.contains(freed.range.start) || freed.range.end() > range.end());
            }
        }
    }

    /// Returns the physical places of mapped addresses.
    fn places(&self, range: Range) -> Vec<(ChunkId, Range)> {
        let parts = self.mappings.iter().filter(|mapping| mapping.2).filter_map(|&(at, chunk, _)| {
            let part = at.intersection(range);
            (!part.is_empty()).then(|| (chunk, Range::new(part.start - at.start, part.bytes)))
        });
        parts.collect()
    }

    pub(crate) fn is_mapped(&self, range: Range) -> bool {
        self.places(range).iter().map(|(_, part)| part.bytes).sum::<u64>() == range.bytes
    }

    /// Gives `range` to `stream` after it has waited for `after`: all earlier uses of the addresses and of the memory
    /// behind them must come before that.
    pub(crate) fn use_by(&mut self, range: Range, stream: usize, after: &Frontier, order: &Order) {
        for freed in self.freed.iter().filter(|freed| freed.range.overlaps(range)) {
            assert!(order.allows(stream, after, &freed.after), "stream {stream} gets {range} too early: {freed:?}");
        }
        cut(&mut self.freed, range);
        for (chunk, part) in self.places(range) {
            let (mut of, rest): (Vec<_>, Vec<_>) =
                std::mem::take(&mut self.physical).into_iter().partition(|(of, _)| *of == chunk);
            for (_, freed) in of.iter().filter(|(_, freed)| freed.range.overlaps(part)) {
                assert!(order.allows(stream, after, &freed.after), "stream {stream} gets memory too early: {freed:?}");
            }
            let mut list: Vec<Freed> = of.drain(..).map(|(_, freed)| freed).collect();
            cut(&mut list, part);
            self.physical = rest;
            self.physical.extend(list.into_iter().map(|freed| (chunk, freed)));
        }
    }

    pub(crate) fn free(&mut self, range: Range, after: &Frontier) {
        self.freed.push(Freed { range, after: after.clone() });
        for (chunk, part) in self.places(range) {
            self.physical.push((chunk, Freed { range: part, after: after.clone() }));
        }
    }

    /// Returns a mapped chunk that no held block overlaps.
    pub(crate) fn idle_chunk(&self, held: &[Range]) -> Option<ChunkId> {
        let idle = |range: Range| !held.iter().any(|held| held.overlaps(range));
        self.mappings.iter().find(|(range, _, last)| *last && idle(*range)).map(|mapping| mapping.1)
    }
}

/// Removes `range` from a list of frees.
fn cut(list: &mut Vec<Freed>, range: Range) {
    let mut parts = Vec::new();
    list.retain(|freed| {
        if !freed.range.overlaps(range) {
            return true;
        }
        let (start, end) = (freed.range.start, freed.range.end());
        for part in [(start, range.start.max(start)), (range.end().min(end), end)] {
            if part.0 < part.1 {
                parts.push(Freed { range: Range::between(part.0, part.1), after: freed.after.clone() });
            }
        }
        false
    });
    list.extend(parts);
}
