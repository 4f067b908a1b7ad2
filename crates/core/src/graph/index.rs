//! Decides without a walk if one node comes before another, by a chain cover of the graph.
//!
//! The simple version walks the edges for each question. Here every node is on a *chain*, a sequence of nodes each of
//! which reaches the next, at a position counted from 1. Every node also has a *row*: for each chain, the last position
//! on it that comes before the node. `a` reaches `b` if `b`'s row has at least `a`'s position for `a`'s chain: two
//! loads.
//!
//! Departures: rows are shared. A node with one dependency, on its own chain, has the row of that dependency. Nodes
//! that fork from one node share one row made for it. A row is written only if edges meet, so a fork into ten thousand
//! nodes and their join cost two long rows instead of ten thousand. Chains are chosen greedily: a node continues the
//! chain of its first dependency that is the last of a chain. This gives each captured stream one chain.
//!
//! Depends on node numbers and dependencies only. Invariants: **chained**: each node of a chain reaches the next.
//! **exact**: a row holds exactly the last position of each other chain that reaches the node.

use super::node::NodeId;

const NONE: u32 = u32::MAX;
/// The most cells of an index: 1 GiB of them.
const CELLS_MAX: usize = 1 << 28;
/// The number of chains to examine for one that a node can continue, if none of its dependencies ends a chain.
const LOOK: usize = 8;

/// A row: `len` cells from `start`. Chains from `len` on do not reach the node.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    start: u32,
    len: u32,
}

/// The position of a node.
#[derive(Clone, Copy, Debug)]
struct Spot {
    chain: u32,
    position: u32,
    row: Row,
}

const NOWHERE: Spot = Spot { chain: NONE, position: 0, row: Row { start: 0, len: 0 } };

/// The chain cover: see the module.
#[derive(Clone, Debug, Default)]
pub struct Index {
    spots: Vec<Spot>,
    /// The shared rows of the nodes that fork from a node, by that node.
    forks: Vec<Row>,
    cells: Vec<u32>,
    /// The lengths of the chains.
    lengths: Vec<u32>,
    cursor: usize,
    /// `true` once there was no room for a row: its node then has an empty row.
    is_full: bool,
}

impl Index {
    /// Makes an index with room for `nodes` nodes.
    pub fn with_capacity(nodes: usize) -> Self {
        Self { spots: Vec::with_capacity(nodes), forks: Vec::with_capacity(nodes), ..Self::default() }
    }

    /// Returns `true` if the graph is so wide that there was no room for all rows. The index is not exact then.
    pub fn is_full(&self) -> bool {
        self.is_full
    }

    /// Returns the number of chains.
    pub fn chains(&self) -> usize {
        self.lengths.len()
    }

    /// Returns the number of nodes on a chain.
    pub fn chain_length(&self, chain: u32) -> u32 {
        self.lengths[chain as usize]
    }

    /// Returns the chain of a node and its position there, counted from 1.
    #[inline]
    pub fn spot(&self, node: NodeId) -> (u32, u32) {
        let spot = self.spots[node.index()];
        (spot.chain, spot.position)
    }

    /// Returns the last position on `chain` that comes before `node` or is `node`'s own, or 0 if there is none.
    #[inline]
    pub fn seen(&self, node: NodeId, chain: u32) -> u32 {
        let spot = self.spots[node.index()];
        if spot.chain == chain {
            return spot.position;
        }
        if chain < spot.row.len { self.cells[(spot.row.start + chain) as usize] } else { 0 }
    }

    /// Returns `true` if there is a path from `a` to `b`. There is none from a node to itself.
    #[inline]
    pub fn reaches(&self, a: NodeId, b: NodeId) -> bool {
        let (from, to) = (self.spots[a.index()], self.spots[b.index()]);
        if from.chain == to.chain {
            return from.position < to.position;
        }
        from.chain < to.row.len && self.cells[(to.row.start + from.chain) as usize] >= from.position
    }

    /// Returns `true` if `a` is `b` or reaches it.
    #[inline]
    pub fn reaches_or_is(&self, a: NodeId, b: NodeId) -> bool {
        a == b || self.reaches(a, b)
    }

    /// Adds the node with the next number, after all of `dependencies`.
    pub fn push(&mut self, dependencies: &[NodeId]) {
        self.push_nowhere();
        let node = NodeId(self.spots.len() as u32 - 1);
        self.place(node, dependencies);
    }

    /// Adds a number that no node has any more.
    pub(super) fn push_nowhere(&mut self) {
        self.spots.push(NOWHERE);
        self.forks.push(Row { start: NONE, len: 0 });
    }

    /// Gives a node its position. All its dependencies must have theirs.
    pub(super) fn place(&mut self, node: NodeId, dependencies: &[NodeId]) {
        let row = match self.last_of(dependencies) {
            _ if dependencies.is_empty() => Row::default(),
            Some(last) => {
                let spot = self.spots[last.index()];
                if self.lengths[spot.chain as usize] == spot.position {
                    self.settle(node, spot.chain, spot.row);
                    return;
                }
                self.fork_row(last)
            }
            None => self.merge(Row::default(), dependencies),
        };
        let ends = |spot: &Spot| self.lengths[spot.chain as usize] == spot.position;
        let mut spots = dependencies.iter().map(|dependency| self.spots[dependency.index()]);
        let chain = spots.find(ends).map(|spot| spot.chain).or_else(|| self.ended_chain(row)).unwrap_or_else(|| {
            self.lengths.push(0);
            self.lengths.len() as u32 - 1
        });
        self.settle(node, chain, row);
    }

    /// Returns the dependency that comes after all the others, if there is one: the others can be ignored then.
    #[inline]
    fn last_of(&self, dependencies: &[NodeId]) -> Option<NodeId> {
        let (&first, others) = dependencies.split_first()?;
        let last = others.iter().fold(first, |last, &other| if self.reaches(last, other) { other } else { last });
        dependencies.iter().all(|&other| self.reaches_or_is(other, last)).then_some(last)
    }

    #[inline]
    fn settle(&mut self, node: NodeId, chain: u32, row: Row) {
        let length = &mut self.lengths[chain as usize];
        *length += 1;
        self.spots[node.index()] = Spot { chain, position: *length, row };
    }

    /// Returns a chain whose last node is in `row`.
    fn ended_chain(&mut self, row: Row) -> Option<u32> {
        for _ in 0..LOOK.min(row.len as usize) {
            self.cursor = (self.cursor + 1) % row.len as usize;
            let chain = self.cursor;
            if self.cells[row.start as usize + chain] == self.lengths[chain] {
                return Some(chain as u32);
            }
        }
        None
    }

    /// Returns the row of a node that depends on `node` alone and is on another chain.
    fn fork_row(&mut self, node: NodeId) -> Row {
        if self.forks[node.index()].start == NONE {
            self.forks[node.index()] = self.merge(Row::default(), &[node]);
        }
        self.forks[node.index()]
    }

    /// Writes a new row that joins `row`, the rows of the nodes, and the nodes themselves.
    fn merge(&mut self, row: Row, nodes: &[NodeId]) -> Row {
        let reach = |node: &NodeId| {
            let spot = self.spots[node.index()];
            spot.row.len.max(spot.chain + 1)
        };
        let len = nodes.iter().map(reach).max().unwrap_or(0).max(row.len) as usize;
        let start = self.cells.len();
        if start + len > CELLS_MAX {
            self.is_full = true;
            return Row::default();
        }
        self.cells.resize(start + len, 0);
        let (old, new) = self.cells.split_at_mut(start);
        let mut join = |row: Row| {
            let cells = &old[row.start as usize..(row.start + row.len) as usize];
            new.iter_mut().zip(cells).for_each(|(mine, theirs)| *mine = (*mine).max(*theirs));
        };
        join(row);
        for node in nodes {
            join(self.spots[node.index()].row);
        }
        for node in nodes {
            let spot = self.spots[node.index()];
            let known = &mut new[spot.chain as usize];
            *known = (*known).max(spot.position);
        }
        Row { start: start as u32, len: len as u32 }
    }

    /// Puts `node`, on which nothing depends, after one more node.
    pub(super) fn put_after(&mut self, node: NodeId, dependency: NodeId) {
        if !self.reaches(dependency, node) {
            let row = self.merge(self.spots[node.index()].row, &[dependency]);
            self.spots[node.index()].row = row;
        }
    }
}
