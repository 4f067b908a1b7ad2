//! CUDA's own allocator, called directly: streams, pools and graphs of the device that the tests run on.
//!
//! Calls that prepare a test must succeed, and panic with the call's name otherwise. Calls that a test asks about
//! return a code. All work is in the primary context, as in Millpond.

use std::ffi::{c_int, c_uint, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use millpond_driver::cuda::LIBRARY_VARIABLE;
use millpond_driver::cuda::abi::graph::{AllocNode, Graph, GraphExec, GraphNode, KernelNode, KernelNode2};
use millpond_driver::cuda::abi::pool::{Pool, PoolProps, attribute};
use millpond_driver::cuda::abi::{Code, Context, EVENT_DISABLE_TIMING, Event, Function, STREAM_NON_BLOCKING, Stream};

use super::table::{Table, UpdateInfo};

/// `CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`
pub(crate) const AUTO_FREE: u64 = 1;
/// `CU_STREAM_CAPTURE_MODE_GLOBAL`
const GLOBAL: c_int = 0;

/// A kernel that writes four bytes.
pub(crate) const PTX: &std::ffi::CStr = c"
.version 7.0
.target sm_80
.address_size 64
.visible .entry touch(.param .u64 at, .param .u32 value)
{
    .reg .b64 %rd1;
    .reg .b32 %r1;
    ld.param.u64 %rd1, [at];
    ld.param.u32 %r1, [value];
    st.u32 [%rd1], %r1;
    ret;
}
";

/// The device as CUDA programs see it.
pub(crate) struct Cuda {
    pub(crate) table: Table,
    pub(crate) device: c_int,
    context: Context,
    kernel: Function,
}

/// A graph with one alloc node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WithAlloc {
    pub(crate) graph: Graph,
    pub(crate) node: GraphNode,
    pub(crate) at: u64,
}

impl Cuda {
    /// Opens the first device, with its primary context.
    pub(crate) fn open() -> Cuda {
        let name = std::env::var_os(LIBRARY_VARIABLE).filter(|name| !name.is_empty());
        let name = name.unwrap_or_else(|| "libcuda.so.1".into());
        let table = Table::open(Path::new(&name)).expect("the driver library");
        let (mut device, mut context) = (0, Context::default());
        must(&table, "cuInit", table.init(0));
        must(&table, "cuDeviceGet", table.device(&raw mut device, 0));
        must(&table, "cuDevicePrimaryCtxRetain", table.retain(&raw mut context, device));
        must(&table, "cuCtxSetCurrent", table.set_current(context));
        let (mut module, mut kernel) = (0, Function::default());
        must(&table, "cuModuleLoadData", table.load(&raw mut module, PTX.as_ptr().cast()));
        must(&table, "cuModuleGetFunction", table.kernel_of(&raw mut kernel, module, c"touch".as_ptr()));
        let cuda = Cuda { table, device, context, kernel };
        // It is loaded at its first launch, which must not be in a capture.
        let (stream, mut at) = (cuda.stream(), 0);
        cuda.must("cuMemAlloc", cuda.table.alloc_now(&raw mut at, 4096));
        cuda.must("cuLaunchKernel", cuda.touch(at, stream));
        cuda.finish(stream);
        cuda.must("cuMemFree", cuda.table.free_now(at));
        cuda
    }

    /// Asserts that a call that prepares a test succeeds.
    #[track_caller]
    pub(crate) fn must(&self, call: &str, code: Code) {
        must(&self.table, call, code);
    }

    /// Makes the primary context current on the thread.
    #[track_caller]
    pub(crate) fn enter(&self) {
        self.must("cuCtxSetCurrent", self.table.set_current(self.context));
    }

    #[track_caller]
    pub(crate) fn stream(&self) -> Stream {
        let mut stream = Stream::default();
        self.must("cuStreamCreate", self.table.stream_create(&raw mut stream, STREAM_NON_BLOCKING));
        stream
    }

    /// Records an event at the end of a stream.
    #[track_caller]
    pub(crate) fn record(&self, stream: Stream) -> Event {
        let mut event = Event::default();
        self.must("cuEventCreate", self.table.event_create(&raw mut event, EVENT_DISABLE_TIMING));
        self.must("cuEventRecord", self.table.event_record(event, stream));
        event
    }

    /// Makes `later` come after all that is in `earlier`.
    #[track_caller]
    pub(crate) fn order(&self, earlier: Stream, later: Stream) {
        let event = self.record(earlier);
        self.must("cuStreamWaitEvent", self.table.stream_wait(later, event, 0));
        self.must("cuEventDestroy", self.table.event_destroy(event));
    }

    #[track_caller]
    pub(crate) fn finish(&self, stream: Stream) {
        self.must("cuStreamSynchronize", self.table.stream_synchronize(stream));
    }

    /// Makes a pool with a release threshold and a limit (0 for none).
    #[track_caller]
    pub(crate) fn pool(&self, threshold: u64, max_bytes: usize) -> Pool {
        let (mut pool, props) = (Pool::default(), PoolProps::on(self.device, max_bytes));
        self.must("cuMemPoolCreate", self.table.pool_create(&raw mut pool, &raw const props));
        let mut threshold = threshold;
        let place = (&raw mut threshold).cast();
        self.must("cuMemPoolSetAttribute", self.table.pool_set(pool, attribute::RELEASE_THRESHOLD, place));
        pool
    }

    /// Sets when freed memory may serve another stream: by events, if its use has completed, by a wait.
    #[track_caller]
    pub(crate) fn set_reuse(&self, pool: Pool, allowed: [bool; 3]) {
        let which = [attribute::FOLLOW_EVENTS, attribute::OPPORTUNISTIC, attribute::INTERNAL];
        for (which, allowed) in which.into_iter().zip(allowed) {
            let mut value = c_int::from(allowed);
            self.must("cuMemPoolSetAttribute", self.table.pool_set(pool, which, (&raw mut value).cast()));
        }
    }

    /// Returns a statistic of a pool, in bytes.
    #[track_caller]
    pub(crate) fn figure(&self, pool: Pool, which: c_int) -> u64 {
        let mut value = 0u64;
        self.must("cuMemPoolGetAttribute", self.table.pool_figure(pool, which, (&raw mut value).cast()));
        value
    }

    /// Resets a high mark to the current value.
    pub(crate) fn reset(&self, pool: Pool, which: c_int) -> Code {
        let mut value = 0u64;
        self.table.pool_set(pool, which, (&raw mut value).cast())
    }

    /// Returns a statistic of graph memory, in bytes.
    #[track_caller]
    pub(crate) fn graph_figure(&self, which: c_int) -> u64 {
        let mut value = 0u64;
        let code = self.table.graph_figure(self.device, which, (&raw mut value).cast());
        self.must("cuDeviceGetGraphMemAttribute", code);
        value
    }

    /// Allocates. Returns the code and the address.
    pub(crate) fn alloc(&self, pool: Pool, bytes: usize, stream: Stream) -> (Code, u64) {
        let mut at = 0;
        (self.table.alloc_from(&raw mut at, bytes, pool, stream), at)
    }

    /// Allocates, which must succeed.
    #[track_caller]
    pub(crate) fn had(&self, pool: Pool, bytes: usize, stream: Stream) -> u64 {
        let (code, at) = self.alloc(pool, bytes, stream);
        self.must("cuMemAllocFromPoolAsync", code);
        at
    }

    pub(crate) fn free(&self, at: u64, stream: Stream) -> Code {
        self.table.free_async(at, stream)
    }

    /// Launches a kernel that writes the first bytes at an address.
    pub(crate) fn touch(&self, at: u64, stream: Stream) -> Code {
        let (mut at, mut value) = (at, 7u32);
        let mut arguments: [*mut c_void; 2] = [(&raw mut at).cast(), (&raw mut value).cast()];
        let (arguments, none) = (arguments.as_mut_ptr(), std::ptr::null_mut());
        self.table.launch_kernel(self.kernel, 1, 1, 1, 1, 1, 1, 0, stream, arguments, none)
    }

    #[track_caller]
    pub(crate) fn graph(&self) -> Graph {
        let mut graph = Graph::default();
        self.must("cuGraphCreate", self.table.graph_create(&raw mut graph, 0));
        graph
    }

    /// Adds an alloc node. Returns the code, the node and the address.
    pub(crate) fn add_alloc(&self, graph: Graph, after: &[GraphNode], bytes: usize) -> (Code, GraphNode, u64) {
        let pool = PoolProps::on(self.device, 0);
        let mut params = AllocNode { pool, access: std::ptr::null(), access_count: 0, bytes, at: 0 };
        let mut node = GraphNode::default();
        let (place, count) = (nodes(after), after.len());
        let code = self.table.add_alloc(&raw mut node, graph, place, count, &raw mut params);
        (code, node, params.at)
    }

    #[track_caller]
    pub(crate) fn with_alloc(&self, bytes: usize) -> WithAlloc {
        let graph = self.graph();
        let (code, node, at) = self.add_alloc(graph, &[], bytes);
        self.must("cuGraphAddMemAllocNode", code);
        WithAlloc { graph, node, at }
    }

    pub(crate) fn add_free(&self, graph: Graph, after: &[GraphNode], at: u64) -> (Code, GraphNode) {
        let mut node = GraphNode::default();
        (self.table.add_free(&raw mut node, graph, nodes(after), after.len(), at), node)
    }

    /// Adds a kernel node that writes the first bytes at an address.
    #[track_caller]
    pub(crate) fn add_touch(&self, graph: Graph, after: &[GraphNode], at: u64) -> GraphNode {
        let (mut node, mut at, mut value) = (GraphNode::default(), at, 7u32);
        let mut arguments: [*mut c_void; 2] = [(&raw mut at).cast(), (&raw mut value).cast()];
        let one: [c_uint; 3] = [1; 3];
        let (params, extra) = (arguments.as_mut_ptr(), std::ptr::null_mut());
        let first = KernelNode { function: self.kernel, grid: one, block: one, shared_bytes: 0, params, extra };
        let params = KernelNode2 { first, kernel: Function::default(), context: Context::default() };
        let (place, count) = (nodes(after), after.len());
        let code = self.table.add_kernel(&raw mut node, graph, place, count, &raw const params);
        self.must("cuGraphAddKernelNode", code);
        node
    }

    pub(crate) fn instantiate(&self, graph: Graph, flags: u64) -> (Code, GraphExec) {
        let mut exec = GraphExec::default();
        (self.table.instantiate(&raw mut exec, graph, flags), exec)
    }

    #[track_caller]
    pub(crate) fn exec(&self, graph: Graph, flags: u64) -> GraphExec {
        let (code, exec) = self.instantiate(graph, flags);
        self.must("cuGraphInstantiate", code);
        exec
    }

    pub(crate) fn update(&self, exec: GraphExec, graph: Graph) -> Code {
        let mut info = UpdateInfo::default();
        self.table.update(exec, graph, &raw mut info)
    }

    pub(crate) fn begin_capture(&self, stream: Stream) -> Code {
        self.table.begin_capture(stream, GLOBAL)
    }

    pub(crate) fn end_capture(&self, stream: Stream) -> (Code, Graph) {
        let mut graph = Graph::default();
        (self.table.end_capture(stream, &raw mut graph), graph)
    }

    /// Keeps a stream busy until the returned value is dropped, for a few seconds at most.
    #[track_caller]
    pub(crate) fn hold(&self, stream: Stream) -> Hold {
        let gate: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        let place = std::ptr::from_ref(gate).cast_mut().cast::<c_void>();
        self.must("cuLaunchHostFunc", self.table.host_function(stream, wait, place));
        Hold(gate)
    }
}

/// Keeps a stream busy until it is dropped.
#[must_use = "the stream is busy only as long as this lives"]
pub(crate) struct Hold(&'static AtomicBool);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The work of a busy stream. A failing test must not leave the device waiting for ever.
unsafe extern "C" fn wait(gate: *mut c_void) {
    // SAFETY: it comes from `hold`, and is never freed.
    let gate = unsafe { &*gate.cast_const().cast::<AtomicBool>() };
    let end = Instant::now() + Duration::from_secs(5);
    while !gate.load(Ordering::Acquire) && Instant::now() < end {
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Returns the pointer to dependencies; null for none, as the header requires.
fn nodes(after: &[GraphNode]) -> *const GraphNode {
    if after.is_empty() { std::ptr::null() } else { after.as_ptr() }
}

#[track_caller]
fn must(table: &Table, call: &str, code: Code) {
    assert!(code == Code::SUCCESS, "{call}, which this test needs, answered {}", table.explain(code));
}
