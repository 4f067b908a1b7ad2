//! Nodes that a program adds to a graph by hand.
//!
//! A node of a kind that operations do not have makes the graph opaque.

use std::ffi::c_int;

use millpond_core::ids::GraphId;
use millpond_core::op::{Act, NodeOp, What};
use smallvec::SmallVec;

use super::copies::{is_one_row, moved, slices_of};
use super::read;
use crate::abi::*;
use crate::handles::Made;
use crate::index::Kind;
use crate::session::Session;

impl Session {
    /// Notes that a node was added.
    pub(crate) fn add_node(
        &mut self,
        node: GraphNode,
        handle: Graph,
        after: &[GraphNode],
        make: impl FnOnce(&mut Self) -> Option<NodeOp>,
    ) {
        let Some(graph) = self.known_graph(handle) else { return self.handles.add_to_opaque(handle, node) };
        let numbers = self.handles.made.get(&graph).map(|made| &made.nodes);
        let after: Option<SmallVec<[_; 2]>> = after.iter().map(|it| numbers?.get(it).copied()).collect();
        match (make(self), after) {
            (Some(op), Some(after)) => {
                self.handles.add_node(graph, node, matches!(op, NodeOp::Child(_)));
                self.note_outside(graph, &op);
                self.push(What::GraphNode { graph, node: Box::new(op), after, name: None });
            }
            _ => {
                self.unsupported("a node of a kind, or behind one, that is not known");
                self.handles.obscure(handle);
                self.handles.add_to_opaque(handle, node);
            }
        }
    }

    /// Updates the graph's `Outside` for a new node.
    fn note_outside(&mut self, graph: GraphId, op: &NodeOp) {
        let of_child = match op {
            NodeOp::Child(child) => self.handles.made.get(child).map(|made| made.outside.clone()),
            _ => None,
        };
        let Some(Made { outside, .. }) = self.handles.made.get_mut(&graph) else { return };
        match op {
            NodeOp::Alloc { memory, .. } => outside.left.push(*memory),
            NodeOp::Free(memory) => {
                outside.left.retain(|it| it != memory);
                // A use by a node that is added later comes after this free.
                self.index.set_allocated(*memory, false);
            }
            NodeOp::Kernel(_) => outside.pointed_at.extend(self.search.pointed_at()),
            _ => of_child.iter().for_each(|of_child| outside.extend(of_child)),
        }
    }

    pub(crate) fn fill_op(&mut self, fill: &MemsetParams) -> NodeOp {
        let row = fill.width * fill.element_bytes as usize;
        let bytes = fill.pitch.max(row) * fill.height.saturating_sub(1) + row;
        let mut accesses = SmallVec::new();
        self.access(fill.to, bytes as u64, Act::Write, &mut accesses);
        NodeOp::Fill(accesses)
    }

    pub(crate) fn copy_op(&mut self, copy: &CopyParams) -> NodeOp {
        let mut accesses = SmallVec::new();
        let (from, to) = (slices_of(&copy.from, copy), slices_of(&copy.to, copy));
        for (start, bytes, act) in moved(to, from, is_one_row(copy)) {
            self.access(start, bytes, act, &mut accesses);
        }
        NodeOp::Copy(accesses)
    }

    /// # Safety
    /// `params` are the caller's, as `cuda.h` has them.
    pub(crate) unsafe fn kernel_op(&mut self, params: KernelNode, kernel: Function) -> NodeOp {
        let function = if params.function.0 == 0 { kernel } else { params.function };
        let mut accesses = SmallVec::new();
        // SAFETY: the caller's promise.
        unsafe { self.arguments(function, params.params.cast(), params.extra.cast(), &mut accesses) };
        NodeOp::Kernel(accesses)
    }

    pub(crate) fn alloc_op(&mut self, alloc: &AllocNode) -> NodeOp {
        let bytes = alloc.bytes as u64;
        NodeOp::Alloc { memory: self.add_memory(alloc.at, bytes, Kind::Node), bytes }
    }

    pub(crate) fn free_op(&self, at: u64) -> Option<NodeOp> {
        Some(NodeOp::Free(self.living(at)?.memory()))
    }

    /// Reads a node of any kind. The first word is its kind (`CUgraphNodeType`), and its parameters begin 16 bytes
    /// after that.
    ///
    /// # Safety
    /// `params` is null, or the caller's structure.
    pub(crate) unsafe fn any_op(&mut self, params: *mut c_int) -> Option<NodeOp> {
        // SAFETY: the caller's structure.
        let kind = unsafe { read(params) }?;
        let fields = params.wrapping_byte_add(16);
        // SAFETY: the kind says which structure the fields are; a copy has two words before it.
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
