//! What a program calls the memory of alloc nodes.
//!
//! A graph knows its allocations by number, a program by name. A copy of a graph goes by the names of its original,
//! whose addresses it has, and a graph with children has their names beside its own. So a name says which place is
//! meant, and leads to what the latest launch left there, of whichever graph and instance. A name is kept for as long
//! as a graph or an instance has it. Knows no life.

use rustc_hash::FxHashMap;

use super::graphs::Graphs;
use crate::graph::GraphAllocId;
use crate::ids::{GraphId, NodeId};
use crate::op::Memory;

/// An alloc node's memory, as graphs name it.
pub(super) type Key = (GraphId, GraphAllocId);

/// The names that a graph has: see the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    memory: FxHashMap<Key, Memory>,
    /// Of its own memory and its children's.
    keys: FxHashMap<Memory, Key>,
    /// Of each child node's, in the order in which they were added: of two the first is meant.
    children: Vec<(NodeId, FxHashMap<Memory, Key>)>,
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
    fn rename(&mut self, graph: GraphId, former: Memory, memory: Memory) -> bool {
        let Some(key) = self.key(former).filter(|key| key.0 == graph) else { return false };
        self.keys.remove(&former);
        self.keys.insert(memory, key);
        self.memory.insert(key, memory);
        self.find_keys(graph);
        true
    }

    /// The names of a copy; with those of an older state of the original that is inside, as a child.
    pub(super) fn copied(&self, from: GraphId, to: GraphId, is_inside: bool) -> Self {
        let key = |(graph, alloc): Key| (if graph == from { to } else { graph }, alloc);
        let inside = self.memory.iter().filter(|(it, _)| is_inside && it.0 == from).map(|(it, memory)| (*it, *memory));
        Self {
            memory: self.memory.iter().map(|(it, memory)| (key(*it), *memory)).chain(inside).collect(),
            keys: self.keys.iter().map(|(memory, it)| (*memory, key(*it))).collect(),
            children: self.children.clone(),
        }
    }

    /// What names mean that are its children's.
    fn find_keys(&mut self, graph: GraphId) {
        for (memory, key) in self.children.iter().flat_map(|(_, keys)| keys) {
            // An older state of the graph itself is another graph's memory, by the names of this one.
            if key.0 != graph {
                self.keys.entry(*memory).or_insert(*key);
            }
        }
    }

    /// Knows all that another graph knows: the names that are new.
    pub(super) fn learn_all(&mut self, other: &Names) -> Vec<Memory> {
        let new = other.memory.iter().filter(|(key, memory)| self.memory.insert(**key, **memory).is_none());
        new.map(|(_, memory)| *memory).collect()
    }

    /// Knows another graph's memory by a name from now on. Whether it did not before.
    fn learn(&mut self, key: Key, memory: Memory) -> bool {
        self.memory.insert(key, memory).is_none()
    }
}

impl Graphs {
    /// The names of a graph, also while it is captured.
    pub(super) fn names_of(&self, graph: GraphId) -> Option<&Names> {
        let captured = self.captured.get(&graph).map(|captured| &captured.names);
        captured.or_else(|| self.graphs.get(&graph).map(|made| &made.names))
    }

    fn names_mut(&mut self, graph: GraphId) -> Option<&mut Names> {
        match self.captured.get_mut(&graph) {
            Some(captured) => Some(&mut captured.names),
            None => self.graphs.get_mut(&graph).map(|made| &mut made.names),
        }
    }

    /// A graph has memory of its own by this name.
    pub(super) fn name_own(&mut self, graph: GraphId, alloc: GraphAllocId, memory: Memory) {
        self.name_foreign(graph, (graph, alloc), memory);
        if let Some(names) = self.names_mut(graph) {
            names.keys.insert(memory, (graph, alloc));
        }
    }

    /// A graph has memory of its own by another name from now on: its number, and whether no graph or instance has the
    /// former one any more.
    pub(super) fn rename_own(
        &mut self,
        graph: GraphId,
        former: Memory,
        memory: Memory,
    ) -> Option<(GraphAllocId, bool)> {
        let names = self.names_mut(graph)?;
        let (_, alloc) = names.key(former)?;
        if !names.rename(graph, former, memory) {
            return None;
        }
        self.hold_each([&memory]);
        Some((alloc, self.let_go(former)))
    }

    /// A graph uses another one's memory by this name.
    pub(super) fn name_foreign(&mut self, graph: GraphId, key: Key, memory: Memory) {
        if self.names_mut(graph).is_some_and(|names| names.learn(key, memory)) {
            *self.holds.entry(memory).or_default() += 1;
        }
    }

    /// A graph has a child with these names.
    pub(super) fn adopt(&mut self, graph: GraphId, node: NodeId, child: &Names) {
        child.memory.iter().for_each(|(key, memory)| self.name_foreign(graph, *key, *memory));
        if let Some(names) = self.names_mut(graph) {
            names.children.push((node, child.keys.clone()));
            names.find_keys(graph);
        }
    }

    /// A graph has lost a child: its names mean memory of another one, or of none that is in the graph.
    pub(super) fn abandon(&mut self, graph: GraphId, node: NodeId) {
        if let Some(names) = self.names_mut(graph) {
            names.children.retain(|(child, _)| *child != node);
            names.keys.retain(|_, key| key.0 == graph);
            names.find_keys(graph);
        }
    }

    /// Another graph or instance has these names, too.
    pub(super) fn hold(&mut self, names: &Names) {
        self.hold_each(names.memory.values());
    }

    /// As [`hold`](Self::hold), some of them.
    pub(super) fn hold_each<'n>(&mut self, names: impl IntoIterator<Item = &'n Memory>) {
        names.into_iter().for_each(|memory| *self.holds.entry(*memory).or_default() += 1);
    }

    /// A graph or instance has these names no longer: those that none has any more.
    pub(super) fn release(&mut self, names: &Names) -> Vec<Memory> {
        names.memory.values().copied().filter(|memory| self.let_go(*memory)).collect()
    }

    /// One graph or instance less has a name: whether none has it any more.
    fn let_go(&mut self, memory: Memory) -> bool {
        let Some(holds) = self.holds.get_mut(&memory) else { return false };
        *holds -= 1;
        let is_gone = *holds == 0;
        if is_gone {
            self.holds.remove(&memory);
            self.latest.remove(&memory);
            self.called.remove(&memory);
        }
        is_gone
    }
}
