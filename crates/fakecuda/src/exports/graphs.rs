//! The functions of graphs and captures: see the module above.

use std::ffi::{c_int, c_uint, c_void};

use millpond_driver::CopyKind;
use millpond_driver::cuda::abi::graph::{
    CAPTURE_RELAXED, CopyParams, CopySide, Graph, GraphExec, GraphNode, HostParams, MEMORY_DEVICE, MEMORY_HOST,
    MemsetParams, USER_OBJECT_MOVE, USER_OBJECT_NO_SYNC, UserObject,
};
use millpond_driver::cuda::abi::{Code, Context, Stream};

use super::{Outcome, entry, put, read};
use crate::contexts::current_device;
use crate::current;
use crate::device::HostFunction;
use crate::device::graphs::{Action, exchange_mode};

/// The dependencies of a node.
///
/// # Safety
/// So many, or null and none.
unsafe fn dependencies(after: *const GraphNode, count: usize) -> Result<Vec<GraphNode>, Code> {
    match (after.is_null(), count) {
        (_, 0) => Ok(Vec::new()),
        (true, _) => Err(Code::INVALID_VALUE),
        // SAFETY: the caller's promise.
        (false, count) => Ok(unsafe { std::slice::from_raw_parts(after, count) }.to_vec()),
    }
}

/// Adds a node to a graph of the current device.
///
/// # Safety
/// Places and dependencies as the header has them.
pub(super) unsafe fn add(
    node: *mut GraphNode,
    graph: Graph,
    after: *const GraphNode,
    count: usize,
    action: Action,
) -> Outcome {
    // SAFETY: the caller's promise.
    let after = unsafe { dependencies(after, count) }?;
    let added = current_device()?.add_node(graph, &after, action)?;
    // SAFETY: the caller's place.
    unsafe { put(node, added) }
}

/// Nodes are for the context that runs them.
fn check_context(context: Context) -> Outcome {
    if context == current::context() { Ok(()) } else { Err(Code::INVALID_CONTEXT) }
}

/// One row of plain memory: the address.
fn row(side: CopySide, kind: c_int) -> Result<u64, Code> {
    let at = if kind == MEMORY_HOST { side.host as u64 } else { side.device };
    let plain = CopySide { host: 0, device: 0, pitch: 0, height: 0, kind, ..CopySide::default() };
    let is_plain = CopySide { host: 0, device: 0, pitch: 0, height: 0, ..side } == plain;
    // As on GPUs, a pitch is less than 2 GiB.
    if is_plain && side.pitch < 1 << 31 { Ok(at) } else { Err(Code::INVALID_VALUE) }
}

fn copy_of(copy: CopyParams) -> Result<Action, Code> {
    let kind = match (copy.from.kind, copy.to.kind) {
        (MEMORY_HOST, MEMORY_DEVICE) => CopyKind::HostToDevice,
        (MEMORY_DEVICE, MEMORY_DEVICE) => CopyKind::DeviceToDevice,
        (MEMORY_DEVICE, MEMORY_HOST) => CopyKind::DeviceToHost,
        _ => return Err(Code::INVALID_VALUE),
    };
    if (copy.height, copy.depth) != (1, 1) || copy.width == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let (to, from) = (row(copy.to, copy.to.kind)?, row(copy.from, copy.from.kind)?);
    Ok(Action::Copy { to, from, bytes: copy.width as u64, kind })
}

exports! {
    "cuGraphCreate" cuGraphCreate(graph: *mut Graph, flags: c_uint) {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let opened = current_device()?.open_graph()?;
        // SAFETY: the caller's place.
        unsafe { put(graph, opened) }
    }
    "cuGraphDestroy" cuGraphDestroy(graph: Graph) {
        current_device()?.close_graph(graph)
    }
    "cuGraphGetNodes" cuGraphGetNodes(graph: Graph, nodes: *mut GraphNode, count: *mut usize) {
        if !nodes.is_null() {
            return Err(Code::NOT_SUPPORTED);
        }
        let nodes = current_device()?.count_nodes(graph)?;
        // SAFETY: the caller's place.
        unsafe { put(count, nodes) }
    }
    "cuGraphAddEmptyNode" cuGraphAddEmptyNode(
        node: *mut GraphNode, graph: Graph, after: *const GraphNode, count: usize
    ) {
        // SAFETY: the caller's places and dependencies.
        unsafe { add(node, graph, after, count, Action::Empty) }
    }
    "cuGraphAddMemsetNode" cuGraphAddMemsetNode(
        node: *mut GraphNode, graph: Graph, after: *const GraphNode, count: usize, params: *const MemsetParams,
        context: Context
    ) {
        check_context(context)?;
        // SAFETY: the caller's structure.
        let fill = unsafe { read(params) }?;
        let value = u8::try_from(fill.value).map_err(|_| Code::INVALID_VALUE)?;
        if (fill.element_bytes, fill.height) != (1, 1) || fill.width == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let action = Action::Fill { at: fill.to, bytes: fill.width as u64, value };
        // SAFETY: the caller's places and dependencies.
        unsafe { add(node, graph, after, count, action) }
    }
    "cuGraphAddMemcpyNode" cuGraphAddMemcpyNode(
        node: *mut GraphNode, graph: Graph, after: *const GraphNode, count: usize, params: *const CopyParams,
        context: Context
    ) {
        check_context(context)?;
        // SAFETY: the caller's structure.
        let action = copy_of(unsafe { read(params) }?)?;
        // SAFETY: the caller's places and dependencies.
        unsafe { add(node, graph, after, count, action) }
    }
    "cuGraphAddHostNode" cuGraphAddHostNode(
        node: *mut GraphNode, graph: Graph, after: *const GraphNode, count: usize, params: *const HostParams
    ) {
        // SAFETY: the caller's structure.
        let HostParams { function, data } = unsafe { read(params) }?;
        let action = Action::Host { function, data: data.expose_provenance() };
        // SAFETY: the caller's places and dependencies.
        unsafe { add(node, graph, after, count, action) }
    }
    "cuGraphAddChildGraphNode" cuGraphAddChildGraphNode(
        node: *mut GraphNode, graph: Graph, after: *const GraphNode, count: usize, child: Graph
    ) {
        // SAFETY: the caller's dependencies.
        let after = unsafe { dependencies(after, count) }?;
        let added = current_device()?.add_child(graph, &after, child)?;
        // SAFETY: the caller's place.
        unsafe { put(node, added) }
    }
    "cuUserObjectCreate" cuUserObjectCreate(
        object: *mut UserObject, data: *mut c_void, destroy: HostFunction, count: c_uint, flags: c_uint
    ) {
        if count != 1 || flags != USER_OBJECT_NO_SYNC || object.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let opened = current_device()?.open_object(destroy, data)?;
        // SAFETY: the caller's place.
        unsafe { put(object, opened) }
    }
    "cuUserObjectRelease" cuUserObjectRelease(object: UserObject, count: c_uint) {
        if count != 1 {
            return Err(Code::INVALID_VALUE);
        }
        current_device()?.close_object(object)
    }
    "cuGraphRetainUserObject" cuGraphRetainUserObject(graph: Graph, object: UserObject, count: c_uint, flags: c_uint) {
        if count != 1 || flags != USER_OBJECT_MOVE {
            return Err(Code::INVALID_VALUE);
        }
        current_device()?.keep_object(graph, object)
    }
    "cuGraphInstantiateWithFlags" cuGraphInstantiateWithFlags(exec: *mut GraphExec, graph: Graph, flags: u64) {
        // Only that a launch frees what the one before left.
        if flags > 1 {
            return Err(Code::INVALID_VALUE);
        }
        let made = current_device()?.instantiate(graph)?;
        // SAFETY: the caller's place.
        unsafe { put(exec, made) }
    }
    "cuGraphUpload" cuGraphUpload(exec: GraphExec, stream: Stream) {
        current_device()?.upload(exec, stream)
    }
    "cuGraphLaunch" cuGraphLaunch(exec: GraphExec, stream: Stream) {
        current_device()?.launch(exec, stream)
    }
    "cuGraphExecDestroy" cuGraphExecDestroy(exec: GraphExec) {
        current_device()?.close_exec(exec)
    }
    "cuStreamBeginCapture" cuStreamBeginCapture_v2(stream: Stream, mode: c_int) {
        if !(0..=CAPTURE_RELAXED).contains(&mode) {
            return Err(Code::INVALID_VALUE);
        }
        current_device()?.begin_capture(stream, mode)
    }
    "cuThreadExchangeStreamCaptureMode" cuThreadExchangeStreamCaptureMode(mode: *mut c_int) {
        // SAFETY: the caller's place.
        let before = exchange_mode(unsafe { read(mode) }?)?;
        // SAFETY: the caller's place.
        unsafe { put(mode, before) }
    }
    "cuStreamIsCapturing" cuStreamIsCapturing(stream: Stream, status: *mut c_int) {
        let captures = current_device()?.capture_status(stream)?;
        // SAFETY: the caller's place.
        unsafe { put(status, captures) }
    }
    "cuStreamEndCapture" cuStreamEndCapture(stream: Stream, graph: *mut Graph) {
        let captured = current_device()?.end_capture(stream)?;
        // SAFETY: the caller's place.
        unsafe { put(graph, captured) }
    }
}
