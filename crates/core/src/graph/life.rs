//! What the nodes of a graph do to one piece of memory, met one after the other, and what of it is wrong.
//!
//! The law is that of all memory ([`History`]); here the sides are nodes, and the free is met like a use. Departure:
//! many nodes may read one piece of memory, and to ask of each whether it comes after the others would take the square
//! of their number. So reads are dropped only now and then, behind as many new ones as were left the last time.
//!
//! Knows nodes by number; who comes before whom it asks. Used where a whole graph is looked at, and where a capture
//! adds one node after the other, which gets no more edges to what was there before.

use super::node::NodeId;
use crate::life::{Done, History, Kind};
use crate::op::{Act, Part};

/// So many reads are kept before they are thinned out.
const READS_KEPT: u32 = 16;

/// So many missing edges of one node are looked at together.
const ENDS_MAX: usize = 256;

/// What a node does to memory.
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

/// Where memory of the outside was allocated: before all nodes.
const OUTSIDE: NodeId = NodeId(u32::MAX);

/// What has been done to one piece of memory up to some node.
#[derive(Clone, Debug)]
pub(super) struct Life {
    history: History<NodeUse>,
    pub(super) freed: Option<NodeId>,
    /// So many reads may still be added as they are.
    spare: u32,
}

/// A pair of nodes that is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wrong {
    pub(super) kind: Kind,
    pub(super) earlier: NodeUse,
    pub(super) later: NodeUse,
}

impl Life {
    /// Memory of an alloc node; of the outside, which was there before, where there is none.
    pub(super) fn new(born: Option<NodeId>) -> Self {
        let born = NodeUse { node: born.unwrap_or(OUTSIDE), act: Act::Allocate };
        Life { history: History::new(born), freed: None, spare: READS_KEPT }
    }

    /// What is wrong with what a node does to some bytes. `is_before` says which nodes come before it, `shares` which
    /// ones promise, as it does, to share.
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

    /// The nodes that must come before what a node does and do not, of those that an edge can put there: so many at
    /// most, and fewer where one comes after another.
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

    /// Keeps a use.
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

    /// The last uses, by the bytes that have the same.
    pub(super) fn by_part(&self) -> impl Iterator<Item = (Part, &[NodeUse])> {
        self.history.by_part()
    }

    /// The nodes of all last uses; one of several parts may come several times.
    pub(super) fn last(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.history.uses().map(|it| it.node)
    }
}
