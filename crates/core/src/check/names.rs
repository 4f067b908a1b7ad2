//! What a program calls the memory of alloc nodes.
//!
//! A graph knows its allocations by number, a program by name. A copy of a graph has memory of its own, which goes by
//! the original's names in the copy's nodes until it has names of its own. A name is kept for as long as a graph or an
//! instance has it. Knows no life.

use rustc_hash::FxHashMap;

use crate::graph::{Graph, GraphAllocId};
use crate::ids::GraphId;
use crate::op::Memory;

/// An alloc node's memory, as graphs name it.
pub(super) type Key = (GraphId, GraphAllocId);

/// The names that a graph has: see the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    pub(super) memory: FxHashMap<Key, Memory>,
    /// Of its own memory.
    own: FxHashMap<Memory, GraphAllocId>,
}

impl Names {
    /// What the program calls it.
    pub(super) fn of(&self, key: Key) -> Option<Memory> {
        self.memory.get(&key).copied()
    }

    /// The memory of the graph's own that a name means to its nodes.
    pub(super) fn own(&self, memory: Memory) -> Option<GraphAllocId> {
        self.own.get(&memory).copied()
    }

    /// Knows memory of the graph's own by a name from now on.
    pub(super) fn add_own(&mut self, alloc: GraphAllocId, memory: Memory) {
        self.own.insert(memory, alloc);
    }

    /// Memory of a graph's own has another name from now on: which it is, if it had the former one.
    pub(super) fn rename(&mut self, graph: GraphId, former: Memory, memory: Memory) -> Option<GraphAllocId> {
        let alloc = self.own.remove(&former)?;
        self.own.insert(memory, alloc);
        self.memory.insert((graph, alloc), memory);
        Some(alloc)
    }

    /// The names of a copy.
    pub(super) fn copied(&self, from: GraphId, to: GraphId) -> Self {
        let key = |(graph, alloc): Key| (if graph == from { to } else { graph }, alloc);
        Self { memory: self.memory.iter().map(|(it, memory)| (key(*it), *memory)).collect(), own: self.own.clone() }
    }

    /// Knows another graph's memory by a name from now on. Whether it did not before.
    pub(super) fn learn(&mut self, key: Key, memory: Memory) -> bool {
        self.memory.insert(key, memory).is_none()
    }

    /// What launches of a graph allocate.
    pub(super) fn made_by(&self, graph: &Graph) -> Vec<Memory> {
        let is_in = |of: GraphId| of == graph.id() || graph.has_child(of);
        self.memory.iter().filter(|(key, _)| is_in(key.0)).map(|(_, memory)| *memory).collect()
    }
}
