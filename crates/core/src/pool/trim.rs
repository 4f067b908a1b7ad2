//! Gives memory back that is not in use: at a synchronisation, and on demand.
//!
//! Spare chunks go first, then the longest idle. Memory under a held block, or with a use that has not completed,
//! stays.

use super::{Pool, Step};
use crate::ids::ChunkId;
use crate::order::Completed;
use crate::units::Range;

impl Pool {
    /// Runs after a synchronisation of the host: opens to all streams what that has shown to be completed, whatever
    /// the reuse policy, and gives back idle memory beyond the release threshold. Leaves steps.
    pub fn synchronized(&mut self, completed: &impl Completed) {
        self.retire(completed);
        self.open_closed(completed);
        self.release_down_to(self.kept_bytes());
    }

    /// Returns the bytes that stay reserved at a synchronisation, idle or not: the release threshold, but no more
    /// than may be reserved at all.
    pub fn kept_bytes(&self) -> u64 {
        match self.config.max_bytes {
            0 => self.config.release_threshold,
            max_bytes => self.config.release_threshold.min(max_bytes),
        }
    }

    /// Gives back what is possible, but keeps at least `keep` bytes reserved. Leaves steps.
    pub fn trim(&mut self, keep: u64, completed: &impl Completed) {
        self.retire(completed);
        self.open_closed(completed);
        self.release_down_to(keep);
    }

    /// Gives back the chunks under `range` that no held block overlaps and that are not in use any more, regardless
    /// of what is to be kept. Leaves steps.
    pub fn discard(&mut self, range: Range) {
        debug_assert!(self.plan.target.is_none(), "STEPWISE: all steps are taken before the pool shrinks");
        let inside: Vec<_> = self.chunks_under(range).map(|(chunk, _)| chunk).collect();
        let is_idle = |chunk: &ChunkId| self.space.chunk(*chunk).pins == 0 && self.is_late(*chunk);
        let idle: Vec<_> =
            inside.into_iter().filter(is_idle).map(|chunk| (chunk, self.space.chunk(chunk).range())).collect();
        for (chunk, Range { start: at, bytes }) in idle {
            self.plan.steps.push_back(Step::Unmap { chunk, at, bytes });
            self.plan.steps.push_back(Step::Destroy { chunk, bytes });
        }
    }

    fn release_down_to(&mut self, keep: u64) {
        let mut reserved = self.space.reserved();
        debug_assert!(self.plan.target.is_none(), "STEPWISE: all steps are taken before the pool shrinks");
        let mut steps = Vec::new();
        let idle = self.space.idle_chunks().filter(|&chunk| self.is_late(chunk));
        for chunk in self.space.spares().iter().copied().chain(idle) {
            let bytes = self.space.chunk(chunk).bytes;
            if reserved - bytes < keep {
                continue;
            }
            reserved -= bytes;
            let range = self.space.chunk(chunk).range();
            if !range.is_empty() {
                steps.push(Step::Unmap { chunk, at: range.start, bytes });
            }
            steps.push(Step::Destroy { chunk, bytes });
        }
        self.plan.steps.extend(steps);
    }
}
