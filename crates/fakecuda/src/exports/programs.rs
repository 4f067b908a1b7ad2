//! Functions that programs of the driver API use and Millpond's own driver does not: allocations, kernels, pools, and
//! nodes of graphs for them.
//!
//! A kernel is a function of the program, `void name(void **params)`. The program also exports `size_t name_params[]`,
//! the sizes of its parameters, which ends in 0.

use std::alloc::Layout;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::sync::{LazyLock, Mutex};

use millpond_driver::CopyKind;
use millpond_driver::cuda::abi::graph::{AllocNode, Graph, GraphExec, GraphNode, KernelNode2};
use millpond_driver::cuda::abi::{Code, Stream};

use super::graphs::add;
use super::{Given, Place, check, entry, place_of, plain, put, read};
use crate::contexts::current_device;
use crate::current;
use crate::device::graphs::Action;
use crate::device::open;
use crate::device::{Device, end_handle, fresh_handle};
use crate::kernels::{self, Kernel, kernels};
use crate::lock;
use crate::pools::pools;
use crate::settings;

/// A kernel with its arguments, as a host function's data. Never freed, because graphs run it repeatedly.
struct Call {
    run: unsafe extern "C" fn(*mut *mut c_void),
    arguments: Vec<Box<[u64]>>,
}

/// The kernel by which Millpond delays a stream, in a module of its own. Its argument is a number of nanoseconds.
const DELAY: &CStr = c"millpond_delay";

/// Stands for [`DELAY`], which is never called: its launches are delays of the device.
unsafe extern "C" fn delay(_params: *mut *mut c_void) {}

/// `CUlaunchConfig`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct LaunchConfig {
    _grid: [c_uint; 6],
    _shared_bytes: c_uint,
    stream: Stream,
    _attributes: *const c_void,
    count: c_uint,
}

/// The memory of each module that has some.
static MODULES: LazyLock<Mutex<HashMap<usize, u64>>> = LazyLock::new(Mutex::default);

static HOST: LazyLock<Mutex<HashMap<usize, Layout>>> = LazyLock::new(Mutex::default);

unsafe extern "C" fn run_call(data: *mut c_void) {
    // SAFETY: `call` made it, and it is never freed.
    let call = unsafe { &*data.cast::<Call>() };
    let mut params: Vec<*mut c_void> = call.arguments.iter().map(|it| it.as_ptr().cast_mut().cast()).collect();
    // SAFETY: the program's kernel, with as many arguments as it declares.
    unsafe { (call.run)(params.as_mut_ptr()) };
}

/// `CU_LAUNCH_PARAM_BUFFER_POINTER`, `CU_LAUNCH_PARAM_BUFFER_SIZE`, in this order, and the end.
type Buffer = [*const c_void; 5];

/// Returns the data of a call of a kernel, with copies of its arguments.
///
/// # Safety
/// The arguments are as many as the kernel has, or a list with a buffer that contains them.
unsafe fn call(kernel: usize, params: *const *const c_void, extra: *const Buffer) -> Result<*mut c_void, Code> {
    let kernel = kernels().get(&kernel).cloned().ok_or(Code::INVALID_HANDLE)?;
    // SAFETY: the caller's list.
    let buffer = match unsafe { extra.as_ref() } {
        Some([first, start, second, _, end]) if params.is_null() => {
            check((first.addr(), second.addr(), end.addr()) == (1, 2, 0))?;
            Some(start.cast::<u8>())
        }
        Some(_) => return Err(Code::INVALID_VALUE),
        None => None,
    };
    if buffer.is_none() && params.is_null() && !kernel.params.is_empty() {
        return Err(Code::INVALID_VALUE);
    }
    let mut arguments = Vec::new();
    for (at, (offset, bytes)) in kernel.params.iter().enumerate() {
        let mut copy = vec![0u64; bytes.div_ceil(8)].into_boxed_slice();
        let from = match buffer {
            Some(start) => start.wrapping_add(*offset),
            None => {
                // SAFETY: the caller's list.
                let place = unsafe { params.add(at) };
                // SAFETY: as above.
                unsafe { *place }.cast::<u8>()
            }
        };
        // SAFETY: the argument has that size.
        unsafe { from.copy_to_nonoverlapping(copy.as_mut_ptr().cast(), *bytes) };
        arguments.push(copy);
    }
    Ok(Box::into_raw(Box::new(Call { run: kernel.run, arguments })).cast())
}

/// Launches a kernel on a stream.
///
/// # Safety
/// As of [`call`].
unsafe fn launch(
    kernel: usize,
    stream: Stream,
    params: *const *const c_void,
    extra: *const Buffer,
) -> Result<(), Code> {
    if kernels().get(&kernel).is_some_and(|kernel| kernel.name.as_c_str() == DELAY) {
        // SAFETY: the caller's list, with one argument.
        let place = unsafe { params.as_ref() }.ok_or(Code::INVALID_VALUE)?.cast::<u64>();
        // SAFETY: the argument is a number of eight bytes.
        return current_device()?.delay(stream, unsafe { place.read_unaligned() });
    }
    // SAFETY: the caller's promise.
    let data = unsafe { call(kernel, params, extra) }?;
    current_device()?.host_function(stream, run_call, data)
}

/// Allocates on a stream; in a capture this adds a node.
fn allocate_on(device: &Device, stream: Stream, bytes: usize, pool: Option<usize>) -> Result<u64, Code> {
    match device.capture_status(stream)? {
        0 => {
            device.finish_nothing(stream)?;
            let mut pools = pools();
            let pool = pool.map_or_else(|| pools.current_of(device.ordinal), Ok)?;
            pools.check(pool)?;
            let at = device.allocate(bytes)?;
            let (_, whole) = device.allocation_around(at).ok_or(Code::UNKNOWN)?;
            pools.allocated(pool, at, whole)?;
            Ok(at)
        }
        _ => {
            device.state()?.graphs.capture(stream, Action::Empty)?;
            let at = device.allocate_node(bytes)?;
            device.state()?.graphs.note_memory(stream, at);
            Ok(at)
        }
    }
}

/// Returns the stream that a handle names in a function with `_ptsz` in its name.
fn of_thread(stream: Stream) -> Stream {
    if stream == Stream(0) { Stream::PER_THREAD } else { stream }
}

fn free_on(device: &Device, stream: Stream, at: u64) -> Result<(), Code> {
    match device.capture_status(stream)? {
        0 => device.finish_nothing(stream)?,
        _ => drop(device.state()?.graphs.capture(stream, Action::Empty)?),
    }
    free_known(device, at)
}

/// Frees memory, which may be of a pool.
fn free_known(device: &Device, at: u64) -> Result<(), Code> {
    // Before the free: then another thread may get the address.
    let known = pools().take(at);
    let freed = device.free(at);
    known.into_iter().for_each(|known| pools().freed(at, known, freed.is_ok()));
    freed
}

/// Returns the address of a symbol of the program.
fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: a function of the C library, with its type.
    unsafe extern "C" {
        fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    }
    // SAFETY: the name is a string; a null library means all loaded ones.
    unsafe { dlsym(std::ptr::null_mut(), name.as_ptr()) }
}

fn copy_kind(device: &Device, to: u64, from: u64) -> Result<CopyKind, Code> {
    let state = device.state()?;
    Ok(match (state.memory.contains(to), state.memory.contains(from)) {
        (true, false) => CopyKind::HostToDevice,
        (false, true) => CopyKind::DeviceToHost,
        (true, true) => CopyKind::DeviceToDevice,
        (false, false) => return Err(Code::NOT_SUPPORTED),
    })
}

fn allocate_host(at: Place<*mut c_void>, bytes: usize) -> Result<(), Code> {
    current_device()?.check_unsafe()?;
    let layout = Layout::from_size_align(bytes.max(1), 4096).map_err(|_| Code::INVALID_VALUE)?;
    // SAFETY: the size is at least one byte.
    let start = unsafe { std::alloc::alloc_zeroed(layout) };
    if start.is_null() {
        return Err(Code::OUT_OF_MEMORY);
    }
    lock(&HOST).insert(start.expose_provenance(), layout);
    put(at, start.cast())
}

fn copy_now(to: u64, from: u64, bytes: usize) -> Result<(), Code> {
    let device = current_device()?;
    let kind = copy_kind(&device, to, from)?;
    device.copy(Stream(0), to, from, bytes as u64, kind)?;
    device.finish(Stream(0))
}

/// `CUDA_ARRAY_DESCRIPTOR`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Shape {
    width: usize,
    height: usize,
    _format: c_uint,
    channels: c_uint,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct DeepShape {
    width: usize,
    height: usize,
    depth: usize,
    _format: c_uint,
    channels: c_uint,
    _flags: c_uint,
}

fn allocate_now(at: Place<u64>, bytes: usize) -> Result<(), Code> {
    let device = current_device()?;
    device.check_unsafe()?;
    put(at, device.allocate_in_context(bytes)?)
}

/// Makes an array with four bytes for each channel. Its handle is its address.
fn make_array(array: Place<u64>, sizes: [usize; 4]) -> Result<(), Code> {
    let bytes = sizes.iter().fold(4_usize, |bytes, size| bytes.saturating_mul((*size).max(1)));
    allocate_now(array, bytes)
}

fn free_now(at: u64) -> Result<(), Code> {
    // An address is of one device, whatever the current context is.
    let known = open::devices().find(|(_, device)| device.contains(at)).map(|(_, device)| device);
    let device = known.map_or_else(current_device, Ok)?;
    device.check_unsafe()?;
    device.wait_for_all()?;
    free_known(&device, at)
}

exports! {
    cuMemAlloc_v2(at: Place<u64>, bytes: usize) {
        allocate_now(at, bytes)
    };
    cuMemAllocManaged(at: Place<u64>, bytes: usize, _flags: c_uint) {
        allocate_now(at, bytes)
    };
    cuMemAllocPitch_v2(at: Place<u64>, pitch: Place<usize>, width: usize, height: usize, _element: c_uint) {
        let row = width.next_multiple_of(512);
        put(pitch, row)?;
        allocate_now(at, row.saturating_mul(height))
    };
    cuArrayCreate_v2(array: Place<u64>, shape: Given<Shape>) {
        let Shape { width, height, channels, .. } = read(shape)?;
        make_array(array, [width, height, 1, channels as usize])
    };
    cuArray3DCreate_v2(array: Place<u64>, shape: Given<DeepShape>) {
        let DeepShape { width, height, depth, channels, .. } = read(shape)?;
        make_array(array, [width, height, depth, channels as usize])
    };
    cuArrayDestroy(array: u64) {
        free_now(array)
    };
    cuMipmappedArrayCreate(array: Place<u64>, shape: Given<DeepShape>, levels: c_uint) {
        let DeepShape { width, height, depth, channels, .. } = read(shape)?;
        check(levels > 0)?;
        make_array(array, [width, height, depth, channels as usize * 2])
    };
    cuMipmappedArrayDestroy(array: u64) {
        free_now(array)
    };
    cuDeviceGetGraphMemAttribute(device: c_int, which: c_int, value: *mut u64) {
        const RESERVED: c_int = 2;
        check(which == RESERVED)?;
        open::check(device)?;
        current_device()?.check_unsafe()?;
        let bytes = open::device(device).map_or(Ok(0), |device| device.node_bytes())?;
        // SAFETY: the caller's place, for a number of 64 bits by this attribute.
        put(unsafe { place_of(value.cast()) }, bytes)
    };
    cuDeviceGraphMemTrim(device: c_int) {
        open::check(device)?;
        current_device()?.check_unsafe()?;
        open::device(device).map_or(Ok(()), |device| device.trim_nodes())
    };
    cuMemFree_v2(at: u64) {
        free_now(at)
    };
    cuMemHostAlloc(at: Place<*mut c_void>, bytes: usize, _flags: c_uint) {
        allocate_host(at, bytes)
    };
    cuMemAllocHost_v2(at: Place<*mut c_void>, bytes: usize) {
        allocate_host(at, bytes)
    };
    cuMemFreeHost(at: *mut c_void) {
        let device = current_device()?;
        device.check_unsafe()?;
        device.wait_for_all()?;
        let layout = lock(&HOST).remove(&at.expose_provenance()).ok_or(Code::INVALID_VALUE)?;
        // SAFETY: it was allocated with that layout, and nothing in flight uses it.
        unsafe { std::alloc::dealloc(at.cast(), layout) };
        Ok(())
    };
    cuMemAllocAsync(at: Place<u64>, bytes: usize, stream: Stream) {
        put(at, allocate_on(&*current_device()?, stream, bytes, None)?)
    };
    cuMemAllocAsync_ptsz(at: Place<u64>, bytes: usize, stream: Stream) {
        put(at, allocate_on(&*current_device()?, of_thread(stream), bytes, None)?)
    };
    cuMemAllocFromPoolAsync(at: Place<u64>, bytes: usize, pool: usize, stream: Stream) {
        put(at, allocate_on(&*current_device()?, stream, bytes, Some(pool))?)
    };
    cuMemFreeAsync(at: u64, stream: Stream) {
        free_on(&*current_device()?, stream, at)
    };
    cuMemFreeAsync_ptsz(at: u64, stream: Stream) {
        free_on(&*current_device()?, of_thread(stream), at)
    };
    cuMemsetD8Async_ptsz(at: u64, value: u8, bytes: usize, stream: Stream) {
        current_device()?.fill(of_thread(stream), at, bytes as u64, value)
    };
    cuMemcpyHtoD_v2(to: u64, from: u64, bytes: usize) {
        copy_now(to, from, bytes)
    };
    cuMemcpyDtoH_v2(to: u64, from: u64, bytes: usize) {
        copy_now(to, from, bytes)
    };
    cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: Stream) {
        let device = current_device()?;
        let kind = copy_kind(&device, to, from)?;
        device.copy(stream, to, from, bytes as u64, kind)
    };
    cuStreamQuery(stream: Stream) => finish;
    cuModuleLoadData(module: Place<usize>, _image: *const c_void) {
        let handle = fresh_handle();
        let bytes = settings::module_bytes();
        if bytes > 0 {
            lock(&MODULES).insert(handle, current_device()?.allocate_in_context(bytes)?);
        }
        put(module, handle)
    };
    cuModuleUnload(module: usize) {
        let memory = lock(&MODULES).remove(&module);
        memory.map_or(Ok(()), free_now)?;
        end_handle(module);
        kernels::forget(|kernel| kernel.module == module);
        Ok(())
    };
    cuModuleGetFunction(function: Place<usize>, module: usize, name: *const c_char) {
        // SAFETY: the caller's string.
        let name = unsafe { CStr::from_ptr(name) }.to_owned();
        if name.as_c_str() == DELAY {
            let (handle, context) = (fresh_handle(), current::context());
            kernels().insert(handle, Kernel { module, context, name, run: delay, params: vec![(0, 8)] });
            return put(function, handle);
        }
        let sizes = CString::new([name.to_bytes(), b"_params"].concat()).map_err(|_| Code::INVALID_VALUE)?;
        let (run, sizes) = (symbol(&name), symbol(&sizes).cast::<usize>());
        if run.is_null() || sizes.is_null() {
            return Err(Code::NOT_FOUND);
        }
        let mut params = Vec::new();
        let mut offset = 0usize;
        loop {
            // SAFETY: the list ends in 0, which has not come yet.
            let place = unsafe { sizes.add(params.len()) };
            // SAFETY: as above.
            let bytes = unsafe { *place };
            if bytes == 0 {
                break;
            }
            offset = offset.next_multiple_of(bytes.min(8));
            params.push((offset, bytes));
            offset += bytes;
        }
        // SAFETY: the program's kernel has this type, by the rule above.
        let run = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut *mut c_void)>(run) };
        let handle = fresh_handle();
        kernels().insert(handle, Kernel { module, context: current::context(), name, run, params });
        put(function, handle)
    };
    cuFuncGetParamInfo(function: usize, at: usize, offset: Place<usize>, bytes: Place<usize>) {
        let all = kernels();
        let kernel = all.get(&function).ok_or(Code::INVALID_HANDLE)?;
        let (from, size) = *kernel.params.get(at).ok_or(Code::INVALID_VALUE)?;
        put(offset, from)?;
        put(bytes, size)
    };
    cuFuncGetName(name: Place<*const c_char>, function: usize) {
        let all = kernels();
        put(name, all.get(&function).ok_or(Code::INVALID_HANDLE)?.name.as_ptr())
    };
    cuLaunchKernel(
        function: usize, _gx: c_uint, _gy: c_uint, _gz: c_uint, _bx: c_uint, _by: c_uint, _bz: c_uint, _shared: c_uint,
        stream: Stream, params: *const *const c_void, extra: *const Buffer
    ) {
        // SAFETY: the caller's arguments.
        unsafe { launch(function, stream, params, extra) }
    };
    cuLaunchKernelEx(
        config: Given<LaunchConfig>, function: usize, params: *const *const c_void, extra: *const Buffer
    ) {
        let LaunchConfig { stream, count: 0, .. } = read(config)? else { return Err(Code::NOT_SUPPORTED) };
        // SAFETY: the caller's arguments.
        unsafe { launch(function, stream, params, extra) }
    };
    cuGraphClone(copy: Place<Graph>, graph: Graph) => put copy_graph;
    cuGraphDestroyNode(node: GraphNode) {
        current_device()?.change_node(node, None)
    };
    cuGraphKernelNodeSetParams_v2(node: GraphNode, params: Given<KernelNode2>) {
        let KernelNode2 { first, .. } = read(params)?;
        // SAFETY: the caller's arguments.
        let data = unsafe { call(first.function.0, first.params.cast_const().cast(), std::ptr::null()) }?;
        let action = Action::Host { function: run_call, data: data.expose_provenance() };
        current_device()?.change_node(node, Some(action))
    };
    cuGraphExecUpdate_v2(exec: GraphExec, graph: Graph, _info: *mut c_void) {
        current_device()?.update_exec(exec, graph)
    };
    cuGraphAddKernelNode_v2(
        node: Place<GraphNode>, graph: Graph, after: *const GraphNode, count: usize, params: Given<KernelNode2>
    ) {
        let KernelNode2 { first, .. } = read(params)?;
        // SAFETY: the caller's arguments.
        let data = unsafe { call(first.function.0, first.params.cast_const().cast(), std::ptr::null()) }?;
        let action = Action::Host { function: run_call, data: data.expose_provenance() };
        // SAFETY: the caller's dependencies.
        unsafe { add(node, graph, after, count, action) }
    };
    cuGraphAddMemAllocNode(
        node: Place<GraphNode>, graph: Graph, after: *const GraphNode, count: usize, params: Option<&mut AllocNode>
    ) {
        let params = params.ok_or(Code::INVALID_VALUE)?;
        params.at = current_device()?.allocate_node(params.bytes)?;
        // SAFETY: the caller's dependencies.
        unsafe { add(node, graph, after, count, Action::Empty) }
    };
    cuGraphAddMemFreeNode(node: Place<GraphNode>, graph: Graph, after: *const GraphNode, count: usize, _at: u64) {
        // SAFETY: the caller's dependencies.
        unsafe { add(node, graph, after, count, Action::Empty) }
    };
}
