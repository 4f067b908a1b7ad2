//! What an instantiated graph is to the world outside it: made once, looked at by each launch.
//!
//! The simple version goes through all nodes at each launch. A launch asks the same of every node that stands after the
//! same event waits, so that one entry for each piece of memory (and set of waits) is enough; and of what it did the
//! outside can meet only the last uses. Nodes that do the same to bytes side by side are one entry for all of these. So
//! the cost of a launch follows the outside memory, not the graph.
//!
//! Knows nodes; nothing of streams. Invariants: **first**: if every [`Demand`] is met, so is every node's. **last**:
//! what comes after every [`LastAct`] on some memory comes after all that the graph did to it.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::flat::{Flat, FlatNode};
use super::graph::NodeKind;
use super::life::{Life, NodeUse};
use super::node::{Access, EventKey, Label, Memory, NodeId, Work};
use super::validate::{Lives, Outside};
use crate::ids::DeviceId;
use crate::op::{Act, Part};

/// Something that a launch must find right: an act on memory of the outside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Demand {
    /// The memory.
    pub memory: Memory,
    /// [`Act::Read`], [`Act::Write`] or [`Act::Free`].
    pub act: Act,
    /// The bytes: of all these nodes together.
    pub part: Part,
    /// The first node that does it to each part, in their order; for people.
    pub nodes: Box<[(NodeId, Part)]>,
    /// Whether it looks for races, or promises to share.
    pub may_share: bool,
    /// The device that does it, where that is not the launching stream's.
    pub device: Option<DeviceId>,
    /// The event waits that come before it: what they learned counts for it, beside what the launching stream knows.
    pub waits: SmallVec<[NodeId; 2]>,
}

/// Something that a launch leaves behind: a last act on memory that the outside can see. Where the graph records no
/// events the launch is one point: at most one use of each memory of the outside (a write, if there is one), and of an
/// output its allocation alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LastAct {
    /// The memory: of the outside, or an output of the graph.
    pub memory: Memory,
    /// What was done: allocated (outputs), read, written or freed.
    pub act: Act,
    /// To which bytes.
    pub part: Part,
    /// By which node.
    pub node: NodeId,
}

impl LastAct {
    /// The node that did it to some of these bytes, of all nodes of the graph: one last act may stand for several.
    #[cold]
    pub fn doer(&self, nodes: &[FlatNode], part: Part) -> NodeId {
        let did = |it: &Access| it.memory == self.memory && it.kind() == self.act && it.part.overlaps(part);
        let is_it = |node: &NodeId| nodes.get(node.index()).is_some_and(|node| node.accesses.iter().any(did));
        let all = || (0..nodes.len()).rev().map(|at| NodeId(at as u32));
        Some(self.node).filter(is_it).or_else(|| all().find(is_it)).unwrap_or(self.node)
    }
}

/// A graph as the outside sees it: see the module.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Uses and frees of outside memory, in the order of the nodes.
    pub demands: Vec<Demand>,
    /// What stays of it, and of the outputs.
    pub last_acts: Vec<LastAct>,
    /// Nodes that record an event.
    pub records: Vec<(NodeId, EventKey)>,
    /// Nodes that wait for one.
    pub waits: Vec<(NodeId, EventKey)>,
    /// Those of them that do not come before every node which records the same event, rising: what the event holds at
    /// the launch may be overwritten by then, and the edges of the graph say the rest.
    own_waits: Vec<NodeId>,
    /// For each event that is recorded, its records that no other of them comes after, as places in `records`, rising.
    last_records: Vec<SmallVec<[usize; 1]>>,
}

impl Summary {
    pub(super) fn new(flat: &Flat, lives: &Lives) -> Self {
        let mut summary = Summary::default();
        for (at, node) in flat.nodes.iter().enumerate() {
            match node.kind {
                NodeKind::Work(Work::EventRecord(event)) => summary.records.push((NodeId(at as u32), event)),
                NodeKind::Work(Work::EventWait(event)) => summary.waits.push((NodeId(at as u32), event)),
                _ => {}
            }
        }
        summary.order_events(flat);
        summary.demands = summary.demands(flat, lives);
        for (at, alloc) in flat.allocs.iter().enumerate().filter(|(_, alloc)| alloc.is_output()) {
            let memory = Memory::Own(super::GraphAllocId(at as u32));
            let node = alloc.node.expect("an output has its alloc node");
            summary.last_acts.push(LastAct { memory, act: Act::Allocate, part: Part::WHOLE, node });
            if !summary.records.is_empty() {
                summary.leave(memory, &lives.own[at]);
            }
        }
        for (memory, life) in &lives.outside {
            summary.leave(*memory, life);
        }
        summary
    }

    /// How records and waits of one event stand to each other.
    fn order_events(&mut self, flat: &Flat) {
        let mut records: FxHashMap<EventKey, Vec<usize>> = FxHashMap::default();
        for (at, (_, key)) in self.records.iter().enumerate() {
            records.entry(*key).or_default().push(at);
        }
        let reaches = |from: NodeId, to: NodeId| flat.index.reaches(from, to);
        let is_own = |(wait, key): &&(NodeId, EventKey)| {
            let mut records = records.get(key).into_iter().flatten();
            records.any(|record| !reaches(*wait, self.records[*record].0))
        };
        self.own_waits = self.waits.iter().filter(is_own).map(|(wait, _)| *wait).collect();
        self.last_records = records
            .into_values()
            .map(|records| {
                // Nodes come after none of a higher number (forward).
                let is_last = |(at, record): &(usize, &usize)| {
                    let mut later = records[at + 1..].iter();
                    !later.any(|later| reaches(self.records[**record].0, self.records[*later].0))
                };
                records.iter().enumerate().filter(is_last).map(|(_, record)| *record).collect()
            })
            .collect();
        self.last_records.sort_unstable();
    }

    /// For each event that is recorded, its records that no other of them comes after: places in
    /// [`records`](Self::records), rising.
    pub fn last_records(&self) -> impl Iterator<Item = &[usize]> {
        self.last_records.iter().map(|last| &**last)
    }

    /// Whether a wait node may wait for a record of the same launch.
    pub fn waits_for_own(&self, wait: NodeId) -> bool {
        self.own_waits.binary_search(&wait).is_ok()
    }

    fn demands(&self, flat: &Flat, lives: &Lives) -> Vec<Demand> {
        let mut demands: Vec<Demand> = Vec::new();
        let mut alike: FxHashMap<_, Vec<usize>> = FxHashMap::default();
        let mut known = FxHashSet::default();
        for &Outside { node, memory, act, part } in &lives.acts {
            let FlatNode { may_share, label: Label { device, .. }, .. } = flat.nodes[node.index()];
            let before = |wait: &NodeId| flat.index.reaches(*wait, node);
            let waits: SmallVec<[NodeId; 2]> = self.waits.iter().map(|(wait, _)| *wait).filter(before).collect();
            let key = (memory, act as u8, may_share, device, waits.clone());
            if known.insert((key.clone(), part)) {
                alike.entry(key).or_default().push(demands.len());
                demands.push(Demand { memory, act, part, nodes: Box::new([(node, part)]), may_share, device, waits });
            }
        }
        let mut merged: Vec<usize> = alike.into_values().flat_map(|alike| merge(&mut demands, alike)).collect();
        merged.sort_unstable();
        let mut at = 0;
        demands.retain(|_| {
            at += 1;
            merged.binary_search(&(at - 1)).is_err()
        });
        demands
    }

    fn leave(&mut self, memory: Memory, life: &Life) {
        if let Some(node) = life.freed {
            self.last_acts.push(LastAct { memory, act: Act::Free, part: Part::WHOLE, node });
            return;
        }
        if !self.records.is_empty() {
            for (part, uses) in life.by_part() {
                self.last_acts.extend(uses.iter().map(|it| LastAct { memory, act: it.act, part, node: it.node }));
            }
            return;
        }
        // The whole launch is one point: one last act says it all, a write before a read.
        let begin = self.last_acts.len();
        for (part, uses) in life.by_part() {
            let write = uses.iter().rev().find(|it| it.act == Act::Write);
            let Some(NodeUse { node, act }) = write.or(uses.last()).copied() else { continue };
            match self.last_acts[begin..].last_mut() {
                Some(last) if last.act == act && last.part.to() == part.from() => last.part = last.part.joined(part),
                _ => self.last_acts.push(LastAct { memory, act, part, node }),
            }
        }
    }
}

/// Of demands that differ in their bytes only those with bytes side by side become one, in the place of the first of
/// them; the others.
fn merge(demands: &mut [Demand], mut alike: Vec<usize>) -> Vec<usize> {
    alike.sort_by_key(|at| demands[*at].part);
    let mut groups: Vec<(Part, Vec<usize>)> = Vec::new();
    for at in alike {
        let part = demands[at].part;
        match groups.last_mut() {
            Some((joined, members)) if part.from() <= joined.to() => {
                *joined = joined.joined(part);
                members.push(at);
            }
            _ => groups.push((part, vec![at])),
        }
    }
    let mut others = Vec::new();
    for (part, mut members) in groups {
        members.sort_unstable();
        let nodes = members.iter().flat_map(|at| std::mem::take(&mut demands[*at].nodes)).collect();
        demands[members[0]].part = part;
        demands[members[0]].nodes = nodes;
        others.extend(&members[1..]);
    }
    others
}
