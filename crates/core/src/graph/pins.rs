//! Lives that nodes name of what other graphs' launches left.
//!
//! Memory of an alloc node has one name in a graph, [`Memory::Foreign`], whether a node names the alloc node or one
//! life that a launch gave it: with two names a use by one and a free by the other could not be compared. Which life
//! was named stands beside it, here, and each launch must find that one. Knows names only.

use rustc_hash::FxHashMap;

use super::node::{GraphAllocId, GraphId, Memory};
use crate::ids::AllocId;

/// A life by the name that it has outside of graphs.
type Named = (AllocId, u64);

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

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Pins(FxHashMap<Named, (GraphId, GraphAllocId)>);

impl Pins {
    pub(super) fn all(&self) -> impl Iterator<Item = Pin> + '_ {
        self.0.iter().map(|(&(id, generation), &(graph, alloc))| Pin { graph, alloc, id, generation })
    }

    /// A node is to name one life: the name to give it.
    pub(super) fn add(&mut self, Pin { graph, alloc, id, generation }: Pin) -> Memory {
        self.0.insert((id, generation), (graph, alloc));
        Memory::Foreign { graph, alloc }
    }

    /// The name of a life that was added before.
    pub(super) fn named(&self, id: AllocId, generation: u64) -> Option<Memory> {
        let (graph, alloc) = *self.0.get(&(id, generation))?;
        Some(Memory::Foreign { graph, alloc })
    }
}
