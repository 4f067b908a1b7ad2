//! Which lane each node of an instance runs on.
//!
//! What a lane has runs in order, so that a node waits for what its lane has before it. The simple version gives each
//! node a lane of its own. Here a node goes where what it comes after ended; and a graph that has [`LANES_FEW`] lanes
//! gets one more only where nodes need it that may wait for each other.
//!
//! Invariant **free-to-wait**: a node that [may block](Lanes::place) is before another one on a lane only where the
//! graph has a path between them. So closures of which none comes before the other may wait for each other.

use millpond_core::graph::{Index, NodeId};

/// Beyond so many lanes nodes that do not block share them.
const LANES_FEW: usize = 16;

/// No more lanes run one graph.
pub(super) const LANES_MAX: usize = 1 << 14;

/// See the module.
pub(super) struct Lanes<'c> {
    index: &'c Index,
    /// By node.
    of: Vec<u32>,
    /// By node: of the nodes that may block and come before it or are it, one that all others come before, or a node
    /// between.
    behind: Vec<Option<NodeId>>,
    /// The last node of each lane; the first lane is the launching stream, and may have none.
    last: Vec<Option<NodeId>>,
    cursor: usize,
}

impl<'c> Lanes<'c> {
    /// One lane, without nodes.
    pub(super) fn new(index: &'c Index) -> Self {
        Self { index, of: Vec::new(), behind: Vec::new(), last: vec![None], cursor: 0 }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.last.len()
    }

    /// The lane of a node that has its place.
    pub(super) fn of(&self, node: NodeId) -> u32 {
        self.of[node.index()]
    }

    /// The last node of a lane.
    pub(super) fn last(&self, lane: u32) -> Option<NodeId> {
        self.last[lane as usize]
    }

    /// Gives the node with the next number its lane: that, and what is before it there. A node *may block* where it may
    /// take as long as another one does that it has no path to: closures wait for what they like, and event waits for
    /// the outside, where closures run. None where it would take more than [`LANES_MAX`] lanes.
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

    /// Whether a node comes after all nodes of a lane that may block.
    fn comes_after_what_blocks(&self, lane: u32, node: NodeId) -> bool {
        let blocks = |before: &NodeId| self.behind[before.index()] == Some(*before);
        let on_lane = (0..node.0).map(NodeId).filter(|before| self.of(*before) == lane);
        on_lane.filter(blocks).all(|before| self.index.reaches(before, node))
    }

    /// What a node that does not block is behind.
    fn behind_of(&self, node: NodeId, dependencies: &[NodeId]) -> Option<NodeId> {
        let behind = || dependencies.iter().filter_map(|dependency| self.behind[dependency.index()]);
        let last = behind().max()?;
        Some(if behind().all(|other| self.index.reaches_or_is(other, last)) { last } else { node })
    }
}
