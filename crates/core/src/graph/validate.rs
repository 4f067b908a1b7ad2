//! Is the graph's own order right?
//!
//! One pass over the nodes, each after all that come before it. The simple version compares each use of an allocation
//! with its alloc node, its free node and every other use. Departure: of the uses that something later may have to come
//! after only those are kept that no kept one comes after - reads behind reads, anything behind a write. (A read does
//! not stand for the writes before it: an unordered third node that reads would meet no write, and a race would be
//! missed.)
//!
//! Every pair of nodes is compared by the index. Knows no stream and no launch: what needs the outside is left to
//! [`Summary`](super::Summary).

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::fault::{FaultSubject, GraphFault, GraphFaultKind, NodeSite};
use super::flat::Flat;
use super::index::Index;
use super::node::{GraphAllocId, Memory, NodeId, NodeKind};
use crate::check::Act;

/// No more faults are listed: a missing edge often has many.
pub const FAULTS_MAX: usize = 16;

/// So many reads are kept before they are thinned out.
const READS_KEPT: u32 = 16;

/// What has been done to one piece of memory up to some node.
#[derive(Clone, Debug, Default)]
pub(super) struct Life {
    /// Its alloc node, once met; external memory was there before.
    born: Option<NodeId>,
    pub(super) freed: Option<NodeId>,
    /// The last writes, an antichain.
    pub(super) writes: SmallVec<[NodeId; 2]>,
    /// The last reads and some that come before them: thinned out when they are twice as many as were left last time.
    pub(super) reads: SmallVec<[NodeId; 2]>,
    thin_at: u32,
    /// Which acts were met before, a bit for each.
    acts: u8,
}

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
    /// The first act of each kind on each of them; all acts where the graph waits for events.
    pub(super) acts: Vec<Outside>,
    has_waits: bool,
}

impl Lives {
    fn of(&mut self, memory: Memory) -> &mut Life {
        if let Memory::Own(alloc) = memory {
            return &mut self.own[alloc.index()];
        }
        let at = *self.by_memory.entry(memory).or_insert_with(|| {
            self.outside.push((memory, Life::default()));
            self.outside.len() as u32 - 1
        });
        &mut self.outside[at as usize].1
    }

    /// Notes an act on memory from outside, if it is one that the outside has to hear of.
    #[inline]
    fn note(&mut self, node: NodeId, memory: Memory, act: Act, may_share: bool) {
        if matches!(memory, Memory::Own(_)) {
            return;
        }
        let has_waits = self.has_waits;
        let life = self.of(memory);
        let bit = 1 << (act as u8 * 2 + u8::from(may_share));
        if has_waits || life.acts & bit == 0 {
            life.acts |= bit;
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
        if let Some(free) = life.freed {
            match index.reaches(free, id) {
                true => return self.fault(GraphFaultKind::UseAfterFree, memory, (free, Act::Free), (id, act)),
                false => return self.fault(GraphFaultKind::FreeBeforeUse, memory, (id, act), (free, Act::Free)),
            }
        }
        let is_race = |other: &&NodeId| {
            **other != id && !index.reaches(**other, id) && !(may_share && flat.nodes[other.index()].may_share)
        };
        let write = life.writes.iter().find(is_race).map(|node| (*node, Act::Write));
        let read = || life.reads.iter().find(is_race).map(|node| (*node, Act::Read));
        let race = write.or_else(|| if act == Act::Write { read() } else { None });
        let is_news = |node: &mut NodeId| *node != id && !index.reaches(*node, id);
        if act != Act::Read || life.reads.len() >= life.thin_at as usize {
            life.reads.retain(is_news);
            life.thin_at = READS_KEPT.max(2 * life.reads.len() as u32);
        }
        match act {
            Act::Read => life.reads.push(id),
            _ => {
                life.writes.retain(is_news);
                life.writes.push(id);
            }
        }
        if let Some(other) = race {
            self.fault(GraphFaultKind::Race, memory, other, (id, act));
        }
    }

    fn free(&mut self, id: NodeId, memory: Memory) {
        let later = (id, Act::Free);
        self.lives.note(id, memory, Act::Free, false);
        if let Some(free) = self.lives.of(memory).freed {
            return self.fault(GraphFaultKind::DoubleFree, memory, (free, Act::Free), later);
        }
        if !self.is_born(id, memory) {
            return self.before_alloc(GraphFaultKind::FreeBeforeAlloc, id, Act::Free, memory);
        }
        let index = self.index;
        let life = self.lives.of(memory);
        life.freed = Some(id);
        let is_loose = |node: &&NodeId| !index.reaches(**node, id);
        let write = life.writes.iter().find(is_loose).map(|node| (*node, Act::Write));
        let loose = write.or_else(|| life.reads.iter().find(is_loose).map(|node| (*node, Act::Read)));
        if let Some(earlier) = loose {
            self.fault(GraphFaultKind::FreeBeforeUse, memory, earlier, later);
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
        self.faults.push(GraphFault { kind, subject, earlier: site(earlier), later: site(later) });
    }
}
