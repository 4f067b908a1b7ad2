//! The checker's tables of the graphs and instances of a program. The operations on them are in `graphs.rs`,
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
    /// The holder of its fixed addresses, and its number if the holder is an instance.
    pub(super) holder: Option<(Holder, Option<ExecId>)>,
    /// The launches of earlier instances at the fixed addresses of this graph, and of children that moved into it, by
    /// the graph that has the addresses.
    pub(super) before: SmallVec<[(GraphId, Before); 1]>,
    /// `true` if it was checked as a whole since its last change.
    pub(super) is_checked: bool,
    /// `true` once the program instantiated it, updated an instance from it, or made it a child. What has changed since
    /// then is in no launch.
    pub(super) is_made_of: bool,
    /// The program's numbers of the nodes that were refused, in ascending order.
    pub(super) refused: Vec<u32>,
}

impl Made {
    /// Takes the launches of earlier instances at addresses that a new instance has, too.
    pub(super) fn take_before(&mut self, has_addresses: impl Fn(GraphId) -> bool) -> SmallVec<[(GraphId, Before); 1]> {
        let (taken, kept) = std::mem::take(&mut self.before).into_iter().partition(|(graph, _)| has_addresses(*graph));
        self.before = kept;
        taken
    }

    /// Returns a node by the program's number, or `None` if it was refused.
    pub(super) fn node(&self, node: NodeId) -> Option<NodeId> {
        match self.refused.binary_search(&node.0) {
            Ok(_) => None,
            Err(before) => Some(NodeId(node.0 - before as u32)),
        }
    }
}

/// Launches by an instance that no longer exists, at the fixed addresses of a graph.
#[derive(Clone, Debug)]
pub(super) struct Before {
    /// The last of them. `None` if there was none, or a later upload came after it.
    pub(super) last: Option<Last>,
    /// The instance. It may have left memory.
    pub(super) exec: ExecId,
}

/// A graph that is being captured.
#[derive(Debug)]
pub(super) struct Captured {
    pub(super) graph: Graph,
    pub(super) held: Held,
    /// `true` if it is a copy of an existing graph. It replaces that graph once the capture has ended well.
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
    /// The graphs that do not exist because an operation was refused.
    pub(super) void_graphs: FxHashSet<GraphId>,
    /// The instances that do not exist because an operation was refused.
    pub(super) void_execs: FxHashSet<ExecId>,
    pub(super) names: Names,
    /// The program's names for memory of alloc nodes.
    pub(super) called: FxHashMap<Memory, Name>,
    /// The access that memory of captured alloc nodes has from its pool, by the node's name.
    pub(super) kept: FxHashMap<Memory, Kept>,
    /// The launch that began the latest lifetime of an alloc node's memory, by the node's name: the instance, and the
    /// allocation in it.
    pub(super) latest: FxHashMap<Memory, (ExecId, GraphAllocId)>,
    /// The graph that has the free node for an alloc node's memory.
    pub(super) grants: FxHashMap<Key, GraphId>,
    /// The last free of an alloc node's memory, by the node's name, if the instance that allocated it no longer exists.
    pub(super) freed: FxHashMap<Memory, Freed>,
    /// Memory of alloc nodes that a launch would have allocated if it or its graph had not been refused. Its absence is
    /// not reported as another mistake.
    pub(super) unmade: FxHashSet<Memory>,
    /// The reported faults between nodes of a graph, each with the graph for which it was reported: that graph, or one
    /// that contains it.
    pub(super) said: FxHashMap<GraphId, FxHashMap<FaultWithin, GraphId>>,
}

/// A fault between two nodes of a graph or of one that it contains: the rule, the memory as the graph names it, and the
/// nodes as the graph numbers them.
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

    /// Returns a graph in its present state, which includes the captured nodes while a capture into it is in progress.
    pub(super) fn own(&self, graph: GraphId) -> Option<&Graph> {
        let captured = self.captured(graph).map(|captured| &captured.graph);
        captured.or_else(|| self.graphs.get(&graph).map(|made| &made.graph))
    }

    /// As [`own`](Self::own). If the graph no longer exists, returns the one of an instance of it.
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

    /// Notes that a graph may name memory of other graphs.
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

    /// Notes that a graph, or one that contains it, will not be launched as the program expects. No other finding is
    /// reported for memory that its launches would have allocated for the first time. Memory of earlier launches is
    /// live or was freed.
    pub(super) fn unmake(&mut self, graph: GraphId) {
        let Some(made) = self.graphs.get(&graph) else { return };
        let mut memory = self.names.made_by(&made.graph, &made.held);
        memory.retain(|memory| !self.latest.contains_key(memory) && !self.freed.contains_key(memory));
        self.unmade.extend(memory);
    }

    /// Notes that a launch was refused. No other finding is reported for memory that it would have allocated, unless
    /// that memory is live.
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

    /// Notes that a graph does not exist because the operation that would have made it was refused.
    pub(super) fn make_void(&mut self, graph: GraphId) {
        if !self.graphs.contains_key(&graph) && self.capture_into(graph).is_none() {
            self.void_graphs.insert(graph);
        }
    }

    /// Notes that a graph or an instance no longer holds these names. Returns the names that nothing holds any more.
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

/// The state of an allocation that a launch left behind.
#[derive(Clone, Copy, Debug)]
pub(super) enum Output {
    Live(LifeId),
    Freed(Freed),
}

/// An earlier launch.
#[derive(Clone, Debug)]
pub(super) struct Last {
    pub(super) snapshot: Snapshot,
    pub(super) site: Site,
}

/// An instance of a graph of the program.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) exec: Exec,
    pub(super) lanes: Lanes,
    /// The graph that it was made from, in the state of that time.
    pub(super) graph: Arc<Graph>,
    pub(super) held: Held,
    /// The allocations that its latest launch left.
    pub(super) outputs: FxHashMap<GraphAllocId, Output>,
    /// `true` if that launch left memory without a name, in a damaged trace. Such memory cannot be freed.
    pub(super) has_nameless: bool,
    /// The launch or upload before the next launch.
    pub(super) last: Option<Last>,
    /// The launches of earlier instances that the first launch comes after, by the graph whose addresses they had.
    pub(super) before: SmallVec<[(GraphId, Before); 1]>,
    /// The latest launch of its present nodes: the stream, and the number of the operation in it.
    pub(super) launched: Option<(StreamId, u64)>,
    pub(super) is_destroyed: bool,
}

impl Instance {
    /// Returns the name that graphs have for an allocation.
    pub(super) fn key(&self, alloc: GraphAllocId) -> Key {
        let it = &self.exec.allocs()[alloc.index()];
        (it.graph, it.alloc)
    }

    /// Returns `true` if its launches allocate at fixed addresses of a graph.
    pub(super) fn has_addresses(&self, graph: GraphId) -> bool {
        has_addresses(&self.exec, graph)
    }

    /// Returns the launches that the next launch comes after: the one before, and those of instances that had its
    /// addresses.
    pub(super) fn launches_before(&self) -> impl Iterator<Item = &Last> {
        self.before.iter().filter_map(|(_, before)| before.last.as_ref()).chain(&self.last)
    }

    /// Returns the live allocations that its launches left.
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

/// Returns `true` if launches allocate at fixed addresses of a graph. No two such launches may run at once, of any
/// instances.
pub(super) fn has_addresses(exec: &Exec, graph: GraphId) -> bool {
    exec.allocs().iter().any(|it| it.graph == graph && it.node.is_some() && !it.is_symbolic)
}

/// The owner of memory that another device may use.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Lender {
    /// A pool.
    Pool(PoolId),
    /// A device, for the immediate allocations of a process on it.
    Device(ProcessId, DeviceId),
}

/// The kind of work that uses memory of another device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum User {
    /// A kernel. It runs on the stream's device, or on this one.
    Kernel(Option<DeviceId>),
    /// Other work, which reaches all immediate allocations.
    Other(Option<DeviceId>),
}

/// The access that other devices have now. A copy keeps its state when the pool's changes, and costs nothing until
/// then.
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

/// The access that memory of a capture has from its pool. Later changes of the pool do not change it.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) pool: PoolId,
    /// The device of the memory.
    pub(super) owner: DeviceId,
    /// The allocation.
    pub(super) born: Site,
    pub(super) let_in: LetIn,
}

/// Returns the access that a device needs for an act.
pub(super) fn needed(act: Act) -> Reach {
    if act == Act::Read { Reach::Read } else { Reach::ReadWrite }
}
