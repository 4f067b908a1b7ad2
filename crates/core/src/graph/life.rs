//! The uses of one piece of memory by the nodes of a graph, met one after the other, and their faults.
//!
//! The rules are those of all memory ([`History`]). Here the parties are nodes, and the free is met like a use.
//! Departure: many nodes may read one piece of memory, and comparing each read with all others would cost the square of
//! their number. So reads are dropped only from time to time: after as many new reads as were kept the last time.
//!
//! Depends on nodes by number; the caller supplies their order. Used for the check of a whole graph, and for a capture,
//! which adds one node after the other, with no later edges to the nodes before.

use super::node::NodeId;
use crate::life::{Done, History, Kind};
use crate::op::{Act, Part};

/// The least number of reads that are kept before they are thinned out.
const READS_KEPT: u32 = 16;

/// The most missing edges of one node that are examined together.
const ENDS_MAX: usize = 256;

/// An act of a node on memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NodeUse {
    pub(super) node: NodeId,
    pub(super) act: Act,
}

impl Done for NodeUse {
    fn act(&self) -> Act {
        self.act
    }
}

/// Stands for the alloc node of memory from outside the graph: it comes before all nodes.
const OUTSIDE: NodeId = NodeId(u32::MAX);

/// The uses of one piece of memory up to some node.
#[derive(Clone, Debug)]
pub(super) struct Life {
    history: History<NodeUse>,
    pub(super) freed: Option<NodeId>,
    /// The number of reads that may still be added without a comparison.
    spare: u32,
}

/// A wrong pair of nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wrong {
    pub(super) kind: Kind,
    pub(super) earlier: NodeUse,
    pub(super) later: NodeUse,
}

impl Life {
    /// Makes the life of an alloc node's memory. `None` is for memory from outside, which existed before all nodes.
    pub(super) fn new(born: Option<NodeId>) -> Self {
        let born = NodeUse { node: born.unwrap_or(OUTSIDE), act: Act::Allocate };
        Life { history: History::new(born), freed: None, spare: READS_KEPT }
    }

    /// Returns the fault of an act of a node on some bytes. `is_before` holds for the nodes that come before it;
    /// `shares` holds for those that promise, as it does, to share.
    pub(super) fn check(
        &self,
        later: NodeUse,
        part: Part,
        is_before: impl Fn(NodeId) -> bool,
        shares: impl Fn(NodeId) -> bool,
    ) -> Option<Wrong> {
        let precedes = |it: NodeId| it == OUTSIDE || it == later.node || is_before(it) || shares(it);
        let broken = self.history.check(later.act, part, true, |earlier| precedes(earlier.node)).err();
        let is_unborn = broken.is_some_and(|(kind, _)| kind == Kind::UseBeforeAlloc);
        match self.freed.map(|node| NodeUse { node, act: Act::Free }).filter(|_| !is_unborn) {
            Some(free) if later.act != Act::Free && !is_before(free.node) => {
                Some(Wrong { kind: Kind::FreeBeforeUse, earlier: later, later: free })
            }
            Some(free) => Some(Wrong { kind: Kind::after_free(later.act), earlier: free, later }),
            None => broken.map(|(kind, earlier)| Wrong { kind, earlier, later }),
        }
    }

    /// Returns the nodes that must come before an act of a node and do not, as far as an edge can put them there: at
    /// most [`ENDS_MAX`], and only the last ones of those that are ordered.
    pub(super) fn ends(
        &self,
        later: NodeUse,
        part: Part,
        shares: impl Fn(NodeId) -> bool,
        is_before: impl Fn(NodeId, NodeId) -> bool,
    ) -> Vec<NodeUse> {
        let must_precede = |it: &&NodeUse| later.act == Act::Free || later.act.conflicts(it.act);
        let is_missing = |it: &&NodeUse| {
            it.node != OUTSIDE && it.node != later.node && !shares(it.node) && !is_before(it.node, later.node)
        };
        let all = [self.history.born()];
        let uses = self.history.uses_of(part).filter(must_precede);
        let mut ends: Vec<NodeUse> = Vec::new();
        for it in all.iter().chain(uses).filter(is_missing).take(ENDS_MAX) {
            if !ends.iter().any(|end| end.node == it.node || is_before(it.node, end.node)) {
                ends.retain(|end| !is_before(end.node, it.node));
                ends.push(*it);
            }
        }
        ends
    }

    /// Adds a use.
    pub(super) fn add(&mut self, new: NodeUse, part: Part, is_before: impl Fn(NodeId) -> bool) {
        if new.act == Act::Read && self.spare > 0 {
            self.spare -= 1;
            return self.history.push(new, part);
        }
        self.history.add(new, part, |known| known.node == new.node || is_before(known.node));
        if new.act == Act::Read {
            self.spare = READS_KEPT.max(self.history.uses().count() as u32);
        }
    }

    /// Returns the last uses, grouped by bytes with the same uses.
    pub(super) fn by_part(&self) -> impl Iterator<Item = (Part, &[NodeUse])> {
        self.history.by_part()
    }

    /// Returns the nodes of all last uses. A use of several parts may appear several times.
    pub(super) fn last(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.history.uses().map(|it| it.node)
    }
}
