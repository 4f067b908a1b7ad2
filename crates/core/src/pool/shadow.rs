//! The frontier of each free byte, kept beside the heap in builds with debug assertions.
//!
//! The heap has one frontier for a merged block. Here each range keeps the points that it was freed after, and a
//! stream that gets a block must come after the points of all its parts. This checks LEGAL and KEEPS while the
//! program runs. Blocks opened to all streams are not compared: a queried device answers for the present end of a
//! chain, so a part may look unfinished although its point has completed. A build without debug assertions keeps
//! nothing.
//!
//! Depends on ranges and frontiers; on nothing about blocks and their indexes.

use super::Frontier;
use crate::order::Knows;
use crate::units::Range;
use std::collections::BTreeMap;

/// The true frontiers, by address.
#[derive(Debug, Default)]
pub(super) struct Shadow {
    /// The first address of each range, with its end and the points after which its bytes are free. Ranges do not
    /// overlap.
    freed: BTreeMap<u64, (u64, Frontier)>,
}

impl Shadow {
    /// Records that the range is free after these points.
    #[inline]
    pub(super) fn free(&mut self, range: Range, after: &Frontier) {
        if cfg!(debug_assertions) {
            self.cut(range);
            self.freed.insert(range.start, (range.end(), after.clone()));
        }
    }

    /// Drops what is known of the range.
    #[inline]
    pub(super) fn forget(&mut self, range: Range) {
        if cfg!(debug_assertions) {
            self.cut(range);
        }
    }

    /// Checks that `who` may get the range at once.
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

    /// Removes a range, and returns its parts, each with its points.
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
