//! Graphs as wholes: made, copied, edited, instantiated, launched.
//!
//! What is done to a graph that operations cannot say makes it *opaque*: its launches are work without known memory.

use millpond_core::ids::{GraphId, NodeId};
use millpond_core::op::{Start, What};
use smallvec::SmallVec;

use crate::abi::*;
use crate::handles::Made;
use crate::session::{At, Session};

impl Session {
    /// A graph was made.
    pub(crate) fn create_graph(&mut self, handle: Graph) {
        let graph = self.handles.new_graph();
        self.handles.name_graph(handle, graph, Made::default());
        self.push(What::GraphCreate { graph, symbolic: false });
    }

    /// A graph is destroyed.
    pub(crate) fn destroy_graph(&mut self, graph: Graph) {
        if let Some((graph, made)) = self.handles.end_graph(graph)
            && !made.is_opaque
        {
            self.push(What::GraphDestroy { graph });
        }
    }

    /// A graph was copied.
    pub(crate) fn clone_graph(&mut self, handle: Graph, graph: Graph) {
        let copy = self.handles.new_graph();
        let known = self.handles.graph(graph);
        self.handles.name_graph(handle, copy, Made { is_opaque: known.is_none(), has_others: true, ..Made::default() });
        if let Some(graph) = known {
            self.push(What::GraphClone { graph, copy });
        }
    }

    /// Edges were added or removed.
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

    /// A node was destroyed: of which graph, and its number there.
    fn node_destroyed(&mut self, known: Option<(GraphId, NodeId)>) {
        match known {
            None => self.change_other(),
            Some((graph, node)) if self.handles.made.get(&graph).is_some_and(|made| !made.is_opaque) => {
                self.push(What::GraphNodeRemove { graph, node });
            }
            Some(_) => {}
        }
    }

    /// A node of a graph got other parameters.
    pub(crate) fn change_node(&mut self, node: GraphNode) {
        match self.handles.nodes.get(&node).and_then(|graph| self.handles.made.get_mut(graph)) {
            Some(made) => {
                made.is_opaque = true;
                self.unsupported("a node changed after it was added");
            }
            None => self.change_other(),
        }
    }

    /// A captured node was changed, or one of a copy or of a child: which graph it is in is not known.
    fn change_other(&mut self) {
        self.unsupported("a node changed that was captured, or is a copy's or a child's");
        self.handles.obscure_others();
    }

    /// A graph that is changed, if it can be judged. One that is not known is a child, inside of another one.
    pub(crate) fn known_graph(&mut self, graph: Graph) -> Option<GraphId> {
        if !self.handles.is_known(graph) {
            self.change_other();
        }
        self.handles.graph(graph)
    }

    /// An instance was made.
    pub(crate) fn instance(&mut self, handle: GraphExec, graph: Graph, flags: u64) {
        let exec = self.handles.new_exec(handle);
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

    /// An instance got what a graph is by now.
    pub(crate) fn update_exec(&mut self, exec: GraphExec, graph: Graph) {
        match (self.handles.exec(exec), self.handles.graph(graph)) {
            (Some(exec), Some(graph)) => self.push(What::ExecUpdate { exec, graph }),
            _ => self.obscure_exec(exec),
        }
    }

    /// A node of an instance got other parameters: operations cannot say what it does from now on.
    pub(crate) fn obscure_exec(&mut self, exec: GraphExec) {
        self.unsupported("an instance changed node by node");
        if let Some(id) = self.handles.execs.get(&exec) {
            self.handles.opaque_execs.insert(*id);
        }
    }

    /// What an instance needs is brought to the device.
    pub(crate) fn upload_graph(&mut self, at: &At, exec: GraphExec, stream: Stream) {
        let stream = self.stream(at, stream);
        if let Some(exec) = self.handles.exec(exec) {
            self.push(What::GraphUpload { exec, stream });
        }
    }

    /// An instance is launched.
    pub(crate) fn launch_graph(&mut self, at: &At, exec: GraphExec, stream: Stream) {
        if self.is_lost(stream) {
            return;
        }
        let stream = self.stream(at, stream);
        let exec = self.handles.exec(exec);
        // It may allocate what is an alloc node's, and free it; and graphs share such memory.
        if exec.is_none() && self.index.forget_nodes() {
            self.unsupported("graphs that have memory, beside one that is not known whole");
            self.handles.obscure_all();
        }
        self.push(match exec {
            Some(exec) => What::GraphLaunch { exec, stream },
            None => What::Launch { stream, accesses: SmallVec::new(), start: Start::Ordered, name: None },
        });
    }

    /// An instance is destroyed.
    pub(crate) fn destroy_exec(&mut self, exec: GraphExec) {
        if let Some(id) = self.handles.execs.remove(&exec)
            && !self.handles.opaque_execs.remove(&id)
        {
            self.push(What::ExecDestroy { exec: id });
        }
    }
}

/// `cuGraphDestroyNode`: the handle may be given out again at once; and the real call refuses some nodes.
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
