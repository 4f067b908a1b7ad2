//! The program's names for memory of alloc nodes.
//!
//! A graph knows its allocations by number, a program by name. A name is kept for as long as a graph or an instance may
//! use it. Knows no lifetime.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::graph::{Addressing, Graph, GraphAllocId};
use crate::ids::GraphId;
use crate::op::Memory;

/// The memory of an alloc node, as graphs name it.
pub(super) type Key = (GraphId, GraphAllocId);

/// The graphs whose memory a graph or an instance may name: its own, that of its children, and that of others.
pub(super) type Held = SmallVec<[GraphId; 2]>;

/// The names of the memory of all graphs.
#[derive(Debug, Default)]
pub(super) struct Names {
    of: FxHashMap<GraphId, OfGraph>,
    keys: FxHashMap<Memory, Key>,
}

/// The names of the memory of one graph, which may no longer exist.
#[derive(Debug, Default)]
struct OfGraph {
    /// The number of graphs and instances that hold the names.
    holders: u32,
    /// `true` if each instance of the graph has addresses of its own.
    is_symbolic: bool,
    memory: FxHashMap<GraphAllocId, Memory>,
}

impl Names {
    /// Returns the program's name for an alloc node's memory.
    pub(super) fn of(&self, key: Key) -> Option<Memory> {
        self.of.get(&key.0)?.memory.get(&key.1).copied()
    }

    /// Returns the alloc node's memory that a name means.
    pub(super) fn key(&self, memory: Memory) -> Option<Key> {
        self.keys.get(&memory).copied()
    }

    /// Returns `true` if a graph or an instance may name memory of this graph.
    pub(super) fn is_held(&self, graph: GraphId) -> bool {
        self.of.contains_key(&graph)
    }

    /// Adds the name of memory that a graph with this addressing allocates.
    pub(super) fn add(&mut self, key: Key, memory: Memory, addressing: Addressing) {
        let of = self.of.entry(key.0).or_default();
        of.is_symbolic = addressing == Addressing::Symbolic;
        of.memory.insert(key.1, memory);
        self.keys.insert(memory, key);
    }

    /// Returns `true` if each instance of the graph has addresses of its own.
    pub(super) fn is_symbolic(&self, graph: GraphId) -> bool {
        self.of.get(&graph).is_some_and(|of| of.is_symbolic)
    }

    /// Notes that another graph or instance holds names.
    pub(super) fn hold(&mut self, held: &Held) {
        held.iter().for_each(|graph| self.of.entry(*graph).or_default().holders += 1);
    }

    /// Notes that a graph or instance no longer holds names. Returns the names that nothing holds any more.
    pub(super) fn release(&mut self, held: &Held) -> Vec<Memory> {
        let mut gone = Vec::new();
        for graph in held {
            let Some(of) = self.of.get_mut(graph) else { continue };
            of.holders -= 1;
            if of.holders == 0 {
                gone.extend(self.of.remove(graph).into_iter().flat_map(|of| of.memory.into_values()));
            }
        }
        for memory in &gone {
            self.keys.remove(memory);
        }
        gone
    }

    /// Returns the memory that launches of a graph allocate.
    pub(super) fn made_by(&self, graph: &Graph, held: &Held) -> Vec<Memory> {
        let is_in = |of: &&GraphId| **of == graph.id() || graph.has_child(**of);
        let of = held.iter().filter(is_in).filter_map(|of| self.of.get(of));
        of.flat_map(|of| of.memory.values().copied()).collect()
    }
}
