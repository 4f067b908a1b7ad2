//! What a program calls the memory of alloc nodes.
//!
//! A graph knows its allocations by number, a program by name. A name is kept for as long as a graph or an instance may
//! use it. Knows no life.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::graph::{Graph, GraphAllocId};
use crate::ids::GraphId;
use crate::op::Memory;

/// An alloc node's memory, as graphs name it.
pub(super) type Key = (GraphId, GraphAllocId);

/// The graphs whose memory a graph or an instance may name: its own, that of its children, and of others.
pub(super) type Held = SmallVec<[GraphId; 2]>;

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Of each graph how many graphs and instances hold its names, and these.
    of: FxHashMap<GraphId, (u32, FxHashMap<GraphAllocId, Memory>)>,
    keys: FxHashMap<Memory, Key>,
}

impl Names {
    /// What the program calls it.
    pub(super) fn of(&self, key: Key) -> Option<Memory> {
        self.of.get(&key.0)?.1.get(&key.1).copied()
    }

    /// What a name means to nodes.
    pub(super) fn key(&self, memory: Memory) -> Option<Key> {
        self.keys.get(&memory).copied()
    }

    /// Whether a graph or an instance may name memory of this graph.
    pub(super) fn is_held(&self, graph: GraphId) -> bool {
        self.of.contains_key(&graph)
    }

    pub(super) fn add(&mut self, key: Key, memory: Memory) {
        self.of.entry(key.0).or_default().1.insert(key.1, memory);
        self.keys.insert(memory, key);
    }

    /// Another graph or instance holds names.
    pub(super) fn hold(&mut self, held: &Held) {
        held.iter().for_each(|graph| self.of.entry(*graph).or_default().0 += 1);
    }

    /// A graph or instance holds names no longer: those that none does any more.
    pub(super) fn release(&mut self, held: &Held) -> Vec<Memory> {
        let mut gone = Vec::new();
        for graph in held {
            let Some(of) = self.of.get_mut(graph) else { continue };
            of.0 -= 1;
            if of.0 == 0 {
                gone.extend(self.of.remove(graph).into_iter().flat_map(|of| of.1.into_values()));
            }
        }
        for memory in &gone {
            self.keys.remove(memory);
        }
        gone
    }

    /// What launches of a graph allocate.
    pub(super) fn made_by(&self, graph: &Graph, held: &Held) -> Vec<Memory> {
        let is_in = |of: &&GraphId| **of == graph.id() || graph.has_child(**of);
        let of = held.iter().filter(is_in).filter_map(|of| self.of.get(of));
        of.flat_map(|of| of.1.values().copied()).collect()
    }
}
