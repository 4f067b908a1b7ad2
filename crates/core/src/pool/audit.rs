//! Re-derives every invariant of a pool from scratch: for tests, and from time to time in builds with debug
//! assertions.

use super::Pool;
use super::block::State;
use crate::units::Range;

impl Pool {
    /// Called after each change of the pool that leaves no step. In builds with debug assertions, runs an audit after
    /// as many changes as an audit looks at blocks and granules.
    ///
    /// # Panics
    /// If an invariant does not hold.
    #[inline]
    pub(super) fn audit_in_turn(&mut self) {
        if cfg!(debug_assertions) {
            self.unaudited += 1;
            if self.unaudited > self.heap.blocks.count() + self.space.granules() {
                self.audit_now();
            }
        }
    }

    /// As [`audit_in_turn`](Self::audit_in_turn), but audits each time, for rare changes.
    #[cold]
    pub(super) fn audit_now(&mut self) {
        if cfg!(debug_assertions) {
            self.unaudited = 0;
            self.audit().unwrap_or_else(|broken| panic!("{broken}"));
        }
    }

    /// Checks all invariants that can be seen in the state.
    ///
    /// # Errors
    /// The first invariant that does not hold, by its name.
    pub fn audit(&self) -> Result<(), String> {
        self.heap.audit()?;
        let blocks = &self.heap.blocks;
        let mut held = 0;
        for id in self.heap.all() {
            let block = &blocks[id];
            let (mapped, until) = self.space.same_until(block.start, block.end());
            let expected = match block.state {
                State::Held if self.plan.target == Some(id) => {
                    held += block.bytes;
                    continue;
                }
                State::Held => {
                    held += block.bytes;
                    true
                }
                State::Free => true,
                State::Hole | State::Closed | State::Unused => false,
            };
            if until != block.end() || mapped != expected {
                return Err(format!("APART: {block:?} is not wholly {}mapped", if expected { "" } else { "un" }));
            }
            let closed = self.closed.iter().any(|old| old.block == id && old.range == block.range());
            if closed != (block.state == State::Closed) {
                return Err(format!("SAFE: {block:?} is closed and not listed, or listed and not closed"));
            }
        }
        if held != self.held {
            return Err(format!("APART: {held} bytes in held blocks, {} counted", self.held));
        }
        let pins = |range: Range| self.heap.over(range).filter(|&id| blocks[id].state == State::Held).count() as u32;
        let granules: u64 = self.closed.iter().map(|old| old.range.bytes / self.space.granule()).sum();
        self.space.audit(pins, granules as usize)
    }
}
