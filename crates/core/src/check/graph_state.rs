//! The graphs and instances of a program, as the checker keeps them. What is done with them is in `graphs.rs`,
//! `captures.rs` and `launches.rs`.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::homes::{Family, FreshAddresses, Homes, Left};
use super::let_in::Kept;
use super::lives::{Freed, LifeId};
use super::names::{Key, Names};
use crate::graph::{Captures, Exec, Graph, GraphAllocId, Lanes, Memory as NodeMemory, Origin, Uses};
use crate::ids::{ExecId, GraphId, HostId, NodeId, StreamId};
use crate::life::{Kind, Site, Use};
use crate::op::{CaptureMode, Memory, Name};
use crate::order::Snapshot;
use crate::units::Range;

/// A graph of the program.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) graph: Graph,
    pub(super) names: Names,
    pub(super) homes: Homes,
    /// Whether it was looked at as a whole since it was changed.
    pub(super) is_checked: bool,
    /// Whether something was made of it: what has changed since is in no launch.
    pub(super) is_made_of: bool,
    /// The numbers, as the program counts its nodes, of those that were refused; rising.
    pub(super) refused: Vec<u32>,
}

impl Made {
    /// A node by the program's number; none where it was refused.
    pub(super) fn node(&self, node: NodeId) -> Option<NodeId> {
        match self.refused.binary_search(&node.0) {
            Ok(_) => None,
            Err(before) => Some(NodeId(node.0 - before as u32)),
        }
    }
}

/// A graph that is being captured.
#[derive(Debug, Default)]
pub(super) struct Captured {
    pub(super) names: Names,
    pub(super) homes: Homes,
    /// What its nodes did so far.
    pub(super) uses: Uses,
    /// Where the capture began: on which stream, and in the program.
    pub(super) origin: Option<StreamId>,
    pub(super) begun: Option<Site>,
}

/// All graphs of a program.
#[derive(Debug, Default)]
pub(super) struct Graphs {
    pub(super) captures: Captures,
    /// How many captures go on.
    pub(super) capturing: usize,
    /// The capture modes of threads; all others have the global one.
    pub(super) modes: FxHashMap<HostId, CaptureMode>,
    /// What is known of a graph that is being captured.
    pub(super) captured: FxHashMap<GraphId, Captured>,
    pub(super) graphs: FxHashMap<GraphId, Made>,
    pub(super) execs: FxHashMap<ExecId, Instance>,
    pub(super) families: FxHashMap<GraphId, Family>,
    pub(super) addresses: FreshAddresses,
    /// Graphs and instances that are not there because something was refused.
    pub(super) void_graphs: FxHashSet<GraphId>,
    pub(super) void_execs: FxHashSet<ExecId>,
    /// What the program calls memory of alloc nodes, where it says so.
    pub(super) called: FxHashMap<Memory, Name>,
    /// What memory of captured alloc nodes has of its pool, by the node's name.
    pub(super) kept: FxHashMap<Memory, Kept>,
    /// The launch that gave an alloc node's memory its latest life, by the node's name: the instance, the number there.
    pub(super) latest: FxHashMap<Memory, (ExecId, GraphAllocId)>,
    /// What instances left of graphs that they are not of any more, and were launched since.
    pub(super) parted: FxHashMap<LifeId, Parted>,
    /// Those that are what their node's name means.
    pub(super) parted_as: FxHashMap<Memory, LifeId>,
    /// The graph that has the free node for an alloc node's memory.
    pub(super) grants: FxHashMap<Key, GraphId>,
    /// What freed an alloc node's memory last, by the node's name, where the instance that made it is gone.
    pub(super) freed: FxHashMap<Memory, Freed>,
    /// What was allocated in the place of such memory since, by the same instance for another graph.
    pub(super) overtaken: FxHashMap<Memory, Use>,
    /// Memory of alloc nodes that a launch would have allocated, had it or its graph not been refused: that it is not
    /// there is no other mistake.
    pub(super) unmade: FxHashSet<Memory>,
    /// How many graphs and instances have a name of an alloc node's memory.
    pub(super) holds: FxHashMap<Memory, u32>,
    /// The faults between nodes of a graph that were said, and of which graph that was: it, or one that it is in.
    pub(super) said: FxHashMap<GraphId, FxHashMap<FaultWithin, GraphId>>,
}

/// A fault between two nodes of a graph, or of one that is in it: the rule, the memory as that graph knows it, and the
/// nodes as it counts them.
pub(super) type FaultWithin = (Kind, NodeMemory, Origin, Origin);

impl Graphs {
    #[inline]
    pub(super) fn is_capturing(&self) -> bool {
        self.capturing > 0
    }

    #[inline]
    pub(super) fn is_captured(&self, stream: StreamId) -> bool {
        self.capturing > 0 && self.captures.of(stream).is_some()
    }

    pub(super) fn entries(&self) -> usize {
        self.graphs.len() + self.execs.len() + self.latest.len() + self.captured.len()
    }

    /// An instance is launched that is of another graph than when it was launched before: what it left then is that
    /// graph's. What of it lives, and what is freed, with its place in the instance.
    pub(super) fn part_from_former(
        &mut self,
        exec: ExecId,
        instance: &Instance,
    ) -> (Vec<LifeId>, Vec<(GraphAllocId, Memory)>) {
        let (mut lives, mut gone) = (Vec::new(), Vec::new());
        for (alloc, key) in &instance.former {
            let Some((output, memory)) = instance.outputs.get(alloc).zip(instance.names.of(*key)) else { continue };
            let is_latest = self.latest.get(&memory).is_some_and(|(latest, _)| *latest == exec);
            if is_latest {
                self.latest.remove(&memory);
            }
            match output {
                Output::Freed(freed) if is_latest => {
                    self.freed.insert(memory, *freed);
                    gone.push((*alloc, memory));
                }
                Output::Freed(_) => {}
                Output::Live(life) => {
                    if is_latest {
                        self.parted_as.insert(memory, *life);
                    }
                    self.parted.insert(*life, Parted { key: *key, memory, by: (exec, *alloc) });
                    lives.push(*life);
                }
            }
        }
        (lives, gone)
    }

    /// Memory is freed that an instance left of a graph that it is not of any more.
    pub(super) fn parted_freed(&mut self, life: LifeId, freed: Freed) {
        let Some(Parted { key, memory, by }) = self.parted.remove(&life) else { return };
        if self.parted_as.get(&memory) == Some(&life) {
            self.parted_as.remove(&memory);
            self.freed.insert(memory, freed);
        }
        self.forget_former(key, by);
    }

    /// An instance with addresses of these families is made.
    pub(super) fn enroll(&mut self, families: &[GraphId]) {
        for family in families {
            self.families.entry(*family).or_default().instances += 1;
        }
    }

    /// It is gone, or has their addresses no more.
    pub(super) fn withdraw_from(&mut self, families: &[GraphId]) {
        for id in families {
            let Some(family) = self.families.get_mut(id) else { continue };
            family.instances -= 1;
            if family.instances == 0 && !self.graphs.values().any(|made| made.homes.has(*id)) {
                self.families.remove(id);
            }
        }
    }

    /// What a launch left was freed.
    pub(super) fn forget_left(&mut self, families: &[GraphId], by: (ExecId, GraphAllocId)) {
        for family in families {
            if let Some(family) = self.families.get_mut(family) {
                family.left.remove(&by);
            }
        }
    }

    /// The same, where the instance is of another graph by now.
    #[cold]
    pub(super) fn forget_former(&mut self, key: Key, by: (ExecId, GraphAllocId)) {
        for family in self.families.values_mut() {
            if family.left.get(&by).is_some_and(|left| left.key == key) {
                family.left.remove(&by);
            }
        }
    }
}

/// What an instance left of a graph that it is not of any more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parted {
    /// Its node, and what that is called.
    pub(super) key: Key,
    pub(super) memory: Memory,
    by: (ExecId, GraphAllocId),
}

impl Graphs {
    /// A graph by its number, where it is there or is being captured, or an instance of it.
    pub(super) fn known(&self, graph: GraphId) -> Option<&Graph> {
        let made = self.graphs.get(&graph).map(|made| &made.graph);
        let captured = || self.captures.graph_of(self.captured.get(&graph)?.origin?);
        let of_instance = || self.execs.values().map(Instance::graph).find(|it| it.id() == graph);
        made.or_else(captured).or_else(of_instance)
    }

    /// The names of a graph, also while it is captured.
    pub(super) fn names_of(&self, graph: GraphId) -> Option<&Names> {
        let captured = self.captured.get(&graph).map(|captured| &captured.names);
        captured.or_else(|| self.graphs.get(&graph).map(|made| &made.names))
    }

    fn names_mut(&mut self, graph: GraphId) -> Option<&mut Names> {
        match self.captured.get_mut(&graph) {
            Some(captured) => Some(&mut captured.names),
            None => self.graphs.get_mut(&graph).map(|made| &mut made.names),
        }
    }

    /// A graph has memory of its own by this name.
    pub(super) fn name_own(&mut self, graph: GraphId, alloc: GraphAllocId, memory: Memory) {
        self.name_foreign(graph, (graph, alloc), memory);
        if let Some(names) = self.names_mut(graph) {
            names.keys.insert(memory, (graph, alloc));
        }
    }

    /// A graph has memory of its own by another name from now on: its number, and whether no graph or instance has the
    /// former one any more.
    pub(super) fn rename_own(
        &mut self,
        graph: GraphId,
        former: Memory,
        memory: Memory,
    ) -> Option<(GraphAllocId, bool)> {
        let names = self.names_mut(graph)?;
        let (_, alloc) = names.key(former)?;
        if !names.rename(graph, former, memory) {
            return None;
        }
        self.hold_each([&memory]);
        if let Some(kept) = self.kept.get(&former).cloned() {
            self.kept.insert(memory, kept);
        }
        Some((alloc, self.let_go(former)))
    }

    /// A graph uses another one's memory by this name.
    pub(super) fn name_foreign(&mut self, graph: GraphId, key: Key, memory: Memory) {
        if self.names_mut(graph).is_some_and(|names| names.learn(key, memory)) {
            *self.holds.entry(memory).or_default() += 1;
        }
    }

    /// A graph has a child with these names.
    pub(super) fn adopt(&mut self, graph: GraphId, node: NodeId, child: &Names) {
        child.memory.iter().for_each(|(key, memory)| self.name_foreign(graph, *key, *memory));
        if let Some(names) = self.names_mut(graph) {
            names.children.push((node, child.keys.clone()));
            names.find_keys(graph);
        }
    }

    /// A graph has lost a child: its names mean memory of another one, or of none that is in the graph.
    pub(super) fn abandon(&mut self, graph: GraphId, node: NodeId) {
        if let Some(names) = self.names_mut(graph) {
            names.children.retain(|(child, _)| *child != node);
            names.keys.retain(|_, key| key.0 == graph);
            names.find_keys(graph);
        }
    }

    /// Another graph or instance has these names, too.
    pub(super) fn hold(&mut self, names: &Names) {
        self.hold_each(names.memory.values());
    }

    /// As [`hold`](Self::hold), some of them.
    pub(super) fn hold_each<'n>(&mut self, names: impl IntoIterator<Item = &'n Memory>) {
        names.into_iter().for_each(|memory| *self.holds.entry(*memory).or_default() += 1);
    }

    /// A graph or instance has these names no longer: those that none has any more.
    pub(super) fn release(&mut self, names: &Names) -> Vec<Memory> {
        names.memory.values().copied().filter(|memory| self.let_go(*memory)).collect()
    }

    /// One graph or instance less has a name: whether none has it any more.
    fn let_go(&mut self, memory: Memory) -> bool {
        let Some(holds) = self.holds.get_mut(&memory) else { return false };
        *holds -= 1;
        let is_gone = *holds == 0;
        if is_gone {
            self.holds.remove(&memory);
            self.latest.remove(&memory);
            self.parted_as.remove(&memory);
            self.overtaken.remove(&memory);
            self.called.remove(&memory);
            self.unmade.remove(&memory);
            self.kept.remove(&memory);
        }
        is_gone
    }
}

/// What became of an allocation that a launch left behind.
#[derive(Clone, Copy, Debug)]
pub(super) enum Output {
    Live(LifeId),
    Freed(Freed),
}

/// The launch before.
#[derive(Clone, Debug)]
pub(super) struct Last {
    pub(super) snapshot: Snapshot,
    pub(super) site: Site,
}

/// An instantiated graph of the program.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) exec: Exec,
    pub(super) lanes: Lanes,
    /// As it was instantiated, for launches into captures.
    pub(super) graph: Arc<Graph>,
    pub(super) homes: Homes,
    /// Those whose addresses its allocations have.
    pub(super) families: SmallVec<[GraphId; 1]>,
    /// The addresses that a launch allocates at.
    pub(super) cover: Vec<Range>,
    /// What launches leave.
    pub(super) leaves: FxHashSet<Key>,
    pub(super) names: Names,
    pub(super) outputs: FxHashMap<GraphAllocId, Output>,
    /// What is left of a graph that the instance is no more of since its update, as graphs name it.
    pub(super) former: FxHashMap<GraphAllocId, Key>,
    pub(super) last: Option<Last>,
    /// The latest launch of the nodes that it has now: on which stream, and the how many-th operation there.
    pub(super) launched: Option<(StreamId, u64)>,
    pub(super) is_destroyed: bool,
}

pub(super) fn key_of(exec: &Exec, alloc: GraphAllocId) -> Key {
    let it = &exec.allocs()[alloc.index()];
    (it.graph, it.alloc)
}

impl Instance {
    /// What its latest launch left of an allocation was freed. That it was there was seen when its life was found.
    pub(super) fn freed(&mut self, alloc: GraphAllocId, freed: Freed) {
        let _ = self.exec.freed(alloc);
        self.outputs.insert(alloc, Output::Freed(freed));
    }

    /// What its launch leaves of an allocation, if that is of the family.
    pub(super) fn left(&self, alloc: GraphAllocId, family: GraphId) -> Option<Left> {
        let key = self.key(alloc);
        let range = self.exec.allocs()[alloc.index()].range.filter(|_| self.homes.family(key.0) == Some(family))?;
        Some(Left { key, range })
    }

    /// Whether what a launch left lies where this one allocates something else.
    pub(super) fn is_taken_by(&self, left: &Left) -> bool {
        let overlaps = |range: &Range| range.overlaps(left.range);
        !self.leaves.contains(&left.key) && self.cover.iter().any(overlaps)
    }

    /// The graph that it was made of.
    pub(super) fn graph_id(&self) -> GraphId {
        self.graph.id()
    }

    /// The same, as it was then.
    pub(super) fn graph(&self) -> &Graph {
        &self.graph
    }

    /// An allocation, as graphs name it.
    pub(super) fn key(&self, alloc: GraphAllocId) -> Key {
        key_of(&self.exec, alloc)
    }

    /// What a launch left of an allocation, as graphs name it.
    pub(super) fn left_as(&self, alloc: GraphAllocId) -> Key {
        self.former.get(&alloc).copied().unwrap_or_else(|| self.key(alloc))
    }

    /// What follows from the graph that it is of.
    pub(super) fn settle(&mut self) {
        self.leaves = self.exec.outputs().iter().map(|alloc| key_of(&self.exec, *alloc)).collect();
        self.cover = self.exec.addresses();
        self.families.clear();
        for alloc in self.exec.allocs().iter().filter(|alloc| alloc.node.is_some()) {
            let family = self.homes.family(alloc.graph);
            self.families.extend(family.filter(|family| !self.families.contains(family)));
        }
    }

    /// An allocation, as the program names it.
    pub(super) fn name(&self, alloc: GraphAllocId) -> Option<Memory> {
        self.names.of(self.key(alloc))
    }

    pub(super) fn live(&self, alloc: GraphAllocId) -> Option<LifeId> {
        match self.outputs.get(&alloc) {
            Some(Output::Live(life)) => Some(*life),
            _ => None,
        }
    }
}
