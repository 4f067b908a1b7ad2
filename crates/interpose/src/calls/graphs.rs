//! Whole graphs: created, cloned, edited, instantiated, launched.
//!
//! A change that operations cannot describe makes a graph *opaque*: its launches are work without known memory.

use millpond_core::ids::{ExecId, GraphId, NodeId, StreamId};
use millpond_core::op::{Access, Memory, Trust, What};
use smallvec::SmallVec;

use crate::abi::*;
use crate::arguments::Accesses;
use crate::handles::{Made, Outside};
use crate::session::{At, Session};

impl Session {
    /// Gives a graph its handle. A graph that had the handle before is gone.
    pub(crate) fn name_graph(&mut self, handle: Graph, graph: GraphId, made: Made) {
        self.destroy_graph(handle);
        self.handles.name_graph(handle, graph, made);
    }

    /// Notes that a graph was created.
    pub(crate) fn create_graph(&mut self, handle: Graph) {
        let graph = self.handles.new_graph();
        self.name_graph(handle, graph, Made::default());
        self.push(What::GraphCreate { graph, symbolic: false });
    }

    /// Notes that a graph is destroyed.
    pub(crate) fn destroy_graph(&mut self, graph: Graph) {
        if let Some((graph, made)) = self.handles.end_graph(graph)
            && !made.is_opaque
        {
            self.push(What::GraphDestroy { graph });
        }
    }

    /// Notes that a graph was cloned.
    pub(crate) fn clone_graph(&mut self, handle: Graph, graph: Graph) {
        let copy = self.handles.new_graph();
        let known = self.handles.graph(graph);
        let original = known.and_then(|id| self.handles.made.get(&id));
        let outside = original.map(|made| made.outside.clone()).unwrap_or_default();
        let made = Made { is_opaque: known.is_none(), has_others: true, outside, ..Made::default() };
        self.name_graph(handle, copy, made);
        if let Some(graph) = known {
            self.push(What::GraphClone { graph, copy });
        }
    }

    /// Notes that edges were added or removed.
    pub(crate) fn edges(&mut self, graph: Graph, from: &[GraphNode], to: &[GraphNode], is_removal: bool) {
        let Some(id) = self.known_graph(graph) else { return };
        for (from, to) in from.iter().zip(to) {
            let Some(made) = self.handles.made.get(&id) else { return };
            let (Some(&from), Some(&to)) = (made.nodes.get(from), made.nodes.get(to)) else {
                self.unsupported("an edge of captured nodes, changed by hand");
                return self.handles.obscure(graph);
            };
            self.push(match is_removal {
                false => What::GraphEdge { graph: id, from, to },
                true => What::GraphEdgeRemove { graph: id, from, to },
            });
        }
    }

    /// Notes that a node was destroyed. `known` is its graph and its number there.
    fn node_destroyed(&mut self, known: Option<(GraphId, NodeId)>) {
        match known {
            None => self.change_other(),
            Some((graph, node)) if self.handles.made.get(&graph).is_some_and(|made| !made.is_opaque) => {
                self.push(What::GraphNodeRemove { graph, node });
            }
            Some(_) => {}
        }
    }

    /// Notes that a node's parameters were changed.
    pub(crate) fn change_node(&mut self, node: GraphNode) {
        match self.handles.nodes.get(&node).and_then(|graph| self.handles.made.get_mut(graph)) {
            Some(made) => {
                made.is_opaque = true;
                self.unsupported("a node changed after it was added");
            }
            None => self.change_other(),
        }
    }

    /// Notes a change of a node whose graph is not known: a captured node, or one of a clone or of a child.
    fn change_other(&mut self) {
        self.unsupported("a node changed that was captured, or is a copy's or a child's");
        self.handles.obscure_others();
    }

    /// Returns a graph that is changed, if it can be judged. A graph that is not known is a child inside another one.
    pub(crate) fn known_graph(&mut self, graph: Graph) -> Option<GraphId> {
        if !self.handles.is_known(graph) {
            self.change_other();
        }
        self.handles.graph(graph)
    }

    /// Notes that an instance was made.
    pub(crate) fn instance(&mut self, handle: GraphExec, graph: Graph, flags: u64) {
        self.destroy_exec(handle);
        let exec = self.handles.new_exec(handle);
        self.set_outside(exec, graph);
        match self.handles.graph(graph) {
            Some(graph) => {
                self.push(What::Instantiate { graph, exec, auto_free_on_launch: flags & AUTO_FREE != 0 });
            }
            None => {
                self.unsupported("an instance of a graph that is not known whole");
                self.handles.opaque_execs.insert(exec);
            }
        }
    }

    /// Returns the operation of an instantiation that a capture has refused.
    pub(crate) fn refused_instance(&mut self, graph: Graph) -> Option<What> {
        let graph = self.handles.graph(graph)?;
        Some(What::Instantiate { graph, exec: self.handles.unused_exec(), auto_free_on_launch: false })
    }

    /// Gives an instance its graph's `Outside`. Memory that a launch leaves exists from the next launch on.
    fn set_outside(&mut self, exec: ExecId, graph: Graph) {
        let made = self.handles.graphs.get(&graph).and_then(|id| self.handles.made.get(id));
        let outside = made.map(|made| made.outside.clone()).unwrap_or_default();
        outside.left.iter().for_each(|memory| self.index.set_allocated(*memory, false));
        self.handles.outside.insert(exec, outside);
    }

    /// Notes that an instance was updated to a graph.
    pub(crate) fn update_exec(&mut self, exec: GraphExec, graph: Graph) {
        match (self.handles.exec(exec), self.handles.graph(graph)) {
            (Some(exec), Some(id)) => {
                self.set_outside(exec, graph);
                self.push(What::ExecUpdate { exec, graph: id });
            }
            _ => self.obscure_exec(exec),
        }
    }

    /// Notes that a node of an instance was changed: operations cannot describe the instance from now on.
    pub(crate) fn obscure_exec(&mut self, exec: GraphExec) {
        self.unsupported("an instance changed node by node");
        if let Some(id) = self.handles.execs.get(&exec) {
            self.handles.opaque_execs.insert(*id);
        }
    }

    /// Notes that an instance is uploaded.
    pub(crate) fn upload_graph(&mut self, at: &At, exec: GraphExec, stream: Stream) {
        let stream = self.stream(at, stream);
        if let Some(exec) = self.handles.exec(exec) {
            self.push(What::GraphUpload { exec, stream });
        }
    }

    /// Notes that an instance is launched.
    pub(crate) fn launch_graph(&mut self, at: &At, exec: GraphExec, stream: Stream) {
        if self.is_lost(at, stream) {
            return;
        }
        let handle = stream;
        let stream = self.stream(at, handle);
        let exec = self.handles.exec(exec);
        // The launch may allocate and free memory of alloc nodes, and graphs share such memory.
        if exec.is_none() && self.index.forget_nodes() {
            self.unsupported("graphs that have memory, beside one that is not known whole");
            self.handles.obscure_all();
        }
        self.push(match exec {
            Some(exec) => What::GraphLaunch { exec, stream },
            None => What::Launch { stream, accesses: SmallVec::new(), trust: Trust::None, name: None },
        });
        let origin = self.origin(at, stream, handle);
        self.note_launched(exec, stream, origin);
    }

    /// Notes a launch: memory that it leaves can be used from now on, and memory that its structures point to is used,
    /// unless that is freed. In a capture, both become part of the capture.
    fn note_launched(&mut self, exec: Option<ExecId>, stream: StreamId, origin: Option<StreamId>) {
        let Some(Outside { left, pointed_at }) = exec.and_then(|exec| self.handles.outside.get(&exec)) else { return };
        left.iter().for_each(|memory| self.index.set_allocated(*memory, true));
        if let Some(capture) = origin.and_then(|origin| self.captures.get_mut(&origin)) {
            capture.memory.extend(left);
            capture.pointed_at.extend(pointed_at);
            return;
        }
        let is_there = |it: &&Memory| self.index.entry(**it).is_some_and(|entry| entry.is_allocated);
        let used = pointed_at.iter().filter(is_there);
        let accesses: Accesses = used.map(|memory| Access::whole(*memory, self.kernel_act)).collect();
        if !accesses.is_empty() {
            // On the graph's stream and right after it, so that what comes after this launch comes after the graph.
            self.push(What::Launch { stream, accesses, trust: Trust::None, name: None });
        }
    }

    /// Notes that an instance is destroyed.
    pub(crate) fn destroy_exec(&mut self, exec: GraphExec) {
        let id = self.handles.execs.remove(&exec);
        if let Some(id) = id {
            self.handles.outside.remove(&id);
        }
        if let Some(id) = id
            && !self.handles.opaque_execs.remove(&id)
        {
            self.push(What::ExecDestroy { exec: id });
        }
    }
}

/// `cuGraphDestroyNode`: the handle may be given out again at once, and the real call refuses some nodes.
pub(crate) unsafe fn destroy_node(at: &At, real: impl FnOnce() -> Code, node: GraphNode) -> Code {
    let known = at.note(|session| session.handles.take_node(node));
    let code = real();
    at.settle(|session| match (code, known) {
        (Code::SUCCESS, known) => session.node_destroyed(known),
        (_, Some((graph, number))) => session.handles.put_node_back(node, graph, number),
        _ => {}
    });
    code
}
