//! The driver library's functions about its own allocator, and the functions that these need.
//!
//! Depends on names, signatures and layouts of the `cuda.h` of 13.0. The layouts are asserted. Nothing is checked here:
//! every answer is a code.

// Other test programs use only a part of it.
#![allow(dead_code)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::{offset_of, size_of};
use std::path::Path;

use millpond_driver::cuda::abi::graph::{AllocNode, Graph, GraphExec, GraphNode, HostFunction, KernelNode2};
use millpond_driver::cuda::abi::pool::{Pool, PoolProps};
use millpond_driver::cuda::abi::{Code, Context, Event, Function, Stream};

/// `CUgraphExecUpdateResultInfo`
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub(crate) struct UpdateInfo {
    pub(crate) result: c_int,
    pub(crate) node: GraphNode,
    pub(crate) from: GraphNode,
}

const _: () = assert!(size_of::<UpdateInfo>() == 24 && offset_of!(UpdateInfo, node) == 8);

/// Numbers of `CUgraphMem_attribute`.
pub(crate) mod graph_attribute {
    use std::ffi::c_int;

    pub(crate) const USED: c_int = 0;
    pub(crate) const USED_HIGH: c_int = 1;
    pub(crate) const RESERVED: c_int = 2;
    pub(crate) const RESERVED_HIGH: c_int = 3;
}

/// Writes the table: a field and a method for each function, with its exported name.
macro_rules! table {
    ($($name:ident = $symbol:literal ($($argument:ident: $type:ty),*);)*) => {
        /// The functions.
        pub(crate) struct Table {
            $($name: unsafe extern "C" fn($($type),*) -> Code,)*
        }

        #[allow(clippy::too_many_arguments)]
        impl Table {
            fn resolve(library: &libloading::Library) -> Self {
                Self { $($name: {
                    // SAFETY: the header has this signature.
                    let found = unsafe { library.get::<unsafe extern "C" fn($($type),*) -> Code>($symbol) };
                    *found.unwrap_or_else(|error| panic!("the driver library has no `{}`: {error}", $symbol))
                },)* }
            }

            $(pub(crate) fn $name(&self, $($argument: $type),*) -> Code {
                // SAFETY: the tests pass pointers and handles as the header defines them; the library documents that it
                // refuses wrong ones.
                unsafe { (self.$name)($($argument),*) }
            })*
        }
    };
}

table! {
    init = "cuInit" (flags: c_uint);
    device = "cuDeviceGet" (device: *mut c_int, ordinal: c_int);
    retain = "cuDevicePrimaryCtxRetain" (context: *mut Context, device: c_int);
    release = "cuDevicePrimaryCtxRelease_v2" (device: c_int);
    set_current = "cuCtxSetCurrent" (context: Context);
    create_context = "cuCtxCreate_v2" (context: *mut Context, flags: c_uint, device: c_int);
    destroy_context = "cuCtxDestroy_v2" (context: Context);
    synchronize = "cuCtxSynchronize" ();
    error_name = "cuGetErrorName" (code: Code, name: *mut *const c_char);
    memory_info = "cuMemGetInfo_v2" (free: *mut usize, total: *mut usize);
    alloc_now = "cuMemAlloc_v2" (at: *mut u64, bytes: usize);
    free_now = "cuMemFree_v2" (at: u64);
    alloc_async = "cuMemAllocAsync" (at: *mut u64, bytes: usize, stream: Stream);
    alloc_from = "cuMemAllocFromPoolAsync" (at: *mut u64, bytes: usize, pool: Pool, stream: Stream);
    free_async = "cuMemFreeAsync" (at: u64, stream: Stream);
    host_alloc = "cuMemHostAlloc" (at: *mut *mut c_void, bytes: usize, flags: c_uint);
    host_free = "cuMemFreeHost" (at: *mut c_void);
    pool_create = "cuMemPoolCreate" (pool: *mut Pool, props: *const PoolProps);
    pool_destroy = "cuMemPoolDestroy" (pool: Pool);
    pool_figure = "cuMemPoolGetAttribute" (pool: Pool, which: c_int, value: *mut c_void);
    pool_set = "cuMemPoolSetAttribute" (pool: Pool, which: c_int, value: *mut c_void);
    pool_trim = "cuMemPoolTrimTo" (pool: Pool, keep_bytes: usize);
    stream_create = "cuStreamCreate" (stream: *mut Stream, flags: c_uint);
    stream_destroy = "cuStreamDestroy_v2" (stream: Stream);
    stream_synchronize = "cuStreamSynchronize" (stream: Stream);
    stream_query = "cuStreamQuery" (stream: Stream);
    stream_wait = "cuStreamWaitEvent" (stream: Stream, event: Event, flags: c_uint);
    event_create = "cuEventCreate" (event: *mut Event, flags: c_uint);
    event_destroy = "cuEventDestroy_v2" (event: Event);
    event_record = "cuEventRecord" (event: Event, stream: Stream);
    event_query = "cuEventQuery" (event: Event);
    event_synchronize = "cuEventSynchronize" (event: Event);
    fill = "cuMemsetD8Async" (at: u64, value: u8, bytes: usize, stream: Stream);
    copy_out = "cuMemcpyDtoHAsync_v2" (to: *mut c_void, from: u64, bytes: usize, stream: Stream);
    host_function = "cuLaunchHostFunc" (stream: Stream, function: HostFunction, data: *mut c_void);
    load = "cuModuleLoadData" (module: *mut usize, image: *const c_void);
    kernel_of = "cuModuleGetFunction" (kernel: *mut Function, module: usize, name: *const c_char);
    launch_kernel = "cuLaunchKernel" (
        kernel: Function, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint,
        block_z: c_uint, shared_bytes: c_uint, stream: Stream, arguments: *mut *mut c_void, extra: *mut *mut c_void
    );
    graph_create = "cuGraphCreate" (graph: *mut Graph, flags: c_uint);
    graph_destroy = "cuGraphDestroy" (graph: Graph);
    graph_clone = "cuGraphClone" (clone: *mut Graph, graph: Graph);
    add_alloc = "cuGraphAddMemAllocNode" (
        node: *mut GraphNode, graph: Graph, after: *const GraphNode, count: usize, params: *mut AllocNode
    );
    add_free = "cuGraphAddMemFreeNode" (
        node: *mut GraphNode, graph: Graph, after: *const GraphNode, count: usize, at: u64
    );
    add_kernel = "cuGraphAddKernelNode_v2" (
        node: *mut GraphNode, graph: Graph, after: *const GraphNode, count: usize, params: *const KernelNode2
    );
    add_child = "cuGraphAddChildGraphNode" (
        node: *mut GraphNode, graph: Graph, after: *const GraphNode, count: usize, child: Graph
    );
    destroy_node = "cuGraphDestroyNode" (node: GraphNode);
    remove_edges = "cuGraphRemoveDependencies" (
        graph: Graph, from: *const GraphNode, to: *const GraphNode, count: usize
    );
    instantiate = "cuGraphInstantiateWithFlags" (exec: *mut GraphExec, graph: Graph, flags: u64);
    update = "cuGraphExecUpdate_v2" (exec: GraphExec, graph: Graph, info: *mut UpdateInfo);
    launch = "cuGraphLaunch" (exec: GraphExec, stream: Stream);
    exec_destroy = "cuGraphExecDestroy" (exec: GraphExec);
    begin_capture = "cuStreamBeginCapture_v2" (stream: Stream, mode: c_int);
    end_capture = "cuStreamEndCapture" (stream: Stream, graph: *mut Graph);
    graph_figure = "cuDeviceGetGraphMemAttribute" (device: c_int, which: c_int, value: *mut c_void);
    graph_trim = "cuDeviceGraphMemTrim" (device: c_int);
}

impl Table {
    /// Loads the functions of a library, which is never unloaded: other code in the process uses it.
    pub(crate) fn open(path: &Path) -> Result<Self, libloading::Error> {
        // SAFETY: the driver library, which the device under test loads as well.
        let library = unsafe { libloading::Library::new(path) }?;
        Ok(Self::resolve(Box::leak(Box::new(library))))
    }

    /// Returns a code in the library's words.
    pub(crate) fn explain(&self, code: Code) -> String {
        let mut name = std::ptr::null();
        let answer = self.error_name(code, &raw mut name);
        if answer != Code::SUCCESS || name.is_null() {
            return format!("code {}", code.0);
        }
        // SAFETY: an answer is a string that is never freed.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        format!("{} ({})", name.trim_start_matches("CUDA_ERROR_").trim_start_matches("CUDA_"), code.0)
    }
}
