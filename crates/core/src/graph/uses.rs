//! The memory of a capture, checked with each node that is added: a fault is reported at the line that causes it.
//!
//! A captured node comes after its stream's tails and gets no other edges to existing nodes. So when it is made, it is
//! known for good if an alloc node, a free node or another use comes before it. The check of the whole graph finds what
//! is not known yet: the memory of child graphs.
//!
//! Depends on a graph and its nodes' accesses; not on streams.

use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

use super::fault::{FaultSubject, GraphFault, NodeSite};
use super::graph::{Graph, NodeKind};
use super::life::{Life, NodeUse, Wrong};
use super::node::{Access, GraphAllocId, Label, Memory, NodeId};
use crate::life::Kind;
use crate::op::{Act, Part};

/// The uses of memory by the nodes of a capture so far: see the module.
#[derive(Debug, Default)]
pub struct Uses {
    lives: FxHashMap<Memory, Life>,
}

impl Uses {
    /// Returns the uses by the nodes that a graph has.
    pub fn of(graph: &mut Graph) -> Self {
        let mut uses = Self::default();
        for node in graph.topological_order() {
            uses.added(graph, node);
        }
        uses
    }

    /// Checks that a node that comes after `tails` may use memory like this. `noun` and `label` are for the fault's
    /// text.
    ///
    /// # Errors
    /// The first wrong pair.
    pub fn check(
        &self,
        graph: &mut Graph,
        tails: &[NodeId],
        accesses: &[Access],
        may_share: bool,
        noun: &'static str,
        label: &Label,
    ) -> Result<(), Box<GraphFault>> {
        let node = NodeId(graph.len() as u32);
        graph.refresh();
        let wrong = accesses.iter().find_map(|access| {
            let later = NodeUse { node, act: access.kind() };
            let shares = |other| may_share && graph.node(other).is_some_and(|node| node.may_share);
            let is_before = |node| is_before(graph, tails, node);
            let wrong = self.ask(graph, access.memory, |life| life.check(later, access.part, is_before, shares))?;
            // The free was captured before, so the use is the later one.
            let wrong = match wrong.kind {
                Kind::FreeBeforeUse => Wrong { kind: Kind::UseAfterFree, earlier: wrong.later, later: wrong.earlier },
                _ => wrong,
            };
            Some((access.memory, wrong))
        });
        let Some((memory, wrong)) = wrong else { return Ok(()) };
        let mut fault = fault(graph, memory, wrong, (node, noun, label));
        for access in accesses.iter().filter(|_| wrong.kind.is_order()) {
            let later = NodeUse { node, act: access.kind() };
            let shares = |other| may_share && graph.node(other).is_some_and(|node| node.may_share);
            self.add_ends(graph, tails, access.memory, (later, access.part), shares, &mut fault);
        }
        Err(fault)
    }

    /// Checks that a node that comes after `tails` may free memory.
    ///
    /// # Errors
    /// The wrong pair.
    pub fn check_free(
        &self,
        graph: &mut Graph,
        tails: &[NodeId],
        memory: Memory,
        label: &Label,
    ) -> Result<(), Box<GraphFault>> {
        let later = NodeUse { node: NodeId(graph.len() as u32), act: Act::Free };
        graph.refresh();
        let is_before = |node| is_before(graph, tails, node);
        let wrong = self.ask(graph, memory, |life| life.check(later, Part::WHOLE, is_before, |_| false));
        let Some(wrong) = wrong else { return Ok(()) };
        let mut fault = fault(graph, memory, wrong, (later.node, "mem free", label));
        if wrong.kind.is_order() {
            self.add_ends(graph, tails, memory, (later, Part::WHOLE), |_| false, &mut fault);
        }
        Err(fault)
    }

    /// Adds the nodes from which an edge to the new node is missing, as far as this memory is concerned.
    #[cold]
    fn add_ends(
        &self,
        graph: &Graph,
        tails: &[NodeId],
        memory: Memory,
        (later, part): (NodeUse, Part),
        shares: impl Fn(NodeId) -> bool,
        fault: &mut GraphFault,
    ) {
        let comes_before = |a: NodeId, b: NodeId| match b == later.node {
            true => is_before(graph, tails, a),
            false => graph.index().reaches(a, b),
        };
        for end in self.ask(graph, memory, |life| life.ends(later, part, shares, comes_before)) {
            if let Some(node) = graph.node(end.node)
                && !fault.ends.iter().any(|known| known.origin[..] == [end.node])
            {
                let (noun, label) = (node.kind.noun(), node.label.clone());
                fault.ends.push(NodeSite { origin: smallvec![end.node], noun, act: end.act, label });
            }
        }
    }

    /// Records that a node was added.
    pub fn added(&mut self, graph: &mut Graph, id: NodeId) {
        graph.refresh();
        let Some(node) = graph.node(id) else { return };
        if let NodeKind::MemFree(memory) = node.kind {
            self.life(graph, memory).freed.get_or_insert(id);
        }
        for access in &node.accesses {
            let new = NodeUse { node: id, act: access.kind() };
            self.life(graph, access.memory).add(new, access.part, |other| graph.index().reaches(other, id));
        }
    }

    /// Returns the last uses of some memory, for an operation that must come after all of them.
    pub fn last(&self, memory: Memory) -> impl Iterator<Item = NodeId> + '_ {
        self.lives.get(&memory).into_iter().flat_map(Life::last)
    }

    /// Returns the dependencies of a free node that comes after all uses of an allocation of the graph: the last uses
    /// and the children that use it, or its alloc node if there are none.
    pub fn ends_of(&self, graph: &Graph, alloc: GraphAllocId) -> SmallVec<[NodeId; 4]> {
        let used = self.last(Memory::Own(alloc)).chain(graph.children_using(alloc));
        let mut ends: SmallVec<[NodeId; 4]> = used.collect();
        ends.sort_unstable();
        ends.dedup();
        if ends.is_empty() {
            ends.extend(graph.alloc(alloc).map(|alloc| alloc.node));
        }
        ends
    }

    fn life(&mut self, graph: &Graph, memory: Memory) -> &mut Life {
        self.lives.entry(memory).or_insert_with(|| Life::new(born(graph, memory)))
    }

    /// Calls `ask` with the life of the memory, or with a new one if nothing was done to the memory so far.
    fn ask<R>(&self, graph: &Graph, memory: Memory, ask: impl FnOnce(&Life) -> R) -> R {
        match self.lives.get(&memory) {
            Some(life) => ask(life),
            None => ask(&Life::new(born(graph, memory))),
        }
    }
}

/// Returns `true` if `node` comes before a node that comes after `tails`.
fn is_before(graph: &Graph, tails: &[NodeId], node: NodeId) -> bool {
    tails.iter().any(|&tail| graph.index().reaches_or_is(node, tail))
}

/// Returns the alloc node of the graph's own memory.
fn born(graph: &Graph, memory: Memory) -> Option<NodeId> {
    let Memory::Own(alloc) = memory else { return None };
    graph.alloc(alloc).map(|alloc| alloc.node)
}

/// Makes the fault with both nodes. `new` is the node that was not added.
#[cold]
fn fault(graph: &Graph, memory: Memory, wrong: Wrong, new: (NodeId, &'static str, &Label)) -> Box<GraphFault> {
    let site = |NodeUse { node: id, act }| match graph.node(id).filter(|_| id != new.0) {
        Some(node) => NodeSite { origin: smallvec![id], noun: node.kind.noun(), act, label: node.label.clone() },
        None => NodeSite { origin: smallvec![id], noun: new.1, act, label: new.2.clone() },
    };
    let mut subject = FaultSubject { memory, bytes: None, name: None };
    if let Memory::Own(alloc) = memory
        && let Some(alloc) = graph.alloc(alloc)
    {
        let name = graph.node(alloc.node).and_then(|node| node.label.name.as_deref());
        subject = FaultSubject { memory, bytes: Some(alloc.bytes), name: name.map(str::to_owned) };
    }
    // No node comes after the new one.
    let (earlier, later, is_turned) = (site(wrong.earlier), site(wrong.later), false);
    Box::new(GraphFault { kind: wrong.kind, subject, earlier, ends: Vec::new(), later, is_turned })
}
