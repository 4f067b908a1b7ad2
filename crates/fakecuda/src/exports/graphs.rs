//! The functions of graphs and captures: see the module above.

use std::ffi::{c_int, c_uint, c_void};

use millpond_driver::CopyKind;
use millpond_driver::cuda::abi::graph::{
    CAPTURE_RELAXED, CopyParams, CopySide, Graph, GraphExec, GraphNode, HostParams, MEMORY_DEVICE, MEMORY_HOST,
    MemsetParams, USER_OBJECT_MOVE, USER_OBJECT_NO_SYNC, UserObject,
};
use millpond_driver::cuda::abi::{Code, Context, Stream};

use super::{Given, Outcome, Place, check, entry, list, plain, put, read};
use crate::contexts::current_device;
use crate::current;
use crate::device::HostFunction;
use crate::device::graphs::{Action, exchange_mode};

/// Adds a node to a graph of the current device.
///
/// # Safety
/// The dependencies are as the header has them.
pub(super) unsafe fn add(
    node: Place<GraphNode>,
    graph: Graph,
    after: *const GraphNode,
    count: usize,
    action: Action,
) -> Outcome {
    // SAFETY: the caller's promise.
    let after = unsafe { list(after, count) }?;
    put(node, current_device()?.add_node(graph, after, action)?)
}

/// Checks that a node is for the current context.
fn check_context(context: Context) -> Outcome {
    if context == current::context() { Ok(()) } else { Err(Code::INVALID_CONTEXT) }
}

/// Returns the address of one row of plain memory.
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
    check((copy.height, copy.depth) == (1, 1) && copy.width != 0)?;
    let (to, from) = (row(copy.to, copy.to.kind)?, row(copy.from, copy.from.kind)?);
    Ok(Action::Copy { to, from, bytes: copy.width as u64, kind })
}

exports! {
    cuGraphCreate(graph: Place<Graph>, flags: c_uint) {
        check(flags == 0)?;
        put(graph, current_device()?.open_graph()?)
    };
    cuGraphDestroy(graph: Graph) => close_graph;
    cuGraphGetNodes(graph: Graph, nodes: *mut GraphNode, count: Place<usize>) {
        let all = current_device()?.nodes(graph)?;
        let count = count.ok_or(Code::INVALID_VALUE)?;
        if nodes.is_null() {
            count.write(all.len());
            return Ok(());
        }
        // SAFETY: the caller has written the number of nodes that fit.
        let room = unsafe { count.assume_init_mut() };
        *room = all.len().min(*room);
        // SAFETY: this many nodes fit.
        unsafe { nodes.copy_from_nonoverlapping(all.as_ptr(), *room) };
        Ok(())
    };
    cuGraphAddEmptyNode(node: Place<GraphNode>, graph: Graph, after: *const GraphNode, count: usize) {
        // SAFETY: the caller's dependencies.
        unsafe { add(node, graph, after, count, Action::Empty) }
    };
    cuGraphAddMemsetNode(
        node: Place<GraphNode>, graph: Graph, after: *const GraphNode, count: usize, params: Given<MemsetParams>,
        context: Context
    ) {
        check_context(context)?;
        let fill = read(params)?;
        let value = u8::try_from(fill.value).map_err(|_| Code::INVALID_VALUE)?;
        check((fill.element_bytes, fill.height) == (1, 1) && fill.width != 0)?;
        let action = Action::Fill { at: fill.to, bytes: fill.width as u64, value };
        // SAFETY: the caller's dependencies.
        unsafe { add(node, graph, after, count, action) }
    };
    cuGraphAddMemcpyNode(
        node: Place<GraphNode>, graph: Graph, after: *const GraphNode, count: usize, params: Given<CopyParams>,
        context: Context
    ) {
        check_context(context)?;
        let action = copy_of(read(params)?)?;
        // SAFETY: the caller's dependencies.
        unsafe { add(node, graph, after, count, action) }
    };
    cuGraphAddHostNode(
        node: Place<GraphNode>, graph: Graph, after: *const GraphNode, count: usize, params: Given<HostParams>
    ) {
        let HostParams { function, data } = read(params)?;
        let action = Action::Host { function, data: data.expose_provenance() };
        // SAFETY: the caller's dependencies.
        unsafe { add(node, graph, after, count, action) }
    };
    cuGraphAddChildGraphNode(
        node: Place<GraphNode>, graph: Graph, after: *const GraphNode, count: usize, child: Graph
    ) {
        // SAFETY: the caller's dependencies.
        let after = unsafe { list(after, count) }?;
        put(node, current_device()?.add_child(graph, after, child)?)
    };
    cuUserObjectCreate(
        object: Place<UserObject>, data: *mut c_void, destroy: HostFunction, count: c_uint, flags: c_uint
    ) {
        check(count == 1 && flags == USER_OBJECT_NO_SYNC && object.is_some())?;
        put(object, current_device()?.open_object(destroy, data)?)
    };
    cuUserObjectRelease(object: UserObject, count: c_uint) {
        check(count == 1)?;
        current_device()?.close_object(object)
    };
    cuGraphRetainUserObject(graph: Graph, object: UserObject, count: c_uint, flags: c_uint) {
        check(count == 1 && flags == USER_OBJECT_MOVE)?;
        current_device()?.keep_object(graph, object)
    };
    cuGraphInstantiateWithFlags(exec: Place<GraphExec>, graph: Graph, flags: u64) {
        // The only allowed flag: a launch frees the memory that the launch before left.
        check(flags <= 1)?;
        put(exec, current_device()?.instantiate(graph)?)
    };
    cuGraphUpload(exec: GraphExec, stream: Stream) => upload;
    cuGraphLaunch(exec: GraphExec, stream: Stream) => launch;
    cuGraphExecDestroy(exec: GraphExec) => close_exec;
    cuStreamBeginCapture_v2(stream: Stream, mode: c_int) {
        check((0..=CAPTURE_RELAXED).contains(&mode))?;
        current_device()?.begin_capture(stream, mode)
    };
    cuThreadExchangeStreamCaptureMode(mode: Option<&mut c_int>) {
        let mode = mode.ok_or(Code::INVALID_VALUE)?;
        *mode = exchange_mode(*mode)?;
        Ok(())
    };
    cuStreamBeginCaptureToGraph(
        stream: Stream, _graph: Graph, _after: *const GraphNode, _edges: *const c_void, _count: usize, mode: c_int
    ) {
        current_device()?.begin_capture(stream, mode)
    };
    cuStreamGetCaptureInfo(stream: Stream, status: Place<c_int>, number: Place<u64>) {
        let device = current_device()?;
        put(status, device.capture_status(stream)?)?;
        put(number, device.capture_number(stream)?)
    };
    cuStreamIsCapturing(stream: Stream, status: Place<c_int>) {
        put(status, current_device()?.capture_status(stream)?)
    };
    cuStreamEndCapture(stream: Stream, graph: Place<Graph>) {
        put(graph, current_device()?.end_capture(stream)?)
    };
}
