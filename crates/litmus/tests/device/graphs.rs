//! Graphs of litmus programs on the library: by hand, by capture, launched.

use std::collections::HashSet;

use millpond::graph::{GraphExec, GraphNode, Instantiate};
use millpond_core::ids::{EventId, ExecId, GraphId, NodeId, StreamId};
use millpond_core::op::{Act, CaptureMode, Memory, NodeOp, Op, What};

use super::kernels::{borrowed, copied, is_aliased};
use super::{Cannot, Capture, Child, Held, Place, Run, Said, cannot, said};

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
            What::GraphCreate { symbolic: true, .. } if !self.place.runs_closures() => {
                cannot("reading nodes copy to memory of theirs, which instances that run at once would share")
            }
            What::GraphCreate { graph, symbolic } => {
                let made = if *symbolic { self.device.symbolic_graph() } else { self.device.graph() };
                self.graphs.insert(*graph, made.expect("a graph"));
                Ok(Said::Done)
            }
            What::GraphNode { graph, node, after, .. } => self.add_node(*graph, node, after),
            What::GraphEdge { graph, from, to } => {
                let (from, to) = self.ends(*graph, *from, *to)?;
                Ok(said(self.graphs.get_mut(graph).expect("it is there").add_edge(from, to), Act::Read))
            }
            What::GraphEdgeRemove { graph, from, to } => {
                let (from, to) = self.ends(*graph, *from, *to)?;
                Ok(said(self.graphs.get_mut(graph).expect("it is there").remove_edge(from, to), Act::Read))
            }
            What::GraphNodeRemove { graph, node } => self.remove_node(*graph, *node),
            What::GraphClone { graph, copy } => self.clone_graph(*graph, *copy),
            What::CopyName { graph, node, memory } => self.name_of_copy(*graph, *node, *memory),
            What::GraphDestroy { graph } => {
                self.graphs.remove(graph);
                Ok(Said::Done)
            }
            What::CaptureBegin { stream, graph, mode, symbolic: false } => self.begin(*stream, *graph, *mode),
            What::ExecUpdate { exec, graph } => {
                let Some((made, of)) = self.execs.get_mut(exec) else { return Ok(Said::Done) };
                self.instantiating = Some(*graph);
                let Some(from) = self.graphs.get(graph) else { return cannot("a graph that is gone cannot be named") };
                let updated = made.update(from);
                if updated.is_ok() {
                    *of = *graph;
                    self.instantiated.insert(*exec, self.lines.get(graph).map_or(0, Vec::len));
                }
                match matches!(self.place, Place::Cuda | Place::Fake) && is_of_another_kind(&updated) {
                    true => cannot("on CUDA a write is a fill here and a read a copy: nodes of different kinds"),
                    false => Ok(said(updated, Act::Read)),
                }
            }
            What::CaptureEnd { stream } => self.end(*stream),
            What::Instantiate { graph, exec, auto_free_on_launch } => {
                self.instantiating = Some(*graph);
                let made = self.graph(*graph)?;
                match made.instantiate(Instantiate::default().auto_free_on_launch(*auto_free_on_launch)) {
                    Ok(made) => {
                        self.execs.insert(*exec, (made, *graph));
                        self.instantiated.insert(*exec, self.lines.get(graph).map_or(0, Vec::len));
                        Ok(Said::Done)
                    }
                    Err(error) => Ok(Said::Refused(error, Act::Read)),
                }
            }
            What::GraphLaunch { exec, stream } => self.launch_graph(*exec, *stream),
            What::GraphUpload { exec, stream } => {
                let Some((made, _)) = self.execs.get(exec).filter(|_| self.captures.is_empty()) else {
                    return cannot("an upload in a capture, or of an instance that is gone");
                };
                Ok(said(made.upload(self.stream(*stream)?), Act::Read))
            }
            What::Take { exec, node, memory } => self.take(*exec, *node, *memory),
            What::ExecDestroy { exec } => {
                self.execs.remove(exec);
                self.gone.insert(*exec);
                Ok(Said::Done)
            }
            What::EventRecord { event, stream, external: true, .. } if !self.captures.is_empty() => {
                let recorded = self.stream(*stream)?.record_external(&self.externals[event]);
                if recorded.is_ok() {
                    self.note_captured(*stream);
                }
                Ok(said(recorded, Act::Read))
            }
            What::EventWait { event, stream, external: true } if !self.captures.is_empty() => {
                let waited = self.stream(*stream)?.wait_external(&self.externals[event]);
                if waited.is_ok() {
                    self.note_captured(*stream);
                }
                Ok(said(waited, Act::Read))
            }
            other => cannot(&format!("{other:?} is not asked of the library here")),
        }
    }

    fn take(&mut self, exec: ExecId, node: Memory, memory: Memory) -> Result<Said, Cannot> {
        if self.launched.get(&node).is_none_or(|(by, _)| *by != exec) {
            return cannot("another instance gave the name its life");
        }
        if self.freed_by_nodes.contains(&node) {
            return cannot("a graph may have freed what is taken");
        }
        let taken = self.current(node);
        let Some(held) = self.memory.remove(&taken).filter(|it| matches!(it, Held::Buffer(_))) else {
            return cannot("nothing was launched to take from");
        };
        self.memory.insert(memory, held);
        self.names.insert(node, memory);
        Ok(Said::Done)
    }

    fn graph(&self, graph: GraphId) -> Result<&millpond::graph::Graph, Cannot> {
        self.graphs.get(&graph).map_or_else(|| cannot("a graph that is not there cannot be named"), Ok)
    }

    /// The ends of an edge.
    fn ends(&self, graph: GraphId, from: NodeId, to: NodeId) -> Result<(GraphNode, GraphNode), Cannot> {
        self.graph(graph)?;
        let nodes = &self.nodes[&graph];
        match (nodes[from.index()], nodes[to.index()]) {
            (Some(from), Some(to)) => Ok((from, to)),
            _ => cannot("a node that was refused cannot be named"),
        }
    }

    fn remove_node(&mut self, graph: GraphId, node: NodeId) -> Result<Said, Cannot> {
        let (of, _) = self.ends(graph, node, node)?;
        let removed = self.graphs.get_mut(&graph).expect("it is there").remove_node(of);
        if removed.is_ok() {
            if let Some(child) = self.number_of(graph, node).and_then(|at| self.children.get_mut(&(graph, at))) {
                child.is_there = false;
            }
            let made = &self.graphs[&graph];
            let is_gone =
                |held: &Held| matches!(held, Held::Node(node, of) if *of == graph && made.node_of(*node).is_none());
            self.removed.extend(self.memory.iter().filter(|(_, held)| is_gone(held)).map(|(memory, _)| *memory));
        }
        Ok(said(removed, Act::Read))
    }

    /// The number that a node has in its graph, where refused ones do not count.
    fn number_of(&self, graph: GraphId, node: NodeId) -> Option<usize> {
        Some(self.nodes.get(&graph)?[..node.index()].iter().flatten().count())
    }

    /// Whether a graph is there, or an instance of all its nodes.
    pub(super) fn is_there(&self, graph: GraphId) -> bool {
        let nodes = self.lines.get(&graph).map_or(0, Vec::len);
        let has_all =
            |(exec, made): (&ExecId, &(GraphExec, GraphId))| made.1 == graph && self.instantiated[exec] == nodes;
        self.graphs.contains_key(&graph) || self.execs.iter().any(has_all)
    }

    /// Whether a graph has copies, and it or one of those is gone: a name may mean what nobody can name.
    pub(super) fn has_lost_copy(&self, owner: GraphId) -> bool {
        let is_gone = |it: &GraphId| !self.graphs.contains_key(it);
        self.copies.iter().any(|(copy, original)| *original == owner && (is_gone(copy) || is_gone(original)))
    }

    /// The graphs that make the memory of an alloc node in a graph: itself, or children. One may have an older state of
    /// itself inside. An instance may have those, too, that were removed since.
    fn makers(&self, graph: GraphId, owner: GraphId, with_removed: bool) -> Vec<GraphId> {
        let (mut makers, mut open, mut seen) = (Vec::new(), vec![graph], HashSet::new());
        while let Some(graph) = open.pop() {
            if graph == owner || self.copies.get(&graph) == Some(&owner) {
                makers.push(graph);
            }
            if seen.insert(graph) {
                let children = self.children.iter().filter(|it| it.0.0 == graph).map(|(_, child)| child);
                open.extend(children.filter(|it| with_removed || it.is_there).map(|child| child.graph));
            }
        }
        makers
    }

    fn clone_graph(&mut self, graph: GraphId, copy: GraphId) -> Result<Said, Cannot> {
        if !self.scratch.is_empty() {
            return cannot("a copy of nodes that copy to memory of their own, where kernels are no closures");
        }
        let is_own = |held: &Held| matches!(held, Held::Node(_, owner) if *owner == graph);
        if self.copies.contains_key(&graph) && self.memory.values().any(is_own) {
            return cannot("a copy of a copy that has memory of its own, whose names would be of two graphs");
        }
        let made = match self.graph(graph)?.try_clone() {
            Ok(made) => made,
            Err(error) => return Ok(Said::Refused(error, Act::Read)),
        };
        let nodes = self.nodes.get(&graph).map_or_else(Vec::new, |nodes| {
            nodes.iter().map(|node| node.as_ref().and_then(|node| made.find(*node))).collect()
        });
        self.copied_nodes.insert(copy, nodes.len());
        self.nodes.insert(copy, nodes);
        self.graphs.insert(copy, made);
        self.copies.insert(copy, self.copies.get(&graph).copied().unwrap_or(graph));
        let lines = self.lines.get(&graph).cloned().unwrap_or_default();
        for node in 0..lines.len() {
            if let Some(child) = self.children.get(&(graph, node)) {
                self.children.insert((copy, node), *child);
            }
        }
        self.lines.insert(copy, lines);
        Ok(Said::Done)
    }

    /// All memory of a copy has names of its own: it is no copy then, as far as names go.
    fn name_of_copy(&mut self, copy: GraphId, node: Memory, memory: Memory) -> Result<Said, Cannot> {
        let Some(Held::Node(named, owner)) = self.memory.get(&node) else {
            return cannot("memory that was refused");
        };
        let (named, owner) = (*named, *owner);
        if let Some(original) = self.copies.remove(&copy) {
            self.renamed.insert(copy, original);
        }
        let made = self.graph(copy)?;
        let there = self.graphs.get(&owner).filter(|_| self.renamed.get(&copy) == Some(&owner));
        let Some(at) = there.and_then(|owner| made.find(owner.node_of(named)?)) else {
            return cannot("a graph that is not there cannot be named");
        };
        let own = made.alloc_node(at, named.len()).expect("a copy has its original's alloc nodes");
        self.memory.insert(memory, Held::Node(own, copy));
        Ok(Said::Done)
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
        for memory in &capture.allocated {
            if let Some(Held::Buffer(buffer)) = self.memory.remove(memory) {
                self.memory.insert(*memory, Held::Node(buffer.into_alloc_node(), capture.graph));
            }
        }
        let ended = self.stream(stream)?.end_capture();
        if ended.is_err() {
            self.memory.extend(capture.allocated.iter().map(|memory| (*memory, Held::Void)));
        }
        match ended {
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
        let Some((made, graph)) = self.execs.get(&exec) else {
            // Whatever the stream says of it.
            return if self.captures.is_empty() { Ok(Said::Done) } else { cannot("an instance that was refused") };
        };
        let graph = *graph;
        let is_captured = self.stream(stream)?.is_capturing().unwrap_or(false);
        if is_captured && !self.scratch.is_empty() {
            return cannot("reading nodes copy to memory of theirs, which is one for all places of a child");
        }
        let launch = match made.launch(self.stream(stream)?) {
            Ok(_) if is_captured => {
                let around = self.captures.values().next().map(|capture| capture.graph);
                if let Some(around) = around {
                    let node = self.lines.get(&around).map_or(0, Vec::len);
                    self.children.insert((around, node), Child { graph, is_there: true });
                    self.note_captured(stream);
                }
                return Ok(Said::Done);
            }
            Ok(launch) => launch,
            Err(millpond::Error::Violation(violation)) if made.auto_free_on_launch() => {
                self.found.verdict.insert(millpond_litmus::Expected { line: self.line, kind: violation.kind });
                self.has_unmade = true;
                return Ok(Said::Done);
            }
            Err(error) => return Ok(Said::Refused(error, Act::Read)),
        };
        let owners = self.memory.values().filter_map(|held| match held {
            Held::Node(_, owner) => Some(*owner),
            _ => None,
        });
        for owner in owners {
            let makers = self.makers(graph, owner, true);
            let is_inside = makers.iter().any(|maker| *maker != graph && *maker != owner);
            let mut named = self.memory.values().filter_map(|held| match held {
                Held::Node(node, of) if *of == owner => Some(*node),
                _ => None,
            });
            let copies = || makers.iter().filter(|maker| **maker != owner && self.graphs.contains_key(maker));
            let is_there = |node| {
                let Some(original) = self.graphs.get(&owner) else { return true };
                let has_lost = |copy: &GraphId, at| {
                    let number = self.nodes.get(&owner).and_then(|nodes| nodes.iter().position(|it| *it == Some(at)));
                    number.is_none_or(|it| it < self.copied_nodes[copy]) && self.graphs[copy].find(at).is_none()
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
                let is_others = self.launched.insert(memory, (exec, graph)).is_some_and(|(by, _)| by != exec);
                let old =
                    self.names.insert(memory, life).and_then(|old| self.memory.remove(&old).map(|held| (old, held)));
                if let Some((old, Held::Buffer(stale))) = old {
                    let (address, view) = (stale.address(), stale.view());
                    match is_others {
                        true => self.left.push(stale),
                        false => drop(stale),
                    }
                    self.memory.insert(old, Held::Gone { address, view });
                }
                self.memory.insert(life, Held::Buffer(buffer));
            }
        }
        Ok(Said::Done)
    }

    /// What a copy calls the memory of an alloc node of its original.
    pub(super) fn named_by_copy(
        &self,
        copy: GraphId,
        owner: GraphId,
        node: millpond::graph::MemAllocNode<u8>,
    ) -> Option<millpond::graph::MemAllocNode<u8>> {
        self.named_in(self.graphs.get(&copy)?, copy, owner, node)
    }

    /// What a node of a graph calls the memory of an alloc node: its own, its original's or a child's, or else what the
    /// latest launch gave, of a copy perhaps.
    pub(super) fn named_to(
        &self,
        (made, graph): (Option<&millpond::graph::Graph>, GraphId),
        memory: Memory,
        owner: GraphId,
        node: millpond::graph::MemAllocNode<u8>,
    ) -> Result<millpond::graph::MemAllocNode<u8>, Cannot> {
        if !self.is_there(owner) && graph != owner || self.has_lost_copy(owner) {
            return cannot("memory of a graph that is gone has no name");
        }
        if self.launched.get(&memory).is_some_and(|(by, _)| !self.execs.contains_key(by)) {
            return cannot("the instance that gave the memory is gone");
        }
        let makers = self.makers(graph, owner, false);
        let maker = match makers[..] {
            [] => self.launched.get(&memory).map(|(_, launched)| *launched),
            [maker] => Some(maker),
            _ => return cannot("a name means memory of several graphs in this one"),
        };
        let Some(copy) = maker.filter(|maker| self.copies.get(maker) == Some(&owner)) else { return Ok(node) };
        let copied = match made.filter(|_| copy == graph) {
            Some(made) => self.named_in(made, copy, owner, node),
            None => self.named_by_copy(copy, owner, node),
        };
        copied.map_or_else(|| cannot("a node that was removed has no name in copies"), Ok)
    }

    /// The same for a copy that is at hand.
    pub(super) fn named_in(
        &self,
        made: &millpond::graph::Graph,
        copy: GraphId,
        owner: GraphId,
        node: millpond::graph::MemAllocNode<u8>,
    ) -> Option<millpond::graph::MemAllocNode<u8>> {
        if self.copies.get(&copy) != Some(&owner) {
            return None;
        }
        let owner = self.graphs.get(&owner)?;
        made.alloc_node(made.find(owner.node_of(node)?)?, node.len()).ok()
    }

    fn add_node(&mut self, graph: GraphId, op: &NodeOp, after: &[NodeId]) -> Result<Said, Cannot> {
        let Some(mut made) = self.graphs.remove(&graph) else { return cannot("a graph that is gone cannot be named") };
        let known = self.nodes.entry(graph).or_default();
        let after: Option<Vec<GraphNode>> = after.iter().map(|node| *known.get(node.index())?).collect();
        let Some(after) = after else {
            self.graphs.insert(graph, made);
            return cannot("a node that was refused cannot be named");
        };
        let added = self.add_to(&mut made, op, &after, graph);
        self.graphs.insert(graph, made);
        match added? {
            Ok(node) => {
                self.nodes.entry(graph).or_default().push(Some(node));
                if let NodeOp::Child(child) = op {
                    let number = self.lines.get(&graph).map_or(0, Vec::len);
                    self.children.insert((graph, number), Child { graph: *child, is_there: true });
                }
                self.lines.entry(graph).or_default().push(self.line);
                Ok(Said::Done)
            }
            Err(error) if is_aliased(&error) => cannot("slices of the same bytes by two names"),
            Err(error) => {
                self.nodes.entry(graph).or_default().push(None);
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
                    self.memory.insert(*memory, Held::Node(named, graph));
                    Ok(made.node_of(named).expect("its own node"))
                }
                Err(error) => Err(error),
            },
            NodeOp::Free(memory) => match self.memory.get(memory) {
                Some(Held::Node(named, owner)) => {
                    let named = self.named_to((Some(made), graph), *memory, *owner, *named)?;
                    self.freed_by_nodes.insert(*memory);
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
            NodeOp::EventRecord(event) => made.add_event_record(after, &self.externals[event]),
            NodeOp::EventWait(event) => made.add_event_wait(after, &self.externals[event]),
            NodeOp::Empty => made.add_empty(after),
            NodeOp::Child(child) => {
                if !self.scratch.is_empty() {
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
