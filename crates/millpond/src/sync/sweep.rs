//! When a list is looked through for what need not be kept: at lengths that double.
//!
//! So each entry costs amortised constant time, and there are at most about as many stale entries as live ones. Knows
//! no list.

/// A list that is shorter is not looked through.
const LEAST: usize = 32;

/// The length at which the list is looked through next.
#[derive(Debug)]
pub(crate) struct Sweep(usize);

impl Default for Sweep {
    fn default() -> Self {
        Sweep(LEAST)
    }
}

impl Sweep {
    /// Whether the list, which is so long, is to be looked through.
    pub(crate) fn is_due(&self, len: usize) -> bool {
        len >= self.0
    }

    /// It was, and so much is left.
    pub(crate) fn done(&mut self, len: usize) {
        self.0 = LEAST.max(2 * len);
    }
}
