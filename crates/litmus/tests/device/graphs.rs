//! Graphs of litmus programs on the library: by hand, by capture, launched.

use millpond::{GraphNode, Instantiate};
use millpond_core::ids::{EventId, ExecId, GraphId, NodeId, StreamId};
use millpond_core::op::{Act, CaptureMode, Memory, NodeOp, Op, What};

use super::{Cannot, Capture, Held, Run, Said, cannot, said};

/// The event of an operation that a node of a graph records or waits for.
pub(super) fn outside_event(op: &Op) -> Option<EventId> {
    match &op.what {
        What::EventRecord { event, external: true, .. } | What::EventWait { event, external: true, .. } => Some(*event),
        What::GraphNode { node, .. } => match **node {
            NodeOp::EventRecord(event) | NodeOp::EventWait(event) => Some(event),
            _ => None,
        },
        _ => None,
    }
}

impl Run {
    pub(super) fn graph_step(&mut self, what: &What) -> Result<Said, Cannot> {
        match what {
            What::GraphCreate { graph, symbolic: false } => {
                self.graphs.insert(*graph, self.device.graph().expect("a graph"));
                Ok(Said::Done)
            }
            What::GraphNode { graph, node, after, .. } => self.add_node(*graph, node, after),
            What::GraphEdge { graph, from, to } => {
                let (from, to) = (self.nodes[graph][from.index()], self.nodes[graph][to.index()]);
                Ok(said(self.graphs.get_mut(graph).expect("it is there").add_edge(from, to), Act::Read))
            }
            What::GraphEdgeRemove { graph, from, to } => {
                let (from, to) = (self.nodes[graph][from.index()], self.nodes[graph][to.index()]);
                Ok(said(self.graphs.get_mut(graph).expect("it is there").remove_edge(from, to), Act::Read))
            }
            What::GraphClone { graph, copy } => {
                let made = self.graphs.get(graph).expect("it is there").clone();
                self.graphs.insert(*copy, made);
                self.copies.insert(*copy, *graph);
                Ok(Said::Done)
            }
            What::GraphDestroy { graph } => {
                self.graphs.remove(graph);
                Ok(Said::Done)
            }
            What::CaptureBegin { stream, graph, mode, symbolic: false } => self.begin(*stream, *graph, *mode),
            What::ExecUpdate { exec, graph } => {
                let Some((made, _)) = self.execs.get_mut(exec) else { return Ok(Said::Done) };
                Ok(said(made.update(&self.graphs[graph]), Act::Read))
            }
            What::CaptureEnd { stream } => self.end(*stream),
            What::Instantiate { graph, exec, auto_free_on_launch } => {
                let Some(made) = self.graphs.get(graph) else { return Ok(Said::Done) };
                self.instantiating = *graph;
                match made.instantiate(Instantiate { auto_free_on_launch: *auto_free_on_launch }) {
                    Ok(made) => {
                        self.execs.insert(*exec, (made, *graph));
                        Ok(Said::Done)
                    }
                    Err(error) => Ok(Said::Refused(error, Act::Read)),
                }
            }
            What::GraphLaunch { exec, stream } => self.launch_graph(*exec, *stream),
            What::Take { node, memory, .. } => {
                let taken = self.current(*node);
                let Some(held) = self.memory.remove(&taken) else { return cannot("nothing was launched to take from") };
                self.memory.insert(*memory, held);
                self.names.insert(*node, *memory);
                Ok(Said::Done)
            }
            What::ExecDestroy { exec } => {
                self.execs.remove(exec);
                self.gone.insert(*exec);
                Ok(Said::Done)
            }
            What::EventRecord { event, stream, external: true, .. } if !self.captures.is_empty() => {
                let recorded = self.stream(*stream)?.record_external(&self.externals[event]);
                self.note_captured();
                Ok(said(recorded, Act::Read))
            }
            What::EventWait { event, stream, external: true } if !self.captures.is_empty() => {
                let waited = self.stream(*stream)?.wait_external(&self.externals[event]);
                self.note_captured();
                Ok(said(waited, Act::Read))
            }
            other => cannot(&format!("{other:?} is not asked of the library here")),
        }
    }

    fn begin(&mut self, stream: StreamId, graph: GraphId, mode: CaptureMode) -> Result<Said, Cannot> {
        let begun = self.stream(stream)?.begin_capture_in(mode);
        if begun.is_ok() {
            if !self.captures.is_empty() {
                return cannot("two captures at once");
            }
            self.captures.insert(stream, Capture { graph, allocated: Vec::new() });
        }
        Ok(said(begun, Act::Read))
    }

    fn end(&mut self, stream: StreamId) -> Result<Said, Cannot> {
        let Some(capture) = self.captures.remove(&stream) else {
            return Ok(said(self.stream(stream)?.end_capture().map(drop), Act::Read));
        };
        for memory in capture.allocated {
            if let Some(Held::Buffer(buffer)) = self.memory.remove(&memory) {
                self.memory.insert(memory, Held::Node(buffer.into_alloc_node(), capture.graph));
            }
        }
        match self.stream(stream)?.end_capture() {
            Ok(graph) => {
                self.graphs.insert(capture.graph, graph);
                Ok(Said::Done)
            }
            Err(error) => Ok(Said::Refused(error, Act::Read)),
        }
    }

    fn launch_graph(&mut self, exec: ExecId, stream: StreamId) -> Result<Said, Cannot> {
        if self.gone.contains(&exec) {
            return cannot("an instance that is gone cannot be named");
        }
        let Some((made, graph)) = self.execs.get(&exec) else { return Ok(Said::Done) };
        let graph = *graph;
        let launch = match made.launch(self.stream(stream)?) {
            Ok(launch) => launch,
            Err(millpond::Error::Violation(violation)) if made.auto_free_on_launch() => {
                let kind = match violation.later.act {
                    Act::Free => millpond_core::check::Kind::AutoFreeBeforeUse,
                    _ => violation.kind,
                };
                self.found.insert(millpond_litmus::Expected { line: self.line, kind });
                return Ok(Said::Done);
            }
            Err(error) => return Ok(Said::Refused(error, Act::Read)),
        };
        let nodes: Vec<(Memory, millpond::MemAllocNode<u8>)> = self
            .memory
            .iter()
            .filter_map(|(memory, held)| match held {
                Held::Node(node, owner) => Some((*memory, self.named_by_copy(graph, *owner, *node).unwrap_or(*node))),
                _ => None,
            })
            .collect();
        for (memory, node) in nodes {
            if let Ok(buffer) = launch.take(node) {
                // A name of this life's own; numbers from the top, which no program has.
                let life = Memory { id: millpond_core::ids::AllocId(u32::MAX - memory.id.0), ..memory };
                let old =
                    self.names.insert(memory, life).and_then(|old| self.memory.remove(&old).map(|held| (old, held)));
                if let Some((old, Held::Buffer(stale))) = old {
                    let (address, view) = (stale.address(), stale.view());
                    drop(stale);
                    self.memory.insert(old, Held::Gone { address, view });
                }
                self.memory.insert(life, Held::Buffer(buffer));
            }
        }
        Ok(Said::Done)
    }

    /// What a copy calls the memory of an alloc node of its original.
    fn named_by_copy(
        &self,
        copy: GraphId,
        owner: GraphId,
        node: millpond::MemAllocNode<u8>,
    ) -> Option<millpond::MemAllocNode<u8>> {
        if self.copies.get(&copy) != Some(&owner) {
            return None;
        }
        let (owner, copy) = (self.graphs.get(&owner)?, self.graphs.get(&copy)?);
        copy.alloc_node(copy.find(owner.node_of(node)?)?, node.len()).ok()
    }

    fn add_node(&mut self, graph: GraphId, node: &NodeOp, after: &[NodeId]) -> Result<Said, Cannot> {
        let Some(mut made) = self.graphs.remove(&graph) else { return cannot("a graph that is gone cannot be named") };
        let known = self.nodes.entry(graph).or_default();
        let after: Vec<GraphNode> = after.iter().map(|node| known[node.index()]).collect();
        let added = self.add_to(&mut made, node, &after, graph);
        self.graphs.insert(graph, made);
        match added? {
            Ok(node) => {
                self.nodes.entry(graph).or_default().push(node);
                self.lines.entry(graph).or_default().push(self.line);
                Ok(Said::Done)
            }
            Err(error) => Ok(Said::Refused(error, Act::Free)),
        }
    }

    fn add_to(
        &mut self,
        made: &mut millpond::Graph,
        node: &NodeOp,
        after: &[GraphNode],
        graph: GraphId,
    ) -> Result<Result<GraphNode, millpond::Error>, Cannot> {
        Ok(match node {
            NodeOp::Alloc { memory, bytes } => match made.add_alloc::<u8>(after, *bytes as usize) {
                Ok(named) => {
                    self.memory.insert(*memory, Held::Node(named, graph));
                    Ok(made.node_of(named).expect("its own node"))
                }
                Err(error) => Err(error),
            },
            NodeOp::Free(memory) => match self.memory.get(memory) {
                Some(Held::Node(named, _)) => made.add_free(after, *named),
                _ => return cannot("a free node takes an alloc node's memory only"),
            },
            NodeOp::Kernel(accesses) | NodeOp::Copy(accesses) | NodeOp::Fill(accesses) => {
                self.add_kernel(made, accesses, after)?
            }
            NodeOp::EventRecord(event) => made.add_event_record(after, &self.externals[event]),
            NodeOp::EventWait(event) => made.add_event_wait(after, &self.externals[event]),
            NodeOp::HostFunction(accesses) => self.add_kernel(made, accesses, after)?,
            NodeOp::Empty => made.add_empty(after),
            NodeOp::Child(child) => {
                let child = self.graphs.get(child).expect("it is there");
                made.add_child(after, child)
            }
        })
    }
}
