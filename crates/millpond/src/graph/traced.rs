//! The records of graphs in a trace: captures, nodes, instances, launches.
//!
//! For a capture, the trace has the operations of its streams. A refused node has a number in the trace all the same,
//! so that nodes are numbered by the calls of the program.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millpond_core::graph::{Access as NodeAccess, GraphAllocId, Memory as NodeMemory, NodeId};
use millpond_core::ids::{AllocId, ExecId, GraphId, PoolId, StreamId};
use millpond_core::op::{Access, CaptureMode, EventKind, Memory, NodeOp, Place, What};
use millpond_driver::locks::lock;
use millpond_driver::process;
use smallvec::SmallVec;

use super::registry::Graphs;
use crate::state::access::Access as Declare;
use crate::state::aliased::Job;
use crate::trace::tracer::{Caller, NodeNumbers, TracedEvent, Tracer};

/// The name of an instance in a trace. It stays the same when the instance is updated from another graph.
#[derive(Debug)]
pub(crate) struct TracedExec {
    tracer: Arc<Tracer>,
    id: ExecId,
}

impl Drop for TracedExec {
    fn drop(&mut self) {
        if !process::is_forked() {
            self.tracer.push(Place::Unknown, What::ExecDestroy { exec: self.id });
        }
    }
}

/// The number of alloc nodes of graphs that are gone which keep their numbers.
const GONE_MAX: usize = 1 << 16;

impl NodeNumbers {
    /// Marks a graph as gone. Memory that its launches left, and memory of it that was freed, can still be named.
    fn close(&mut self, graph: GraphId) {
        let Some(numbers) = self.of.get(&graph) else { return };
        self.gone_numbers += numbers.len();
        self.gone.push_back(graph);
        while self.gone_numbers > GONE_MAX {
            let oldest = self.gone.pop_front().and_then(|oldest| self.of.remove(&oldest));
            self.gone_numbers -= oldest.map_or(0, |numbers| numbers.len());
        }
    }
}

impl Tracer {
    /// Traces an event node of a capture.
    #[cold]
    pub(crate) fn captured_event(&self, stream: StreamId, event: &TracedEvent, records: bool, place: Place) {
        let (event, stream) = (event.id, self.stream_id(stream));
        self.push(
            place,
            match records {
                true => What::EventRecord { event, stream, external: true, kind: EventKind::Completion },
                false => What::EventWait { event, stream, external: true },
            },
        );
    }

    /// Traces the begin of a capture, of a new graph or after some nodes of an existing one.
    #[cold]
    pub(crate) fn capture_begun(
        &self,
        stream: StreamId,
        (graph, after): (GraphId, Option<&[NodeId]>),
        mode: CaptureMode,
        caller: Caller,
    ) {
        let after: Option<SmallVec<_>> =
            after.map(|after| after.iter().map(|node| self.node_number(graph, *node)).collect());
        let (stream, graph) = (self.stream_id(stream), self.graph_id(graph));
        let what = match after {
            Some(after) => What::CaptureToGraph { stream, graph, after, mode },
            None => What::CaptureBegin { stream, graph, mode, symbolic: false },
        };
        self.push_of_thread(Place::Source(caller), what);
    }

    #[cold]
    pub(crate) fn capture_ended(&self, stream: StreamId, caller: Caller) {
        self.push_of_thread(Place::Source(caller), What::CaptureEnd { stream: self.stream_id(stream) });
    }

    #[cold]
    pub(crate) fn capture_abandoned(&self, stream: StreamId) {
        self.push(Place::Unknown, What::CaptureAbandon { stream: self.stream_id(stream) });
    }

    /// Traces the drop of a buffer of a capture's memory.
    #[cold]
    pub(crate) fn captured_drop(&self, graph: GraphId, alloc: GraphAllocId) {
        self.push(Place::Unknown, What::Drop { memory: self.alloc_node(graph, alloc) });
    }

    /// Traces an allocation in a capture: an alloc node's, or a refused one.
    #[cold]
    pub(crate) fn captured_alloc(
        &self,
        node: Option<(GraphId, GraphAllocId)>,
        pool: PoolId,
        stream: StreamId,
        bytes: u64,
        caller: Caller,
    ) {
        let memory = node.map_or_else(|| self.new_memory(), |(graph, alloc)| self.alloc_node(graph, alloc));
        let (pool, stream) = (PoolId(self.number(pool.0)), self.stream_id(stream));
        self.push(Place::Source(caller), What::Alloc { memory, pool, stream, bytes, name: None });
    }

    #[cold]
    pub(crate) fn graph(&self, graph: GraphId, symbolic: bool) {
        self.push(Place::Unknown, What::GraphCreate { graph: self.graph_id(graph), symbolic });
    }

    #[cold]
    pub(crate) fn graph_cloned(&self, graph: GraphId, copy: GraphId, is_there: bool) {
        if !is_there {
            let [graph, copy] = [graph, copy].map(|graph| self.graph_id(graph));
            return self.push(Place::Unknown, What::GraphClone { graph, copy });
        }
        let own = lock(&self.nodes).of.get(&graph).cloned().unwrap_or_default();
        let mut own: Vec<_> = own.into_iter().collect();
        own.sort_unstable();
        let mut refused = lock(&self.refused);
        if let Some(own) = refused.get(&graph).cloned() {
            refused.insert(copy, own);
        }
        drop(refused);
        let (graph, traced) = (self.graph_id(graph), self.graph_id(copy));
        self.push(Place::Unknown, What::GraphClone { graph, copy: traced });
        for (alloc, id) in own {
            let (node, memory) = (Memory { id, generation: 0 }, self.alloc_node(copy, alloc));
            self.push(Place::Unknown, What::CopyName { graph: traced, node, memory });
        }
    }

    #[cold]
    pub(crate) fn graph_closed(&self, graph: GraphId, was_there: bool) {
        if process::is_forked() {
            return;
        }
        lock(&self.nodes).close(graph);
        lock(&self.refused).remove(&graph);
        if was_there {
            self.push(Place::Unknown, What::GraphDestroy { graph: self.graph_id(graph) });
        }
    }

    #[cold]
    pub(crate) fn edge(&self, graph: GraphId, from: NodeId, to: NodeId, is_there: bool) {
        let [from, to] = [from, to].map(|node| self.node_number(graph, node));
        let graph = self.graph_id(graph);
        self.push(
            Place::Unknown,
            match is_there {
                true => What::GraphEdge { graph, from, to },
                false => What::GraphEdgeRemove { graph, from, to },
            },
        );
    }

    #[cold]
    pub(crate) fn node_removed(&self, graph: GraphId, node: NodeId) {
        let node = self.node_number(graph, node);
        self.push(Place::Unknown, What::GraphNodeRemove { graph: self.graph_id(graph), node });
    }

    #[cold]
    pub(crate) fn node(&self, graph: GraphId, after: &[NodeId], node: NodeOp, place: Place) {
        let after = after.iter().map(|node| self.node_number(graph, *node)).collect();
        let (graph, node) = (self.graph_id(graph), Box::new(node));
        self.push(place, What::GraphNode { graph, node, after, name: None });
    }

    /// Traces a refused node. It has a number in the trace all the same. `before` is the count of node numbers that the
    /// graph had given out.
    #[cold]
    pub(crate) fn refused_node(&self, graph: GraphId, before: u32, after: &[NodeId], node: NodeOp, place: Place) {
        self.node(graph, after, node, place);
        lock(&self.refused).entry(graph).or_default().push(before);
    }

    /// Returns the number of a node in the trace.
    fn node_number(&self, graph: GraphId, node: NodeId) -> NodeId {
        let refused = lock(&self.refused);
        let before = refused.get(&graph).map_or(0, |refused| refused.partition_point(|at| *at <= node.0));
        NodeId(node.0 + before as u32)
    }

    /// Returns a node's operation on the memory that the program declares.
    #[cold]
    pub(crate) fn declared_node<A: Declare>(&self, graphs: &Graphs, (accesses, job): (&A, Job)) -> NodeOp {
        let accesses = self.declared(graphs, accesses, false);
        if job == Job::Copy { NodeOp::Copy(accesses) } else { NodeOp::Kernel(accesses) }
    }

    /// Returns the uses of a graph's node.
    pub(crate) fn accesses(&self, graph: GraphId, accesses: &[NodeAccess]) -> SmallVec<[Access; 2]> {
        let memory = |access: &NodeAccess| self.node_memory(graph, access.memory);
        accesses.iter().map(|it| Access { memory: memory(it), act: it.act, part: it.part }).collect()
    }

    /// Returns the name in the trace of memory that a node of a graph names.
    pub(crate) fn node_memory(&self, graph: GraphId, memory: NodeMemory) -> Memory {
        match memory {
            NodeMemory::Own(alloc) => self.alloc_node(graph, alloc),
            NodeMemory::Foreign { graph, alloc } => self.alloc_node(graph, alloc),
            NodeMemory::External { id, generation } => self.memory(id, generation),
        }
    }

    pub(crate) fn child(&self, graph: GraphId) -> NodeOp {
        NodeOp::Child(self.graph_id(graph))
    }

    /// Traces an instantiation, or one that was refused. Returns the name of the instance.
    #[cold]
    pub(crate) fn exec(
        self: &Arc<Self>,
        graph: GraphId,
        auto_free_on_launch: bool,
        is_refused: bool,
    ) -> Arc<TracedExec> {
        let id = ExecId(self.shared.execs.fetch_add(1, Ordering::Relaxed));
        let what = What::Instantiate { graph: self.graph_id(graph), exec: id, auto_free_on_launch };
        self.push_unsafe(Place::Unknown, what, is_refused);
        Arc::new(TracedExec { tracer: Arc::clone(self), id })
    }

    /// Traces the update of an instance from a graph.
    #[cold]
    pub(crate) fn exec_updated(&self, exec: &TracedExec, graph: GraphId) {
        self.push(Place::Unknown, What::ExecUpdate { exec: exec.id, graph: self.graph_id(graph) });
    }

    #[cold]
    pub(crate) fn upload(&self, exec: &TracedExec, stream: StreamId, caller: Caller) {
        self.push(Place::Source(caller), What::GraphUpload { exec: exec.id, stream: self.stream_id(stream) });
    }

    /// Traces a launch of an instance. The memory that it leaves live gets the names that the program knows.
    #[cold]
    pub(crate) fn graph_launch(
        &self,
        exec: &TracedExec,
        stream: StreamId,
        left: impl Iterator<Item = (GraphId, GraphAllocId, AllocId, u64)>,
        caller: Caller,
    ) {
        let exec = exec.id;
        self.push(Place::Source(caller), What::GraphLaunch { exec, stream: self.stream_id(stream) });
        for (graph, alloc, id, generation) in left {
            let (node, memory) = (self.alloc_node(graph, alloc), self.memory(id, generation));
            self.push(Place::Source(caller), What::Take { exec, node, memory });
        }
    }
}
