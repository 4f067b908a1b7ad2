//! Which chain numbers are in use: dense, recycled, never confused.
//!
//! Knows points only. A closed chain's number is given out again once the host that opens the next chain covers all
//! its points. The next chain then really comes after them, and its positions go on counting: a point names one
//! operation for ever, and no table keyed by chain grows with the number of streams that ever lived. Whether a number
//! is ready depends on the program's own synchronisation alone, never on timing.

use std::collections::VecDeque;

use crate::ids::{Point, Seq, Slot};

/// Closed chains looked at before a fresh number is taken: the oldest come first, so that few are enough.
const LOOK: usize = 8;

/// The numbers of the chains of one order.
#[derive(Debug, Default)]
pub struct Slots {
    fresh: u32,
    closed: VecDeque<Point>,
}

impl Slots {
    /// A number for a new chain, and the position after which it goes on. `is_known` is what the opening host knows.
    pub fn open(&mut self, is_known: impl Fn(Point) -> bool) -> (Slot, Seq) {
        let ready = self.closed.iter().take(LOOK).position(|last| is_known(*last));
        match ready.and_then(|i| self.closed.remove(i)) {
            Some(last) => (last.slot, last.seq),
            None => {
                let slot = Slot(self.fresh);
                self.fresh += 1;
                (slot, 0)
            }
        }
    }

    /// A chain ended at `last`.
    pub fn close(&mut self, last: Point) {
        self.closed.push_back(last);
    }

    /// How many numbers were ever needed at once.
    pub fn len(&self) -> usize {
        self.fresh as usize
    }

    /// Whether no chain was ever opened.
    pub fn is_empty(&self) -> bool {
        self.fresh == 0
    }
}
