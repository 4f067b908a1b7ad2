//! Names of memory that can be copied: a life of an allocation, an alloc node. Plain values.

use millpond_core::graph::{GraphAllocId, GraphId};
use millpond_core::ids::{AllocId, PoolId};

/// Which life of which allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Named {
    pub(crate) device: u32,
    pub(crate) id: AllocId,
    /// None for memory of graphs.
    pub(crate) pool: Option<PoolId>,
    pub(crate) index: u32,
    pub(crate) generation: u64,
    pub(crate) address: u64,
}

/// Which alloc node, and where its memory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NodeName {
    pub(crate) device: u32,
    pub(crate) graph: GraphId,
    pub(crate) alloc: GraphAllocId,
    /// 0 where it is symbolic.
    pub(crate) address: u64,
}

impl NodeName {
    /// Whether each instance has an address of its own.
    pub(crate) fn is_symbolic(&self) -> bool {
        self.address == 0
    }
}
