//! The edges of a graph, and a topological order of its nodes.
//!
//! A new node comes last, after the nodes that it depends on, so a graph that only grows is in order. An edge that is
//! added later may contradict the order. The simple version sorts the graph again. Here only the nodes between the two
//! ends are examined and given each other's ranks (Pearce and Kelly, 2006). This also finds a cycle. Depends on nodes'
//! lists of neighbours only.
//!
//! Invariant **ranked**: every edge goes from a lower rank to a higher.

use rustc_hash::FxHashSet;

use super::node::NodeId;

/// The error that there is a path in the other direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cycle;

/// The rank of each node in a topological order. Ranks of removed nodes are not used again.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranks {
    rank: Vec<u32>,
}

impl Ranks {
    /// Adds a node after all others.
    pub(super) fn push(&mut self) {
        self.rank.push(self.rank.len() as u32);
    }

    /// Returns all nodes, removed ones included, in an order in which every edge goes forward.
    pub(super) fn order(&self) -> Vec<NodeId> {
        let mut order = vec![NodeId(0); self.rank.len()];
        for (node, &rank) in self.rank.iter().enumerate() {
            order[rank as usize] = NodeId(node as u32);
        }
        order
    }

    /// Makes room for a new edge. `before` and `after` return the neighbours of a node.
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
        // The nodes that `from` needs move before those that need `to`, within the ranks that they have together.
        let moved: Vec<NodeId> = above.into_iter().chain(below).collect();
        let mut places: Vec<u32> = moved.iter().map(|node| self.rank[node.index()]).collect();
        places.sort_unstable();
        for (node, place) in moved.into_iter().zip(places) {
            self.rank[node.index()] = place;
        }
        Ok(())
    }

    /// Returns the nodes that `start` reaches through nodes within the range of ranks, sorted by rank.
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
