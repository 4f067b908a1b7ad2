//! The lane of each node of an instance.
//!
//! The work on a lane runs in order, so a node waits for the nodes before it on its lane. The simple version gives each
//! node a lane of its own. Departures: a node goes on a lane that one of its dependencies ends. A graph that has
//! [`LANES_FEW`] lanes gets one more only for nodes that may wait for each other.
//!
//! Invariant **free-to-wait**: a node that [may block](Lanes::place) is before another node on a lane only if the graph
//! has a path between them. So closures may wait for each other if neither comes before the other.

use millpond_core::graph::{Index, NodeId};

/// With at least this many lanes, nodes that do not block share them.
const LANES_FEW: usize = 16;

/// The most lanes of one graph.
pub(super) const LANES_MAX: usize = 1 << 14;

/// See the module.
pub(super) struct Lanes<'c> {
    index: &'c Index,
    /// The lane of each node.
    of: Vec<u32>,
    /// For each node: the last of the nodes up to and including it that may block. If none of these is the last, a node
    /// that comes after all of them and before this node, or this node. `None` if there are none.
    behind: Vec<Option<NodeId>>,
    /// The last node of each lane. The first lane is the launching stream, and may have none.
    last: Vec<Option<NodeId>>,
    cursor: usize,
}

impl<'c> Lanes<'c> {
    /// Makes one lane without nodes, for `nodes` nodes.
    pub(super) fn new(index: &'c Index, nodes: usize) -> Self {
        let (of, behind) = (Vec::with_capacity(nodes), Vec::with_capacity(nodes));
        Self { index, of, behind, last: vec![None], cursor: 0 }
    }

    /// Returns the number of lanes.
    pub(super) fn count(&self) -> usize {
        self.last.len()
    }

    /// Returns the lane of a node that has been placed.
    pub(super) fn of(&self, node: NodeId) -> u32 {
        self.of[node.index()]
    }

    /// Returns the last node of a lane.
    pub(super) fn last(&self, lane: u32) -> Option<NodeId> {
        self.last[lane as usize]
    }

    /// Places the node with the next number. Returns its lane and the node before it there. A node *may block* if it
    /// may take as long as another node to which it has no path: closures may wait for anything, and event waits wait
    /// for operations outside the graph, where closures run. Returns `None` if it would take more than [`LANES_MAX`]
    /// lanes.
    pub(super) fn place(&mut self, dependencies: &[NodeId], may_block: bool) -> Option<(u32, Option<NodeId>)> {
        let node = NodeId(self.of.len() as u32);
        let goes_on = |dependency: &&NodeId| self.last(self.of(**dependency)) == Some(**dependency);
        let lane = match dependencies.iter().find(goes_on) {
            Some(dependency) => self.of(*dependency),
            None => self.choose(node)?,
        };
        let behind = if may_block { Some(node) } else { self.behind_of(node, dependencies) };
        debug_assert!(self.comes_after_what_blocks(lane, node), "free-to-wait: {node} is behind one that may block");
        self.of.push(lane);
        self.behind.push(behind);
        Some((lane, self.last[lane as usize].replace(node)))
    }

    fn choose(&mut self, node: NodeId) -> Option<u32> {
        let count = self.count();
        let mut shared = None;
        for step in 1..=count {
            let lane = (self.cursor + step) % count;
            let Some(last) = self.last[lane] else { return Some(lane as u32) };
            if self.index.reaches(last, node) {
                self.cursor = lane;
                return Some(lane as u32);
            }
            let is_free = || self.behind[last.index()].is_none_or(|blocks| self.index.reaches(blocks, node));
            if count >= LANES_FEW && shared.is_none() && is_free() {
                shared = Some(lane);
            }
        }
        if let Some(lane) = shared {
            self.cursor = lane;
            return Some(lane as u32);
        }
        if count == LANES_MAX {
            return None;
        }
        self.last.push(None);
        Some(count as u32)
    }

    /// Returns `true` if a node comes after all nodes of a lane that may block.
    fn comes_after_what_blocks(&self, lane: u32, node: NodeId) -> bool {
        let blocks = |before: &NodeId| self.behind[before.index()] == Some(*before);
        let on_lane = (0..node.0).map(NodeId).filter(|before| self.of(*before) == lane);
        on_lane.filter(blocks).all(|before| self.index.reaches(before, node))
    }

    /// Returns the entry of `behind` for a node that does not block.
    fn behind_of(&self, node: NodeId, dependencies: &[NodeId]) -> Option<NodeId> {
        let behind = || dependencies.iter().filter_map(|dependency| self.behind[dependency.index()]);
        let last = behind().max()?;
        Some(if behind().all(|other| self.index.reaches_or_is(other, last)) { last } else { node })
    }
}
