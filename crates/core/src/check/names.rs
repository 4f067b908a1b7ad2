//! What a program calls the memory of alloc nodes.
//!
//! A graph knows its allocations by number, a program by name. A copy of a graph goes by the names of its original,
//! whose addresses it has, and a graph with children has their names beside its own. So a name says which place is
//! meant, and leads to what the latest launch left there, of whichever graph and instance. A name is kept for as long
//! as a graph or an instance has it. Knows no life.

use rustc_hash::FxHashMap;

use crate::graph::GraphAllocId;
use crate::ids::{GraphId, NodeId};
use crate::op::Memory;

/// An alloc node's memory, as graphs name it.
pub(super) type Key = (GraphId, GraphAllocId);

/// The names that a graph has: see the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    pub(super) memory: FxHashMap<Key, Memory>,
    /// Of its own memory and its children's.
    pub(super) keys: FxHashMap<Memory, Key>,
    /// Of each child node's, in the order in which they were added: of two the first is meant.
    pub(super) children: Vec<(NodeId, FxHashMap<Memory, Key>)>,
}

impl Names {
    /// What the program calls it.
    pub(super) fn of(&self, key: Key) -> Option<Memory> {
        self.memory.get(&key).copied()
    }

    /// What a name means to nodes of this graph, if it is memory of the graph or of a child.
    pub(super) fn key(&self, memory: Memory) -> Option<Key> {
        self.keys.get(&memory).copied()
    }

    /// Memory of a graph's own has another name from now on. Whether it had the former one.
    pub(super) fn rename(&mut self, graph: GraphId, former: Memory, memory: Memory) -> bool {
        let Some(key) = self.key(former).filter(|key| key.0 == graph) else { return false };
        self.keys.remove(&former);
        self.keys.insert(memory, key);
        self.memory.insert(key, memory);
        self.find_keys(graph);
        true
    }

    /// The names of a copy. It knows the original's memory as well: nodes of children go on to mean that.
    pub(super) fn copied(&self, from: GraphId, to: GraphId) -> Self {
        let key = |(graph, alloc): Key| (if graph == from { to } else { graph }, alloc);
        let originals = self.memory.iter().map(|(it, memory)| (*it, *memory));
        let copies = originals.clone().map(|(it, memory)| (key(it), memory));
        Self {
            memory: originals.chain(copies).collect(),
            keys: self.keys.iter().map(|(memory, it)| (*memory, key(*it))).collect(),
            children: self.children.clone(),
        }
    }

    /// What names mean that are its children's.
    pub(super) fn find_keys(&mut self, graph: GraphId) {
        for (memory, key) in self.children.iter().flat_map(|(_, keys)| keys) {
            // An older state of the graph itself is another graph's memory, by the names of this one.
            if key.0 != graph {
                self.keys.entry(*memory).or_insert(*key);
            }
        }
    }

    /// An instance becomes another graph's, whose names mean what they mean there; what its launches left keeps the
    /// former ones, too. The names that are new.
    pub(super) fn turn_into(&mut self, other: &Names) -> Vec<Memory> {
        (self.keys, self.children) = (other.keys.clone(), other.children.clone());
        let new = other.memory.iter().filter(|(key, memory)| self.memory.insert(**key, **memory).is_none());
        new.map(|(_, memory)| *memory).collect()
    }

    /// Knows another graph's memory by a name from now on. Whether it did not before.
    pub(super) fn learn(&mut self, key: Key, memory: Memory) -> bool {
        self.memory.insert(key, memory).is_none()
    }
}
