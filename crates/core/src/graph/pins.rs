//! The lifetimes that nodes name, of memory that launches of other graphs left live.
//!
//! Memory of an alloc node has one name in a graph, [`Memory::Foreign`], for nodes that name the alloc node and for
//! nodes that name one lifetime of it. With two names, a use by one name and a free by the other could not be compared.
//! The lifetime that was named is kept here, and each launch must find that one. Depends on names only.

use super::graph::Graph;
use super::node::{GraphAllocId, GraphId, Memory};
use crate::ids::AllocId;

/// One lifetime of another graph's memory. A launch that finds a later lifetime there is refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Pin {
    /// The graph that allocates it.
    pub graph: GraphId,
    /// The allocation in that graph.
    pub alloc: GraphAllocId,
    /// The allocation outside of graphs.
    pub id: AllocId,
    /// The number of its lifetime.
    pub generation: u64,
}

impl Pin {
    /// The name by which nodes know the memory.
    pub fn memory(&self) -> Memory {
        Memory::Foreign { graph: self.graph, alloc: self.alloc }
    }
}

impl Graph {
    /// Returns the lifetimes that its nodes name.
    pub(super) fn pins(&self) -> impl Iterator<Item = Pin> + '_ {
        self.pins.iter().map(|(&(id, generation), &(graph, alloc))| Pin { graph, alloc, id, generation })
    }

    /// A node that names one life of what a launch of another graph left has been added.
    pub fn pin(&mut self, Pin { graph, alloc, id, generation }: Pin) {
        self.pins.insert((id, generation), (graph, alloc));
    }

    /// Returns the name of a lifetime that was [pinned](Self::pin) before.
    pub fn pinned(&self, id: AllocId, generation: u64) -> Option<Memory> {
        let (graph, alloc) = *self.pins.get(&(id, generation))?;
        Some(Memory::Foreign { graph, alloc })
    }

    /// Returns the lifetime that nodes mean by this memory, if they named one.
    pub fn pin_of(&self, memory: Memory) -> Option<Pin> {
        let Memory::Foreign { graph, alloc } = memory else { return None };
        self.pins().find(|pin| (pin.graph, pin.alloc) == (graph, alloc))
    }
}
