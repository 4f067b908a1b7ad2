//! The functions, with the names, arguments and codes of `cuda.h`.
//!
//! Each one first checks `faults`, refuses host functions as the real one does, and forwards the call. Nothing is
//! decided here. A panic does not leave it.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, IntoRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use millpond_core::units::MIB;
use millpond_driver::cuda::abi::{
    AccessDesc, Allocation, AllocationProp, Code, Context, EVENT_DISABLE_TIMING, EVENT_INTERPROCESS, Event, EventName,
    Location, STREAM_NON_BLOCKING, Stream, attribute,
};
use millpond_driver::{CopyKind, Driver};

use crate::contexts::{self, current_device};
use crate::current;
use crate::device::open;
use crate::device::{HostFunction, is_callback};
use crate::faults;
use crate::memory::answer;
use crate::settings;

/// As on current GPUs.
const GRANULARITY: u64 = 2 * MIB;
/// As on current GPUs: streams have priorities from this one to 0.
const PRIORITY_GREATEST: c_int = -5;
/// `CU_MEM_LOCATION_TYPE_HOST_NUMA`
const HOST_NUMA: c_int = 3;
/// The version of CUDA that it reports.
const VERSION: c_int = 13_000;

type Outcome = Result<(), Code>;

/// The common part of every function, around its own work.
fn entry(function: &'static str, work: impl FnOnce() -> Outcome) -> Code {
    if let Some(code) = faults::strike(function) {
        if let (true, Ok(device)) = (code.is_sticky(), current_device()) {
            device.lose(code);
        }
        return code;
    }
    if is_callback() {
        return Code::NOT_PERMITTED;
    }
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => Code::SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => Code::UNKNOWN,
    }
}

/// The caller's pointer to a result; `None` is null.
type Place<'a, T> = Option<&'a mut MaybeUninit<T>>;
/// The caller's pointer to a structure; `None` is null.
type Given<'a, T> = Option<&'a T>;

/// Refuses arguments that the header does not allow, and those that no test needs.
fn check(are_right: bool) -> Outcome {
    if are_right { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

/// Writes a result to the caller's place.
fn put<T>(place: Place<T>, value: T) -> Outcome {
    place.ok_or(Code::INVALID_VALUE)?.write(value);
    Ok(())
}

/// Reads a structure of the caller.
fn read<T: Copy>(given: Given<T>) -> Result<T, Code> {
    given.copied().ok_or(Code::INVALID_VALUE)
}

/// Returns a list of the caller's, which may be null only if it is empty.
///
/// # Safety
/// The pointer is valid for `count` elements, or null.
unsafe fn list<'a, T>(first: *const T, count: usize) -> Result<&'a [T], Code> {
    match (first.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Code::INVALID_VALUE),
        // SAFETY: the caller's promise.
        (false, count) => Ok(unsafe { std::slice::from_raw_parts(first, count) }),
    }
}

/// Returns an untyped pointer as a place for a value of a type.
///
/// # Safety
/// The pointer is null or valid for that type.
unsafe fn place_of<'a, T>(at: *mut c_void) -> Place<'a, T> {
    // SAFETY: the caller's promise.
    unsafe { at.cast::<MaybeUninit<T>>().as_mut() }
}

fn open_stream(stream: Place<Stream>, flags: c_uint, priority: c_int) -> Outcome {
    check(flags <= STREAM_NON_BLOCKING)?;
    put(stream, current_device()?.open_stream(flags != STREAM_NON_BLOCKING, priority)?)
}

/// Returns the program's name of a function: later versions have their number in the exported name.
fn plain(export: &'static str) -> &'static str {
    export.strip_suffix("_v2").unwrap_or(export)
}

/// Generates the exports, and the table by which `cuGetProcAddress_v2` finds them under their plain names. A body
/// returns an `Outcome`; pointers are the caller's, as the header has them. Instead of a body, `=> method` calls that
/// method of the current device with all arguments, and `=> put method` writes its result to the first one.
macro_rules! exports {
    (@ ($($arg:ident),*) $body:block) => { $body };
    (@ ($($arg:ident),*) => $method:ident) => { current_device()?.$method($($arg),*) };
    (@ ($place:ident $(, $arg:ident)*) => put $method:ident) => {
        put($place, current_device()?.$method($($arg),*)?)
    };
    ($($export:ident($($name:ident: $type:ty),* $(,)?) $($body:block)? $(=> $($act:ident)+)?;)*) => {
        $(#[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        unsafe extern "C" fn $export($($name: $type),*) -> Code {
            entry(plain(stringify!($export)), || exports!(@ ($($name),*) $($body)? $(=> $($act)+)?))
        })*

        pub(super) fn find(symbol: &str) -> Option<*mut c_void> {
            let all = [$((stringify!($export), $export as *const () as *mut c_void)),*];
            all.into_iter().find_map(|(export, function)| (plain(export) == symbol).then_some(function))
        }
    };
}

mod graphs;
mod pools;
mod programs;

exports! {
    cuInit(flags: c_uint) {
        check(flags == 0)
    };
    cuDriverGetVersion(version: Place<c_int>) {
        put(version, VERSION)
    };
    cuDeviceGetCount(count: Place<c_int>) {
        put(count, settings::devices() as c_int)
    };
    cuDeviceGet(device: Place<c_int>, ordinal: c_int) {
        open::check(ordinal)?;
        put(device, ordinal)
    };
    cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int) {
        open::check(device)?;
        let text = format!("fakecuda {device}\0");
        if usize::try_from(length).is_ok_and(|length| length >= text.len()) && !name.is_null() {
            // SAFETY: the caller's place has that length.
            unsafe { name.copy_from_nonoverlapping(text.as_ptr().cast(), text.len()) };
            return Ok(());
        }
        Err(Code::INVALID_VALUE)
    };
    cuDeviceGetAttribute(value: Place<c_int>, which: c_int, device: c_int) {
        open::check(device)?;
        let answer = match which {
            attribute::CAPABILITY_MAJOR => 9,
            attribute::CAPABILITY_MINOR | attribute::MEMORY_POOLS => 0,
            attribute::VIRTUAL_MEMORY | attribute::FILE_DESCRIPTORS => 1,
            attribute::IPC_EVENTS => c_int::from(settings::has_ipc_events()),
            attribute::DECOMPRESSION => c_int::from(settings::decompresses()),
            _ => return Err(Code::INVALID_VALUE),
        };
        put(value, answer)
    };
    cuDeviceGetUuid_v2(uuid: Place<[u8; 16]>, device: c_int) {
        open::check(device)?;
        put(uuid, (u128::from(settings::first_device()) + device as u128).to_be_bytes())
    };
    cuDeviceTotalMem_v2(bytes: Place<usize>, device: c_int) {
        open::check(device)?;
        put(bytes, settings::total_bytes() as usize)
    };
    cuDevicePrimaryCtxRetain(context: Place<Context>, device: c_int) {
        put(context, contexts::retain(device)?)
    };
    cuDevicePrimaryCtxRelease_v2(device: c_int) {
        open::release(device)
    };
    cuDevicePrimaryCtxGetState(device: c_int, flags: Place<c_uint>, active: Place<c_int>) {
        open::check(device)?;
        put(flags, 0)?;
        put(active, c_int::from(open::device(device).is_some()))
    };
    cuDevicePrimaryCtxReset_v2(device: c_int) {
        contexts::reset(device)
    };
    cuDeviceCanAccessPeer(can: Place<c_int>, device: c_int, peer: c_int) {
        let answer = open::are_peers(device, peer)?;
        put(can, c_int::from(answer))
    };
    cuCtxCreate_v2(context: Place<Context>, _flags: c_uint, device: c_int) {
        put(context, contexts::create(device)?)
    };
    cuCtxDestroy_v2(context: Context) {
        contexts::destroy(context)
    };
    cuCtxGetDevice(device: Place<c_int>) {
        put(device, current::ordinal()?)
    };
    cuCtxGetCurrent(context: Place<Context>) {
        put(context, current::context())
    };
    cuCtxSetCurrent(context: Context) {
        current::set(context);
        Ok(())
    };
    cuCtxPushCurrent_v2(context: Context) {
        current::push(context);
        Ok(())
    };
    cuCtxPopCurrent_v2(context: Place<Context>) {
        put(context, current::pop()?)
    };
    cuCtxSynchronize() => synchronize;
    cuCtxRecordEvent(context: Context, event: Event) {
        if context != current::context() {
            return Err(Code::INVALID_CONTEXT);
        }
        current_device()?.record_all(event)
    };
    cuMemGetAllocationGranularity(bytes: Place<usize>, property: Given<AllocationProp>, which: c_int) {
        check_property(read(property)?)?;
        check(which <= 1)?;
        put(bytes, GRANULARITY as usize)
    };
    cuMemAddressReserve(at: Place<u64>, bytes: usize, alignment: usize, wish: u64, flags: u64) {
        let aligned = alignment == 0 || alignment.is_power_of_two() && alignment as u64 <= GRANULARITY;
        check(aligned && wish == 0 && flags == 0)?;
        put(at, answer(current_device()?.host.reserve(bytes as u64))?)
    };
    cuMemAddressFree(at: u64, bytes: usize) {
        // SAFETY: the host device checks that nothing is mapped there.
        answer(unsafe { current_device()?.host.unreserve(at, bytes as u64) })
    };
    cuMemCreate(handle: Place<Allocation>, bytes: usize, property: Given<AllocationProp>, flags: u64) {
        // Memory of the host may be mapped for the device, too.
        if read(property)?.location.kind != HOST_NUMA {
            check_property(read(property)?)?;
        }
        check(flags == 0)?;
        let is_shareable = read(property)?.handle_types == AllocationProp::FILE_DESCRIPTOR;
        put(handle, current_device()?.with_memory(|memory, host| memory.create(host, bytes as u64, is_shareable))?)
    };
    cuMemExportToShareableHandle(shared: *mut c_void, handle: Allocation, kind: c_int, flags: u64) {
        check(kind == AllocationProp::FILE_DESCRIPTOR && flags == 0 && !shared.is_null())?;
        let file = current_device()?.with_memory(|memory, host| memory.export(host, handle))?;
        // SAFETY: the caller's place is valid for a file's number with this kind of handle.
        put(unsafe { place_of::<c_int>(shared) }, file.into_raw_fd())
    };
    cuMemImportFromShareableHandle(handle: Place<Allocation>, shared: *mut c_void, kind: c_int) {
        let number = c_int::try_from(shared.addr()).ok().filter(|_| kind == AllocationProp::FILE_DESCRIPTOR);
        let number = number.ok_or(Code::INVALID_VALUE)?;
        // SAFETY: a number that is not an open file returns an error; an open file belongs to the caller.
        let file = unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned().map_err(|_| Code::INVALID_VALUE)?;
        put(handle, current_device()?.with_memory(|memory, host| memory.import(host, file))?)
    };
    cuMemRelease(handle: Allocation) {
        current_device()?.with_memory(|memory, host| memory.release(host, handle))
    };
    cuMemMap(at: u64, bytes: usize, offset: usize, handle: Allocation, flags: u64) {
        check(flags == 0)?;
        current_device()?.with_memory(|memory, host| memory.map(host, at, bytes as u64, offset as u64, handle))
    };
    cuMemSetAccess(at: u64, bytes: usize, access: *const AccessDesc, count: usize) {
        check((1..=settings::devices()).contains(&count))?;
        // SAFETY: the caller's structures, as many as `count`.
        let access = unsafe { list(access, count) }?;
        let own = current::ordinal()?;
        for AccessDesc { location, flags } in access {
            let is_known = location.kind == Location::DEVICE
                && matches!(*flags, AccessDesc::NONE | AccessDesc::READ | AccessDesc::READ_WRITE);
            check(is_known)?;
            if location.id != own && !open::are_peers(location.id, own)? {
                return Err(Code::INVALID_DEVICE);
            }
        }
        current_device()?.with_memory(|memory, _| memory.set_access(at, bytes as u64, access))
    };
    cuMemUnmap(at: u64, bytes: usize) {
        current_device()?.with_memory(|memory, host| memory.unmap(host, at, bytes as u64))
    };
    cuStreamCreate(stream: Place<Stream>, flags: c_uint) {
        open_stream(stream, flags, 0)
    };
    cuStreamCreateWithPriority(stream: Place<Stream>, flags: c_uint, priority: c_int) {
        open_stream(stream, flags, priority.clamp(PRIORITY_GREATEST, 0))
    };
    cuStreamGetPriority(stream: Stream, priority: Place<c_int>) {
        put(priority, current_device()?.priority_of(stream)?)
    };
    cuStreamDestroy_v2(stream: Stream) => close_stream;
    cuStreamSynchronize(stream: Stream) => finish;
    cuStreamGetCtx(stream: Stream, context: Place<Context>) {
        let found = open::devices().find_map(|(_, device)| device.context_of(stream));
        put(context, found.ok_or(Code::INVALID_HANDLE)?)
    };
    cuStreamWaitEvent(stream: Stream, event: Event, flags: c_uint) {
        check(flags == 0)?;
        current_device()?.wait(stream, event)
    };
    cuEventCreate(event: Place<Event>, flags: c_uint) {
        let is_interprocess = flags & EVENT_INTERPROCESS != 0;
        if flags > 7 || is_interprocess && flags & EVENT_DISABLE_TIMING == 0 {
            return Err(Code::INVALID_VALUE);
        }
        put(event, current_device()?.open_event(is_interprocess, flags & EVENT_DISABLE_TIMING == 0)?)
    };
    cuEventDestroy_v2(event: Event) => close_event;
    cuEventRecord(event: Event, stream: Stream) => record;
    cuEventQuery(event: Event) => query;
    cuEventSynchronize(event: Event) => block_on;
    cuEventElapsedTime(milliseconds: Place<f32>, from: Event, to: Event) => put elapsed;
    cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: Stream) {
        let from = from.expose_provenance() as u64;
        current_device()?.copy(stream, to, from, bytes as u64, CopyKind::HostToDevice)
    };
    cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: Stream) {
        let to = to.expose_provenance() as u64;
        current_device()?.copy(stream, to, from, bytes as u64, CopyKind::DeviceToHost)
    };
    cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Stream) {
        current_device()?.copy(stream, to, from, bytes as u64, CopyKind::DeviceToDevice)
    };
    cuMemsetD8Async(at: u64, value: u8, bytes: usize, stream: Stream) {
        current_device()?.fill(stream, at, bytes as u64, value)
    };
    cuLaunchHostFunc(stream: Stream, function: HostFunction, data: *mut c_void) => host_function;
    cuIpcGetEventHandle(name: Place<EventName>, event: Event) {
        check(name.is_some())?;
        put(name, current_device()?.name_event(event)?)
    };
    cuIpcOpenEventHandle(event: Place<Event>, name: EventName) {
        check(event.is_some())?;
        put(event, current_device()?.open_named_event(&name)?)
    };
    cuGetErrorName(code: Code, text: Place<*const c_char>) {
        put(text, named(code)?.as_ptr())
    };
    cuGetErrorString(code: Code, text: Place<*const c_char>) {
        named(code)?;
        put(text, c"said by fakecuda".as_ptr())
    };
}

/// Returns the name of a code. Like the real library, it has no name for codes that it does not know.
fn named(code: Code) -> Result<&'static CStr, Code> {
    code.name().ok_or(Code::INVALID_VALUE)
}

/// Checks the properties of an allocation: only plain memory of the current device is supported.
fn check_property(property: AllocationProp) -> Outcome {
    let device = current::ordinal()?;
    check(property == AllocationProp::on(device) || property == AllocationProp::shareable_on(device))
}

/// Finds a function by its plain name.
///
/// # Safety
/// As in the header: a string and two valid pointers.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
unsafe extern "C" fn cuGetProcAddress_v2(
    symbol: *const c_char,
    function: Place<*mut c_void>,
    _version: c_int,
    _flags: u64,
    status: Place<c_int>,
) -> Code {
    // SAFETY: the caller's string.
    let symbol = unsafe { CStr::from_ptr(symbol) }.to_string_lossy();
    let found = [find, graphs::find, programs::find, pools::find].iter().find_map(|find| find(&symbol));
    let found = found.filter(|_| !faults::is_hidden(&symbol));
    if let Some(status) = status {
        // 1 is `CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND`.
        status.write(c_int::from(found.is_none()));
    }
    match put(function, found.unwrap_or(std::ptr::null_mut())) {
        Ok(()) if found.is_some() => Code::SUCCESS,
        Ok(()) => Code::NOT_FOUND,
        Err(code) => code,
    }
}

/// Implements `Hooks::fail`.
///
/// # Safety
/// `function` is a string.
#[unsafe(no_mangle)]
unsafe extern "C" fn fakecuda_fail(function: *const c_char, after: u64, code: c_uint) {
    // SAFETY: the caller's string.
    let function = unsafe { CStr::from_ptr(function) }.to_string_lossy().into_owned();
    faults::fail(function, after, Code(code));
}

/// Implements `Hooks::hide`.
///
/// # Safety
/// `function` is a string.
#[unsafe(no_mangle)]
unsafe extern "C" fn fakecuda_hide(function: *const c_char) {
    // SAFETY: the caller's string.
    faults::hide(unsafe { CStr::from_ptr(function) }.to_string_lossy().into_owned());
}

/// Implements `Hooks::calls`.
///
/// # Safety
/// `function` is a string.
#[unsafe(no_mangle)]
unsafe extern "C" fn fakecuda_calls(function: *const c_char) -> u64 {
    // SAFETY: the caller's string.
    faults::calls(&unsafe { CStr::from_ptr(function) }.to_string_lossy())
}

/// Returns the bytes that this process uses of a device, for an NVML of a test.
#[unsafe(no_mangle)]
extern "C" fn fakecuda_used_bytes(device: c_int) -> u64 {
    open::device(device).map_or(0, |device| device.host.used_bytes())
}

/// Implements `Hooks::reset`.
#[unsafe(no_mangle)]
extern "C" fn fakecuda_reset() {
    faults::reset();
}
