//! Graphs of the device: made of nodes, captured, launched.
//!
//! Knows nodes and native streams, which the caller holds, but no events. Copies and fills are cut into pieces of at
//! most [`PIECE`], because the pitch of a copy is limited, and the pieces follow each other.
//!
//! Invariants: `object-keeps`: the closures and bytes that nodes own are in one user object of the graph, so that the
//! library releases them when graph, instance and launches are gone; `one-caller`: an instance's slot is locked while
//! it is launched, because the library does not lock it.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::PLACES_MAX;
use super::abi::graph::{
    CAPTURE_RELAXED, CopyParams, CopySide, Graph, GraphExec, GraphNode, HostParams, MemsetParams, USER_OBJECT_MOVE,
    USER_OBJECT_NO_SYNC, UserObject,
};
use super::abi::{Code, Context, Stream};
use super::gpu::{Gpu, Lost};
use super::table::GraphTable;
use crate::errors::{failed, unknown};
use crate::locks::{Guard, Leaf, Mutex, lock};
use crate::places::Places;
use crate::{Node, NodeWork, RawExec, RawGraph, Repeated, Result, panics};

/// The most bytes of one copy or fill.
const PIECE: u64 = 1 << 30;

/// The slot of a handle; `native` is 0 if there is none.
#[derive(Debug, Default)]
struct Place {
    generation: u32,
    native: usize,
}

/// The graphs of one device.
pub(super) struct Graphs {
    gpu: Arc<Gpu>,
    table: GraphTable,
    captured: Places<Mutex<Leaf, Place>>,
    execs: Places<Mutex<Leaf, Place>>,
}

/// A graph that is being built. The drop destroys it.
struct Draft<'a> {
    graphs: &'a Graphs,
    native: Graph,
    /// The last native node of each node.
    made: Vec<GraphNode>,
    /// Buffer for the dependencies of one node.
    after: Vec<GraphNode>,
}

/// The data of a host node: a closure.
struct HostCall {
    task: Repeated,
    lost: Arc<Lost>,
}

/// The values that the nodes of a graph own.
#[derive(Default)]
struct Kept {
    calls: Vec<Arc<HostCall>>,
    bytes: Vec<Arc<Vec<u8>>>,
}

impl Graphs {
    pub(super) fn new(gpu: Arc<Gpu>, table: GraphTable) -> Self {
        Self { gpu, table, captured: Places::new(PLACES_MAX), execs: Places::new(PLACES_MAX) }
    }

    /// # Safety
    /// As of `Driver::instantiate`.
    pub(super) unsafe fn instantiate(&self, nodes: &[Node]) -> Result<RawExec> {
        const CALL: &str = "instantiate";
        self.gpu.check_lost()?;
        let _entered = self.gpu.enter(CALL)?;
        let mut draft = Draft::new(self, nodes.len())?;
        let mut kept = Kept::default();
        for node in nodes {
            draft.add(node, &mut kept)?;
        }
        draft.keep(kept)?;
        let mut exec = GraphExec::default();
        // SAFETY: the pointer is valid for an instance, and the graph is ours (context-current).
        self.gpu.check(CALL, unsafe { (self.table.instantiate)(&raw mut exec, draft.native, 0) })?;
        match enlist(&self.execs, exec.0) {
            Some(handle) => Ok(RawExec(handle)),
            None => {
                // SAFETY: just created, and used by no other code. If this fails, the context keeps it.
                let _ = unsafe { (self.table.close_exec)(exec) };
                Err(failed(CALL, "too many graphs are kept"))
            }
        }
    }

    pub(super) fn upload(&self, exec: RawExec, stream: Stream, context: Context) -> Result<()> {
        const CALL: &str = "upload";
        self.gpu.check_lost()?;
        let place = find(CALL, &self.execs, "graph instance", exec.0)?;
        let _entered = self.gpu.enter_other(CALL, context)?;
        // SAFETY: the instance is ours (one-caller), and the stream is held open and belongs to that context.
        self.gpu.check(CALL, unsafe { (self.table.upload)(GraphExec(place.native), stream) })
    }

    /// # Safety
    /// As of `Driver::launch`.
    #[inline]
    pub(super) unsafe fn launch(&self, exec: RawExec, stream: Stream, context: Context) -> Result<()> {
        const CALL: &str = "launch";
        self.gpu.check_lost()?;
        let place = find(CALL, &self.execs, "graph instance", exec.0)?;
        let _entered = self.gpu.enter_other(CALL, context)?;
        // SAFETY: the instance is ours (one-caller), and the stream is held open and belongs to that context. The
        // memory is valid by the caller's promise.
        self.gpu.check(CALL, unsafe { (self.table.launch)(GraphExec(place.native), stream) })
    }

    pub(super) fn destroy_exec(&self, exec: RawExec) -> Result<()> {
        const CALL: &str = "destroy_exec";
        let mut place = find(CALL, &self.execs, "graph instance", exec.0)?;
        let _entered = self.gpu.enter(CALL)?;
        // SAFETY: the instance is ours and is not used again. The library lets launches in flight finish.
        self.gpu.check(CALL, unsafe { (self.table.close_exec)(GraphExec(place.native)) })?;
        *place = Place { generation: place.generation, native: 0 };
        drop(place);
        self.execs.give_back(exec.0 as u32);
        Ok(())
    }

    /// Begins a capture of a native stream. Relaxed: memory calls and queries of other threads stay legal.
    pub(super) fn begin_capture(&self, stream: Stream) -> Result<()> {
        const CALL: &str = "begin_capture";
        let _entered = self.gpu.enter(CALL)?;
        // SAFETY: the stream is held open (context-current).
        self.gpu.check(CALL, unsafe { (self.table.begin_capture)(stream, CAPTURE_RELAXED) })
    }

    pub(super) fn end_capture(&self, stream: Stream) -> Result<Option<RawGraph>> {
        const CALL: &str = "end_capture";
        let (_entered, mut native) = (self.gpu.enter(CALL)?, Graph::default());
        // SAFETY: the stream is held open, and the pointer is valid for a graph.
        self.gpu.check(CALL, unsafe { (self.table.end_capture)(stream, &raw mut native) })?;
        let mut nodes = 0;
        // SAFETY: the graph is ours; only the number of nodes is requested.
        let counted = self.gpu.check(CALL, unsafe { (self.table.nodes)(native, std::ptr::null_mut(), &raw mut nodes) });
        let handle = match counted {
            Ok(()) if nodes == 0 => Ok(None),
            Ok(()) => enlist(&self.captured, native.0)
                .map(|handle| Some(RawGraph(handle)))
                .ok_or_else(|| failed(CALL, "too many graphs are kept")),
            Err(error) => Err(error),
        };
        if !matches!(handle, Ok(Some(_))) {
            // SAFETY: the graph is ours, and no other code uses it. If this fails, the context keeps it.
            let _ = unsafe { (self.table.close)(native) };
        }
        handle
    }

    pub(super) fn destroy_graph(&self, graph: RawGraph) -> Result<()> {
        const CALL: &str = "destroy_graph";
        let mut place = find(CALL, &self.captured, "graph", graph.0)?;
        let _entered = self.gpu.enter(CALL)?;
        // SAFETY: the graph is ours and is not used again; instances have copies.
        self.gpu.check(CALL, unsafe { (self.table.close)(Graph(place.native)) })?;
        *place = Place { generation: place.generation, native: 0 };
        drop(place);
        self.captured.give_back(graph.0 as u32);
        Ok(())
    }
}

impl Drop for Graphs {
    fn drop(&mut self) {
        let Ok(_entered) = self.gpu.enter("close") else { return };
        // If a call fails, the context keeps the object.
        for place in self.execs.iter() {
            let native = std::mem::take(&mut lock(place).native);
            if native != 0 {
                // SAFETY: the instance is ours and is not used again.
                let _ = unsafe { (self.table.close_exec)(GraphExec(native)) };
            }
        }
        for place in self.captured.iter() {
            let native = std::mem::take(&mut lock(place).native);
            if native != 0 {
                // SAFETY: the graph is ours and is not used again.
                let _ = unsafe { (self.table.close)(Graph(native)) };
            }
        }
    }
}

/// Adds a native node. The arguments: the pointer for the new node, the graph, the dependencies, and their number.
type AddNode<'a> = &'a dyn Fn(*mut GraphNode, Graph, *const GraphNode, usize) -> Code;

impl<'a> Draft<'a> {
    fn new(graphs: &'a Graphs, nodes: usize) -> Result<Self> {
        let mut native = Graph::default();
        // SAFETY: the pointer is valid for a graph (context-current).
        graphs.gpu.check("instantiate", unsafe { (graphs.table.open)(&raw mut native, 0) })?;
        Ok(Self { graphs, native, made: Vec::with_capacity(nodes), after: Vec::new() })
    }

    /// Adds a node after those in `after`.
    fn push(&mut self, add: AddNode<'_>) -> Result<GraphNode> {
        let mut node = GraphNode::default();
        let code = add(&raw mut node, self.native, self.after.as_ptr(), self.after.len());
        self.graphs.gpu.check("instantiate", code)?;
        Ok(node)
    }

    /// Adds a copy; `from` returns the source of each piece.
    fn add_copy(&mut self, to: u64, bytes: u64, from: &dyn Fn(u64, usize) -> CopySide) -> Result<GraphNode> {
        let (table, context) = (self.graphs.table, self.graphs.gpu.context());
        let mut last = GraphNode::default();
        for (done, piece) in pieces(bytes) {
            let (from, to) = (from(done, piece), CopySide::device(to + done, piece));
            let copy = CopyParams { from, to, width: piece, height: 1, depth: 1 };
            // SAFETY: the parameters are valid for the header's types (context-current); see `add` for the rest.
            last = self.push(&|node, graph, after, count| unsafe {
                (table.add_copy)(node, graph, after, count, &raw const copy, context)
            })?;
            self.after = vec![last];
        }
        Ok(last)
    }

    fn add_fill(&mut self, at: u64, bytes: u64, value: u8) -> Result<GraphNode> {
        let (table, context) = (self.graphs.table, self.graphs.gpu.context());
        let mut last = GraphNode::default();
        for (done, width) in pieces(bytes) {
            let to = at + done;
            let fill = MemsetParams { to, pitch: 0, value: value.into(), element_bytes: 1, width, height: 1 };
            // SAFETY: the parameters are valid for the header's types (context-current); see `add` for the rest.
            last = self.push(&|node, graph, after, count| unsafe {
                (table.add_memset)(node, graph, after, count, &raw const fill, context)
            })?;
            self.after = vec![last];
        }
        Ok(last)
    }

    fn add(&mut self, node: &Node, kept: &mut Kept) -> Result<()> {
        const CALL: &str = "instantiate";
        self.after.clear();
        for &place in &node.after {
            let made = self.made.get(place as usize);
            self.after.push(*made.ok_or_else(|| failed(CALL, "a node comes after one that is not before it"))?);
        }
        let table = self.graphs.table;
        let made = match &node.work {
            NodeWork::Nothing => {
                // SAFETY: here and below: the pointer is valid for a node, the graph is ours, the dependencies are its
                // nodes, and the parameters are valid for the header's types. The memory, closures and bytes live until
                // the launches have completed, by the caller's promise or by object-keeps.
                self.push(&|node, graph, after, count| unsafe { (table.add_empty)(node, graph, after, count) })
            }
            NodeWork::Run(task) => {
                let call = Arc::new(HostCall { task: task.clone(), lost: self.graphs.gpu.lost.clone() });
                let host = HostParams { function: run, data: Arc::as_ptr(&call).cast_mut().cast::<c_void>() };
                kept.calls.push(call);
                // SAFETY: as above.
                self.push(&|node, graph, after, count| unsafe {
                    (table.add_host)(node, graph, after, count, &raw const host)
                })
            }
            NodeWork::Copy { to, from, bytes } => {
                let (to, from) = (*to, *from);
                self.add_copy(to, *bytes, &|done, piece| CopySide::device(from + done, piece))
            }
            NodeWork::Upload { to, from } => {
                kept.bytes.push(from.clone());
                let at = from.as_ptr().expose_provenance();
                self.add_copy(*to, from.len() as u64, &|done, piece| CopySide::host(at + done as usize, piece))
            }
            NodeWork::Fill { at, bytes, value } => self.add_fill(*at, *bytes, *value),
            NodeWork::Captured(captured) => {
                let place = find(CALL, &self.graphs.captured, "graph", captured.0)?;
                let child = Graph(place.native);
                // SAFETY: as above; the child is copied.
                self.push(&|node, graph, after, count| unsafe { (table.add_child)(node, graph, after, count, child) })
            }
        }?;
        self.made.push(made);
        Ok(())
    }
}

impl Draft<'_> {
    /// Makes the graph keep the values that its nodes own (object-keeps).
    fn keep(&mut self, kept: Kept) -> Result<()> {
        const CALL: &str = "instantiate";
        if kept.calls.is_empty() && kept.bytes.is_empty() {
            return Ok(());
        }
        let (table, gpu) = (&self.graphs.table, &self.graphs.gpu);
        let (data, mut object) = (Box::into_raw(Box::new(kept)), UserObject::default());
        // SAFETY: the pointer is valid for an object; `let_go` takes ownership of `data`, once.
        let code =
            unsafe { (table.open_object)(&raw mut object, data.cast::<c_void>(), let_go, 1, USER_OBJECT_NO_SYNC) };
        if code != Code::SUCCESS {
            // SAFETY: the call failed, so it is still ours alone.
            drop(unsafe { Box::from_raw(data) });
            return Err(gpu.refusal(CALL, code));
        }
        // SAFETY: the graph and the object are ours, and the object's one reference moves to the graph.
        let code = unsafe { (table.keep_object)(self.native, object, 1, USER_OBJECT_MOVE) };
        if code != Code::SUCCESS {
            // SAFETY: the reference is still ours. The library calls `let_go`.
            let _ = unsafe { (table.close_object)(object, 1) };
        }
        gpu.check(CALL, code)
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        // SAFETY: the graph is ours and is not used again (context-current); an instance has a copy. If this fails, the
        // context keeps it.
        let _ = unsafe { (self.graphs.table.close)(self.native) };
    }
}

/// Returns the pieces of this many bytes: the offset and the size of each.
fn pieces(bytes: u64) -> impl Iterator<Item = (u64, usize)> {
    (0..bytes).step_by(PIECE as usize).map(move |done| (done, PIECE.min(bytes - done) as usize))
}

/// The function that the library calls for a closure, at each launch. A panic must not leave it.
unsafe extern "C" fn run(call: *mut c_void) {
    // SAFETY: the graph keeps the value (object-keeps).
    let call = unsafe { &*call.cast_const().cast::<HostCall>() };
    if call.lost.get().is_none()
        && let Err(payload) = catch_unwind(AssertUnwindSafe(|| (call.task)()))
    {
        let reason = panics::message(payload);
        call.lost.get_or_init(|| reason);
    }
}

/// The function that the library calls once a graph's values are not needed any more.
unsafe extern "C" fn let_go(kept: *mut c_void) {
    // SAFETY: the pointer is from `keep`, and the library calls this once.
    panics::drop_quietly(unsafe { Box::from_raw(kept.cast::<Kept>()) });
}

/// Returns the handle of a new slot, or `None` if there are too many.
fn enlist(slots: &Places<Mutex<Leaf, Place>>, native: usize) -> Option<u64> {
    let (number, place) = slots.take(Mutex::default)?;
    let mut place = lock(place);
    *place = Place { generation: place.generation.wrapping_add(1), native };
    Some(u64::from(place.generation) << 32 | u64::from(number))
}

/// Returns the slot of a handle, locked.
#[inline]
fn find<'a>(
    call: &'static str,
    slots: &'a Places<Mutex<Leaf, Place>>,
    what: &'static str,
    handle: u64,
) -> Result<Guard<'a, Place>> {
    let place = slots.find(handle as u32).map(lock);
    let live = place.filter(|place| place.native != 0 && place.generation == (handle >> 32) as u32);
    live.ok_or_else(|| unknown(call, what, handle))
}

impl std::fmt::Debug for Graphs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Graphs").finish_non_exhaustive()
    }
}
