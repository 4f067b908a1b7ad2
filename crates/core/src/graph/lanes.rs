//! The nodes of a launch in the order of the program, for graphs with external event nodes.
//!
//! A launch without such nodes is one point of its stream. With them an operation outside can come after a part of a
//! launch, so the visible acts of a launch need points of their own. The simple version gives each node a chain of the
//! order. Here each chain of the graph's index with a visible node gets a *lane*, a chain of the order. Lanes are
//! opened once for an instance. Its launches come one after the other, so each launch continues the lanes where the one
//! before ended.
//!
//! Steps of a launch, for the code that has the streams (`K` is what the launching stream knows):
//! 1. the stream waits for the launch of the instance before, if that was on another stream;
//! 2. each [`Demand`](super::Demand) is checked by a [`Standing`]: `K`, and the snapshots of the events that its waits
//!    wait for;
//! 3. each [`LastAct`](super::LastAct) gets the point of its node: [`Lanes::point`], or the launch's own if that is
//!    `None`;
//! 4. the event of each record node becomes one of [`Lanes::exports`]: `K`, the snapshots that the waits before the
//!    node waited for, and the node's row;
//! 5. [`Lanes::pass`]: the stream waits for all of [`Lanes::ends`] and for the waits' snapshots, and takes its point.
//!    It comes after the launch then;
//! 6. [`Lanes::advance`].
//!
//! Invariants: **one-after-another**: positions of a launch come after those of the launch before. **row**: a record
//! exports a lane up to the last node on it that reaches the record node.

use std::sync::Arc;

use super::exec::Exec;
use super::graph::NodeKind;
use super::node::{EventKey, Memory, NodeId, Work};
use crate::ids::{ChainIndex, Point, Seq};
use crate::order::{Base, Chain, Knows, Snapshot};

const NONE: u32 = u32::MAX;

/// The lanes of one instance: see the module. Empty by default.
#[derive(Clone, Debug, Default)]
pub struct Lanes {
    /// Branch -> lane.
    lane_of: Vec<u32>,
    /// Lane -> its branch, its chain, the number of positions that a launch takes.
    lanes: Vec<Lane>,
    /// The positions left free before each launch's, so that an export has room for its merges.
    headroom: Seq,
}

#[derive(Clone, Copy, Debug)]
struct Lane {
    /// The chain of the graph's index.
    branch: u32,
    chain: ChainIndex,
    /// The last position of the launches before.
    after: Seq,
    span: Seq,
}

impl Lanes {
    /// Makes the lanes that an instance needs, on chains that `open` opens. There are none if no node records an event.
    /// (CUDA's counterpart is hidden in the driver.) `open` is as
    /// [`ChainIndices::open`](crate::order::ChainIndices::open).
    pub fn new(exec: &Exec, mut open: impl FnMut() -> (ChainIndex, Seq)) -> Self {
        let index = exec.index();
        let mut lanes = Lanes { lane_of: vec![NONE; index.chains()], lanes: Vec::new(), headroom: 0 };
        if exec.summary().records.is_empty() {
            return lanes;
        }
        for (at, node) in exec.nodes().iter().enumerate() {
            let branch = index.spot(NodeId(at as u32)).0;
            if lanes.lane_of[branch as usize] == NONE && is_visible(exec, &node.kind, &node.accesses) {
                lanes.lane_of[branch as usize] = lanes.lanes.len() as u32;
                let (chain, after) = open();
                lanes.lanes.push(Lane { branch, chain, after, span: Seq::from(index.chain_length(branch)) });
            }
        }
        lanes.headroom = (lanes.lanes.len() + exec.summary().waits.len() + 2) as Seq;
        lanes
    }

    /// Returns the number of chains of the order.
    pub fn len(&self) -> usize {
        self.lanes.len()
    }

    /// Returns `true` if launches are single points.
    pub fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Returns the point of a node in the next launch, or `None` if its chain has no lane.
    pub fn point(&self, exec: &Exec, node: NodeId) -> Option<Point> {
        let (chain, position) = exec.index().spot(node);
        let lane = self.lanes.get(*self.lane_of.get(chain as usize)? as usize)?;
        Some(self.at(lane, Seq::from(position)))
    }

    /// Returns the point of a node in the last launch, or `None` if its chain has no lane.
    pub fn last_point(&self, exec: &Exec, node: NodeId) -> Option<Point> {
        let (chain, position) = exec.index().spot(node);
        let lane = self.lanes.get(*self.lane_of.get(chain as usize)? as usize)?;
        Some(Point { chain: lane.chain, seq: lane.after - lane.span + Seq::from(position) })
    }

    fn at(&self, lane: &Lane, position: Seq) -> Point {
        Point { chain: lane.chain, seq: lane.after + self.headroom + position }
    }

    /// Returns the snapshots of the record nodes' events in the next launch, in the order of the record nodes. `stream`
    /// is a snapshot of the launching stream before it. `waits` are the wait nodes that wait for something, each with
    /// its snapshot. If no path decides which of an event's records is the last, the event has what all of these have
    /// in common.
    pub fn exports(
        &self,
        exec: &Exec,
        base: &Arc<Base>,
        stream: &Snapshot,
        waits: &[(NodeId, Snapshot)],
    ) -> Vec<Snapshot> {
        let export = |&(node, _): &(NodeId, EventKey)| {
            let before = waits.iter().filter(|(wait, _)| exec.index().reaches(*wait, node));
            self.export(exec, node, base, stream, before.map(|(_, snapshot)| snapshot))
        };
        let records = &exec.summary().records;
        let mut exports: Vec<Snapshot> = records.iter().map(export).collect();
        for last in exec.summary().last_records() {
            if last.len() < 2 {
                continue;
            }
            let common = Snapshot::common(&last.iter().map(|at| &exports[*at]).collect::<Vec<_>>());
            last.iter().for_each(|at| exports[*at] = common.clone());
        }
        exports
    }

    /// Puts the launching stream after the next launch. Returns the point of the launch.
    pub fn pass(&self, stream: &mut Chain, base: &Arc<Base>, waits: &[(NodeId, Snapshot)]) -> Point {
        for end in self.ends(base) {
            stream.wait(&end);
        }
        for (_, snapshot) in waits {
            stream.wait(snapshot);
        }
        stream.submit()
    }

    /// Returns the snapshot of a record node's event in the next launch: what the launching stream knows (`stream`, a
    /// snapshot of it before the launch), the snapshots that the event waits before the node waited for, and all nodes
    /// before it.
    ///
    /// # Panics
    /// If `node` is not a record node of the instance of these lanes.
    pub fn export<'a>(
        &self,
        exec: &Exec,
        node: NodeId,
        base: &Arc<Base>,
        stream: &Snapshot,
        waited: impl IntoIterator<Item = &'a Snapshot>,
    ) -> Snapshot {
        let target = self.point(exec, node).expect("a record node has a lane");
        // The merges below take at most one position each, and the last position must be the node's own.
        let mut chain = Chain::new(target.chain, target.seq - self.headroom, Arc::clone(base));
        chain.wait(stream);
        waited.into_iter().for_each(|snapshot| {
            chain.wait(snapshot);
        });
        for lane in self.lanes.iter().filter(|lane| lane.chain != target.chain) {
            let seen = exec.index().seen(node, lane.branch);
            if seen > 0 {
                chain.wait(&snapshot(self.at(lane, Seq::from(seen)), base));
            }
        }
        chain.pass_to(target.seq);
        debug_assert_eq!(chain.last(), target, "the headroom was enough");
        chain.snapshot()
    }

    /// Returns the ends of all lanes in the next launch. The launching stream waits for them to come after all of it.
    pub fn ends(&self, base: &Arc<Base>) -> impl Iterator<Item = Snapshot> + '_ {
        let base = Arc::clone(base);
        self.lanes.iter().map(move |lane| snapshot(self.at(lane, lane.span), &base))
    }

    /// Records that the launch was made: the points of the next launch come after its points.
    pub fn advance(&mut self) {
        for lane in &mut self.lanes {
            lane.after += self.headroom + lane.span;
        }
    }

    /// Returns the last points of all launches, to [`close`](crate::order::ChainIndices::close) the chains when the
    /// instance is destroyed.
    pub fn close(self) -> impl Iterator<Item = Point> {
        self.lanes.into_iter().map(|lane| Point { chain: lane.chain, seq: lane.after })
    }
}

fn snapshot(point: Point, base: &Arc<Base>) -> Snapshot {
    Chain::new(point.chain, point.seq - 1, Arc::clone(base)).snapshot()
}

/// Returns `true` if an operation outside can meet the node's act without coming after the whole launch.
fn is_visible(exec: &Exec, kind: &NodeKind, accesses: &[super::Access]) -> bool {
    let outlives = |memory: Memory| match memory {
        Memory::Own(alloc) => exec.allocs()[alloc.index()].is_output(),
        _ => true,
    };
    match kind {
        NodeKind::Work(Work::EventRecord(_)) => true,
        NodeKind::MemAlloc(alloc) => outlives(Memory::Own(*alloc)),
        NodeKind::MemFree(memory) => outlives(*memory),
        _ => accesses.iter().any(|access| outlives(access.memory)),
    }
}

/// The knowledge of a node of a launch: what the launching stream knows, and what the event waits before the node
/// waited for.
#[derive(Debug)]
pub struct Standing<'a, K> {
    /// The launching stream.
    pub stream: &'a K,
    /// The snapshots of the events waited for.
    pub waited: &'a [&'a Snapshot],
}

impl<K: Knows> Knows for Standing<'_, K> {
    fn chain(&self) -> ChainIndex {
        self.stream.chain()
    }

    fn covers(&self, point: Point) -> bool {
        self.stream.covers(point) || self.waited.iter().any(|snapshot| snapshot.covers(point))
    }
}
