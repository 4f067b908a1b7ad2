//! The free that each free byte had, beside the heap, in builds with debug assertions.
//!
//! The heap lets one frontier count for a merged block. Here each range keeps the points it was freed after, and who
//! gets a block must come after those of all its parts: LEGAL and KEEPS, as the program runs. What is opened to all
//! streams is not compared: a device that is asked answers for the present end of a chain, so that a part may look
//! unfinished though the point that counts is past it. A build without debug assertions keeps nothing.
//!
//! Knows ranges and frontiers; nothing of blocks and their indexes.

use super::Frontier;
use crate::order::Knows;
use crate::units::Range;
use std::collections::BTreeMap;

/// True frontiers by address.
#[derive(Debug, Default)]
pub(super) struct Shadow {
    /// First address: end, and the points after which these bytes are free. Ranges do not overlap.
    freed: BTreeMap<u64, (u64, Frontier)>,
}

impl Shadow {
    /// The range is free after these points.
    #[inline]
    pub(super) fn free(&mut self, range: Range, after: &Frontier) {
        if cfg!(debug_assertions) {
            self.cut(range);
            self.freed.insert(range.start, (range.end(), after.clone()));
        }
    }

    /// Nothing is known of the range any more.
    #[inline]
    pub(super) fn forget(&mut self, range: Range) {
        if cfg!(debug_assertions) {
            self.cut(range);
        }
    }

    /// `who` gets the range at once.
    #[inline]
    pub(super) fn take(&mut self, range: Range, who: &impl Knows) {
        if cfg!(debug_assertions) {
            for (part, after) in self.cut(range) {
                assert!(
                    after.is_known_to(who),
                    "LEGAL, KEEPS: {:?} gets {part}, which is free after {after:?}",
                    who.chain()
                );
            }
        }
    }

    /// Takes a range out: its parts, each with its points.
    #[cold]
    fn cut(&mut self, range: Range) -> Vec<(Range, Frontier)> {
        let below = self.freed.range(..range.start).next_back();
        let first = below.filter(|(_, (end, _))| *end > range.start).map_or(range.start, |(&start, _)| start);
        let met: Vec<u64> = self.freed.range(first..range.end()).map(|(&start, _)| start).collect();
        let mut parts = Vec::new();
        for start in met {
            let (end, after) = self.freed.remove(&start).expect("found just now");
            if start < range.start {
                self.freed.insert(start, (range.start, after.clone()));
            }
            if end > range.end() {
                self.freed.insert(range.end(), (end, after.clone()));
            }
            parts.push((Range::between(start, end).intersection(range), after));
        }
        parts
    }
}
