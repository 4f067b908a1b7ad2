//! The work of a stream that a launch which may start early can overlap (CUDA: programmatic launches), and what is
//! known by it alone.
//!
//! Knows points; nothing of streams and memory.

use crate::ids::{Point, Seq, Slot};
use crate::order::Snapshot;

/// The last work of a stream, and what began early after it.
#[derive(Debug)]
pub(super) struct LastWork {
    /// Its position in the stream.
    pub(super) from: Seq,
    /// How often the stream had been made to wait for the legacy default stream, or this for others.
    pub(super) tied: u64,
    /// Of a graph or an upload, which learn more than the stream: what that knew before and after. Plain work learns
    /// nothing, and what the stream learns later it learns by something else.
    pub(super) learned: Option<(Snapshot, Snapshot)>,
}

impl LastWork {
    /// What there is after an upload, if there was this before: it separates nothing from what is behind it.
    pub(super) fn uploaded(last: Option<LastWork>, tied: u64, (before, after): (Snapshot, Snapshot)) -> Self {
        let (from, before) = match last.filter(|last| last.tied == tied) {
            Some(last) => (last.from, last.learned.map_or(before, |(earlier, _)| earlier)),
            None => (after.point().seq, before),
        };
        LastWork { from, tied, learned: Some((before, after)) }
    }

    /// Whether a stream with this chain knows something by it alone, or by what was done since.
    pub(super) fn says(&self, point: Point, slot: Slot) -> bool {
        let is_own = point.slot == slot && point.seq >= self.from;
        is_own || self.learned.as_ref().is_some_and(|(before, after)| after.covers(point) && !before.covers(point))
    }
}
