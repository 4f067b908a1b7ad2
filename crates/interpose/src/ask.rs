//! Questions to the real library that change nothing: the current device, a stream's flags, a kernel's parameters.
//!
//! If the library lacks a function, the answer is "not known".

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use millpond_driver::cuda::abi::attribute;

use crate::abi::{Code, Context, Function, Graph, MEMORY_DEVICE, Pool, Stream};
use crate::entry::real;
use crate::mapping;

/// Makes each question a function that looks its real function up once.
macro_rules! questions {
    ($($question:ident $name:literal($($arg:ident: $ty:ty),*);)*) => {$(
        #[allow(clippy::too_many_arguments, reason = "they are CUDA's")]
        fn $question($($arg: $ty),*) -> Code {
            static AT: OnceLock<usize> = OnceLock::new();
            type Real = unsafe extern "C" fn($($ty),*) -> Code;
            const NAME: &CStr = $name;
            let found = *AT.get_or_init(|| real::asked(NAME));
            if found == 0 {
                return Code::NOT_FOUND;
            }
            // SAFETY: the function of this name, and its type by the header.
            let real = unsafe {
                std::mem::transmute::<*const c_void, Real>(std::ptr::with_exposed_provenance(found))
            };
            // SAFETY: places of the module's own functions.
            unsafe { real($($arg),*) }
        }
    )*};
}
pub(crate) use questions;

questions! {
    ctx_device c"cuCtxGetDevice"(device: *mut c_int);
    ctx_current c"cuCtxGetCurrent"(context: *mut Context);
    primary_state c"cuDevicePrimaryCtxGetState"(device: c_int, flags: *mut c_uint, active: *mut c_int);
    primary_retain c"cuDevicePrimaryCtxRetain"(context: *mut Context, device: c_int);
    primary_release c"cuDevicePrimaryCtxRelease_v2"(device: c_int);
    stream_synchronize c"cuStreamSynchronize"(stream: Stream);
    free_async c"cuMemFreeAsync"(at: u64, stream: Stream);
    ctx_push c"cuCtxPushCurrent_v2"(context: Context);
    ctx_pop c"cuCtxPopCurrent_v2"(context: *mut Context);
    stream_flags c"cuStreamGetFlags"(stream: Stream, flags: *mut c_uint);
    stream_context c"cuStreamGetCtx"(stream: Stream, context: *mut Context);
    end_capture c"cuStreamEndCapture"(stream: Stream, graph: *mut Graph);
    graph_destroy c"cuGraphDestroy"(graph: Graph);
    stream_capturing c"cuStreamIsCapturing"(stream: Stream, status: *mut c_int);
    capture_info c"cuStreamGetCaptureInfo"(stream: Stream, status: *mut c_int, number: *mut u64);
    pointer_attribute c"cuPointerGetAttribute"(value: *mut c_uint, attribute: c_int, at: u64);
    address_range c"cuMemGetAddressRange_v2"(base: *mut u64, bytes: *mut usize, at: u64);
    device_uuid c"cuDeviceGetUuid_v2"(uuid: *mut [u8; 16], device: c_int);
    device_total c"cuDeviceTotalMem_v2"(bytes: *mut usize, device: c_int);
    graph_bytes c"cuDeviceGetGraphMemAttribute"(device: c_int, attribute: c_int, value: *mut u64);
    graph_trim c"cuDeviceGraphMemTrim"(device: c_int);
    memory_info c"cuMemGetInfo_v2"(free: *mut usize, total: *mut usize);
    device_count c"cuDeviceGetCount"(count: *mut c_int);
    device_attribute c"cuDeviceGetAttribute"(value: *mut c_int, which: c_int, device: c_int);
    pool_attribute c"cuMemPoolGetAttribute"(pool: Pool, attribute: c_int, value: *mut u64);
    pool_trim c"cuMemPoolTrimTo"(pool: Pool, keep: usize);
    default_pool c"cuDeviceGetDefaultMemPool"(pool: *mut Pool, device: c_int);
    device_pool c"cuDeviceGetMemPool"(pool: *mut Pool, device: c_int);
    function_param c"cuFuncGetParamInfo"(of: Function, at: usize, offset: *mut usize, bytes: *mut usize);
    kernel_param c"cuKernelGetParamInfo"(of: Function, at: usize, offset: *mut usize, bytes: *mut usize);
    function_name c"cuFuncGetName"(name: *mut *const c_char, of: Function);
    kernel_name c"cuKernelGetName"(name: *mut *const c_char, of: Function);
}

fn answer<T: Default>(ask: impl FnOnce(&mut T) -> Code) -> Option<T> {
    let mut value = T::default();
    (ask(&mut value) == Code::SUCCESS).then_some(value)
}

/// Returns the device of the thread's current context; 0 if there is none.
pub(crate) fn current_device() -> i32 {
    context_device().unwrap_or(0)
}

/// Returns the device of the thread's current context.
pub(crate) fn context_device() -> Option<i32> {
    answer(|device| ctx_device(device))
}

/// Returns the thread's current context.
pub(crate) fn current_context() -> Option<Context> {
    answer(|context| ctx_current(context))
}

/// Returns a device's primary context, if it is active.
pub(crate) fn primary_of(device: i32) -> Option<Context> {
    if !is_primary_active(device) {
        return None;
    }
    let context = answer(|context| primary_retain(context, device))?;
    let _ = primary_release(device);
    Some(context)
}

/// Returns `true` unless the driver says that the device's primary context is not active.
pub(crate) fn is_primary_active(device: i32) -> bool {
    let mut flags = 0;
    answer(|active| primary_state(device, &raw mut flags, active)) != Some(0)
}

/// Waits until a stream's work has completed. Returns `false` if the wait fails.
pub(crate) fn wait_for(stream: Stream) -> bool {
    stream_synchronize(stream) == Code::SUCCESS
}

/// Frees memory of a pool on a stream. Returns `false` if the driver refuses.
pub(crate) fn free_on(at: u64, stream: Stream) -> bool {
    free_async(at, stream) == Code::SUCCESS
}

/// Returns the device of a context.
pub(crate) fn device_of(context: Context) -> i32 {
    within(context, current_device).unwrap_or_else(current_device)
}

/// Calls `act` while a context is the thread's current one. Returns `None` if it cannot be.
pub(crate) fn within<R>(context: Context, act: impl FnOnce() -> R) -> Option<R> {
    if ctx_push(context) != Code::SUCCESS {
        return None;
    }
    let done = act();
    let _ = answer(|context| ctx_pop(context));
    Some(done)
}

/// Returns `true` if the stream is non-blocking: it is not ordered with the legacy default stream.
pub(crate) fn is_non_blocking(stream: Stream) -> bool {
    answer(|flags| stream_flags(stream, flags)).is_some_and(|flags| flags & 1 != 0)
}

/// Returns the context of a stream, if the handle is a stream's.
pub(crate) fn context_of(stream: Stream) -> Option<Context> {
    answer(|context| stream_context(stream, context))
}

/// Returns `true` if the stream captures; `None` if the driver does not answer.
pub(crate) fn capture_status(stream: Stream) -> Option<bool> {
    answer(|status| stream_capturing(stream, status)).map(|status| status != 0)
}

/// Ends a capture and destroys its graph.
pub(crate) fn give_capture_up(stream: Stream) {
    if let Some(graph) = answer(|graph| end_capture(stream, graph)).filter(|graph| *graph != Graph::default()) {
        let _ = graph_destroy(graph);
    }
}

/// Returns `true` if the stream captures.
pub(crate) fn is_capturing(stream: Stream) -> bool {
    capture_status(stream).unwrap_or(false)
}

/// Returns `true` if the stream's capture is invalid.
pub(crate) fn is_capture_spoilt(stream: Stream) -> bool {
    const SPOILT: c_int = 2;
    answer(|status| stream_capturing(stream, status)) == Some(SPOILT)
}

/// Returns the driver's number of the capture that a stream is in, if the capture is valid and the driver answers.
pub(crate) fn capture_number(stream: Stream) -> Option<u64> {
    let mut status = 0;
    answer(|number| capture_info(stream, &raw mut status, number)).filter(|_| status == 1)
}

/// Returns the first address and the size of the allocation that an address is in.
pub(crate) fn range_of(at: u64) -> Option<(u64, usize)> {
    let mut bytes = 0;
    let base = answer(|base| address_range(base, &mut bytes, at))?;
    Some((base, bytes))
}

/// Returns `true` if an address is plain host memory now: the process may use it, it is not in a device's file, and the
/// driver does not call it a device's. Addresses that the driver keeps reserved after a free are not accessible.
pub(crate) fn is_of_host(at: u64) -> bool {
    const MEMORY_TYPE: c_int = 2;
    let kind = answer(|kind: &mut c_uint| pointer_attribute(kind, MEMORY_TYPE, at));
    kind != Some(MEMORY_DEVICE as c_uint) && mapping::is_usable(at)
}

/// Returns `true` if the device of the thread's context has access to the memory at an address; `None` if that is not
/// known.
pub(crate) fn has_access(at: u64) -> Option<bool> {
    const ACCESS_FLAGS: c_int = 16;
    answer(|flags: &mut c_uint| pointer_attribute(flags, ACCESS_FLAGS, at)).map(|flags| flags != 0)
}

/// Returns the number of devices.
pub(crate) fn devices() -> i32 {
    answer(|count| device_count(count)).unwrap_or(0)
}

/// Returns `true` if a device has an engine that decompresses memory.
pub(crate) fn decompresses(device: i32) -> bool {
    answer(|value| device_attribute(value, attribute::DECOMPRESSION, device)).is_some_and(|methods| methods != 0)
}

/// Returns the identifier of a device, which is the same in every process.
pub(crate) fn uuid_of(device: i32) -> Option<[u8; 16]> {
    answer(|uuid| device_uuid(uuid, device))
}

/// Returns all memory of a device, in bytes.
pub(crate) fn total_bytes_of(device: i32) -> Option<u64> {
    answer(|bytes| device_total(bytes, device)).map(|bytes| bytes as u64)
}

/// Returns the bytes that the process's graphs have reserved on a device.
pub(crate) fn graph_bytes_of(device: i32) -> Option<u64> {
    const RESERVED: c_int = 2;
    answer(|bytes| graph_bytes(device, RESERVED, bytes))
}

/// Makes graphs give back the memory that they have reserved on a device and do not use.
pub(crate) fn trim_graphs(device: i32) {
    // If the driver refuses, they keep it.
    let _ = graph_trim(device);
}

/// Returns the free bytes of the current context's device.
pub(crate) fn free_bytes() -> Option<u64> {
    let mut total = 0;
    answer(|free| memory_info(free, &raw mut total)).map(|free| free as u64)
}

/// Returns the default pool of a device.
pub(crate) fn default_pool_of(device: i32) -> Option<Pool> {
    answer(|pool| default_pool(pool, device))
}

/// Returns the current pool of a device: allocations on its streams come from it.
pub(crate) fn pool_of(device: i32) -> Option<Pool> {
    answer(|pool| device_pool(pool, device))
}

/// Returns an attribute of a pool that is a number of bytes.
pub(crate) fn pool_bytes(pool: Pool, attribute: c_int) -> Option<u64> {
    answer(|value| pool_attribute(pool, attribute, value))
}

/// Makes a pool of the driver's give unused memory back.
pub(crate) fn trim_pool(pool: Pool) {
    // If the driver refuses, the pool keeps its memory.
    let _ = pool_trim(pool, 0);
}

/// Returns the size in bytes of each parameter of a kernel; `None` if the sizes are not known.
pub(crate) fn params_of(function: Function) -> Option<Vec<usize>> {
    let all = |ask: fn(Function, usize, *mut usize, *mut usize) -> Code| {
        let mut found = Vec::new();
        loop {
            let (mut offset, mut bytes) = (0, 0);
            match ask(function, found.len(), &raw mut offset, &raw mut bytes) {
                Code::SUCCESS if found.len() < 4096 => found.push(bytes),
                // Past the last parameter.
                Code::INVALID_VALUE => return Some(found),
                _ => return None,
            }
        }
    };
    all(function_param).filter(|found| !found.is_empty()).or_else(|| all(kernel_param))
}

/// Returns the name of a kernel.
pub(crate) fn name_of(function: Function) -> Option<String> {
    let named = |ask: fn(*mut *const c_char, Function) -> Code| {
        let mut name = std::ptr::null();
        if ask(&raw mut name, function) != Code::SUCCESS || name.is_null() {
            return None;
        }
        // SAFETY: a string of the library's, which lives as long as the function.
        unsafe { CStr::from_ptr(name) }.to_str().ok().map(str::to_owned)
    };
    named(function_name).or_else(|| named(kernel_name))
}
