//! The rules for a graph that names or frees memory of another graph. Only one node of all graphs frees an allocation.
//!
//! Knows graphs and their children; no launch.

use super::checker::{Call, Checker, Step};
use super::finding::Finding;
use super::graph_state::Graphs;
use super::names::Key;
use crate::graph::{Graph, Memory as NodeMemory, NodeKind, Others};
use crate::ids::GraphId;
use crate::op::{Act, Thing};

impl Graphs {
    /// Returns `true` if a graph exists, or an instance of it, or a graph or an instance that contains it.
    fn is_used(&self, graph: GraphId) -> bool {
        let has_it = |it: &Graph| it.id() == graph || it.has_child(graph);
        self.captures.graphs().any(|captured| has_it(&captured.graph))
            || self.graphs.values().any(|made| has_it(&made.graph))
            || self.execs.values().any(|it| !it.is_destroyed && has_it(&it.graph))
    }

    /// Returns the graph that has the free node for an alloc node's memory.
    pub(super) fn freed_by(&self, key: Key) -> Option<GraphId> {
        self.grants.get(&key).copied().filter(|by| self.is_used(*by))
    }

    /// Returns `true` if the graph that allocates the memory has the free node for it.
    pub(super) fn is_freed_by_its_own(&self, key: Key) -> bool {
        let alloc = self.known(key.0).and_then(|graph| graph.alloc(key.1));
        alloc.is_some_and(|alloc| alloc.freed.is_some())
    }

    /// Notes that a graph has the free node for an alloc node's memory.
    pub(super) fn grant(&mut self, key: Option<Key>, to: GraphId) {
        let Some(key) = key else { return };
        if self.grants.len() == self.grants.capacity() {
            // Unused entries are removed only when the table would grow. The graph `to` may not be in the tables yet.
            let mut grants = std::mem::take(&mut self.grants);
            grants.retain(|_, by| *by == to || self.is_used(*by));
            self.grants = grants;
        }
        self.grants.insert(key, to);
    }

    /// Returns the facts about other graphs that decide the change of a memory node. `key` is the memory of that node.
    pub(super) fn others(&self, graph: GraphId, key: Option<Key>) -> Others {
        let holder = self.graphs.get(&graph).and_then(|made| made.holder);
        Others { holder: holder.map(|it| it.0), freed_by: key.and_then(|key| self.freed_by(key)) }
    }

    /// Returns `true` if a graph contains another one as a child, at any depth.
    pub(super) fn has_child(&self, graph: GraphId, child: GraphId) -> bool {
        self.own(graph).is_some_and(|graph| graph.has_child(child))
    }
}

impl Checker {
    /// Refuses memory of a graph whose instances have addresses of their own. It is allowed if that graph is a child of
    /// this one and this one is made by hand: a capture needs the addresses at once.
    pub(super) fn refuse_symbolic(&mut self, call: Call<'_>, graph: GraphId, owner: GraphId) -> Step {
        let is_by_hand = self.graphs.capture_into(graph).is_none();
        if is_by_hand && self.graphs.has_child(graph, owner) || !self.graphs.names.is_symbolic(owner) {
            return Ok(());
        }
        let later = self.side(call, self.host_site(call, Act::Read), "added");
        Err(Box::new(Finding::symbolic(&call.names.title(Thing::Graph(owner))).at(later)))
    }

    /// Notes that a graph has lost a node: another graph may now free the memory that the node freed.
    pub(super) fn take_back(&mut self, from: GraphId, kind: &NodeKind) {
        let key = match *kind {
            NodeKind::MemFree(NodeMemory::Own(alloc)) => (from, alloc),
            NodeKind::MemFree(NodeMemory::Foreign { graph, alloc }) => (graph, alloc),
            _ => return,
        };
        if self.graphs.grants.get(&key) == Some(&from) {
            self.graphs.grants.remove(&key);
        }
    }
}
