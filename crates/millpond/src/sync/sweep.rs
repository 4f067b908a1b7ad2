//! The times at which a list is searched for entries that need not be kept: when its length has doubled.
//!
//! So each entry costs amortised constant time, and there are at most about as many stale entries as live ones.
//! Depends on no list.

/// A list shorter than this is not searched.
const LEAST: usize = 32;

/// The length at which the list is searched next.
#[derive(Debug)]
pub(crate) struct Sweep(usize);

impl Default for Sweep {
    fn default() -> Self {
        Sweep(LEAST)
    }
}

impl Sweep {
    /// Returns `true` if the list, of length `len`, is to be searched.
    pub(crate) fn is_due(&self, len: usize) -> bool {
        len >= self.0
    }

    /// Records that it was searched, and that `len` entries are left.
    pub(crate) fn done(&mut self, len: usize) {
        self.0 = LEAST.max(2 * len);
    }
}
