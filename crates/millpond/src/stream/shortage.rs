//! What pools do while a request finds no memory: freed blocks go past the shelves, where only one stream finds them.
//!
//! Knows pools; no request and no stream.

use crate::state::last::FoundPool;

/// How often a request that would be refused looks whether another stream is still busy. A stream that has its lock for
/// long has either nothing on its shelf, as it looks for memory itself, or waits for this very one.
pub(crate) const PATIENCE: u32 = 200;

/// A request has found no memory as yet: while this lives, freed blocks of these pools go to the heap at once.
pub(crate) struct Shortage(Vec<FoundPool>);

impl Shortage {
    pub(crate) fn of(pools: Vec<FoundPool>) -> Self {
        pools.iter().for_each(|pool| pool.bypass_shelves(true));
        Self(pools)
    }

    /// As [`of`](Self::of), of pools whose shelves are bypassed already.
    pub(crate) fn goes_on(pools: Vec<FoundPool>) -> Self {
        Self(pools)
    }

    /// What rests on shelves goes to the heaps.
    pub(crate) fn drain(&self, patience: u32) {
        self.0.iter().for_each(|pool| pool.drain_shelves(None, patience));
    }
}

impl Drop for Shortage {
    fn drop(&mut self) {
        self.0.iter().for_each(|pool| pool.bypass_shelves(false));
    }
}
