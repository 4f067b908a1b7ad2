//! The check of a graph's own order.
//!
//! One pass over the nodes, each after all that come before it, with one `Life` for each piece of memory. The index
//! compares every pair of nodes. Depends on no stream and no launch: [`Summary`](super::Summary) has what needs the
//! operations outside the graph.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::fault::{FaultSubject, GraphFault};
use super::flat::Flat;
use super::graph::NodeKind;
use super::index::Index;
use super::life::{Life, NodeUse, Wrong};
use super::node::{Access, GraphAllocId, Memory, NodeId, Work};
use crate::life::Kind;
use crate::op::{Act, Part};

/// The most faults that are listed: a missing edge often causes many.
pub const FAULTS_MAX: usize = 16;

/// An act on memory from outside the graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Outside {
    pub(super) node: NodeId,
    pub(super) memory: Memory,
    pub(super) act: Act,
    pub(super) part: Part,
}

/// The lives of all memory that a graph uses.
#[derive(Debug, Default)]
pub(super) struct Lives {
    pub(super) own: Vec<Life>,
    /// The lives of memory that is not the graph's own, in the order in which it is met.
    pub(super) outside: Vec<(Memory, Life)>,
    by_memory: FxHashMap<Memory, u32>,
    /// The acts on all bytes that were met before on each, one bit for each kind of act.
    met: Vec<u8>,
    /// The first act of each kind on each of them, and the acts on parts. All acts if the graph waits for events.
    pub(super) acts: Vec<Outside>,
    has_waits: bool,
}

impl Lives {
    fn of(&mut self, memory: Memory) -> &mut Life {
        match memory {
            Memory::Own(alloc) => &mut self.own[alloc.index()],
            _ => {
                let at = self.place(memory);
                &mut self.outside[at].1
            }
        }
    }

    fn place(&mut self, memory: Memory) -> usize {
        let at = *self.by_memory.entry(memory).or_insert_with(|| {
            self.outside.push((memory, Life::new(None)));
            self.met.push(0);
            self.outside.len() as u32 - 1
        });
        at as usize
    }

    /// Keeps an act on memory from outside, if launches have to check it.
    #[inline]
    fn note(&mut self, act: Outside, may_share: bool) {
        if matches!(act.memory, Memory::Own(_)) {
            return;
        }
        let at = self.place(act.memory);
        let bit = 1 << (act.act as u8 * 2 + u8::from(may_share));
        if self.has_waits || !act.part.is_whole() || self.met[at] & bit == 0 {
            self.met[at] |= if act.part.is_whole() { bit } else { 0 };
            self.acts.push(act);
        }
    }
}

/// Looks for faults: see the module. Also returns the lives of the memory, for the summary.
pub(super) fn validate(flat: &Flat) -> (Lives, Vec<GraphFault>) {
    let has_waits = flat.nodes.iter().any(|node| matches!(node.kind, NodeKind::Work(Work::EventWait(_))));
    let own = flat.allocs.iter().map(|alloc| Life::new(alloc.node)).collect();
    let mut check =
        Check { flat, index: &flat.index, lives: Lives { own, has_waits, ..Lives::default() }, faults: Vec::new() };
    for at in 0..flat.nodes.len() {
        check.node(NodeId(at as u32));
    }
    if flat.is_doubtful {
        check.shared_bytes();
    }
    (check.lives, check.faults)
}

struct Check<'a> {
    flat: &'a Flat,
    index: &'a Index,
    lives: Lives,
    faults: Vec<GraphFault>,
}

impl Check<'_> {
    fn node(&mut self, id: NodeId) {
        let node = &self.flat.nodes[id.index()];
        if let NodeKind::MemFree(memory) = node.kind {
            self.act(id, Access::whole(memory, Act::Free), Act::Free);
            self.lives.of(memory).freed.get_or_insert(id);
        }
        node.accesses.iter().for_each(|access| self.act(id, *access, access.kind()));
    }

    fn act(&mut self, node: NodeId, access: Access, act: Act) {
        let Self { flat, index, .. } = *self;
        let Access { memory, part, .. } = access;
        if let Memory::Own(alloc) = memory
            && flat.allocs[alloc.index()].node.is_none()
        {
            return;
        }
        let may_share = act != Act::Free && flat.nodes[node.index()].may_share;
        self.lives.note(Outside { node, memory, act, part }, may_share);
        let (life, new) = (self.lives.of(memory), NodeUse { node, act });
        let is_before = |other| index.reaches(other, node);
        let shares = |other: NodeId| may_share && flat.nodes[other.index()].may_share;
        let wrong = life.check(new, part, is_before, shares);
        let is_said = wrong.is_some_and(|wrong| wrong.later.node == node) && self.faults.len() < FAULTS_MAX;
        let ends = if is_said { life.ends(new, part, shares, |a, b| index.reaches(a, b)) } else { Vec::new() };
        if act != Act::Free && wrong.is_none_or(|wrong| wrong.kind == Kind::Race) {
            life.add(new, part, is_before);
        }
        if let Some(wrong) = wrong {
            self.fault(wrong, memory, &ends);
        }
    }

    /// Checks that allocations that share a byte live one after the other: each must come after the free of the one
    /// that was last there.
    fn shared_bytes(&mut self) {
        let flat = self.flat;
        let mut last: BTreeMap<u64, (u64, GraphAllocId)> = BTreeMap::new();
        for node in &flat.nodes {
            let NodeKind::MemAlloc(alloc) = node.kind else { continue };
            let Some(range) = flat.allocs[alloc.index()].range else { continue };
            let from = last.range(..=range.start).next_back().map_or(range.start, |(&at, _)| at);
            let there: Vec<_> = last.range(from..range.end()).map(|(&at, &(end, other))| (at, end, other)).collect();
            for (at, end, other) in there.into_iter().filter(|(_, end, _)| *end > range.start) {
                self.share(other, alloc);
                last.remove(&at);
                if at < range.start {
                    last.insert(at, (range.start, other));
                }
                if end > range.end() {
                    last.insert(range.end(), (end, other));
                }
            }
            last.insert(range.start, (range.end(), alloc));
        }
    }

    fn share(&mut self, earlier: GraphAllocId, later: GraphAllocId) {
        let (before, after) = (&self.flat.allocs[earlier.index()], &self.flat.allocs[later.index()]);
        let after = after.node.expect("its alloc node was met");
        let is_over = before.freed.is_some_and(|free| self.index.reaches(free, after));
        if !is_over {
            let earlier = match before.freed {
                Some(node) => NodeUse { node, act: Act::Free },
                None => NodeUse { node: before.node.expect("its alloc node was met"), act: Act::Allocate },
            };
            let later_use = NodeUse { node: after, act: Act::Allocate };
            self.fault(Wrong { kind: Kind::SharedAddresses, earlier, later: later_use }, Memory::Own(later), &[]);
        }
    }

    #[cold]
    fn fault(&mut self, Wrong { kind, earlier, later }: Wrong, memory: Memory, ends: &[NodeUse]) {
        if self.faults.len() == FAULTS_MAX {
            return;
        }
        let site = |NodeUse { node, act }| self.flat.nodes[node.index()].site(act);
        let mut subject = FaultSubject { memory, bytes: None, name: None };
        if let Memory::Own(alloc) = memory {
            let alloc = &self.flat.allocs[alloc.index()];
            let name = alloc.node.and_then(|node| self.flat.nodes[node.index()].label.name.clone());
            subject = FaultSubject { memory, bytes: Some(alloc.bytes), name: name.map(|name| name.to_string()) };
        }
        let is_turned = self.index.reaches(later.node, earlier.node);
        let ends = if kind.is_order() { ends.iter().map(|end| site(*end)).collect() } else { Vec::new() };
        self.faults.push(GraphFault { kind, subject, earlier: site(earlier), ends, later: site(later), is_turned });
    }
}
