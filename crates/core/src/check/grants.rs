//! What a graph may do with the memory of another: name it, and free it, which one node of all graphs does.
//!
//! Knows graphs and their children; no launch.

use super::checker::{Call, Checker, Step};
use super::finding::Finding;
use super::graph_state::{Graphs, Instance, Made};
use super::names::Key;
use crate::graph::{Addressing, Graph, Memory as NodeMemory};
use crate::ids::GraphId;
use crate::life::{Kind, Site};
use crate::op::Act;

impl Graphs {
    /// Who has the free node for memory of a graph that is gone.
    fn freed_by(&self, (graph, alloc): Key) -> Option<GraphId> {
        let frees = |it: &&Instance| it.graph_id() == graph && it.frees(alloc);
        let own = self.execs.values().find(frees).map(Instance::graph_id);
        own.or_else(|| self.grants.iter().find(|(_, keys)| keys.contains(&(graph, alloc))).map(|(by, _)| *by))
    }

    /// Whether a graph has another one in it, as a child at any depth.
    pub(super) fn has_child(&mut self, graph: GraphId, child: GraphId) -> bool {
        let captured = self.captured.get(&graph).and_then(|captured| captured.origin);
        let graph = match captured {
            Some(origin) => self.captures.graph(origin).map(|graph| &*graph),
            None => self.graphs.get(&graph).map(|made| &made.graph),
        };
        graph.is_some_and(|graph| graph.has_child(child))
    }

    /// Whether each instance of a graph, which may be gone, has addresses of its own.
    pub(super) fn is_symbolic(&self, graph: GraphId) -> bool {
        let is_it = |it: &Graph| it.addressing() == Addressing::Symbolic;
        match self.graphs.get(&graph) {
            Some(made) => is_it(&made.graph),
            None => self.execs.values().any(|it| it.graph_id() == graph && is_it(it.graph())),
        }
    }

    fn withdraw(&mut self, (graph, alloc): Key) {
        if let Some(owner) = self.graphs.get_mut(&graph) {
            owner.graph.withdraw_free(alloc);
        }
    }
}

impl Checker {
    /// Refuses memory of a graph whose instances have addresses of their own, unless that graph is in this one, which
    /// is made by hand: a capture has its addresses at once.
    pub(super) fn refuse_symbolic(&mut self, call: Call<'_>, graph: GraphId, owner: GraphId) -> Step {
        let is_by_hand = self.graphs.graphs.contains_key(&graph);
        if is_by_hand && self.graphs.has_child(graph, owner) || !self.graphs.is_symbolic(owner) {
            return Ok(());
        }
        let sentence = format!(
            "the addresses of {owner} are placed at each instantiation: its alloc nodes name no memory outside it"
        );
        let help = "take the memory from a launch, or make that graph a child of this one";
        let mut finding = Finding::new(Kind::GraphRefused, sentence, help);
        finding.later = Some(self.side(call, self.host_site(call, Act::Read), "added"));
        Err(Box::new(finding))
    }

    /// Another graph's memory is freed by one node of all graphs: what the graph is given to free, if that is new.
    pub(super) fn grant(&mut self, call: Call<'_>, to: GraphId, memory: NodeMemory, later: Site) -> Step<Option<Key>> {
        let NodeMemory::Foreign { graph, alloc } = memory else { return Ok(None) };
        // What a child of the graph makes is freed in each launch of the graph: no matter of the child's own launches.
        // That the graph frees it already is for the graph to say.
        let has_it = |keys: &Vec<Key>| keys.contains(&(graph, alloc));
        if self.graphs.has_child(to, graph) || self.graphs.grants.get(&to).is_some_and(has_it) {
            return Ok(None);
        }
        // Of a node that was removed, too, instances made before may leave memory.
        let is_there = |owner: &&mut Made| owner.graph.alloc(alloc).is_some();
        let granted = match self.graphs.graphs.get_mut(&graph).filter(is_there) {
            Some(owner) => owner.graph.grant_free(alloc, to).map_err(|error| error.to_string()),
            // An instance of it may be left.
            None => match self.graphs.freed_by((graph, alloc)) {
                Some(by) => Err(format!("{by} has a free node for {alloc} of {graph} already")),
                None => Ok(()),
            },
        };
        granted.map_err(|sentence| {
            let mut finding = Finding::new(Kind::DoubleFree, sentence, "free it once");
            finding.later = Some(self.act_side(call, later));
            Box::new(finding)
        })?;
        self.graphs.grants.entry(to).or_default().push((graph, alloc));
        Ok(Some((graph, alloc)))
    }

    /// The free node that a grant was for is added, or was refused: then nothing was granted.
    pub(super) fn keep_grant(&mut self, to: GraphId, granted: Option<Key>, added: Step) -> Step {
        if let (Err(_), Some(key)) = (&added, granted) {
            self.take_back(to, key);
        }
        added
    }

    pub(super) fn take_back(&mut self, to: GraphId, key: Key) {
        self.graphs.withdraw(key);
        if let Some(grants) = self.graphs.grants.get_mut(&to) {
            grants.retain(|it| *it != key);
        }
    }

    /// A graph is gone: another one may free what it would have freed, unless an instance of it is left.
    pub(super) fn withdraw_grants(&mut self, from: GraphId) {
        let is_left = |it: &Instance| it.graph_id() == from;
        if !self.graphs.grants.contains_key(&from)
            || self.graphs.graphs.contains_key(&from)
            || self.graphs.execs.values().any(is_left)
        {
            return;
        }
        for (graph, alloc) in self.graphs.grants.remove(&from).unwrap_or_default() {
            self.graphs.withdraw((graph, alloc));
        }
    }
}
