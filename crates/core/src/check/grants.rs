//! What a graph may do with the memory of another: name it, and free it, which one node of all graphs does.
//!
//! Knows graphs and their children; no launch.

use super::checker::{Call, Checker, Step};
use super::finding::Finding;
use super::graph_state::Graphs;
use super::names::Key;
use crate::graph::{Addressing, Graph, GraphError, Memory as NodeMemory, NodeKind};
use crate::ids::{GraphId, NodeId};
use crate::life::Site;
use crate::op::{Act, Thing};

impl Graphs {
    /// Whether a graph is there, or what was made with it: an instance, a graph that it is in.
    fn is_used(&self, graph: GraphId) -> bool {
        let has_it = |it: &Graph| it.id() == graph || it.has_child(graph);
        self.captured.contains_key(&graph)
            || self.graphs.values().any(|made| has_it(&made.graph))
            || self.execs.values().any(|it| !it.is_destroyed && has_it(&it.graph))
    }

    /// The graph that has the free node for an alloc node's memory.
    fn freed_by(&self, key: Key) -> Option<GraphId> {
        self.grants.get(&key).copied().filter(|by| self.is_used(*by))
    }

    /// Whether the graph that allocates memory has the free node for it.
    pub(super) fn is_freed_by_its_own(&self, key: Key) -> bool {
        let alloc = self.known(key.0).and_then(|graph| graph.alloc(key.1));
        alloc.is_some_and(|alloc| alloc.freed.is_some())
    }

    /// A graph has the free node for an alloc node's memory.
    fn grant(&mut self, key: Key, to: GraphId) {
        if self.grants.len() == self.grants.capacity() {
            // Before it grows, and not more often. This graph may be in the making.
            let mut grants = std::mem::take(&mut self.grants);
            grants.retain(|_, by| *by == to || self.is_used(*by));
            self.grants = grants;
        }
        self.grants.insert(key, to);
    }

    /// What a graph may have the free node for, if others must not have it, too. What a child of the graph makes is
    /// freed in each launch of the graph: no matter of the child's own launches. That the graph frees it already is for
    /// the graph to say.
    fn granted(&mut self, to: GraphId, memory: NodeMemory) -> Option<Key> {
        match memory {
            NodeMemory::Own(alloc) => {
                Some((to, alloc)).filter(|_| self.own(to).is_none_or(|graph| graph.alloc(alloc).is_some()))
            }
            NodeMemory::Foreign { graph, alloc } => Some((graph, alloc)).filter(|_| !self.has_child(to, graph)),
            NodeMemory::External { .. } => None,
        }
    }

    /// Whether a graph has another one in it, as a child at any depth.
    pub(super) fn has_child(&self, graph: GraphId, child: GraphId) -> bool {
        self.own(graph).is_some_and(|graph| graph.has_child(child))
    }

    /// Whether each instance of a graph, which may be gone, has addresses of its own.
    pub(super) fn is_symbolic(&self, graph: GraphId) -> bool {
        let is_it = |it: &Graph| it.addressing() == Addressing::Symbolic;
        match self.graphs.get(&graph) {
            Some(made) => is_it(&made.graph),
            None => self.execs.values().any(|it| it.graph.id() == graph && is_it(&it.graph)),
        }
    }
}

impl Checker {
    /// Refuses memory of a graph whose instances have addresses of their own, unless that graph is in this one, which
    /// is made by hand: a capture has its addresses at once.
    pub(super) fn refuse_symbolic(&mut self, call: Call<'_>, graph: GraphId, owner: GraphId) -> Step {
        let is_by_hand = !self.graphs.captured.contains_key(&graph);
        if is_by_hand && self.graphs.has_child(graph, owner) || !self.graphs.is_symbolic(owner) {
            return Ok(());
        }
        let later = self.side(call, self.host_site(call, Act::Read), "added");
        Err(Box::new(Finding::symbolic(&call.names.title(Thing::Graph(owner))).at(later)))
    }

    /// Refuses where another graph has the free node for an alloc node's memory: one node of all graphs has. Of a node
    /// that was removed, too, instances made before may leave memory.
    pub(super) fn check_grant(&mut self, call: Call<'_>, to: GraphId, memory: NodeMemory, later: Site) -> Step {
        let Some(key) = self.graphs.granted(to, memory) else { return Ok(()) };
        let Some(by) = self.graphs.freed_by(key).filter(|by| *by != to) else { return Ok(()) };
        let own = self.graphs.graphs.get(&key.0).filter(|_| by == key.0);
        let finding = match own.map(|owner| owner.graph.check_unfreed(key.1)) {
            Some(Err(freed)) => Finding::of_change(&freed, |node| node.to_string(), |graph| graph.to_string()),
            _ => {
                let [by, owner] = [by, key.0].map(|graph| call.names.title(Thing::Graph(graph)));
                Finding::freed_by_other(&by, key.1, &owner)
            }
        };
        Err(Box::new(finding.at(self.act_side(call, later))))
    }

    /// A graph has a free node.
    pub(super) fn grant(&mut self, to: GraphId, memory: NodeMemory) {
        if let Some(key) = self.graphs.granted(to, memory) {
            self.graphs.grant(key, to);
        }
    }

    /// A graph is to lose a node: what refuses that of the memory that it makes.
    pub(super) fn check_ungranted(&self, graph: GraphId, node: NodeId, kind: &NodeKind) -> Result<(), GraphError> {
        let NodeKind::MemAlloc(alloc) = *kind else { return Ok(()) };
        match self.graphs.freed_by((graph, alloc)).filter(|by| *by != graph) {
            Some(by) => Err(GraphError::FreedElsewhere { node, by }),
            None => Ok(()),
        }
    }

    /// A graph has lost a node: another one may free what that freed.
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
