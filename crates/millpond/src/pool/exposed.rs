//! Memory that other processes may still reach after their leases: it is not reused, and is destroyed.
//!
//! Invariant **exposed-last**: a file of a chunk cannot be called back, so memory that others could reach is not reused
//! after its free. In pools that keep allocations apart, a block that a foreign process was
//! lent, or whose files were handed out, never rests in a cache and never returns to the heap as free memory: it is
//! *condemned* with its free, held until its uses have completed, and then its chunks are destroyed while the heap's
//! lock is held, so that no stream gets it in between. Where the pool itself is destroyed, it all goes back to the
//! system anyway.
//!
//! Its data is behind the heap's lock.

use std::sync::Arc;

use millpond_core::ids::BlockId;
use millpond_core::pool::{Freed, Frontier};
use rustc_hash::FxHashSet;

use crate::pool::shell;
use crate::state::allocation::Allocation;
use crate::state::context::Context;
use crate::state::pool::Heap;

/// Blocks that others may reach.
#[derive(Debug, Default)]
pub(crate) struct Exposed {
    blocks: FxHashSet<BlockId>,
    /// Freed, and after what they are free.
    condemned: Vec<(Arc<Allocation>, Frontier)>,
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

impl Heap {
    /// Destroys what is condemned and no longer used, as far as is known.
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
            // What the driver refuses to take back stays the pool's.
            let _ = shell::apply_steps(context, self);
        }
    }

    /// The pool serves no stream any more: what is condemned goes back with the rest.
    pub(crate) fn keep_no_exposed(&mut self) {
        let condemned = std::mem::take(&mut self.exposed).condemned;
        condemned.into_iter().for_each(|(allocation, after)| self.give_back(allocation, Freed::after(after)));
    }
}
