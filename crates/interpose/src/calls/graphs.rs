//! Graphs as wholes: made, copied, edited, instantiated, launched.
//!
//! What is done to a graph that operations cannot say makes it *opaque*: its launches are work without known memory.

use std::ffi::{c_char, c_int, c_uint, c_void};

use millpond_core::op::{Start, What};
use smallvec::SmallVec;

use super::{list, read};
use crate::abi::*;
use crate::handles::Made;
use crate::session::{At, Session};

/// `cuGraphCreate`
pub(crate) unsafe fn create(at: &At, real: impl FnOnce() -> Code, graph: *mut Graph, _flags: c_uint) -> Code {
    at.done(real(), |session| {
        // SAFETY: the caller's place, which was written.
        let Some(handle) = (unsafe { read(graph) }) else { return };
        let graph = session.handles.new_graph();
        session.handles.name_graph(handle, graph, Made::default());
        session.push(What::GraphCreate { graph, symbolic: false });
    })
}

/// `cuGraphDestroy`: noted before, for the handle may be given out again at once.
pub(crate) unsafe fn destroy(at: &At, real: impl FnOnce() -> Code, graph: Graph) -> Code {
    at.note(|session| {
        if let Some((graph, made)) = session.handles.end_graph(graph)
            && !made.is_opaque
        {
            session.push(What::GraphDestroy { graph });
        }
    });
    real()
}

/// `cuGraphClone`
pub(crate) unsafe fn clone(at: &At, real: impl FnOnce() -> Code, copy: *mut Graph, graph: Graph) -> Code {
    at.done(real(), |session| {
        // SAFETY: the caller's place, which was written.
        let Some(handle) = (unsafe { read(copy) }) else { return };
        let copy = session.handles.new_graph();
        let known = session.handles.graph(graph);
        session.handles.name_graph(handle, copy, Made { is_opaque: known.is_none(), ..Made::default() });
        if let Some(graph) = known {
            session.push(What::GraphClone { graph, copy });
        }
    })
}

impl Session {
    fn edges(&mut self, graph: Graph, from: &[GraphNode], to: &[GraphNode], is_removal: bool) {
        let Some(id) = self.handles.graph(graph) else { return };
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
}

/// Handlers of edges, with what CUDA adds to an edge and without.
macro_rules! edges {
    ($($plain:ident $with_data:ident $is_removal:literal, $doc:literal $doc_v2:literal;)*) => {$(
        #[doc = $doc]
        pub(crate) unsafe fn $plain(
            at: &At,
            real: impl FnOnce() -> Code,
            graph: Graph,
            from: *const GraphNode,
            to: *const GraphNode,
            count: usize,
        ) -> Code {
            // SAFETY: the caller's lists.
            at.done(real(), |session| unsafe { session.edges(graph, list(from, count), list(to, count), $is_removal) })
        }

        #[doc = $doc_v2]
        pub(crate) unsafe fn $with_data(
            at: &At,
            real: impl FnOnce() -> Code,
            graph: Graph,
            from: *const GraphNode,
            to: *const GraphNode,
            _data: *const c_void,
            count: usize,
        ) -> Code {
            // SAFETY: the caller's arguments.
            unsafe { $plain(at, real, graph, from, to, count) }
        }
    )*};
}

edges! {
    add_edges add_edges_v2 false, "`cuGraphAddDependencies`" "`cuGraphAddDependencies_v2`";
    remove_edges remove_edges_v2 true, "`cuGraphRemoveDependencies`" "`cuGraphRemoveDependencies_v2`";
}

/// `cuGraphDestroyNode`: noted before, for the handle may be given out again at once.
pub(crate) unsafe fn destroy_node(at: &At, real: impl FnOnce() -> Code, node: GraphNode) -> Code {
    at.note(|session| {
        let Some(graph) = session.handles.nodes.remove(&node) else { return };
        if let Some(made) = session.handles.made.get_mut(&graph)
            && let Some(number) = made.nodes.remove(&node)
            && !made.is_opaque
        {
            session.push(What::GraphNodeRemove { graph, node: number });
        }
    });
    real()
}

impl Session {
    fn instance(&mut self, exec: Option<GraphExec>, graph: Graph, flags: u64) {
        let Some(handle) = exec else { return };
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
}

/// `cuGraphInstantiate`
pub(crate) unsafe fn instantiate(
    at: &At,
    real: impl FnOnce() -> Code,
    exec: *mut GraphExec,
    graph: Graph,
    _node: *mut GraphNode,
    _log: *mut c_char,
    _bytes: usize,
) -> Code {
    // SAFETY: the caller's place.
    at.done(real(), |session| session.instance(unsafe { read(exec) }, graph, 0))
}

/// `cuGraphInstantiateWithFlags`
pub(crate) unsafe fn instantiate_with_flags(
    at: &At,
    real: impl FnOnce() -> Code,
    exec: *mut GraphExec,
    graph: Graph,
    flags: u64,
) -> Code {
    // SAFETY: the caller's place.
    at.done(real(), |session| session.instance(unsafe { read(exec) }, graph, flags))
}

/// `cuGraphInstantiateWithParams`
pub(crate) unsafe fn instantiate_with_params(
    at: &At,
    real: impl FnOnce() -> Code,
    exec: *mut GraphExec,
    graph: Graph,
    params: *const InstantiateParams,
) -> Code {
    // SAFETY: the caller's structure.
    let flags = unsafe { read(params) }.map_or(0, |params| params.flags);
    // SAFETY: the caller's place.
    at.done(real(), |session| session.instance(unsafe { read(exec) }, graph, flags))
}

/// `cuGraphExecUpdate`
pub(crate) unsafe fn update(
    at: &At,
    real: impl FnOnce() -> Code,
    exec: GraphExec,
    graph: Graph,
    _node: *mut GraphNode,
    _result: *mut c_int,
) -> Code {
    // SAFETY: the caller's arguments.
    unsafe { update_v2(at, real, exec, graph, std::ptr::null_mut()) }
}

/// `cuGraphExecUpdate_v2`
pub(crate) unsafe fn update_v2(
    at: &At,
    real: impl FnOnce() -> Code,
    exec: GraphExec,
    graph: Graph,
    _info: *mut c_void,
) -> Code {
    at.done(real(), |session| match (session.handles.exec(exec), session.handles.graph(graph)) {
        (Some(exec), Some(graph)) => session.push(What::ExecUpdate { exec, graph }),
        _ => session.obscure_exec(exec),
    })
}

impl Session {
    /// Operations cannot say what an instance does from now on.
    fn obscure_exec(&mut self, exec: GraphExec) {
        self.unsupported("an instance changed node by node");
        if let Some(id) = self.handles.execs.get(&exec) {
            self.handles.opaque_execs.insert(*id);
        }
    }
}

/// `cuGraphUpload`
pub(crate) unsafe fn upload(at: &At, real: impl FnOnce() -> Code, exec: GraphExec, stream: Stream) -> Code {
    at.done(real(), |session| {
        let stream = session.stream(at, stream);
        if let Some(exec) = session.handles.exec(exec) {
            session.push(What::GraphUpload { exec, stream });
        }
    })
}

/// `cuGraphLaunch`
pub(crate) unsafe fn launch(at: &At, real: impl FnOnce() -> Code, exec: GraphExec, stream: Stream) -> Code {
    at.done(real(), |session| {
        if session.is_lost(stream) {
            return;
        }
        let stream = session.stream(at, stream);
        session.push(match session.handles.exec(exec) {
            Some(exec) => What::GraphLaunch { exec, stream },
            None => What::Launch { stream, accesses: SmallVec::new(), start: Start::Ordered, name: None },
        });
    })
}

/// `cuGraphExecDestroy`: noted before, for the handle may be given out again at once.
pub(crate) unsafe fn destroy_exec(at: &At, real: impl FnOnce() -> Code, exec: GraphExec) -> Code {
    at.note(|session| {
        if let Some(id) = session.handles.execs.remove(&exec)
            && !session.handles.opaque_execs.remove(&id)
        {
            session.push(What::ExecDestroy { exec: id });
        }
    });
    real()
}

/// A node of a graph gets other parameters.
pub(crate) unsafe fn change_node(
    at: &At,
    real: impl FnOnce() -> Code,
    node: GraphNode,
    _params: *const c_void,
) -> Code {
    at.done(real(), |session| {
        session.unsupported("a node changed after it was added");
        if let Some(made) = session.handles.nodes.get(&node).and_then(|graph| session.handles.made.get_mut(graph)) {
            made.is_opaque = true;
        }
    })
}

/// A node of an instance gets other parameters.
pub(crate) unsafe fn change_exec(
    at: &At,
    real: impl FnOnce() -> Code,
    exec: GraphExec,
    _node: GraphNode,
    _params: *const c_void,
) -> Code {
    at.done(real(), |session| session.obscure_exec(exec))
}

/// As [`change_exec`], with a context.
pub(crate) unsafe fn change_exec_in(
    at: &At,
    real: impl FnOnce() -> Code,
    exec: GraphExec,
    _node: GraphNode,
    _params: *const c_void,
    _context: Context,
) -> Code {
    at.done(real(), |session| session.obscure_exec(exec))
}

/// `cuGraphExecChildGraphNodeSetParams`
pub(crate) unsafe fn change_exec_child(
    at: &At,
    real: impl FnOnce() -> Code,
    exec: GraphExec,
    _node: GraphNode,
    _child: Graph,
) -> Code {
    at.done(real(), |session| session.obscure_exec(exec))
}

/// `cuGraphNodeSetEnabled`
pub(crate) unsafe fn enable_node(
    at: &At,
    real: impl FnOnce() -> Code,
    exec: GraphExec,
    _node: GraphNode,
    _enabled: c_uint,
) -> Code {
    at.done(real(), |session| session.obscure_exec(exec))
}
