//! The graphs of a traced program: how its operations build them, the outputs of launches, and violations.

use millpond_core::check::{Edit, Finding, Side};
use millpond_core::ids::{ExecId, GraphId, NodeId, StreamId};
use millpond_core::op::{Memory, Name, Names, NodeOp, Op, What};

use super::Builder;
use crate::view::graphs::{Exec, Graph, Owned, describe};
use crate::view::scene::Node;

impl Builder {
    pub(super) fn graph(&mut self, op: &Op, names: &Names, is_done: bool) {
        match &op.what {
            What::GraphCreate { graph, .. } => self.graphs.push((*graph, Graph::default())),
            What::CaptureBegin { graph, .. } if is_done => self.graphs.push((*graph, Graph::default())),
            What::GraphClone { graph, copy } => {
                let original = self.find(*graph).cloned().unwrap_or_default();
                self.graphs.push((*copy, original));
            }
            What::CopyName { graph, node, memory } => {
                let Some(of) = self.find(*graph) else { return };
                of.allocs.iter_mut().chain(&mut of.frees).filter(|it| *it == node).for_each(|it| *it = *memory);
                if let Some(owned) = self.nodes.get(node).cloned() {
                    self.nodes.insert(*memory, Owned { graph: *graph, ..owned });
                }
            }
            What::GraphNode { graph, node, after, name } => {
                self.node((op, names), (*graph, after), node, *name, is_done);
            }
            What::GraphEdge { graph, from, to } => {
                if let Some(graph) = self.find(*graph) {
                    let edge = graph.edge(*from, *to);
                    graph.edges.extend(edge);
                }
            }
            What::GraphEdgeRemove { graph, from, to } => {
                if let Some(graph) = self.find(*graph) {
                    let removed = graph.edge(*from, *to);
                    graph.edges.retain(|edge| Some(*edge) != removed);
                }
            }
            What::GraphNodeRemove { graph, node } => {
                if let Some(graph) = self.find(*graph)
                    && let Some(&place) = graph.places.get(node.index())
                {
                    graph.edges.retain(|(from, to)| *from != place && *to != place);
                    graph.nodes[place as usize].note = "removed".to_owned();
                }
            }
            What::Instantiate { graph, exec, auto_free_on_launch } => {
                let (graph, auto_free) = (*graph, *auto_free_on_launch);
                self.execs.insert(*exec, Exec { graph, auto_free, stream: 0, left: Vec::new() });
            }
            What::GraphLaunch { exec, stream } => self.launch(op, names, *exec, *stream),
            What::Take { exec, node, memory } => self.take(op, names, *exec, *node, *memory),
            _ => {}
        }
    }

    /// Returns the node that an operation of a captured stream makes, with its name.
    pub(super) fn captured(&self, what: &What) -> Option<(NodeOp, Option<Name>)> {
        Some(match *what {
            What::EventRecord { event, external: true, .. } => (NodeOp::EventRecord(event), None),
            What::EventWait { event, external: true, .. } => (NodeOp::EventWait(event), None),
            What::Alloc { memory, bytes, name, .. } => (NodeOp::Alloc { memory, bytes }, name),
            What::Free { memory, .. } | What::Drop { memory } => (NodeOp::Free(memory), None),
            What::Launch { ref accesses, name, .. } => (NodeOp::Kernel(accesses.clone()), name),
            What::Copy { ref accesses, .. } => (NodeOp::Copy(accesses.clone()), None),
            What::GraphLaunch { exec, .. } => (NodeOp::Child(self.execs.get(&exec)?.graph), None),
            _ => return None,
        })
    }

    /// Adds a node that an operation makes, or would make if it was not refused.
    pub(super) fn node(
        &mut self,
        (op, names): (&Op, &Names),
        (graph, after): (GraphId, &[NodeId]),
        node: &NodeOp,
        name: Option<Name>,
        is_done: bool,
    ) {
        let (step, site) = (self.scene.steps, op.place.describe(names));
        let name = name.and_then(|name| names.text(name)).map(ToString::to_string);
        if let NodeOp::Alloc { memory, bytes } = *node {
            let Some(of) = self.find(graph) else { return };
            let name = name.clone().unwrap_or_else(|| format!("m{}", of.allocs.len()));
            let node = of.nodes.len();
            of.allocs.push(memory);
            self.nodes.insert(memory, Owned { bytes, name, graph, node });
        }
        let (kind, mut label, note) = describe(node, &|memory| self.called(memory));
        if let (Some(name), false) = (name, kind == "alloc") {
            label = format!("{label} {name}");
        }
        let Some(graph) = self.find(graph) else { return };
        if let NodeOp::Free(memory) = *node {
            graph.frees.push(memory);
        }
        graph.push(Node { kind, label, note, site, ..Node::default() }, after, step, is_done);
    }

    /// Returns the name of memory in a graph: that of its alloc node, or else the memory's name or number.
    pub(super) fn called(&self, memory: Memory) -> String {
        if let Some(owned) = self.nodes.get(&memory) {
            return owned.name.clone();
        }
        let life = self.lives.get(&memory).map(|&life| self.scene.lives[life as usize].name);
        match life.map(|name| &self.scene.strings[name as usize]) {
            Some(name) if !name.is_empty() => name.clone(),
            _ => memory.id.to_string(),
        }
    }

    pub(in crate::view) fn find(&mut self, graph: GraphId) -> Option<&mut Graph> {
        // Usually it is the last one.
        self.graphs.iter_mut().rev().find(|(id, _)| *id == graph).map(|(_, graph)| graph)
    }

    fn launch(&mut self, op: &Op, names: &Names, exec_id: ExecId, stream: StreamId) {
        let (stream, site) = (self.stream(stream), self.place(op.place, names));
        let Some(exec) = self.execs.get_mut(&exec_id) else { return };
        exec.stream = stream;
        let (left, auto_free, graph) = (std::mem::take(&mut exec.left), exec.auto_free, exec.graph);
        if auto_free {
            left.into_iter().for_each(|life| self.end_life(life, site, Some(stream)));
        }
        if !self.is_small {
            return;
        }
        // If the program does not take the outputs of a launch, they are named after their nodes.
        let (allocs, frees) = self.find(graph).map(|it| (it.allocs.clone(), it.frees.clone())).unwrap_or_default();
        let mut left = Vec::new();
        for memory in allocs {
            let Some(bytes) = self.nodes.get(&memory).map(|owned| owned.bytes) else { continue };
            let text = self.called(memory);
            self.begin(op, names, memory, stream, bytes, None);
            let (life, name) = (self.scene.lives.len() as u32 - 1, self.number(&text));
            self.scene.lives[life as usize].name = name;
            match frees.contains(&memory) {
                true => self.end_life(life, site, Some(stream)),
                false => left.push(life),
            }
        }
        if let Some(exec) = self.execs.get_mut(&exec_id) {
            exec.left = left;
        }
    }

    fn take(&mut self, op: &Op, names: &Names, exec: ExecId, node: Memory, memory: Memory) {
        if let Some(life) = self.lives.remove(&node) {
            self.lives.insert(memory, life);
            self.begun.push((memory.id, life));
            return;
        }
        let Some(bytes) = self.nodes.get(&node).map(|owned| owned.bytes) else { return };
        let stream = self.execs.get(&exec).map_or(0, |exec| exec.stream);
        self.begin(op, names, memory, stream, bytes, None);
        if let Some(exec) = self.execs.get_mut(&exec) {
            exec.left.push(self.scene.lives.len() as u32 - 1);
        }
    }

    /// Highlights the nodes that a finding is about, and the missing path between them.
    pub(in crate::view) fn mark_nodes(&mut self, finding: &Finding) {
        let Some(graph) = finding.graph.and_then(|graph| self.find(graph)) else { return };
        let number = |side: &Side| side.node.as_ref()?.split('.').next()?.parse().ok();
        let place = |side: &Side| number(side).and_then(|number| graph.place(number));
        let later = finding.later.as_ref().and_then(place);
        let before: Vec<u32> = match finding.missing.is_empty() {
            true => finding.earlier.iter().filter_map(place).collect(),
            false => finding.missing.iter().filter_map(|edge| place(&edge.after)).collect(),
        };
        let earlier = finding.earlier.as_ref().and_then(place);
        for node in before.iter().copied().chain(earlier).chain(later) {
            graph.nodes[node as usize].bad = true;
        }
        if let (Some(to), Some(Edit::Edge)) = (later, finding.edit()) {
            graph.missing.extend(before.into_iter().map(|from| (from, to)));
        }
    }
}
