//! Graphs as calls of the library: built by hand or by capture, and launched.

use std::collections::HashSet;

use millpond::Error;
use millpond::graph::{GraphExec, GraphNode, Instantiate};
use millpond_core::ids::{EventId, ExecId, GraphId, HostId, NodeId, StreamId};
use millpond_core::op::{Act, CaptureMode, Memory, NodeOp, Op, What};

use crate::kernels::{borrowed, copied, is_aliased};
use crate::{Cannot, Capture, Held, Place, Run, Said, cannot, said};

/// Returns the event of an operation if a node of a graph records it or waits for it.
pub(crate) fn outside_event(op: &Op) -> Option<EventId> {
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
    pub(crate) fn graph_step(&mut self, what: &What) -> Result<Said, Cannot> {
        match what {
            What::GraphCreate { symbolic: true, .. } if !self.devices.place.runs_closures() => {
                cannot("reading nodes copy to memory of theirs, which instances that run at once would share")
            }
            What::GraphCreate { graph, symbolic } => {
                let made = if *symbolic { self.devices.first.symbolic_graph() } else { self.devices.first.graph() };
                match made {
                    Ok(made) => {
                        self.graphs.all.insert(*graph, made);
                        Ok(Said::Done)
                    }
                    Err(error) => Ok(Said::Refused(error, Act::Read)),
                }
            }
            What::GraphNode { graph, node, after, .. } => self.add_node(*graph, node, after),
            What::GraphEdge { graph, from, to } => {
                let (from, to) = self.ends(*graph, *from, *to)?;
                Ok(said(self.graphs.all.get_mut(graph).expect("it is there").add_edge(from, to), Act::Read))
            }
            What::GraphEdgeRemove { graph, from, to } => {
                let (from, to) = self.ends(*graph, *from, *to)?;
                Ok(said(self.graphs.all.get_mut(graph).expect("it is there").remove_edge(from, to), Act::Read))
            }
            What::GraphNodeRemove { graph, node } => self.remove_node(*graph, *node),
            What::GraphClone { graph, copy } => self.clone_graph(*graph, *copy),
            What::CopyName { graph, node, memory } => self.name_of_copy(*graph, *node, *memory),
            What::GraphDestroy { graph } => {
                self.graphs.all.remove(graph);
                Ok(Said::Done)
            }
            What::ExecUpdate { exec, graph } => {
                let Some((made, of)) = self.instances.all.get_mut(exec) else {
                    return cannot("an instance that was refused");
                };
                let has_left = of != graph && self.instances.launched.values().any(|(by, _)| by == exec);
                self.graphs.instantiating = Some(*graph);
                let Some(from) = self.graphs.all.get(graph) else {
                    return cannot("a graph that is gone cannot be named");
                };
                let updated = made.update(from);
                if updated.is_ok() && has_left {
                    return cannot("what an instance left of a graph that it is no more of has no name");
                }
                if updated.is_ok() {
                    *of = *graph;
                    self.instances.nodes.insert(*exec, self.graphs.lines.get(graph).map_or(0, Vec::len));
                }
                match matches!(self.devices.place, Place::Cuda | Place::Fake) && is_of_another_kind(&updated) {
                    true => cannot("on CUDA a write is a fill here and a read a copy: nodes of different kinds"),
                    false => Ok(said(updated, Act::Read)),
                }
            }
            What::CaptureEnd { stream } => self.end(*stream),
            What::Instantiate { graph, exec, auto_free_on_launch } => {
                self.graphs.instantiating = Some(*graph);
                if self.graphs.refused.contains(graph) && !self.is_capturing() {
                    return Ok(Said::Done);
                }
                let made = self.graph(*graph)?;
                match made.instantiate(Instantiate::default().auto_free_on_launch(*auto_free_on_launch)) {
                    Ok(made) => {
                        self.instances.all.insert(*exec, (made, *graph));
                        self.instances.nodes.insert(*exec, self.graphs.lines.get(graph).map_or(0, Vec::len));
                        Ok(Said::Done)
                    }
                    Err(error) => Ok(Said::Refused(error, Act::Read)),
                }
            }
            What::GraphLaunch { exec, stream } => self.launch_graph(*exec, *stream),
            What::GraphUpload { exec, stream } => {
                let Some((made, _)) = self.instances.all.get(exec) else {
                    return cannot("an upload of an instance that is gone");
                };
                Ok(said(made.upload(self.stream(*stream)?), Act::Read))
            }
            What::Take { exec, node, memory } => self.take(*exec, *node, *memory),
            What::ExecDestroy { exec } => {
                self.instances.all.remove(exec);
                self.instances.destroyed.insert(*exec);
                Ok(Said::Done)
            }
            What::EventRecord { event, stream, external: true, .. } if self.is_captured(*stream)? => {
                let recorded = self.stream(*stream)?.record_external(&self.events.external[event]);
                if recorded.is_ok() {
                    self.note_captured(*stream);
                }
                Ok(said(recorded, Act::Read))
            }
            What::EventWait { event, stream, external: true } if self.is_captured(*stream)? => {
                let waited = self.stream(*stream)?.wait_external(&self.events.external[event]);
                if waited.is_ok() {
                    self.note_captured(*stream);
                }
                Ok(said(waited, Act::Read))
            }
            What::EventRecord { external: true, .. } | What::EventWait { external: true, .. } => {
                cannot("an external record or wait is a node of a capture")
            }
            other => cannot(&format!("{other:?} is not asked of the library here")),
        }
    }

    /// Returns `true` if the stream is in an ongoing capture.
    fn is_captured(&self, stream: StreamId) -> Result<bool, Cannot> {
        Ok(!self.graphs.captures.is_empty() && self.stream(stream)?.is_capturing().unwrap_or(false))
    }

    fn take(&mut self, exec: ExecId, node: Memory, memory: Memory) -> Result<Said, Cannot> {
        if self.instances.launched.get(&node).is_none_or(|(by, _)| *by != exec) {
            return cannot("another instance gave the name its life");
        }
        if self.memory.freed_by_nodes.contains(&node) {
            return cannot("a graph may have freed what is taken");
        }
        let taken = self.current(node);
        let Some(held) = self.memory.held.remove(&taken).filter(|it| matches!(it, Held::Buffer(_))) else {
            return cannot("nothing was launched to take from");
        };
        self.memory.held.insert(memory, held);
        self.memory.latest.insert(node, memory);
        Ok(Said::Done)
    }

    fn graph(&self, graph: GraphId) -> Result<&millpond::graph::Graph, Cannot> {
        self.graphs.all.get(&graph).map_or_else(|| cannot("a graph that is not there cannot be named"), Ok)
    }

    /// Returns the two nodes of an edge.
    fn ends(&self, graph: GraphId, from: NodeId, to: NodeId) -> Result<(GraphNode, GraphNode), Cannot> {
        self.graph(graph)?;
        let nodes = &self.graphs.nodes[&graph];
        match (nodes[from.index()], nodes[to.index()]) {
            (Some(from), Some(to)) => Ok((from, to)),
            _ => cannot("a node that was refused cannot be named"),
        }
    }

    fn remove_node(&mut self, graph: GraphId, node: NodeId) -> Result<Said, Cannot> {
        let (of, _) = self.ends(graph, node, node)?;
        let removed = self.graphs.all.get_mut(&graph).expect("it is there").remove_node(of);
        if removed.is_ok() {
            let made = &self.graphs.all[&graph];
            let is_gone =
                |held: &Held| matches!(held, Held::Node(node, of) if *of == graph && made.node_of(*node).is_none());
            self.memory
                .removed
                .extend(self.memory.held.iter().filter(|(_, held)| is_gone(held)).map(|(memory, _)| *memory));
        }
        Ok(said(removed, Act::Read))
    }

    /// Returns `true` if a graph is `around` or a child in it, at any depth. (A graph may have an older state of itself
    /// as a child.)
    fn is_within(&self, graph: GraphId, around: GraphId) -> bool {
        let (mut seen, mut left) = (HashSet::new(), vec![around]);
        while let Some(at) = left.pop() {
            if seen.insert(at) {
                left.extend(
                    self.graphs.children.iter().filter(|((parent, _), _)| *parent == at).map(|(_, child)| *child),
                );
            }
        }
        seen.contains(&graph)
    }

    /// Returns the memory of the alloc nodes of a graph and of its children.
    pub(crate) fn memory_of(&self, graph: GraphId) -> Vec<Memory> {
        let is_in = |held: &Held| matches!(held, Held::Node(_, owner) if self.is_within(*owner, graph));
        self.memory.held.iter().filter(|(_, held)| is_in(held)).map(|(memory, _)| *memory).collect()
    }

    /// Notes that a launch of an instance was refused, so that its memory does not exist.
    pub(crate) fn unmake(&mut self, exec: ExecId) {
        let Some((_, graph)) = self.instances.all.get(&exec) else { return };
        self.instances.unmade.extend(self.memory_of(*graph));
    }

    /// Returns `true` if the graph exists, or an instance of all its nodes.
    pub(crate) fn is_there(&self, graph: GraphId) -> bool {
        let nodes = self.graphs.lines.get(&graph).map_or(0, Vec::len);
        let has_all =
            |(exec, made): (&ExecId, &(GraphExec, GraphId))| made.1 == graph && self.instances.nodes[exec] == nodes;
        self.graphs.all.contains_key(&graph) || self.instances.all.iter().any(has_all)
    }

    fn clone_graph(&mut self, graph: GraphId, copy: GraphId) -> Result<Said, Cannot> {
        if !self.memory.scratch.is_empty() {
            return cannot("a copy of nodes that copy to memory of their own, where kernels are no closures");
        }
        let made = match self.graph(graph)?.try_clone() {
            Ok(made) => made,
            Err(error) => {
                self.graphs.refused.insert(copy);
                return Ok(Said::Refused(error, Act::Read));
            }
        };
        let nodes = self.graphs.nodes.get(&graph).map_or_else(Vec::new, |nodes| {
            nodes.iter().map(|node| node.as_ref().and_then(|node| made.find(*node))).collect()
        });
        self.graphs.nodes.insert(copy, nodes);
        self.graphs.all.insert(copy, made);
        let lines = self.graphs.lines.get(&graph).cloned().unwrap_or_default();
        for node in 0..lines.len() {
            if let Some(child) = self.graphs.children.get(&(graph, node)) {
                self.graphs.children.insert((copy, node), *child);
            }
        }
        self.graphs.lines.insert(copy, lines);
        Ok(Said::Done)
    }

    /// Gives a name to memory of a copy that was just made.
    fn name_of_copy(&mut self, copy: GraphId, node: Memory, memory: Memory) -> Result<Said, Cannot> {
        if self.graphs.refused.contains(&copy) {
            self.memory.held.insert(memory, Held::Void);
            return Ok(Said::Done);
        }
        let Some(Held::Node(named, owner)) = self.memory.held.get(&node) else {
            return cannot("memory that was refused");
        };
        let (named, made) = (*named, self.graph(copy)?);
        let Some(at) = self.graph(*owner)?.node_of(named).and_then(|node| made.find(node)) else {
            return cannot("a node that was removed has no name in copies");
        };
        let own = made.alloc_node(at, named.len()).expect("a copy has its original's alloc nodes");
        self.memory.held.insert(memory, Held::Node(own, copy));
        Ok(Said::Done)
    }

    pub(crate) fn begin(
        &mut self,
        stream: StreamId,
        graph: GraphId,
        mode: CaptureMode,
        host: HostId,
    ) -> Result<Said, Cannot> {
        let begun = self.stream(stream)?.begin_capture_in(mode);
        if begun.is_ok() {
            self.graphs.members.insert(stream, stream);
            let (allocated, recorded) = Default::default();
            let capture = Capture { graph, allocated, recorded, mode, host, is_spoiled: false };
            self.graphs.captures.insert(stream, capture);
        }
        Ok(said(begun, Act::Read))
    }

    fn end(&mut self, stream: StreamId) -> Result<Said, Cannot> {
        let Some(capture) = self.graphs.captures.remove(&stream) else {
            return Ok(said(self.stream(stream)?.end_capture().map(drop), Act::Read));
        };
        let ended = self.stream(stream)?.end_capture();
        if ended.is_err() && self.stream(stream)?.is_capturing().unwrap_or(false) {
            self.graphs.captures.insert(stream, capture);
            return Ok(said(ended.map(drop), Act::Read));
        }
        self.graphs.members.retain(|_, origin| *origin != stream);
        for memory in &capture.allocated {
            if let Some(Held::Buffer(buffer)) = self.memory.held.remove(memory) {
                let node = buffer.into_alloc_node();
                let held = if ended.is_ok() { Held::Node(node, capture.graph) } else { Held::Void };
                self.memory.held.insert(*memory, held);
            }
        }
        match ended {
            Ok(graph) => {
                self.graphs.all.insert(capture.graph, graph);
                Ok(Said::Done)
            }
            Err(error) => {
                self.graphs.refused.insert(capture.graph);
                // Another graph may name it.
                self.instances.unmade.extend(capture.allocated);
                Ok(Said::Refused(error, Act::Read))
            }
        }
    }

    fn launch_graph(&mut self, exec: ExecId, stream: StreamId) -> Result<Said, Cannot> {
        if self.instances.destroyed.contains(&exec) {
            return cannot("an instance that is gone cannot be named");
        }
        let Some((made, graph)) = self.instances.all.get(&exec) else {
            // The outcome does not depend on the stream.
            return if self.graphs.captures.is_empty() {
                Ok(Said::Done)
            } else {
                cannot("an instance that was refused")
            };
        };
        let graph = *graph;
        let is_captured = self.stream(stream)?.is_capturing().unwrap_or(false);
        if is_captured && !self.memory.scratch.is_empty() {
            return cannot("reading nodes copy to memory of theirs, which is one for all places of a child");
        }
        if !is_captured && !self.memory.scratch.is_empty() {
            let first = *self.instances.copying.get(&graph).unwrap_or(&exec);
            if first != exec {
                return cannot("reading nodes copy to memory of theirs, which instances that run at once would share");
            }
        }
        let launch = match made.launch(self.stream(stream)?) {
            Ok(_) if is_captured => {
                let around = self.graphs.capture_of(stream).map(|capture| capture.graph);
                if let Some(around) = around {
                    let node = self.graphs.lines.get(&around).map_or(0, Vec::len);
                    self.graphs.children.insert((around, node), graph);
                    self.note_captured(stream);
                }
                return Ok(Said::Done);
            }
            Ok(launch) => launch,
            Err(error) if made.auto_free_on_launch() && is_of_memory(&error) => {
                let kind = error.violation().expect("it is one").kind;
                self.check_unmade(&error, kind)?;
                self.found.verdict.insert(crate::Refusal { line: self.line, kind });
                self.found.refused.push((self.line, error));
                self.unmake(exec);
                return Ok(Said::Done);
            }
            Err(error) => return Ok(Said::Refused(error, Act::Read)),
        };
        self.instances.copying.entry(graph).or_insert(exec);
        let nodes: Vec<(Memory, millpond::graph::MemAllocNode<u8>)> = self
            .memory
            .held
            .iter()
            .filter_map(|(memory, held)| match held {
                Held::Node(node, _) => Some((*memory, *node)),
                _ => None,
            })
            .collect();
        for (memory, node) in nodes {
            if let Ok(buffer) = launch.take(node) {
                self.instances.unmade.remove(&memory);
                // The life gets a name of its own. Its number counts down from the largest, which no program uses.
                let life = Memory { id: millpond_core::ids::AllocId(u32::MAX - memory.id.0), ..memory };
                let is_others = self.instances.launched.insert(memory, (exec, graph)).is_some_and(|(by, _)| by != exec);
                let old = self
                    .memory
                    .latest
                    .insert(memory, life)
                    .and_then(|old| self.memory.held.remove(&old).map(|held| (old, held)));
                if let Some((old, Held::Buffer(stale))) = old {
                    let (address, view) = (stale.address(), stale.view());
                    match is_others {
                        true => self.memory.displaced.push(stale),
                        false => drop(stale),
                    }
                    self.memory.held.insert(old, Held::Gone { address, view });
                }
                self.memory.held.insert(life, Held::Buffer(buffer));
            }
        }
        Ok(Said::Done)
    }

    /// Returns an error if a node of a graph cannot name memory of an alloc node.
    pub(crate) fn check_named(&self, graph: GraphId, memory: Memory, owner: GraphId) -> Result<(), Cannot> {
        if !self.is_there(owner) && graph != owner {
            return cannot("memory of a graph that is gone has no name");
        }
        match self.instances.launched.get(&memory).is_some_and(|(by, _)| !self.instances.all.contains_key(by)) {
            true => cannot("the instance that gave the memory is gone"),
            false => Ok(()),
        }
    }

    fn add_node(&mut self, graph: GraphId, op: &NodeOp, after: &[NodeId]) -> Result<Said, Cannot> {
        let Some(mut made) = self.graphs.all.remove(&graph) else {
            return cannot("a graph that is gone cannot be named");
        };
        let known = self.graphs.nodes.entry(graph).or_default();
        let after: Option<Vec<GraphNode>> = after.iter().map(|node| *known.get(node.index())?).collect();
        let Some(after) = after else {
            self.graphs.all.insert(graph, made);
            return cannot("a node that was refused cannot be named");
        };
        let added = self.add_to(&mut made, op, &after, graph);
        self.graphs.all.insert(graph, made);
        match added? {
            Ok(node) => {
                self.graphs.nodes.entry(graph).or_default().push(Some(node));
                if let NodeOp::Child(child) = op {
                    let number = self.graphs.lines.get(&graph).map_or(0, Vec::len);
                    self.graphs.children.insert((graph, number), *child);
                }
                self.graphs.lines.entry(graph).or_default().push(self.line);
                Ok(Said::Done)
            }
            Err(error) if is_aliased(&error) => cannot("slices of the same bytes by two names"),
            // No node was added, and no node number was used.
            Err(error @ (millpond::Error::Driver(_) | millpond::Error::DeviceLost { .. })) => {
                Ok(Said::Refused(error, Act::Write))
            }
            Err(error) => {
                self.graphs.nodes.entry(graph).or_default().push(None);
                let act = match op {
                    NodeOp::Free(_) => Act::Free,
                    _ => Act::Write,
                };
                Ok(Said::Refused(error, act))
            }
        }
    }

    fn add_to(
        &mut self,
        made: &mut millpond::graph::Graph,
        node: &NodeOp,
        after: &[GraphNode],
        graph: GraphId,
    ) -> Result<Result<GraphNode, millpond::Error>, Cannot> {
        Ok(match node {
            NodeOp::Alloc { memory, bytes } => match made.add_alloc::<u8>(after, *bytes as usize) {
                Ok(named) => {
                    self.memory.held.insert(*memory, Held::Node(named, graph));
                    Ok(made.node_of(named).expect("its own node"))
                }
                Err(error) => Err(error),
            },
            NodeOp::Free(memory) => match self.memory.held.get(memory) {
                Some(Held::Node(named, owner)) => {
                    let named = *named;
                    self.check_named(graph, *memory, *owner)?;
                    self.memory.freed_by_nodes.insert(*memory);
                    made.add_free(after, named)
                }
                _ => return cannot("a free node takes an alloc node's memory only"),
            },
            NodeOp::Kernel(accesses) | NodeOp::Fill(accesses) | NodeOp::HostFunction(accesses) => {
                self.add_kernel((made, graph), &borrowed(accesses), after)?
            }
            NodeOp::Copy(accesses) => {
                let Some(accesses) = self.accesses(accesses, Some((Some(made), graph)))? else {
                    return cannot("memory that was refused");
                };
                let Some((from, to)) = copied(&accesses) else {
                    return cannot("a copy between parts of different sizes");
                };
                made.add_copy(after, from, to)
            }
            NodeOp::EventRecord(event) => made.add_event_record(after, &self.events.external[event]),
            NodeOp::EventWait(event) => made.add_event_wait(after, &self.events.external[event]),
            NodeOp::Empty => made.add_empty(after),
            NodeOp::Child(child) => {
                if !self.memory.scratch.is_empty() {
                    return cannot("reading nodes copy to memory of theirs, which is one for all places of a child");
                }
                let child = self.graph(*child)?;
                made.add_child(after, child)
            }
        })
    }
}

/// Returns `true` if a launch was refused because of the order of uses.
fn is_of_memory(error: &Error) -> bool {
    error.violation().is_some_and(|it| it.code.is_none())
}

/// `cudaErrorGraphExecUpdateFailure`.
const UPDATE_FAILURE: u32 = 910;

fn is_of_another_kind(updated: &millpond::Result<()>) -> bool {
    let refused = updated.as_ref().err().and_then(millpond::Error::violation);
    refused.is_some_and(|it| it.code == Some(UPDATE_FAILURE) && it.sentence.ends_with("is of another kind"))
}
