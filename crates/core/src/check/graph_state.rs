//! The graphs and instances of a program, as the checker keeps them. What is done with them is in `graphs.rs`,
//! `captures.rs` and `launches.rs`.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::addresses::FreshAddresses;
use super::lives::{Freed, LifeId};
use super::names::{Held, Key, Names};
use crate::graph::{
    CaptureId, Captures, Ended, Exec, Graph, GraphAllocId, Holder, Lanes, Memory as NodeMemory, Origin,
};
use crate::ids::{DeviceId, ExecId, GraphId, HostId, NodeId, PoolId, ProcessId, StreamId};
use crate::life::{Kind, Site};
use crate::op::{Act, CaptureMode, Memory, Name, Reach};
use crate::order::Snapshot;

/// A graph of the program.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) graph: Graph,
    pub(super) held: Held,
    /// The graph that it is a copy of.
    pub(super) original: Option<GraphId>,
    /// Who has its addresses, if they are fixed, and which instance that is.
    pub(super) holder: Option<(Holder, Option<ExecId>)>,
    /// What was done there before.
    pub(super) before: Before,
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

/// What instances that are gone did at the fixed addresses of a graph.
#[derive(Clone, Debug, Default)]
pub(super) struct Before {
    /// The last launch of each.
    pub(super) last: SmallVec<[Last; 1]>,
    /// Those that may have left memory.
    pub(super) left: SmallVec<[ExecId; 1]>,
}

impl Before {
    pub(super) fn extend(&mut self, other: Before) {
        self.last.extend(other.last);
        self.left.extend(other.left);
    }
}

/// A graph that is being captured.
#[derive(Debug)]
pub(super) struct Captured {
    pub(super) graph: Graph,
    pub(super) held: Held,
    /// Whether it is a copy of a graph that is there, which it takes the place of where it ends well.
    pub(super) is_copy: bool,
}

impl AsMut<Graph> for Captured {
    fn as_mut(&mut self) -> &mut Graph {
        &mut self.graph
    }
}

/// All graphs of a program.
#[derive(Debug, Default)]
pub(super) struct Graphs {
    pub(super) captures: Captures<Captured>,
    /// The capture modes of threads; all others have the global one.
    pub(super) modes: FxHashMap<HostId, CaptureMode>,
    /// The captures by their graphs.
    capture_of: FxHashMap<GraphId, CaptureId>,
    pub(super) graphs: FxHashMap<GraphId, Made>,
    pub(super) execs: FxHashMap<ExecId, Instance>,
    pub(super) addresses: FreshAddresses,
    /// Graphs and instances that are not there because something was refused.
    pub(super) void_graphs: FxHashSet<GraphId>,
    pub(super) void_execs: FxHashSet<ExecId>,
    pub(super) names: Names,
    /// What the program calls memory of alloc nodes, where it says so.
    pub(super) called: FxHashMap<Memory, Name>,
    /// What memory of captured alloc nodes has of its pool, by the node's name.
    pub(super) kept: FxHashMap<Memory, Kept>,
    /// The launch that gave an alloc node's memory its latest life, by the node's name: the instance, the number there.
    pub(super) latest: FxHashMap<Memory, (ExecId, GraphAllocId)>,
    /// The graph that has the free node for an alloc node's memory.
    pub(super) grants: FxHashMap<Key, GraphId>,
    /// What freed an alloc node's memory last, by the node's name, where the instance that made it is gone.
    pub(super) freed: FxHashMap<Memory, Freed>,
    /// Memory of alloc nodes that a launch would have allocated, had it or its graph not been refused: that it is not
    /// there is no other mistake.
    pub(super) unmade: FxHashSet<Memory>,
    /// The faults between nodes of a graph that were said, and of which graph that was: it, or one that it is in.
    pub(super) said: FxHashMap<GraphId, FxHashMap<FaultWithin, GraphId>>,
}

/// A fault between two nodes of a graph, or of one that is in it: the rule, the memory as that graph knows it, and the
/// nodes as it counts them.
pub(super) type FaultWithin = (Kind, NodeMemory, Origin, Origin);

impl Graphs {
    #[inline]
    pub(super) fn is_capturing(&self) -> bool {
        !self.captures.is_empty()
    }

    #[inline]
    pub(super) fn is_captured(&self, stream: StreamId) -> bool {
        self.is_capturing() && self.captures.of(stream).is_some()
    }

    pub(super) fn entries(&self) -> usize {
        self.graphs.len() + self.execs.len() + self.latest.len() + self.captures.len()
    }

    /// A graph as it is: while something is captured into it, with that.
    pub(super) fn own(&self, graph: GraphId) -> Option<&Graph> {
        let captured = self.captured(graph).map(|captured| &captured.graph);
        captured.or_else(|| self.graphs.get(&graph).map(|made| &made.graph))
    }

    /// As [`own`](Self::own), or an instance of it.
    pub(super) fn known(&self, graph: GraphId) -> Option<&Graph> {
        self.own(graph).or_else(|| self.execs.values().map(|it| &*it.graph).find(|it| it.id() == graph))
    }

    /// The capture in progress that goes into a graph.
    pub(super) fn capture_into(&self, graph: GraphId) -> Option<CaptureId> {
        self.capture_of.get(&graph).copied()
    }

    /// A graph that is being captured.
    pub(super) fn captured(&self, graph: GraphId) -> Option<&Captured> {
        self.captures.graph(self.capture_into(graph)?)
    }

    /// The graph that a stream is captured into.
    pub(super) fn captured_on(&self, stream: StreamId) -> Option<&Captured> {
        self.captures.graph(self.captures.of(stream)?)
    }

    /// A capture into a graph has begun.
    pub(super) fn captures_into(&mut self, graph: GraphId, capture: CaptureId) {
        self.capture_of.insert(graph, capture);
    }

    /// A capture has ended.
    pub(super) fn take_captured(&mut self, ended: Ended<Captured>) -> Captured {
        let captured = ended.into_graph();
        self.capture_of.remove(&captured.graph.id());
        captured
    }

    /// A graph may name the memory of others.
    pub(super) fn hold(&mut self, graph: GraphId, others: &Held) {
        let capture = self.capture_into(graph);
        let held = match capture.and_then(|capture| self.captures.graph_mut(capture)) {
            Some((captured, _)) => &mut captured.held,
            None => match self.graphs.get_mut(&graph) {
                Some(made) => &mut made.held,
                None => return,
            },
        };
        let new: Held = others.iter().copied().filter(|other| !held.contains(other)).collect();
        held.extend_from_slice(&new);
        self.names.hold(&new);
    }

    /// A graph, or what it is in, will not be launched as the program expects: memory that its launches would have
    /// allocated for the first time is in no other finding. What was launched before lives, or was freed.
    pub(super) fn unmake(&mut self, graph: GraphId) {
        let Some(made) = self.graphs.get(&graph) else { return };
        let mut memory = self.names.made_by(&made.graph, &made.held);
        memory.retain(|memory| !self.latest.contains_key(memory) && !self.freed.contains_key(memory));
        self.unmade.extend(memory);
    }

    /// A launch was refused: memory that it would have allocated is in no other finding, unless it lives.
    pub(super) fn unmake_launch(&mut self, exec: ExecId) {
        let Some(instance) = self.execs.get(&exec) else { return };
        let mut memory = self.names.made_by(&instance.graph, &instance.held);
        let lives = |memory: &Memory| {
            let (exec, alloc) = self.latest.get(memory)?;
            self.execs.get(exec)?.live(*alloc)
        };
        memory.retain(|memory| lives(memory).is_none());
        self.unmade.extend(memory);
    }

    /// A graph is not there, because the operation that would have made it was refused.
    pub(super) fn make_void(&mut self, graph: GraphId) {
        if !self.graphs.contains_key(&graph) && self.capture_into(graph).is_none() {
            self.void_graphs.insert(graph);
        }
    }

    /// A graph or instance holds these names no longer: those that none does any more.
    pub(super) fn release(&mut self, held: &Held) -> Vec<Memory> {
        let gone = self.names.release(held);
        for memory in &gone {
            self.latest.remove(memory);
            self.called.remove(memory);
            self.unmade.remove(memory);
            self.kept.remove(memory);
        }
        gone
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
    /// The graph that it was made of, as it was then.
    pub(super) graph: Arc<Graph>,
    pub(super) held: Held,
    /// What its latest launch left.
    pub(super) outputs: FxHashMap<GraphAllocId, Output>,
    /// Whether that launch left memory without a name, in a damaged trace, which cannot be freed.
    pub(super) has_nameless: bool,
    /// What launches come after: the one before, and those of instances that had its addresses.
    pub(super) before: Before,
    /// The latest launch of the nodes that it has now: on which stream, and the how many-th operation there.
    pub(super) launched: Option<(StreamId, u64)>,
    pub(super) is_destroyed: bool,
}

impl Instance {
    /// An allocation, as graphs name it.
    pub(super) fn key(&self, alloc: GraphAllocId) -> Key {
        let it = &self.exec.allocs()[alloc.index()];
        (it.graph, it.alloc)
    }

    /// The allocations that its launches left and that live.
    pub(super) fn lives(&self) -> impl Iterator<Item = (GraphAllocId, LifeId)> + '_ {
        self.outputs.iter().filter_map(|(alloc, output)| match output {
            Output::Live(life) => Some((*alloc, *life)),
            Output::Freed(_) => None,
        })
    }

    pub(super) fn live(&self, alloc: GraphAllocId) -> Option<LifeId> {
        match self.outputs.get(&alloc) {
            Some(Output::Live(life)) => Some(*life),
            _ => None,
        }
    }
}

/// Whose memory it is that another device may use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Lender {
    /// A pool's.
    Pool(PoolId),
    /// What exists at once on a device, of a process.
    Device(ProcessId, DeviceId),
}

/// What uses memory of another device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum User {
    /// A kernel, of the stream's device, or of another one.
    Kernel(Option<DeviceId>),
    /// Other work, which reaches all memory that exists at once.
    Other(Option<DeviceId>),
}

/// What it lets other devices do now. A copy stays as it is, and costs nothing until the pool's is changed.
#[derive(Clone, Debug, Default)]
pub(super) struct LetIn(Arc<FxHashMap<DeviceId, Reach>>);

impl LetIn {
    pub(super) fn set(&mut self, device: DeviceId, reach: Reach) {
        Arc::make_mut(&mut self.0).insert(device, reach);
    }

    pub(super) fn allows(&self, device: DeviceId, act: Act) -> bool {
        self.0.get(&device).copied().unwrap_or_default() >= needed(act)
    }
}

/// What memory that a capture allocates has of its pool: whatever becomes of the pool.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) pool: PoolId,
    /// The device that it is of.
    pub(super) owner: DeviceId,
    /// Where it was allocated.
    pub(super) born: Site,
    pub(super) let_in: LetIn,
}

/// What a device has to be let do.
pub(super) fn needed(act: Act) -> Reach {
    if act == Act::Read { Reach::Read } else { Reach::ReadWrite }
}
