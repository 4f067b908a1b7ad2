//! What the nodes of a graph do to one piece of memory, met one after the other, and what of it is wrong.
//!
//! The simple version compares each use with the free node and every other use. Departure: of the uses that something
//! later may have to come after only those are kept that no kept one comes after - reads behind reads, anything behind
//! a write. (A read does not stand for the writes before it: an unordered third node that reads would meet no write,
//! and a race would be missed.)
//!
//! Knows nodes by number; who comes before whom it asks. Used where a whole graph is looked at, and where a capture
//! adds one node after the other, which gets no more edges to what was there before.

use smallvec::SmallVec;

use super::fault::GraphFaultKind;
use super::node::NodeId;
use crate::op::Act;

/// So many reads are kept before they are thinned out.
const READS_KEPT: u32 = 16;

/// What has been done to one piece of memory up to some node.
#[derive(Clone, Debug, Default)]
pub(super) struct Life {
    /// Its alloc node, once met; external memory was there before.
    pub(super) born: Option<NodeId>,
    pub(super) freed: Option<NodeId>,
    /// The last writes, an antichain.
    pub(super) writes: SmallVec<[NodeId; 2]>,
    /// The last reads and some that come before them: thinned out when they are twice as many as were left last time.
    pub(super) reads: SmallVec<[NodeId; 2]>,
    thin_at: u32,
}

/// A pair of nodes that is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wrong {
    pub(super) kind: GraphFaultKind,
    pub(super) earlier: (NodeId, Act),
    pub(super) later: (NodeId, Act),
}

impl Life {
    /// What is wrong with a read or a write by `id`. `is_before` says which nodes come before it, `shares` which ones
    /// promise, as it does, to share.
    pub(super) fn check_use(
        &self,
        id: NodeId,
        act: Act,
        is_before: impl Fn(NodeId) -> bool,
        shares: impl Fn(NodeId) -> bool,
    ) -> Option<Wrong> {
        if let Some(free) = self.freed {
            let (free, used) = ((free, Act::Free), (id, act));
            return Some(match is_before(free.0) {
                true => Wrong { kind: GraphFaultKind::UseAfterFree, earlier: free, later: used },
                false => Wrong { kind: GraphFaultKind::FreeBeforeUse, earlier: used, later: free },
            });
        }
        let is_race = |other: &&NodeId| **other != id && !is_before(**other) && !shares(**other);
        let write = self.writes.iter().find(is_race).map(|node| (*node, Act::Write));
        let reads = if act.conflicts(Act::Read) { &self.reads[..] } else { &[] };
        let earlier = write.or_else(|| reads.iter().find(is_race).map(|node| (*node, Act::Read)))?;
        Some(Wrong { kind: GraphFaultKind::Race, earlier, later: (id, act) })
    }

    /// Keeps a use.
    pub(super) fn add_use(&mut self, id: NodeId, act: Act, is_before: impl Fn(NodeId) -> bool) {
        let is_news = |node: &mut NodeId| *node != id && !is_before(*node);
        if act != Act::Read || self.reads.len() >= self.thin_at as usize {
            self.reads.retain(is_news);
            self.thin_at = READS_KEPT.max(2 * self.reads.len() as u32);
        }
        match act {
            Act::Read => self.reads.push(id),
            _ => {
                self.writes.retain(is_news);
                self.writes.push(id);
            }
        }
    }

    /// What is wrong with a free by `id`.
    pub(super) fn check_free(&self, id: NodeId, is_before: impl Fn(NodeId) -> bool) -> Option<Wrong> {
        let later = (id, Act::Free);
        if let Some(free) = self.freed {
            return Some(Wrong { kind: GraphFaultKind::DoubleFree, earlier: (free, Act::Free), later });
        }
        let is_loose = |node: &&NodeId| !is_before(**node);
        let write = self.writes.iter().find(is_loose).map(|node| (*node, Act::Write));
        let earlier = write.or_else(|| self.reads.iter().find(is_loose).map(|node| (*node, Act::Read)))?;
        Some(Wrong { kind: GraphFaultKind::FreeBeforeUse, earlier, later })
    }
}
