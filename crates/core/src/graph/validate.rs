//! Is the graph's own order right?
//!
//! One pass over the nodes, each after all that come before it, with one `Life` for each piece of memory. Every pair of
//! nodes is compared by the index. Knows no stream and no launch: what needs the outside is left to
//! [`Summary`](super::Summary).

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::fault::{FaultSubject, GraphFault, GraphFaultKind, NodeSite};
use super::flat::Flat;
use super::graph::NodeKind;
use super::index::Index;
use super::life::Life;
use super::node::{GraphAllocId, Memory, NodeId};
use crate::op::Act;

/// No more faults are listed: a missing edge often has many.
pub const FAULTS_MAX: usize = 16;

/// An act on memory from outside.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outside {
    pub(super) node: NodeId,
    pub(super) memory: Memory,
    pub(super) act: Act,
}

/// The lives of all memory that a graph touches.
#[derive(Debug, Default)]
pub(super) struct Lives {
    pub(super) own: Vec<Life>,
    /// Of memory that is not the graph's own, in the order in which it is met.
    pub(super) outside: Vec<(Memory, Life)>,
    by_memory: FxHashMap<Memory, u32>,
    /// Which acts were met before on each, a bit for each kind.
    met: Vec<u8>,
    /// The first act of each kind on each of them; all acts where the graph waits for events.
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
            self.outside.push((memory, Life::default()));
            self.met.push(0);
            self.outside.len() as u32 - 1
        });
        at as usize
    }

    /// Notes an act on memory from outside, if it is one that matters outside.
    #[inline]
    fn note(&mut self, node: NodeId, memory: Memory, act: Act, may_share: bool) {
        if matches!(memory, Memory::Own(_)) {
            return;
        }
        let at = self.place(memory);
        let bit = 1 << (act as u8 * 2 + u8::from(may_share));
        if self.has_waits || self.met[at] & bit == 0 {
            self.met[at] |= bit;
            self.acts.push(Outside { node, memory, act });
        }
    }
}

/// Looks for faults: see the module. Also what happens to memory, for the summary.
pub(super) fn validate(flat: &Flat) -> (Lives, Vec<GraphFault>) {
    let has_waits = flat.nodes.iter().any(|node| matches!(node.kind, NodeKind::EventWait(_)));
    let lives = Lives { own: vec![Life::default(); flat.allocs.len()], has_waits, ..Lives::default() };
    let mut check = Check { flat, index: &flat.index, lives, faults: Vec::new() };
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
        let flat = self.flat;
        let node = &flat.nodes[id.index()];
        match node.kind {
            NodeKind::MemAlloc(alloc) => self.lives.of(Memory::Own(alloc)).born = Some(id),
            NodeKind::MemFree(memory) => self.free(id, memory),
            _ => node.accesses.iter().for_each(|access| self.access(id, access.memory, access.act)),
        }
    }

    fn access(&mut self, id: NodeId, memory: Memory, act: Act) {
        let act = if act == Act::Read { Act::Read } else { Act::Write };
        let Self { flat, index, .. } = *self;
        let may_share = flat.nodes[id.index()].may_share;
        self.lives.note(id, memory, act, may_share);
        if !self.is_born(id, memory) {
            return self.before_alloc(GraphFaultKind::UseBeforeAlloc, id, act, memory);
        }
        let life = self.lives.of(memory);
        let is_before = |node| index.reaches(node, id);
        let wrong = life.check_use(id, act, is_before, |other| may_share && flat.nodes[other.index()].may_share);
        if wrong.is_none_or(|wrong| wrong.kind == GraphFaultKind::Race) {
            life.add_use(id, act, is_before);
        }
        if let Some(wrong) = wrong {
            self.fault(wrong.kind, memory, wrong.earlier, wrong.later);
        }
    }

    fn free(&mut self, id: NodeId, memory: Memory) {
        self.lives.note(id, memory, Act::Free, false);
        if self.lives.of(memory).freed.is_none() && !self.is_born(id, memory) {
            return self.before_alloc(GraphFaultKind::FreeBeforeAlloc, id, Act::Free, memory);
        }
        let index = self.index;
        let life = self.lives.of(memory);
        let wrong = life.check_free(id, |node| index.reaches(node, id));
        life.freed.get_or_insert(id);
        if let Some(wrong) = wrong {
            self.fault(wrong.kind, memory, wrong.earlier, wrong.later);
        }
    }

    /// Whether `id` comes after the alloc node; memory from outside was there before.
    fn is_born(&mut self, id: NodeId, memory: Memory) -> bool {
        let Memory::Own(alloc) = memory else { return true };
        self.lives.own[alloc.index()].born.is_some_and(|born| self.index.reaches(born, id))
    }

    #[cold]
    fn before_alloc(&mut self, kind: GraphFaultKind, id: NodeId, act: Act, memory: Memory) {
        if let Memory::Own(alloc) = memory
            && let Some(born) = self.flat.allocs[alloc.index()].node
        {
            self.fault(kind, memory, (born, Act::Allocate), (id, act));
        }
    }

    /// Allocations that share a byte live one after the other: each begins after the free of whatever lay there last.
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
            let end = match before.freed {
                Some(free) => (free, Act::Free),
                None => (before.node.expect("its alloc node was met"), Act::Allocate),
            };
            self.fault(GraphFaultKind::SharedBytes, Memory::Own(later), end, (after, Act::Allocate));
        }
    }

    #[cold]
    fn fault(&mut self, kind: GraphFaultKind, memory: Memory, earlier: (NodeId, Act), later: (NodeId, Act)) {
        if self.faults.len() == FAULTS_MAX {
            return;
        }
        let site = |(id, act): (NodeId, Act)| {
            let node = &self.flat.nodes[id.index()];
            NodeSite { origin: node.origin.clone(), noun: node.kind.noun(), act, label: node.label.clone() }
        };
        let mut subject = FaultSubject { memory, bytes: None, name: None };
        if let Memory::Own(alloc) = memory {
            let alloc = &self.flat.allocs[alloc.index()];
            let name = alloc.node.and_then(|node| self.flat.nodes[node.index()].label.name.clone());
            subject = FaultSubject { memory, bytes: Some(alloc.bytes), name: name.map(|name| name.to_string()) };
        }
        let is_turned = self.index.reaches(later.0, earlier.0);
        self.faults.push(GraphFault { kind, subject, earlier: site(earlier), later: site(later), is_turned });
    }
}
