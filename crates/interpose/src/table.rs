//! Which calls are wrapped: one description, from which the exported names, the wrappers and the lookups are made.
//!
//! A line is a flavour, the exported name, the arguments as `cuda.h` has them, the handler that says what the call
//! means (`-` for none), and perhaps the server that answers it where Millpond serves memory. Flavour `N` is one
//! function; `P` has a twin `_ptsz`, and `D` one `_ptds`, for programs whose default stream is the thread's own.
//! Handlers and servers get where the call was made ([`At`]), the real call, and the arguments. A handler makes the
//! real call exactly once and returns what that returned; to it a server's answer is the real one.
#![expect(non_snake_case, reason = "they are CUDA's names")]

use std::ffi::{c_char, c_int, c_uint, c_void};

use millpond_driver::cuda::abi::EventName;

use crate::abi::*;
use crate::calls::{
    captures, contexts, copies, events, graphs, kernels, lookups, memory, nodes, pools, ranges, streams,
};
use crate::entry::real::Wrapped;
use crate::entry::thunk;
use crate::serve::{self, contexts as hold, memory as give, pointers as answer, pools as keep, room};
use crate::session::At;

/// The name of the twin of a call.
macro_rules! twin_name {
    (N $name:ident) => {
        None
    };
    (P $name:ident) => {
        Some(concat!(stringify!($name), "_ptsz"))
    };
    (D $name:ident) => {
        Some(concat!(stringify!($name), "_ptds"))
    };
}

/// The exported twin of a call.
macro_rules! twin {
    (N $name:ident) => {
        pub(super) unsafe extern "C" fn twin() {}
    };
    (P $name:ident) => {
        twin!(@ $name "_ptsz");
    };
    (D $name:ident) => {
        twin!(@ $name "_ptds");
    };
    (@ $name:ident $suffix:literal) => {
        #[unsafe(naked)]
        #[cfg_attr(not(test), unsafe(export_name = concat!(stringify!($name), $suffix)))]
        pub(super) unsafe extern "C" fn twin() {
            thunk::entry_asm!(body::<1>)
        }
    };
}

macro_rules! calls {
    (@serves []) => { false };
    (@serves [$server:path]) => { true };
    (@serve [] $at:ident $real:ident ($($arg:ident),*)) => { $real() };
    (@serve [$server:path] $at:ident $real:ident ($($arg:ident),*)) => {
        match serve::is_on() {
            // SAFETY: the program's own arguments, of which the header says what they are.
            true => serve::guard(|| unsafe { $server(&$at, $real, $($arg),*) }),
            false => $real(),
        }
    };
    (@note [] $at:ident $real:ident ($($arg:ident),*)) => { $real() };
    (@note [$handler:path] $at:ident $real:ident ($($arg:ident),*)) => {
        // SAFETY: as above.
        unsafe { $handler(&$at, $real, $($arg),*) }
    };
    ($($flavour:ident $name:ident($($arg:ident: $ty:ty),*) => $(-)? $($handler:path)? $(, $server:path)?;)*) => {
        #[expect(non_camel_case_types, reason = "they are CUDA's names")]
        #[derive(Clone, Copy)]
        enum Call { $($name),* }

        /// All wrapped calls.
        pub(crate) static WRAPPED: [Wrapped; [$(Call::$name),*].len()] = [$(Wrapped::new(
            [Some(stringify!($name)), twin_name!($flavour $name)],
            [$name::plain, $name::twin],
            calls!(@serves [$($server)?]),
        )),*];

        $(mod $name {
            use super::*;

            unsafe extern "C" fn body<const TWIN: usize>($($arg: $ty),*) -> Code {
                let entered = thunk::entered();
                let found = WRAPPED[Call::$name as usize].function(TWIN, &WRAPPED);
                if found == 0 {
                    return Code::NOT_FOUND;
                }
                type Real = unsafe extern "C" fn($($ty),*) -> Code;
                // SAFETY: the address of the function of this name, and its type by the header.
                let real: Real = unsafe {
                    std::mem::transmute::<*const c_void, Real>(std::ptr::with_exposed_provenance(found))
                };
                // SAFETY: the program's own call.
                let real = || unsafe { real($($arg),*) };
                let Some(at) = At::enter(entered, TWIN == 1) else { return real() };
                let real = || calls!(@serve [$($server)?] at real ($($arg),*));
                calls!(@note [$($handler)?] at real ($($arg),*))
            }

            #[unsafe(naked)]
            #[cfg_attr(not(test), unsafe(export_name = stringify!($name)))]
            pub(super) unsafe extern "C" fn plain() {
                thunk::entry_asm!(body::<0>)
            }

            twin!($flavour $name);
        })*
    };
}

calls! {
    N cuGetProcAddress(symbol: *const c_char, place: *mut *mut c_void, version: c_int, flags: u64)
        => lookups::proc_address;
    N cuGetProcAddress_v2(
        symbol: *const c_char, place: *mut *mut c_void, version: c_int, flags: u64, status: *mut c_int
    ) => lookups::proc_address_v2;

    N cuCtxSynchronize() => contexts::synchronize, hold::synchronize;
    N cuCtxSynchronize_v2(context: Context) => contexts::synchronize_v2, hold::synchronize_v2;
    N cuCtxDestroy(context: Context) => contexts::destroy, hold::destroy;
    N cuCtxDestroy_v2(context: Context) => contexts::destroy, hold::destroy;
    N cuDevicePrimaryCtxReset_v2(device: c_int) => contexts::reset, hold::reset;

    N cuStreamCreate(stream: *mut Stream, flags: c_uint) => streams::create;
    N cuStreamCreateWithPriority(stream: *mut Stream, flags: c_uint, priority: c_int) => streams::create_with_priority;
    N cuStreamDestroy(stream: Stream) => streams::destroy, hold::destroy_stream;
    N cuStreamDestroy_v2(stream: Stream) => streams::destroy, hold::destroy_stream;
    P cuStreamSynchronize(stream: Stream) => streams::synchronize, hold::synchronize_stream;
    P cuStreamQuery(stream: Stream) => streams::query;
    P cuStreamWaitEvent(stream: Stream, event: Event, flags: c_uint) => streams::wait_event;
    P cuStreamAddCallback(stream: Stream, function: usize, data: usize, flags: c_uint) => streams::callback;
    P cuLaunchHostFunc(stream: Stream, function: usize, data: usize) => streams::host_function;
    P cuStreamWriteValue32(stream: Stream, at: u64, value: u32, flags: c_uint) => streams::write32;
    P cuStreamWriteValue32_v2(stream: Stream, at: u64, value: u32, flags: c_uint) => streams::write32;
    P cuStreamWriteValue64(stream: Stream, at: u64, value: u64, flags: c_uint) => streams::write64;
    P cuStreamWriteValue64_v2(stream: Stream, at: u64, value: u64, flags: c_uint) => streams::write64;
    P cuStreamWaitValue32(stream: Stream, at: u64, value: u32, flags: c_uint) => streams::wait32;
    P cuStreamWaitValue32_v2(stream: Stream, at: u64, value: u32, flags: c_uint) => streams::wait32;
    P cuStreamWaitValue64(stream: Stream, at: u64, value: u64, flags: c_uint) => streams::wait64;
    P cuStreamWaitValue64_v2(stream: Stream, at: u64, value: u64, flags: c_uint) => streams::wait64;
    P cuStreamBatchMemOp(stream: Stream, count: c_uint, ops: *const StreamMemOp, flags: c_uint) => streams::batch;
    P cuStreamBatchMemOp_v2(stream: Stream, count: c_uint, ops: *const StreamMemOp, flags: c_uint) => streams::batch;

    N cuEventCreate(event: *mut Event, flags: c_uint) => events::create;
    N cuEventDestroy(event: Event) => events::destroy;
    N cuEventDestroy_v2(event: Event) => events::destroy;
    P cuEventRecord(event: Event, stream: Stream) => events::record;
    P cuEventRecordWithFlags(event: Event, stream: Stream, flags: c_uint) => events::record_with_flags;
    N cuEventQuery(event: Event) => events::query;
    N cuEventSynchronize(event: Event) => events::synchronize, hold::synchronize_event;
    N cuEventElapsedTime(time: *mut f32, first: Event, second: Event) => events::elapsed;
    N cuEventElapsedTime_v2(time: *mut f32, first: Event, second: Event) => events::elapsed;

    P cuMemAllocAsync(at: *mut u64, bytes: usize, stream: Stream) => memory::alloc_async, give::alloc_async;
    P cuMemAllocFromPoolAsync(at: *mut u64, bytes: usize, pool: Pool, stream: Stream)
        => memory::alloc_from_pool, give::alloc_from_pool;
    P cuMemFreeAsync(at: u64, stream: Stream) => memory::free_async, give::free_async;
    N cuMemAlloc_v2(at: *mut u64, bytes: usize) => memory::alloc, room::alloc;
    N cuMemAllocPitch_v2(at: *mut u64, pitch: *mut usize, width: usize, height: usize, element: c_uint)
        => memory::alloc_pitch, room::alloc_pitch;
    N cuMemAllocManaged(at: *mut u64, bytes: usize, flags: c_uint) => memory::alloc_managed;
    N cuMemFree_v2(at: u64) => memory::free, give::free;
    N cuMemAllocHost_v2(at: *mut u64, bytes: usize) => memory::alloc_host;
    N cuMemHostAlloc(at: *mut u64, bytes: usize, flags: c_uint) => memory::host_alloc;
    N cuMemFreeHost(at: u64) => memory::free_host;
    N cuMemHostRegister_v2(at: u64, bytes: usize, flags: c_uint) => memory::register;
    N cuMemHostUnregister(at: u64) => memory::unregister;

    N cuMemMap(at: u64, bytes: usize, offset: usize, handle: u64, flags: u64) => ranges::map;
    N cuMemUnmap(at: u64, bytes: usize) => ranges::unmap;
    N cuMemSetAccess(at: u64, bytes: usize, access: *const AccessDesc, count: usize) => ranges::set_access;
    N cuIpcOpenMemHandle_v2(at: *mut u64, handle: EventName, flags: c_uint) => ranges::open;
    N cuIpcCloseMemHandle(at: u64) => ranges::close;
    N cuMemPoolImportPointer(at: *mut u64, pool: Pool, data: *const c_void) => ranges::import;

    N cuMemCreate(handle: *mut u64, bytes: usize, props: *const c_void, flags: u64) => -, room::create;
    N cuMemRetainAllocationHandle(handle: *mut u64, at: u64) => -, answer::retain_handle;
    N cuMemGetAddressRange_v2(base: *mut u64, bytes: *mut usize, at: u64) => -, answer::range;
    N cuPointerGetAttribute(place: *mut c_void, attribute: c_int, at: u64) => -, answer::attribute;
    N cuPointerGetAttributes(count: c_uint, attributes: *const c_int, places: *const *mut c_void, at: u64)
        => -, answer::attributes;
    N cuIpcGetMemHandle(handle: *mut c_void, at: u64) => -, answer::name_to_others;
    N cuMemPoolExportPointer(data: *mut c_void, at: u64) => -, answer::name_to_others;

    N cuMemPoolCreate(pool: *mut Pool, props: *const PoolProps) => pools::create, keep::create;
    N cuMemPoolDestroy(pool: Pool) => pools::destroy, keep::destroy;
    N cuMemPoolSetAccess(pool: Pool, access: *const AccessDesc, count: usize) => pools::set_access, keep::set_access;
    N cuDeviceSetMemPool(device: c_int, pool: Pool) => pools::set_current, keep::set_current;

    N cuMemSetMemPool(location: *const Location, kind: c_int, pool: Pool)
        => pools::set_current_at, keep::set_current_at;
    N cuMemPoolTrimTo(pool: Pool, keep_bytes: usize) => -, keep::trim;
    N cuMemPoolSetAttribute(pool: Pool, attribute: c_int, value: *mut c_void) => -, keep::set_attribute;
    N cuMemPoolGetAttribute(pool: Pool, attribute: c_int, value: *mut c_void) => -, keep::attribute;

    D cuMemcpy(to: u64, from: u64, bytes: usize) => copies::any;
    D cuMemcpyPeer(to: u64, context: Context, from: u64, other: Context, bytes: usize) => copies::peer;
    D cuMemcpyHtoD_v2(to: u64, from: u64, bytes: usize) => copies::any;
    D cuMemcpyDtoH_v2(to: u64, from: u64, bytes: usize) => copies::any;
    D cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) => copies::any;
    D cuMemcpy2D_v2(rows: *const Rows) => copies::rows;
    D cuMemcpy2DUnaligned_v2(rows: *const Rows) => copies::rows;
    D cuMemcpy3D_v2(copy: *const CopyParams) => copies::slices;
    P cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: Stream) => copies::any_async;
    P cuMemcpyPeerAsync(to: u64, context: Context, from: u64, other: Context, bytes: usize, stream: Stream)
        => copies::peer_async;
    P cuMemcpyHtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Stream) => copies::any_async;
    P cuMemcpyDtoHAsync_v2(to: u64, from: u64, bytes: usize, stream: Stream) => copies::any_async;
    P cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Stream) => copies::any_async;
    P cuMemcpy2DAsync_v2(rows: *const Rows, stream: Stream) => copies::rows_async;
    P cuMemcpy3DAsync_v2(copy: *const CopyParams, stream: Stream) => copies::slices_async;
    P cuMemcpyBatchAsync(
        to: *const u64, from: *const u64, sizes: *const usize, count: usize, attributes: *const c_void,
        of: *const usize, kinds: usize, failed: *mut usize, stream: Stream
    ) => copies::batch;
    P cuMemcpyBatchAsync_v2(
        to: *const u64, from: *const u64, sizes: *const usize, count: usize, attributes: *const c_void,
        of: *const usize, kinds: usize, stream: Stream
    ) => copies::batch_v2;
    D cuMemsetD8_v2(at: u64, value: u8, count: usize) => copies::fill8;
    D cuMemsetD16_v2(at: u64, value: u16, count: usize) => copies::fill16;
    D cuMemsetD32_v2(at: u64, value: u32, count: usize) => copies::fill32;
    D cuMemsetD2D8_v2(at: u64, pitch: usize, value: u8, width: usize, height: usize) => copies::fill2d8;
    D cuMemsetD2D16_v2(at: u64, pitch: usize, value: u16, width: usize, height: usize) => copies::fill2d16;
    D cuMemsetD2D32_v2(at: u64, pitch: usize, value: u32, width: usize, height: usize) => copies::fill2d32;
    P cuMemsetD8Async(at: u64, value: u8, count: usize, stream: Stream) => copies::fill8_async;
    P cuMemsetD16Async(at: u64, value: u16, count: usize, stream: Stream) => copies::fill16_async;
    P cuMemsetD32Async(at: u64, value: u32, count: usize, stream: Stream) => copies::fill32_async;
    P cuMemsetD2D8Async(at: u64, pitch: usize, value: u8, width: usize, height: usize, stream: Stream)
        => copies::fill2d8_async;
    P cuMemsetD2D16Async(at: u64, pitch: usize, value: u16, width: usize, height: usize, stream: Stream)
        => copies::fill2d16_async;
    P cuMemsetD2D32Async(at: u64, pitch: usize, value: u32, width: usize, height: usize, stream: Stream)
        => copies::fill2d32_async;
    P cuMemPrefetchAsync(at: u64, bytes: usize, device: c_int, stream: Stream) => copies::prefetch;
    P cuMemPrefetchAsync_v2(at: u64, bytes: usize, location: u64, flags: c_uint, stream: Stream)
        => copies::prefetch_v2;

    P cuLaunchKernel(
        function: Function, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint,
        stream: Stream, params: *const *const c_void, extra: *const *const c_void
    ) => kernels::launch;
    P cuLaunchKernelEx(
        config: *const LaunchConfig, function: Function, params: *const *const c_void, extra: *const *const c_void
    ) => kernels::launch_ex;
    P cuLaunchCooperativeKernel(
        function: Function, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint,
        stream: Stream, params: *const *const c_void
    ) => kernels::launch_cooperative;
    N cuModuleUnload(module: usize) => kernels::unload;
    N cuLibraryUnload(library: usize) => kernels::unload;

    P cuStreamBeginCapture(stream: Stream) => captures::begin_global, serve::captures::begin_global;
    P cuStreamBeginCapture_v2(stream: Stream, mode: c_int) => captures::begin, serve::captures::begin;
    P cuStreamBeginCaptureToGraph(
        stream: Stream, graph: Graph, after: *const GraphNode, edges: *const c_void, count: usize, mode: c_int
    ) => captures::begin_to_graph, serve::captures::begin_to_graph;
    P cuStreamEndCapture(stream: Stream, graph: *mut Graph) => captures::end, serve::captures::end;
    P cuStreamUpdateCaptureDependencies(stream: Stream, nodes: *const GraphNode, count: usize, flags: c_uint)
        => captures::update;
    P cuStreamUpdateCaptureDependencies_v2(
        stream: Stream, nodes: *const GraphNode, edges: *const c_void, count: usize, flags: c_uint
    ) => captures::update_v2;

    N cuGraphCreate(graph: *mut Graph, flags: c_uint) => graphs::create;
    N cuGraphDestroy(graph: Graph) => graphs::destroy;
    N cuGraphClone(copy: *mut Graph, graph: Graph) => graphs::clone;
    N cuGraphAddDependencies(graph: Graph, from: *const GraphNode, to: *const GraphNode, count: usize)
        => graphs::add_edges;
    N cuGraphAddDependencies_v2(
        graph: Graph, from: *const GraphNode, to: *const GraphNode, data: *const c_void, count: usize
    ) => graphs::add_edges_v2;
    N cuGraphRemoveDependencies(graph: Graph, from: *const GraphNode, to: *const GraphNode, count: usize)
        => graphs::remove_edges;
    N cuGraphRemoveDependencies_v2(
        graph: Graph, from: *const GraphNode, to: *const GraphNode, data: *const c_void, count: usize
    ) => graphs::remove_edges_v2;
    N cuGraphDestroyNode(node: GraphNode) => graphs::destroy_node;
    N cuGraphInstantiate_v2(
        exec: *mut GraphExec, graph: Graph, node: *mut GraphNode, log: *mut c_char, bytes: usize
    ) => graphs::instantiate;
    N cuGraphInstantiateWithFlags(exec: *mut GraphExec, graph: Graph, flags: u64) => graphs::instantiate_with_flags;
    P cuGraphInstantiateWithParams(exec: *mut GraphExec, graph: Graph, params: *const InstantiateParams)
        => graphs::instantiate_with_params;
    N cuGraphExecUpdate(exec: GraphExec, graph: Graph, node: *mut GraphNode, result: *mut c_int) => graphs::update;
    N cuGraphExecUpdate_v2(exec: GraphExec, graph: Graph, info: *mut c_void) => graphs::update_v2;
    P cuGraphUpload(exec: GraphExec, stream: Stream) => graphs::upload;
    P cuGraphLaunch(exec: GraphExec, stream: Stream) => graphs::launch;
    N cuGraphExecDestroy(exec: GraphExec) => graphs::destroy_exec;

    N cuGraphAddEmptyNode(node: *mut GraphNode, graph: Graph, after: *const GraphNode, count: usize) => nodes::empty;
    N cuGraphAddKernelNode(
        node: *mut GraphNode, graph: Graph, after: *const GraphNode, count: usize, params: *const KernelNode
    ) => nodes::kernel;
    N cuGraphAddKernelNode_v2(
        node: *mut GraphNode, graph: Graph, after: *const GraphNode, count: usize, params: *const KernelNode2
    ) => nodes::kernel_v2;
    N cuGraphAddMemcpyNode(
        node: *mut GraphNode, graph: Graph, after: *const GraphNode, count: usize, params: *const CopyParams,
        context: Context
    ) => nodes::copy;
    N cuGraphAddMemsetNode(
        node: *mut GraphNode, graph: Graph, after: *const GraphNode, count: usize, params: *const MemsetParams,
        context: Context
    ) => nodes::fill;
    N cuGraphAddHostNode(
        node: *mut GraphNode, graph: Graph, after: *const GraphNode, count: usize, params: *const c_void
    ) => nodes::host;
    N cuGraphAddChildGraphNode(
        node: *mut GraphNode, graph: Graph, after: *const GraphNode, count: usize, child: Graph
    ) => nodes::child;
    N cuGraphAddEventRecordNode(
        node: *mut GraphNode, graph: Graph, after: *const GraphNode, count: usize, event: Event
    ) => nodes::event_record;
    N cuGraphAddEventWaitNode(
        node: *mut GraphNode, graph: Graph, after: *const GraphNode, count: usize, event: Event
    ) => nodes::event_wait;
    N cuGraphAddMemAllocNode(
        node: *mut GraphNode, graph: Graph, after: *const GraphNode, count: usize, params: *mut AllocNode
    ) => nodes::alloc;
    N cuGraphAddMemFreeNode(node: *mut GraphNode, graph: Graph, after: *const GraphNode, count: usize, at: u64)
        => nodes::free;
    N cuGraphAddNode(
        node: *mut GraphNode, graph: Graph, after: *const GraphNode, count: usize, params: *mut c_int
    ) => nodes::any;
    N cuGraphAddNode_v2(
        node: *mut GraphNode, graph: Graph, after: *const GraphNode, data: *const c_void, count: usize,
        params: *mut c_int
    ) => nodes::any_v2;
    N cuGraphKernelNodeSetParams(node: GraphNode, params: *const c_void) => graphs::change_node;
    N cuGraphKernelNodeSetParams_v2(node: GraphNode, params: *const c_void) => graphs::change_node;
    N cuGraphMemcpyNodeSetParams(node: GraphNode, params: *const c_void) => graphs::change_node;
    N cuGraphMemsetNodeSetParams(node: GraphNode, params: *const c_void) => graphs::change_node;
    N cuGraphNodeSetParams(node: GraphNode, params: *const c_void) => graphs::change_node;
    N cuGraphExecKernelNodeSetParams(exec: GraphExec, node: GraphNode, params: *const c_void) => graphs::change_exec;
    N cuGraphExecKernelNodeSetParams_v2(exec: GraphExec, node: GraphNode, params: *const c_void)
        => graphs::change_exec;
    N cuGraphExecMemcpyNodeSetParams(exec: GraphExec, node: GraphNode, params: *const c_void, context: Context)
        => graphs::change_exec_in;
    N cuGraphExecMemsetNodeSetParams(exec: GraphExec, node: GraphNode, params: *const c_void, context: Context)
        => graphs::change_exec_in;
    N cuGraphExecNodeSetParams(exec: GraphExec, node: GraphNode, params: *const c_void) => graphs::change_exec;
    N cuGraphExecChildGraphNodeSetParams(exec: GraphExec, node: GraphNode, child: Graph) => graphs::change_exec_child;
    N cuGraphNodeSetEnabled(exec: GraphExec, node: GraphNode, enabled: c_uint) => graphs::enable_node;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::real::exported;

    fn entry(name: &str) -> Option<usize> {
        exported(name, &WRAPPED)
    }

    #[test]
    fn names_lead_to_their_wrappers() {
        assert_eq!(entry("cuMemAllocAsync"), Some(cuMemAllocAsync::plain as *const () as usize));
        assert_eq!(entry("cuMemAllocAsync_ptsz"), Some(cuMemAllocAsync::twin as *const () as usize));
        assert_eq!(entry("cuMemcpy_ptds"), Some(cuMemcpy::twin as *const () as usize));
        assert_eq!((entry("cuMemcpy_ptsz"), entry("cuInit"), entry("cuStreamCreate_ptsz")), (None, None, None));
    }
}
