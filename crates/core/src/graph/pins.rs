//! Lives that nodes name of what other graphs' launches left.
//!
//! Memory of an alloc node has one name in a graph, [`Memory::Foreign`], whether a node names the alloc node or one
//! life that a launch gave it: with two names a use by one and a free by the other could not be compared. Which life
//! was named stands beside it, here, and each launch must find that one. Knows names only.

use super::graph::Graph;
use super::node::{GraphAllocId, GraphId, Memory};
use crate::ids::AllocId;

/// One life of another graph's memory: a launch that finds a later one there is refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Pin {
    /// The graph that allocates it.
    pub graph: GraphId,
    /// Which of its allocations.
    pub alloc: GraphAllocId,
    /// The allocation outside of graphs.
    pub id: AllocId,
    /// Which of its lives.
    pub generation: u64,
}

impl Pin {
    /// The name by which nodes know the memory.
    pub fn memory(&self) -> Memory {
        Memory::Foreign { graph: self.graph, alloc: self.alloc }
    }
}

impl Graph {
    /// What its nodes name by one life.
    pub(super) fn pins(&self) -> impl Iterator<Item = Pin> + '_ {
        self.pins.iter().map(|(&(id, generation), &(graph, alloc))| Pin { graph, alloc, id, generation })
    }

    /// A node that names one life of what a launch of another graph left has been added.
    pub fn pin(&mut self, Pin { graph, alloc, id, generation }: Pin) {
        self.pins.insert((id, generation), (graph, alloc));
    }

    /// The name of a life that was [pinned](Self::pin) before.
    pub fn pinned(&self, id: AllocId, generation: u64) -> Option<Memory> {
        let (graph, alloc) = *self.pins.get(&(id, generation))?;
        Some(Memory::Foreign { graph, alloc })
    }

    /// The life that nodes mean by this memory, where they named one.
    pub fn pin_of(&self, memory: Memory) -> Option<Pin> {
        let Memory::Foreign { graph, alloc } = memory else { return None };
        self.pins().find(|pin| (pin.graph, pin.alloc) == (graph, alloc))
    }
}
