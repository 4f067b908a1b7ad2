//! Giving memory back without need: at a synchronisation, and on demand.
//!
//! Longest idle first, spare chunks before all; never under a held block or a use that is not over.

use super::{Pool, Step};
use crate::ids::ChunkId;
use crate::order::Completed;
use crate::units::Range;

impl Pool {
    /// The host has synchronised: what that made certain is opened to all streams, whatever the reuse policy, and idle
    /// memory beyond the release threshold goes back. Leaves steps.
    pub fn synchronized(&mut self, completed: &impl Completed) {
        self.retire(completed);
        self.open_closed(completed);
        self.release_down_to(self.kept_bytes());
    }

    /// How much stays reserved at a synchronisation, idle or not: the release threshold, and no more than may be
    /// reserved at all.
    pub fn kept_bytes(&self) -> u64 {
        match self.config.max_bytes {
            0 => self.config.release_threshold,
            max_bytes => self.config.release_threshold.min(max_bytes),
        }
    }

    /// Gives back what can be, but keeps at least `keep` bytes reserved. Leaves steps.
    pub fn trim(&mut self, keep: u64, completed: &impl Completed) {
        self.retire(completed);
        self.open_closed(completed);
        self.release_down_to(keep);
    }

    /// Gives back the chunks under `range`, as far as no held block is on them and nothing uses them any more, whatever
    /// is to be kept. Leaves steps.
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
