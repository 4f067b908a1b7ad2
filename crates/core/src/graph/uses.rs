//! The memory of a capture, looked at with each node that is added: what is wrong is refused at the line that makes it.
//!
//! A captured node comes after its stream's tails and gets no other edges to what is there before. So whether an
//! alloc node, a free node or another use comes before it is known when it is made, for good. What is not known yet is
//! left to the check of the whole graph: memory of child graphs.
//!
//! Knows a graph and what its nodes say of memory; no streams.

use rustc_hash::FxHashMap;
use smallvec::smallvec;

use super::fault::{FaultSubject, GraphFault, GraphFaultKind, NodeSite};
use super::graph::{Graph, NodeKind};
use super::life::{Life, Wrong};
use super::node::{Access, Label, Memory, NodeId};
use crate::op::Act;

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
        let id = NodeId(graph.len() as u32);
        graph.refresh();
        let wrong = accesses.iter().find_map(|access| {
            let act = if access.act == Act::Read { Act::Read } else { Act::Write };
            let shares = |other| may_share && graph.node(other).is_some_and(|node| node.may_share);
            let wrong = before_alloc(graph, tails, access.memory, (id, act)).or_else(|| {
                let life = self.lives.get(&access.memory)?;
                let wrong = life.check_use(id, act, |node| is_before(graph, tails, node), shares)?;
                // The free was captured before: the use is the one that comes too late.
                Some(match wrong.kind {
                    GraphFaultKind::FreeBeforeUse => {
                        Wrong { kind: GraphFaultKind::UseAfterFree, earlier: wrong.later, later: wrong.earlier }
                    }
                    _ => wrong,
                })
            });
            wrong.map(|wrong| (access.memory, wrong))
        });
        wrong.map_or(Ok(()), |(memory, wrong)| Err(fault(graph, memory, wrong, (id, noun, label))))
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
        let id = NodeId(graph.len() as u32);
        graph.refresh();
        let life = self.lives.get(&memory);
        let wrong = match life.is_some_and(|life| life.freed.is_some()) {
            true => None,
            false => before_alloc(graph, tails, memory, (id, Act::Free)),
        };
        let wrong = wrong.or_else(|| life?.check_free(id, |node| is_before(graph, tails, node)));
        wrong.map_or(Ok(()), |wrong| Err(fault(graph, memory, wrong, (id, "mem free", label))))
    }

    /// A node was added.
    pub fn added(&mut self, graph: &mut Graph, id: NodeId) {
        graph.refresh();
        let Some(node) = graph.node(id) else { return };
        if let NodeKind::MemFree(memory) = node.kind {
            self.lives.entry(memory).or_default().freed.get_or_insert(id);
        }
        for access in &node.accesses {
            let is_before = |other| graph.index().reaches(other, id);
            self.lives.entry(access.memory).or_default().add_use(id, access.act, is_before);
        }
    }

    /// The last uses of some memory, for what has to come after all of them.
    pub fn last(&self, memory: Memory) -> impl Iterator<Item = NodeId> + '_ {
        let life = self.lives.get(&memory);
        life.into_iter().flat_map(|life| life.writes.iter().chain(&life.reads).copied())
    }
}

/// Whether `node` comes before whatever comes after `tails`.
fn is_before(graph: &Graph, tails: &[NodeId], node: NodeId) -> bool {
    tails.iter().any(|&tail| graph.index().reaches_or_is(node, tail))
}

fn before_alloc(graph: &Graph, tails: &[NodeId], memory: Memory, later: (NodeId, Act)) -> Option<Wrong> {
    let Memory::Own(alloc) = memory else { return None };
    let born = graph.alloc(alloc)?.node;
    let kind = if later.1 == Act::Free { GraphFaultKind::FreeBeforeAlloc } else { GraphFaultKind::UseBeforeAlloc };
    (!is_before(graph, tails, born)).then_some(Wrong { kind, earlier: (born, Act::Allocate), later })
}

/// Both sides in words; `new` is the node that was not added.
#[cold]
fn fault(graph: &Graph, memory: Memory, wrong: Wrong, new: (NodeId, &'static str, &Label)) -> Box<GraphFault> {
    let site = |(id, act): (NodeId, Act)| match graph.node(id).filter(|_| id != new.0) {
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
    Box::new(GraphFault { kind: wrong.kind, subject, earlier, later, is_turned })
}
