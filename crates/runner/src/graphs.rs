//! Graphs on the library: by hand, by capture, launched.

use std::collections::HashSet;

use millpond::graph::{GraphExec, GraphNode, Instantiate};
use millpond_core::ids::{EventId, ExecId, GraphId, NodeId, StreamId};
use millpond_core::op::{Act, CaptureMode, Memory, NodeOp, Op, What};

use crate::kernels::{borrowed, copied, is_aliased};
use crate::{Cannot, Capture, Child, Held, Place, Run, Said, cannot, said};

/// The event of an operation that a node of a graph records or waits for.
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
                self.graphs.all.insert(*graph, made.expect("a graph"));
                Ok(Said::Done)
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
            What::CaptureBegin { stream, graph, mode, symbolic: false } => self.begin(*stream, *graph, *mode),
            What::ExecUpdate { exec, graph } => {
                let Some((made, of)) = self.instances.all.get_mut(exec) else { return Ok(Said::Done) };
                if of != graph && self.graphs.renamed.contains_key(graph) {
                    return cannot("what an instance left of a graph that it is no more of has no name");
                }
                self.graphs.instantiating = Some(*graph);
                let Some(from) = self.graphs.all.get(graph) else {
                    return cannot("a graph that is gone cannot be named");
                };
                let updated = made.update(from);
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
                let Some((made, _)) = self.instances.all.get(exec).filter(|_| self.graphs.captures.is_empty()) else {
                    return cannot("an upload in a capture, or of an instance that is gone");
                };
                Ok(said(made.upload(self.stream(*stream)?), Act::Read))
            }
            What::Take { exec, node, memory } => self.take(*exec, *node, *memory),
            What::ExecDestroy { exec } => {
                self.instances.all.remove(exec);
                self.instances.destroyed.insert(*exec);
                Ok(Said::Done)
            }
            What::EventRecord { event, stream, external: true, .. } if !self.graphs.captures.is_empty() => {
                let recorded = self.stream(*stream)?.record_external(&self.events.external[event]);
                if recorded.is_ok() {
                    self.note_captured(*stream);
                }
                Ok(said(recorded, Act::Read))
            }
            What::EventWait { event, stream, external: true } if !self.graphs.captures.is_empty() => {
                let waited = self.stream(*stream)?.wait_external(&self.events.external[event]);
                if waited.is_ok() {
                    self.note_captured(*stream);
                }
                Ok(said(waited, Act::Read))
            }
            other => cannot(&format!("{other:?} is not asked of the library here")),
        }
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

    /// The ends of an edge.
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
            if let Some(child) = self.number_of(graph, node).and_then(|at| self.graphs.children.get_mut(&(graph, at))) {
                child.is_there = false;
            }
            let made = &self.graphs.all[&graph];
            let is_gone =
                |held: &Held| matches!(held, Held::Node(node, of) if *of == graph && made.node_of(*node).is_none());
            self.memory
                .removed
                .extend(self.memory.held.iter().filter(|(_, held)| is_gone(held)).map(|(memory, _)| *memory));
        }
        Ok(said(removed, Act::Read))
    }

    /// The number that a node has in its graph, where refused ones do not count.
    fn number_of(&self, graph: GraphId, node: NodeId) -> Option<usize> {
        Some(self.graphs.nodes.get(&graph)?[..node.index()].iter().flatten().count())
    }

    /// Whether a graph is there, or an instance of all its nodes.
    pub(crate) fn is_there(&self, graph: GraphId) -> bool {
        let nodes = self.graphs.lines.get(&graph).map_or(0, Vec::len);
        let has_all =
            |(exec, made): (&ExecId, &(GraphExec, GraphId))| made.1 == graph && self.instances.nodes[exec] == nodes;
        self.graphs.all.contains_key(&graph) || self.instances.all.iter().any(has_all)
    }

    /// Whether a graph has copies, and it or one of those is gone: a name may mean what has no name any more.
    pub(crate) fn has_lost_copy(&self, owner: GraphId) -> bool {
        let is_gone = |it: &GraphId| !self.graphs.all.contains_key(it);
        self.graphs.copies.iter().any(|(copy, original)| *original == owner && (is_gone(copy) || is_gone(original)))
    }

    /// The graphs that make the memory of an alloc node in a graph: itself, or children. One may have an older state of
    /// itself inside. An instance may have those, too, that were removed since.
    fn makers(&self, graph: GraphId, owner: GraphId, with_removed: bool) -> Vec<GraphId> {
        let (mut makers, mut open, mut seen) = (Vec::new(), vec![graph], HashSet::new());
        while let Some(graph) = open.pop() {
            if graph == owner || self.graphs.copies.get(&graph) == Some(&owner) {
                makers.push(graph);
            }
            if seen.insert(graph) {
                let children = self.graphs.children.iter().filter(|it| it.0.0 == graph).map(|(_, child)| child);
                open.extend(children.filter(|it| with_removed || it.is_there).map(|child| child.graph));
            }
        }
        makers
    }

    fn clone_graph(&mut self, graph: GraphId, copy: GraphId) -> Result<Said, Cannot> {
        if !self.memory.scratch.is_empty() {
            return cannot("a copy of nodes that copy to memory of their own, where kernels are no closures");
        }
        let is_own = |held: &Held| matches!(held, Held::Node(_, owner) if *owner == graph);
        if self.graphs.copies.contains_key(&graph) && self.memory.held.values().any(is_own) {
            return cannot("a copy of a copy that has memory of its own, whose names would be of two graphs");
        }
        let made = match self.graph(graph)?.try_clone() {
            Ok(made) => made,
            Err(error) => return Ok(Said::Refused(error, Act::Read)),
        };
        let nodes = self.graphs.nodes.get(&graph).map_or_else(Vec::new, |nodes| {
            nodes.iter().map(|node| node.as_ref().and_then(|node| made.find(*node))).collect()
        });
        self.graphs.copied_nodes.insert(copy, nodes.len());
        self.graphs.nodes.insert(copy, nodes);
        self.graphs.all.insert(copy, made);
        self.graphs.copies.insert(copy, self.graphs.copies.get(&graph).copied().unwrap_or(graph));
        let lines = self.graphs.lines.get(&graph).cloned().unwrap_or_default();
        for node in 0..lines.len() {
            if let Some(child) = self.graphs.children.get(&(graph, node)) {
                self.graphs.children.insert((copy, node), *child);
            }
        }
        self.graphs.lines.insert(copy, lines);
        Ok(Said::Done)
    }

    /// All memory of a copy has names of its own: it is no copy then, as far as names go.
    fn name_of_copy(&mut self, copy: GraphId, node: Memory, memory: Memory) -> Result<Said, Cannot> {
        let Some(Held::Node(named, owner)) = self.memory.held.get(&node) else {
            return cannot("memory that was refused");
        };
        let (named, owner) = (*named, *owner);
        if let Some(original) = self.graphs.copies.remove(&copy) {
            self.graphs.renamed.insert(copy, original);
        }
        let made = self.graph(copy)?;
        let there = self.graphs.all.get(&owner).filter(|_| self.graphs.renamed.get(&copy) == Some(&owner));
        let Some(at) = there.and_then(|owner| made.find(owner.node_of(named)?)) else {
            return cannot("a graph that is not there cannot be named");
        };
        let own = made.alloc_node(at, named.len()).expect("a copy has its original's alloc nodes");
        self.memory.held.insert(memory, Held::Node(own, copy));
        Ok(Said::Done)
    }

    fn begin(&mut self, stream: StreamId, graph: GraphId, mode: CaptureMode) -> Result<Said, Cannot> {
        let begun = self.stream(stream)?.begin_capture_in(mode);
        if begun.is_ok() {
            if !self.graphs.captures.is_empty() {
                return cannot("two captures at once");
            }
            self.graphs.captures.insert(stream, Capture { graph, allocated: Vec::new() });
        }
        Ok(said(begun, Act::Read))
    }

    fn end(&mut self, stream: StreamId) -> Result<Said, Cannot> {
        let Some(capture) = self.graphs.captures.remove(&stream) else {
            return Ok(said(self.stream(stream)?.end_capture().map(drop), Act::Read));
        };
        for memory in &capture.allocated {
            if let Some(Held::Buffer(buffer)) = self.memory.held.remove(memory) {
                self.memory.held.insert(*memory, Held::Node(buffer.into_alloc_node(), capture.graph));
            }
        }
        let ended = self.stream(stream)?.end_capture();
        if ended.is_err() {
            self.memory.held.extend(capture.allocated.iter().map(|memory| (*memory, Held::Void)));
        }
        match ended {
            Ok(graph) => {
                self.graphs.all.insert(capture.graph, graph);
                Ok(Said::Done)
            }
            Err(error) => Ok(Said::Refused(error, Act::Read)),
        }
    }

    fn launch_graph(&mut self, exec: ExecId, stream: StreamId) -> Result<Said, Cannot> {
        if self.instances.destroyed.contains(&exec) {
            return cannot("an instance that is gone cannot be named");
        }
        let Some((made, graph)) = self.instances.all.get(&exec) else {
            // Whatever the stream says of it.
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
        let launch = match made.launch(self.stream(stream)?) {
            Ok(_) if is_captured => {
                let around = self.graphs.captures.values().next().map(|capture| capture.graph);
                if let Some(around) = around {
                    let node = self.graphs.lines.get(&around).map_or(0, Vec::len);
                    self.graphs.children.insert((around, node), Child { graph, is_there: true });
                    self.note_captured(stream);
                }
                return Ok(Said::Done);
            }
            Ok(launch) => launch,
            Err(millpond::Error::Violation(violation)) if made.auto_free_on_launch() => {
                self.found.verdict.insert(crate::Refusal { line: self.line, kind: violation.kind });
                self.instances.is_any_refused = true;
                return Ok(Said::Done);
            }
            Err(error) => return Ok(Said::Refused(error, Act::Read)),
        };
        let owners = self.memory.held.values().filter_map(|held| match held {
            Held::Node(_, owner) => Some(*owner),
            _ => None,
        });
        for owner in owners {
            let makers = self.makers(graph, owner, true);
            let is_inside = makers.iter().any(|maker| *maker != graph && *maker != owner);
            let mut named = self.memory.held.values().filter_map(|held| match held {
                Held::Node(node, of) if *of == owner => Some(*node),
                _ => None,
            });
            let copies = || makers.iter().filter(|maker| **maker != owner && self.graphs.all.contains_key(maker));
            let is_there = |node| {
                let Some(original) = self.graphs.all.get(&owner) else { return true };
                let has_lost = |copy: &GraphId, at| {
                    let number =
                        self.graphs.nodes.get(&owner).and_then(|nodes| nodes.iter().position(|it| *it == Some(at)));
                    number.is_none_or(|it| it < self.graphs.copied_nodes[copy])
                        && self.graphs.all[copy].find(at).is_none()
                };
                original.node_of(node).is_some_and(|at| !copies().any(|copy| has_lost(copy, at)))
            };
            if makers.iter().any(|maker| *maker != owner) && !named.all(is_there) {
                return cannot("a node that was removed has no name in copies");
            }
            if is_inside || !makers.is_empty() && self.has_lost_copy(owner) {
                return cannot("what a copy leaves that is gone, or a child, has no name");
            }
        }
        let nodes: Vec<(Memory, millpond::graph::MemAllocNode<u8>)> = self
            .memory
            .held
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

    /// What a copy calls the memory of an alloc node of its original.
    pub(crate) fn named_by_copy(
        &self,
        copy: GraphId,
        owner: GraphId,
        node: millpond::graph::MemAllocNode<u8>,
    ) -> Option<millpond::graph::MemAllocNode<u8>> {
        self.named_in(self.graphs.all.get(&copy)?, copy, owner, node)
    }

    /// What a node of a graph calls the memory of an alloc node: its own, its original's or a child's, or else what the
    /// latest launch gave, of a copy perhaps.
    pub(crate) fn named_to(
        &self,
        (made, graph): (Option<&millpond::graph::Graph>, GraphId),
        memory: Memory,
        owner: GraphId,
        node: millpond::graph::MemAllocNode<u8>,
    ) -> Result<millpond::graph::MemAllocNode<u8>, Cannot> {
        if !self.is_there(owner) && graph != owner || self.has_lost_copy(owner) {
            return cannot("memory of a graph that is gone has no name");
        }
        if self.instances.launched.get(&memory).is_some_and(|(by, _)| !self.instances.all.contains_key(by)) {
            return cannot("the instance that gave the memory is gone");
        }
        let makers = self.makers(graph, owner, false);
        let maker = match makers[..] {
            [] => self.instances.launched.get(&memory).map(|(_, launched)| *launched),
            [maker] => Some(maker),
            _ => return cannot("a name means memory of several graphs in this one"),
        };
        let Some(copy) = maker.filter(|maker| self.graphs.copies.get(maker) == Some(&owner)) else { return Ok(node) };
        let copied = match made.filter(|_| copy == graph) {
            Some(made) => self.named_in(made, copy, owner, node),
            None => self.named_by_copy(copy, owner, node),
        };
        copied.map_or_else(|| cannot("a node that was removed has no name in copies"), Ok)
    }

    /// The same for a copy that is at hand.
    pub(crate) fn named_in(
        &self,
        made: &millpond::graph::Graph,
        copy: GraphId,
        owner: GraphId,
        node: millpond::graph::MemAllocNode<u8>,
    ) -> Option<millpond::graph::MemAllocNode<u8>> {
        if self.graphs.copies.get(&copy) != Some(&owner) {
            return None;
        }
        let owner = self.graphs.all.get(&owner)?;
        made.alloc_node(made.find(owner.node_of(node)?)?, node.len()).ok()
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
                    self.graphs.children.insert((graph, number), Child { graph: *child, is_there: true });
                }
                self.graphs.lines.entry(graph).or_default().push(self.line);
                Ok(Said::Done)
            }
            Err(error) if is_aliased(&error) => cannot("slices of the same bytes by two names"),
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
                    let named = self.named_to((Some(made), graph), *memory, *owner, *named)?;
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

fn is_of_another_kind(updated: &millpond::Result<()>) -> bool {
    let error = updated.as_ref().err().and_then(millpond::Error::graph);
    matches!(error, Some(millpond::error::GraphError::Update(millpond_core::graph::UpdateRefused::NodeType(_))))
}
