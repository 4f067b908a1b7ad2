//! The memory of a capture, looked at with each node that is added: what is wrong is refused at the line that makes it.
//!
//! A captured node comes after its stream's tails and gets no other edges to what is there before. So whether an
//! alloc node, a free node or another use comes before it is known when it is made, for good. What is not known yet is
//! left to the check of the whole graph: memory of child graphs.
//!
//! Knows a graph and what its nodes say of memory; no streams.

use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};

use super::fault::{FaultSubject, GraphFault, NodeSite};
use super::graph::{Graph, NodeKind};
use super::life::{Life, NodeUse, Wrong};
use super::node::{Access, GraphAllocId, Label, Memory, NodeId};
use crate::life::Kind;
use crate::op::{Act, Part};

/// What the nodes of a capture did so far: see the module.
#[derive(Debug, Default)]
pub struct Uses {
    lives: FxHashMap<Memory, Life>,
}

impl Uses {
    /// Whether a node that comes after `tails` may use memory like this; `noun` and `label` are for words. Fine: `Ok`.
    ///
    /// # Errors
    /// The first pair that is wrong.
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
            let wrong = self.of(graph, access.memory, |life| life.check(later, access.part, is_before, shares))?;
            // The free was captured before: the use is the one that comes too late.
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

    /// Whether a node that comes after `tails` may free memory.
    ///
    /// # Errors
    /// The pair that is wrong.
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
        let wrong = self.of(graph, memory, |life| life.check(later, Part::WHOLE, is_before, |_| false));
        let Some(wrong) = wrong else { return Ok(()) };
        let mut fault = fault(graph, memory, wrong, (later.node, "mem free", label));
        if wrong.kind.is_order() {
            self.add_ends(graph, tails, memory, (later, Part::WHOLE), |_| false, &mut fault);
        }
        Err(fault)
    }

    /// Adds the nodes from which an edge to the new node is missing, as far as it is about this memory.
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
        for end in self.of(graph, memory, |life| life.ends(later, part, shares, comes_before)) {
            if let Some(node) = graph.node(end.node)
                && !fault.ends.iter().any(|known| known.origin[..] == [end.node])
            {
                let (noun, label) = (node.kind.noun(), node.label.clone());
                fault.ends.push(NodeSite { origin: smallvec![end.node], noun, act: end.act, label });
            }
        }
    }

    /// A node was added.
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

    /// The last uses of some memory, for what has to come after all of them.
    pub fn last(&self, memory: Memory) -> impl Iterator<Item = NodeId> + '_ {
        self.lives.get(&memory).into_iter().flat_map(Life::last)
    }

    /// The dependencies of a free node after all uses of memory of the graph: its last uses and the children that use
    /// it, or else its alloc node.
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

    /// Asks a life; a new one, where nothing was done to the memory so far.
    fn of<R>(&self, graph: &Graph, memory: Memory, ask: impl FnOnce(&Life) -> R) -> R {
        match self.lives.get(&memory) {
            Some(life) => ask(life),
            None => ask(&Life::new(born(graph, memory))),
        }
    }
}

/// Whether `node` comes before whatever comes after `tails`.
fn is_before(graph: &Graph, tails: &[NodeId], node: NodeId) -> bool {
    tails.iter().any(|&tail| graph.index().reaches_or_is(node, tail))
}

/// The alloc node of memory of the graph itself.
fn born(graph: &Graph, memory: Memory) -> Option<NodeId> {
    let Memory::Own(alloc) = memory else { return None };
    graph.alloc(alloc).map(|alloc| alloc.node)
}

/// Both sides in words; `new` is the node that was not added.
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
    // Nothing comes after the node that is new.
    let (earlier, later, is_turned) = (site(wrong.earlier), site(wrong.later), false);
    Box::new(GraphFault { kind: wrong.kind, subject, earlier, ends: Vec::new(), later, is_turned })
}
