//! Memory that other processes may still access after their leases: it is not reused, but destroyed.
//!
//! Invariant **exposed-last**: a file of a chunk cannot be recalled, so memory that other processes could access is not
//! reused after its free. In pools that keep allocations apart, a block that was lent to a foreign process, or whose
//! files were passed on, is never kept in a cache and never returns to the heap as free memory. Its free *condemns* it:
//! it is held until its uses have completed, and then its chunks are destroyed while the heap's lock is held, so that
//! no stream gets it in between. If the pool itself is destroyed, all its memory is returned to the system anyway.
//!
//! The heap's lock guards its data.

use std::sync::Arc;

use millpond_core::ids::BlockId;
use millpond_core::pool::{Freed, Frontier};
use rustc_hash::FxHashSet;

use crate::pool::shell;
use crate::state::allocation::Allocation;
use crate::state::context::Context;
use crate::state::pool::Heap;

/// The blocks that other processes may access.
#[derive(Debug, Default)]
pub(crate) struct Exposed {
    blocks: FxHashSet<BlockId>,
    /// Freed blocks, each with the frontier after which it is not used any more.
    condemned: Vec<(Arc<Allocation>, Frontier)>,
}

impl Exposed {
    /// Records that other processes may access a held block from now on.
    pub(crate) fn add(&mut self, block: BlockId) {
        self.blocks.insert(block);
    }

    /// Returns `true` if other processes may access the block.
    #[inline]
    pub(crate) fn holds(&self, block: BlockId) -> bool {
        !self.blocks.is_empty() && self.blocks.contains(&block)
    }

    /// Condemns a block, which was freed.
    #[cold]
    pub(crate) fn condemn(&mut self, allocation: Arc<Allocation>, after: Frontier) {
        self.condemned.push((allocation, after));
    }

    /// Returns `true` if a block waits to be destroyed.
    #[inline]
    pub(crate) fn is_condemned(&self) -> bool {
        !self.condemned.is_empty()
    }
}

impl Heap {
    /// Destroys condemned blocks that are known to be unused.
    #[cold]
    pub(crate) fn destroy_exposed(&mut self, context: &Context) {
        let poll = context.chains.poll(&*context.driver);
        let over: Vec<_> = self.exposed.condemned.extract_if(.., |(_, after)| after.is_over(&poll)).collect();
        drop(poll);
        for (allocation, _) in over {
            let (block, range) = (allocation.block(), allocation.life().range);
            self.exposed.blocks.remove(&block);
            self.give_back(allocation, Freed::after(Frontier::EMPTY));
            self.pool.discard(range);
            // Chunks that the driver refuses to release stay in the pool.
            let _ = shell::apply_steps(context, self);
        }
    }

    /// Releases the condemned blocks like other memory, because the pool serves no stream any more.
    pub(crate) fn keep_no_exposed(&mut self) {
        let condemned = std::mem::take(&mut self.exposed).condemned;
        condemned.into_iter().for_each(|(allocation, after)| self.give_back(allocation, Freed::after(after)));
    }
}
