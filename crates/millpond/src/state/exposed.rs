//! Which blocks of a heap other processes may reach; what becomes of those is in `pool/exposed.rs`.

use std::sync::Arc;

use millpond_core::ids::BlockId;
use millpond_core::pool::Frontier;
use rustc_hash::FxHashSet;

use crate::state::allocation::Allocation;

/// Blocks that others may reach.
#[derive(Debug, Default)]
pub(crate) struct Exposed {
    pub(crate) blocks: FxHashSet<BlockId>,
    /// Freed, and after what they are free.
    pub(crate) condemned: Vec<(Arc<Allocation>, Frontier)>,
}

impl Exposed {
    /// Others may reach a held block from now on.
    pub(crate) fn add(&mut self, block: BlockId) {
        self.blocks.insert(block);
    }

    /// Whether others may reach it.
    #[inline]
    pub(crate) fn holds(&self, block: BlockId) -> bool {
        !self.blocks.is_empty() && self.blocks.contains(&block)
    }

    /// It is freed.
    #[cold]
    pub(crate) fn condemn(&mut self, allocation: Arc<Allocation>, after: Frontier) {
        self.condemned.push((allocation, after));
    }

    /// Whether something waits to be destroyed.
    #[inline]
    pub(crate) fn is_condemned(&self) -> bool {
        !self.condemned.is_empty()
    }
}
