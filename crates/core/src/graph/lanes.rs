//! Launches seen from inside: order at the precision of nodes, where a graph has external event nodes.
//!
//! A launch without such nodes is one point of its stream. With them the outside can come after a part of a launch, so
//! what the outside can see of it needs points of its own. The simple version gives each node a chain of the order.
//! Here a chain of the graph's index that holds something visible is a *lane*, a chain of the order; lanes are opened
//! once for an instance, and since its launches come one after the other each goes on where the one before ended.
//!
//! How a launch goes, for whoever has the streams (`K` is what the launching stream knows):
//! 1. the stream waits for the instance's launch before, if that was on another stream;
//! 2. each [`Demand`](super::Demand) is checked by a [`Standing`]: `K`, and the snapshots of the events its waits wait
//!    for;
//! 3. each [`LastAct`](super::LastAct) gets the point of its node: [`Lanes::point`], or the launch's own where that is
//!    none;
//! 4. each record node's event becomes one of [`Lanes::exports`]: `K`, what the waits before the node learned, and the
//!    node's row;
//! 5. [`Lanes::pass`]: the stream waits for all of [`Lanes::ends`] and for the waits' snapshots, takes its point, and
//!    is past the launch;
//! 6. [`Lanes::advance`].
//!
//! Invariants: **one-after-another**: positions of a launch come after those of the one before. **row**: a record
//! exports a lane up to the last node on it that reaches the record node.

use std::sync::Arc;

use super::exec::Exec;
use super::graph::NodeKind;
use super::node::{EventKey, Memory, NodeId, Work};
use crate::ids::{ChainIndex, Point, Seq};
use crate::order::{Base, Chain, Knows, Snapshot};

const NONE: u32 = u32::MAX;

/// The lanes of one instance: see the module. None by default.
#[derive(Clone, Debug, Default)]
pub struct Lanes {
    /// Branch -> lane.
    lane_of: Vec<u32>,
    /// Lane -> its branch, its chain, how many positions a launch takes.
    lanes: Vec<Lane>,
    /// Positions left free before each launch's, so that an export has room for its merges.
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
    /// The lanes that an instance needs, on chains that `open` opens: none where nothing in it records events. (CUDA's
    /// counterpart is hidden in the driver.) `open` is as [`ChainIndices::open`](crate::order::ChainIndices::open).
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

    /// How many chains of the order it has.
    pub fn len(&self) -> usize {
        self.lanes.len()
    }

    /// Whether launches are single points.
    pub fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// The point of a node in the launch to come; none where its chain has no lane.
    pub fn point(&self, exec: &Exec, node: NodeId) -> Option<Point> {
        let (chain, position) = exec.index().spot(node);
        let lane = self.lanes.get(*self.lane_of.get(chain as usize)? as usize)?;
        Some(self.at(lane, Seq::from(position)))
    }

    /// The point that a node had in the last launch; none where its chain has no lane.
    pub fn last_point(&self, exec: &Exec, node: NodeId) -> Option<Point> {
        let (chain, position) = exec.index().spot(node);
        let lane = self.lanes.get(*self.lane_of.get(chain as usize)? as usize)?;
        Some(Point { chain: lane.chain, seq: lane.after - lane.span + Seq::from(position) })
    }

    fn at(&self, lane: &Lane, position: Seq) -> Point {
        Point { chain: lane.chain, seq: lane.after + self.headroom + position }
    }

    /// What the events of the record nodes know, one after the other, in the launch to come. `stream` is a snapshot of
    /// the launching stream before it; `waits` are the wait nodes that wait for something, and for what. Where nothing
    /// says which of an event's records is the last, it knows what all of these have in common.
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

    /// The launching stream goes past the launch to come: the point that this is.
    pub fn pass(&self, stream: &mut Chain, base: &Arc<Base>, waits: &[(NodeId, Snapshot)]) -> Point {
        for end in self.ends(base) {
            stream.wait(&end);
        }
        for (_, snapshot) in waits {
            stream.wait(snapshot);
        }
        stream.submit()
    }

    /// What a record node's event knows, in the launch to come: what the launching stream knows (`stream`, a snapshot
    /// of it before the launch), what the event waits before the node learned, and all nodes before it.
    ///
    /// # Panics
    /// Where `node` is not a record node of the instance that the lanes are of.
    pub fn export<'a>(
        &self,
        exec: &Exec,
        node: NodeId,
        base: &Arc<Base>,
        stream: &Snapshot,
        waited: impl IntoIterator<Item = &'a Snapshot>,
    ) -> Snapshot {
        let target = self.point(exec, node).expect("a record node has a lane");
        // The merges below take a position each at most, and the last one must be the node's own.
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

    /// The ends of all lanes in the launch to come: the launching stream waits for them, and so is past all of it.
    pub fn ends(&self, base: &Arc<Base>) -> impl Iterator<Item = Snapshot> + '_ {
        let base = Arc::clone(base);
        self.lanes.iter().map(move |lane| snapshot(self.at(lane, lane.span), &base))
    }

    /// The launch was made; the next one's points come after its.
    pub fn advance(&mut self) {
        for lane in &mut self.lanes {
            lane.after += self.headroom + lane.span;
        }
    }

    /// The last points of all launches, for [`close`](crate::order::ChainIndices::close) when the instance goes.
    pub fn close(self) -> impl Iterator<Item = Point> {
        self.lanes.into_iter().map(|lane| Point { chain: lane.chain, seq: lane.after })
    }
}

fn snapshot(point: Point, base: &Arc<Base>) -> Snapshot {
    Chain::new(point.chain, point.seq - 1, Arc::clone(base)).snapshot()
}

/// Whether the outside can meet what the node does before the launch has completed.
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

/// Where a node of a launch stands: what the launching stream knows, and what the event waits before the node learned.
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
