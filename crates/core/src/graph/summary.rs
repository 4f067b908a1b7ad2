//! The summary of an instance: the order that each launch requires of operations outside the graph, and the last acts
//! that they can see. Made once, examined by each launch.
//!
//! The simple version goes through all nodes at each launch. A launch asks the same of every node that comes after the
//! same event waits, so one entry for each piece of memory (and set of waits) is enough. Of what the launch did, the
//! operations outside can meet only the last uses. Nodes with the same act on adjacent bytes share one entry. So the
//! cost of a launch depends on the outside memory, not on the graph.
//!
//! Depends on nodes; not on streams. Invariants: **first**: if every [`Demand`] is met, every node's demand is met.
//! **last**: what comes after every [`LastAct`] on some memory comes after all acts of the graph on it.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::flat::{Flat, FlatNode};
use super::graph::NodeKind;
use super::life::{Life, NodeUse};
use super::node::{Access, EventKey, Label, Memory, NodeId, Work};
use super::validate::{Lives, Outside};
use crate::ids::DeviceId;
use crate::op::{Act, Part};

/// An act on memory from outside the graph that each launch has to check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Demand {
    /// The memory.
    pub memory: Memory,
    /// [`Act::Read`], [`Act::Write`] or [`Act::Free`].
    pub act: Act,
    /// The bytes: of all these nodes together.
    pub part: Part,
    /// The first node that does it to each part, in the order of the nodes; for reports.
    pub nodes: Box<[(NodeId, Part)]>,
    /// `true` if it promises to share bytes with unordered nodes, so that races are not checked.
    pub may_share: bool,
    /// The device that does it, if it is not the launching stream's.
    pub device: Option<DeviceId>,
    /// The event waits that come before it. It comes after what the launching stream knows and after what these waited
    /// for.
    pub waits: SmallVec<[NodeId; 2]>,
}

/// A last act of a launch on memory that operations outside can see. If the graph records no events, the launch is one
/// point: there is at most one use of each memory from outside (a write, if there is one), and for an output only its
/// allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LastAct {
    /// The memory: from outside, or an output of the graph.
    pub memory: Memory,
    /// The act: an allocation (outputs), a read, a write or a free.
    pub act: Act,
    /// The bytes.
    pub part: Part,
    /// The node.
    pub node: NodeId,
}

impl LastAct {
    /// Returns the node that did it to some of these bytes. A last act may stand for several nodes of the graph.
    #[cold]
    pub fn doer(&self, nodes: &[FlatNode], part: Part) -> NodeId {
        let did = |it: &Access| it.memory == self.memory && it.kind() == self.act && it.part.overlaps(part);
        let is_it = |node: &NodeId| nodes.get(node.index()).is_some_and(|node| node.accesses.iter().any(did));
        let all = || (0..nodes.len()).rev().map(|at| NodeId(at as u32));
        Some(self.node).filter(is_it).or_else(|| all().find(is_it)).unwrap_or(self.node)
    }
}

/// A graph as the operations outside see it: see the module.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Uses and frees of outside memory, in the order of the nodes.
    pub demands: Vec<Demand>,
    /// The last acts on that memory, and on the outputs.
    pub last_acts: Vec<LastAct>,
    /// The nodes that record an event.
    pub records: Vec<(NodeId, EventKey)>,
    /// The nodes that wait for an event.
    pub waits: Vec<(NodeId, EventKey)>,
    /// The waits that do not come before every node that records the same event, sorted. The event of before the launch
    /// may be overwritten by then; the edges of the graph decide the rest.
    own_waits: Vec<NodeId>,
    /// For each event that is recorded, its records that no other of its records comes after, as sorted indices in
    /// `records`.
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

    /// Finds the order of the records and waits of each event.
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
                // No node comes after one with a higher number (forward).
                let is_last = |(at, record): &(usize, &usize)| {
                    let mut later = records[at + 1..].iter();
                    !later.any(|later| reaches(self.records[**record].0, self.records[*later].0))
                };
                records.iter().enumerate().filter(is_last).map(|(_, record)| *record).collect()
            })
            .collect();
        self.last_records.sort_unstable();
    }

    /// Returns, for each event that is recorded, its records that no other of its records comes after, as sorted
    /// indices in [`records`](Self::records).
    pub fn last_records(&self) -> impl Iterator<Item = &[usize]> {
        self.last_records.iter().map(|last| &**last)
    }

    /// Returns `true` if a wait node may wait for a record of the same launch.
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
        // The whole launch is one point, so one last act stands for all of them, a write rather than a read.
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

/// Joins demands that differ only in their bytes, if their bytes are adjacent or overlap. The joined demand takes the
/// place of the first of them. Returns the others.
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
