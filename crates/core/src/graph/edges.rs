//! The edges of a graph, and an order of its nodes that they all agree with.
//!
//! A new node comes last, after the nodes it depends on; so a graph that is only ever added to is in order by itself.
//! An edge that is added later may go against the order. The simple version sorts the graph anew; here only the nodes
//! between the two ends are looked at and given each other's places (Pearce and Kelly, 2006), which finds a cycle on
//! the way. Knows nodes by their lists of neighbours only.
//!
//! Invariant **ranked**: every edge goes from a lower rank to a higher.

use rustc_hash::FxHashSet;

use super::node::NodeId;

/// There is a path the other way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cycle;

/// Each node's place in a topological order. Places of removed nodes stay empty.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranks {
    rank: Vec<u32>,
}

impl Ranks {
    /// A new node, after all others.
    pub(super) fn push(&mut self) {
        self.rank.push(self.rank.len() as u32);
    }

    /// All nodes, removed ones too, so that every edge goes forward.
    pub(super) fn order(&self) -> Vec<NodeId> {
        let mut order = vec![NodeId(0); self.rank.len()];
        for (node, &rank) in self.rank.iter().enumerate() {
            order[rank as usize] = NodeId(node as u32);
        }
        order
    }

    /// Makes room for an edge that is not there yet, where `before` and `after` are the neighbours of each node.
    pub(super) fn admit<'n>(
        &mut self,
        (from, to): (NodeId, NodeId),
        before: impl Fn(NodeId) -> &'n [NodeId],
        after: impl Fn(NodeId) -> &'n [NodeId],
    ) -> Result<(), Cycle> {
        let (lowest, highest) = (self.rank[to.index()], self.rank[from.index()]);
        if highest < lowest {
            return Ok(());
        }
        let below = self.walk(to, after, |rank| rank <= highest);
        if below.contains(&from) {
            return Err(Cycle);
        }
        let above = self.walk(from, before, |rank| rank >= lowest);
        // What `from` needs moves before what needs `to`, within the places that they have between them.
        let moved: Vec<NodeId> = above.into_iter().chain(below).collect();
        let mut places: Vec<u32> = moved.iter().map(|node| self.rank[node.index()]).collect();
        places.sort_unstable();
        for (node, place) in moved.into_iter().zip(places) {
            self.rank[node.index()] = place;
        }
        Ok(())
    }

    /// The nodes met from `start` on as far as ranks allow, in the order of their ranks.
    fn walk<'a>(
        &self,
        start: NodeId,
        next: impl Fn(NodeId) -> &'a [NodeId],
        is_within: impl Fn(u32) -> bool,
    ) -> Vec<NodeId> {
        let mut met = FxHashSet::from_iter([start]);
        let mut found = vec![start];
        let mut at = 0;
        while at < found.len() {
            for &node in next(found[at]) {
                if is_within(self.rank[node.index()]) && met.insert(node) {
                    found.push(node);
                }
            }
            at += 1;
        }
        found.sort_unstable_by_key(|node| self.rank[node.index()]);
        found
    }
}
