//! Nodes that a program adds to a graph by hand.
//!
//! A node of a kind that operations do not have makes the graph opaque.

use std::ffi::{c_int, c_void};

use millpond_core::op::{Act, NodeOp, What};
use smallvec::SmallVec;

use super::copies::slices_of;
use super::{list, read};
use crate::abi::*;
use crate::index::Kind;
use crate::session::{At, Session};

/// Where a new node is: its place, its graph, and the nodes before it.
#[derive(Clone, Copy)]
struct New {
    node: *mut GraphNode,
    graph: Graph,
    after: *const GraphNode,
    count: usize,
}

impl Session {
    /// # Safety
    /// Places and lists of the caller's.
    unsafe fn add(&mut self, new: New, make: impl FnOnce(&mut Self) -> Option<NodeOp>) {
        let Some(graph) = self.handles.graph(new.graph) else { return };
        // SAFETY: the caller's promise.
        let (Some(node), after) = (unsafe { (read(new.node), list(new.after, new.count)) }) else { return };
        let numbers = self.handles.made.get(&graph).map(|made| &made.nodes);
        let after: Option<SmallVec<[_; 2]>> = after.iter().map(|it| numbers?.get(it).copied()).collect();
        match (make(self), after) {
            (Some(op), Some(after)) => {
                self.handles.add_node(graph, node);
                self.push(What::GraphNode { graph, node: Box::new(op), after, name: None });
            }
            _ => {
                self.unsupported("a node of a kind, or behind one, that is not known");
                self.handles.obscure(new.graph);
            }
        }
    }

    fn fill_op(&self, fill: &MemsetParams) -> NodeOp {
        let row = fill.width * fill.element_bytes as usize;
        let bytes = fill.pitch.max(row) * fill.height.saturating_sub(1) + row;
        let mut accesses = SmallVec::new();
        self.access(fill.to, bytes as u64, Act::Write, &mut accesses);
        NodeOp::Fill(accesses)
    }

    fn copy_op(&self, copy: &CopyParams) -> NodeOp {
        let mut accesses = SmallVec::new();
        let (from, to) = (slices_of(&copy.from, copy), slices_of(&copy.to, copy));
        self.access(from.0, from.1, Act::Read, &mut accesses);
        self.access(to.0, to.1, Act::Write, &mut accesses);
        NodeOp::Copy(accesses)
    }

    /// # Safety
    /// A structure of the caller's.
    unsafe fn kernel_op(&mut self, params: KernelNode, kernel: Function) -> NodeOp {
        let function = if params.function.0 == 0 { kernel } else { params.function };
        let mut accesses = SmallVec::new();
        // SAFETY: the caller's promise.
        unsafe { self.arguments(function, params.params.cast(), params.extra.cast(), &mut accesses) };
        NodeOp::Kernel(accesses)
    }

    fn alloc_op(&mut self, alloc: &AllocNode) -> NodeOp {
        let bytes = alloc.bytes as u64;
        NodeOp::Alloc { memory: self.add_memory(alloc.at, bytes, Kind::Node), bytes }
    }

    fn free_op(&self, at: u64) -> Option<NodeOp> {
        Some(NodeOp::Free(self.living(at)?.memory))
    }
}

/// Handlers of one kind of node each.
macro_rules! nodes {
    ($($name:ident($($arg:ident: $ty:ty),*) $make:expr, $doc:literal;)*) => {$(
        #[doc = $doc]
        pub(crate) unsafe fn $name(
            at: &At,
            real: impl FnOnce() -> Code,
            node: *mut GraphNode,
            graph: Graph,
            after: *const GraphNode,
            count: usize,
            $($arg: $ty),*
        ) -> Code {
            let new = New { node, graph, after, count };
            at.done(real(), |session| {
                let make: fn(&mut Session, $($ty),*) -> Option<NodeOp> = $make;
                // SAFETY: the caller's places and lists.
                unsafe { session.add(new, |session| make(session, $($arg),*)) }
            })
        }
    )*};
}

nodes! {
    empty() |_| Some(NodeOp::Empty), "`cuGraphAddEmptyNode`";
    host(_params: *const c_void) |_, _| Some(NodeOp::HostFunction(SmallVec::new())), "`cuGraphAddHostNode`";
    event_record(event: Event) |session, event| Some(NodeOp::EventRecord(session.event(event))),
        "`cuGraphAddEventRecordNode`";
    event_wait(event: Event) |session, event| Some(NodeOp::EventWait(session.event(event))),
        "`cuGraphAddEventWaitNode`";
    free(start: u64) |session, start| session.free_op(start), "`cuGraphAddMemFreeNode`";
    child(child: Graph) |session, child| Some(NodeOp::Child(session.handles.graph(child)?)),
        "`cuGraphAddChildGraphNode`";
    kernel(params: *const KernelNode) |session, params| {
        // SAFETY: the caller's structure.
        let params = unsafe { read(params) }?;
        // SAFETY: as above.
        Some(unsafe { session.kernel_op(params, Function(0)) })
    }, "`cuGraphAddKernelNode`";
    kernel_v2(params: *const KernelNode2) |session, params| {
        // SAFETY: the caller's structure.
        let params = unsafe { read(params) }?;
        // SAFETY: as above.
        Some(unsafe { session.kernel_op(params.first, params.kernel) })
    }, "`cuGraphAddKernelNode_v2`";
    copy(params: *const CopyParams, _context: Context) |session, params, _| {
        // SAFETY: the caller's structure.
        unsafe { read(params) }.map(|copy| session.copy_op(&copy))
    }, "`cuGraphAddMemcpyNode`";
    fill(params: *const MemsetParams, _context: Context) |session, params, _| {
        // SAFETY: the caller's structure.
        unsafe { read(params) }.map(|fill| session.fill_op(&fill))
    }, "`cuGraphAddMemsetNode`";
    alloc(params: *mut AllocNode) |session, params| {
        // SAFETY: the caller's structure, in which the address was written.
        unsafe { read(params) }.map(|alloc| session.alloc_op(&alloc))
    }, "`cuGraphAddMemAllocNode`";
    any(params: *mut c_int) |session, params| {
        // SAFETY: the caller's structure.
        unsafe { session.any_op(params) }
    }, "`cuGraphAddNode`";
}

/// `cuGraphAddNode_v2`
pub(crate) unsafe fn any_v2(
    at: &At,
    real: impl FnOnce() -> Code,
    node: *mut GraphNode,
    graph: Graph,
    after: *const GraphNode,
    _data: *const c_void,
    count: usize,
    params: *mut c_int,
) -> Code {
    // SAFETY: the caller's arguments.
    unsafe { any(at, real, node, graph, after, count, params) }
}

impl Session {
    /// A node whose kind (`CUgraphNodeType`) is the first word, and whose parameters begin 16 bytes behind it.
    ///
    /// # Safety
    /// A structure of the caller's.
    unsafe fn any_op(&mut self, params: *mut c_int) -> Option<NodeOp> {
        // SAFETY: the caller's structure.
        let kind = unsafe { read(params) }?;
        let fields = params.wrapping_byte_add(16);
        // SAFETY: as its kind says, the fields are of these structures; that of a copy has two words before it.
        unsafe {
            Some(match kind {
                0 => {
                    let params = read(fields.cast::<KernelNode2>())?;
                    self.kernel_op(params.first, params.kernel)
                }
                1 => self.copy_op(&read(fields.wrapping_byte_add(16).cast::<CopyParams>())?),
                2 => self.fill_op(&read(fields.cast::<MemsetParams>())?),
                3 => NodeOp::HostFunction(SmallVec::new()),
                4 => NodeOp::Child(self.handles.graph(read(fields.cast::<Graph>())?)?),
                5 => NodeOp::Empty,
                6 => NodeOp::EventWait(self.event(read(fields.cast::<Event>())?)),
                7 => NodeOp::EventRecord(self.event(read(fields.cast::<Event>())?)),
                10 => self.alloc_op(&read(fields.cast::<AllocNode>())?),
                11 => self.free_op(read(fields.cast::<u64>())?)?,
                _ => return None,
            })
        }
    }
}
