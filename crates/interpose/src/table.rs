//! The wrapped calls: one description, from which the exported names, the wrappers and the lookups are made.
//!
//! A line is a flavour, the exported name, the arguments as `cuda.h` has them, in brackets what the call does to the
//! memory of a device ([`Change`]), after `@` what makes it where streams are delayed ([`shake`]), what it means (`-`
//! for nothing), and the server that answers it where Millpond serves memory. All but the name and the meaning are
//! optional. Flavour `N` is one function. `P` has a twin `_ptsz`, and `D` a twin `_ptds`, for programs whose default
//! stream is the thread's own.
//!
//! Under a limit the change is counted where the real call is made: a call that a server answers counts nothing.
//! Millpond's own driver makes its calls by other functions (`inner`), which count as well.
//!
//! The meaning of a call is noted in the session. `after`: after the real call, if it succeeded. `before`: before it,
//! for a call that ends the object of a handle, because the handle may be given out again at once. `read` and `list`
//! read what the program passed; if it is null, a `?` notes nothing. `around` names a handler that makes the real call
//! itself, exactly once, and returns its code. It gets the call's place ([`At`]), the real call, and the arguments. A
//! server is an expression: with `real()` it has made the real call, with `real` it gets the real call. Notes and
//! handlers take a server's answer for the real one. After a second `=>` is the operation, if any, that a capture has
//! refused (error 900): it is judged.
#![expect(non_snake_case, reason = "they are CUDA's names")]

use std::ffi::{c_char, c_int, c_uint, c_void};

use millpond_core::ids::DeviceId;
use millpond_core::op::{Act, NodeOp, What};
use millpond_driver::cuda::abi::{EVENT_INTERPROCESS, EventName};
use smallvec::SmallVec;

use crate::abi::*;
use crate::ask;
use crate::calls::{captures, contexts, device_at, graphs, host_functions, list, lookups, memory, ranges, read};
use crate::entry::real::Wrapped;
use crate::entry::thunk;
use crate::index::Kind;
use crate::limit::{self, Change, Door, Key, Kind as Memory, arrays};
use crate::mode;
use crate::serve::room::made_for;
use crate::serve::{self, captures as captured, contexts as hold, memory as give, pointers as answer, pools as keep};
use crate::session::At;
use crate::shake::{self, Work};

/// The exported name of a call's twin.
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
    (@serves [$server:expr]) => { true };
    (@shake [] $real:ident) => { $real() };
    (@shake [$shaken:expr] $real:ident) => {
        match mode::shaking() {
            // SAFETY: the program's own arguments, which must be what the header says.
            Some(_) => unsafe { $shaken },
            None => $real(),
        }
    };
    (@serve [] $real:ident) => { $real() };
    (@serve [$server:expr] $real:ident) => {
        match serve::is_on() {
            // SAFETY: the program's own arguments, which must be what the header says.
            true => serve::guard(|| unsafe { $server }),
            false => $real(),
        }
    };
    (@inner [] $inner:path) => { None };
    (@inner [$change:expr] $inner:path) => { Some($inner) };
    (@count [] $door:expr, $real:ident) => { $real() };
    (@count [$change:expr] $door:expr, $real:ident) => {
        match limit::is_on() {
            // SAFETY: the program's own arguments, which must be what the header says.
            true => unsafe { limit::counted($change, $door, $real) },
            false => $real(),
        }
    };
    (@limited [] $at:ident $code:ident) => {};
    (@limited [$change:expr] $at:ident $code:ident) => {
        if limit::is_on() {
            limit::refused::note(&$at, $code);
        }
    };
    (@refused [] $session:ident $at:ident $code:ident) => {};
    (@refused [$refused:expr] $session:ident $at:ident $code:ident) => {
        if $code == Code::CAPTURE_UNSUPPORTED {
            $at.settle(|$session| {
                let what = $refused;
                $session.push_refused(what);
            });
        }
    };
    (@note [] $session:ident $at:ident $real:ident ($($arg:ident),*)) => { $real() };
    (@note [around $handler:expr] $session:ident $at:ident $real:ident ($($arg:ident),*)) => {
        // SAFETY: as above.
        unsafe { $handler(&$at, $real, $($arg),*) }
    };
    (@note [after $note:expr] $session:ident $at:ident $real:ident ($($arg:ident),*)) => {{
        let code = $real();
        if code == Code::SUCCESS {
            // SAFETY: as above; the real function has written what it answers.
            $at.note(|$session| Some(unsafe { $note }));
        }
        code
    }};
    (@note [before $note:expr] $session:ident $at:ident $real:ident ($($arg:ident),*)) => {{
        // SAFETY: as above.
        $at.note(|$session| Some(unsafe { $note }));
        $real()
    }};
    (
        with $session:ident, $call:ident, $real:ident;
        $($flavour:ident $name:ident($($arg:ident: $ty:ty),*) $([$change:expr])? $(@ $shaken:expr)? =>
            $(-)? $($when:ident $act:expr)? $(=> $refused:expr)? $(, $server:expr)?;)*
    ) => {
        #[expect(non_camel_case_types, reason = "they are CUDA's names")]
        #[derive(Clone, Copy)]
        enum Call { $($name),* }

        /// All wrapped calls.
        pub(crate) static WRAPPED: [Wrapped; [$(Call::$name),*].len()] = [$(Wrapped::new(
            [Some(stringify!($name)), twin_name!($flavour $name)],
            [$name::plain, $name::twin],
            [calls!(@serves [$($server)?]), calls!(@serves [$($shaken)?])],
            calls!(@inner [$($change)?] $name::inner),
        )),*];

        $(mod $name {
            use super::*;

            type Real = unsafe extern "C" fn($($ty),*) -> Code;

            /// Returns the real function, once it is found.
            #[inline(always)]
            fn real<const TWIN: usize>() -> Option<Real> {
                let found = WRAPPED[Call::$name as usize].function(TWIN, &WRAPPED);
                if found == 0 {
                    return None;
                }
                // SAFETY: the address of the function of this name, and its type by the header.
                Some(unsafe { std::mem::transmute::<*const c_void, Real>(std::ptr::with_exposed_provenance(found)) })
            }

            #[allow(unused_unsafe, unused_variables, reason = "not every line reads places, or needs to know the call")]
            unsafe extern "C" fn body<const TWIN: usize>($($arg: $ty),*) -> Code {
                let entered = thunk::entered();
                let Some(real) = real::<TWIN>() else { return Code::NOT_FOUND };
                // SAFETY: the program's own call.
                let $real = || unsafe { real($($arg),*) };
                let Some(at) = At::enter(entered, TWIN == 1) else { return $real() };
                let $call = &at;
                let $real = || calls!(@count [$($change)?] Door::Program { per_thread: TWIN == 1 }, $real);
                let $real = || calls!(@shake [$($shaken)?] $real);
                let real = || calls!(@serve [$($server)?] $real);
                let code = calls!(@note [$($when $act)?] $session at real ($($arg),*));
                calls!(@refused [$($refused)?] $session at code);
                calls!(@limited [$($change)?] at code);
                code
            }

            #[allow(unused_unsafe, dead_code, reason = "not every call makes or ends memory of a device")]
            unsafe extern "C" fn inner_body($($arg: $ty),*) -> Code {
                let Some(real) = real::<0>() else { return Code::NOT_FOUND };
                // SAFETY: the call of Millpond's own driver.
                let $real = || unsafe { real($($arg),*) };
                calls!(@count [$($change)?] Door::Millpond, $real)
            }

            #[unsafe(naked)]
            #[allow(dead_code, reason = "as above")]
            pub(super) unsafe extern "C" fn inner() {
                thunk::jump_asm!(inner_body)
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
    with session, call, real;

    N cuGetProcAddress(symbol: *const c_char, place: *mut *mut c_void, version: c_int, flags: u64)
        [Change::Finds(place)]
        => around lookups::proc_address;
    N cuGetProcAddress_v2(
        symbol: *const c_char, place: *mut *mut c_void, version: c_int, flags: u64, status: *mut c_int
    ) [Change::Finds(place)] => around lookups::proc_address_v2;

    N cuCtxSynchronize() [Change::Measures] => after session.synchronize_device(ask::current_device())
        => Some(What::SynchronizeDevice { device: DeviceId(ask::current_device() as u32) }), hold::synchronized(real());
    N cuCtxSynchronize_v2(context: Context) [Change::Measures]
        => around contexts::synchronize, hold::synchronized(real());
    N cuCtxEnablePeerAccess(peer: Context, flags: c_uint) => after session.enable_peer_access(ask::device_of(peer));
    N cuCtxDisablePeerAccess(peer: Context) => after session.disable_peer_access(ask::device_of(peer));
    N cuCtxDestroy(context: Context) [Change::EndsContext(context)] @ shake::lost(real)
        => around contexts::destroy, hold::destroy(context, real);
    N cuCtxDestroy_v2(context: Context) [Change::EndsContext(context)] @ shake::lost(real)
        => around contexts::destroy, hold::destroy(context, real);
    N cuDevicePrimaryCtxReset(device: c_int) [Change::Resets(device)] @ shake::lost(real)
        => after session.lose_device(device), hold::reset(device, real);
    N cuDevicePrimaryCtxReset_v2(device: c_int) [Change::Resets(device)] @ shake::lost(real)
        => after session.lose_device(device), hold::reset(device, real);
    N cuDevicePrimaryCtxRelease(device: c_int) [Change::Releases(device)] @ shake::lost(real)
        => around contexts::release;
    N cuDevicePrimaryCtxRelease_v2(device: c_int) [Change::Releases(device)] @ shake::lost(real)
        => around contexts::release;

    N cuStreamCreate(stream: *mut Stream, flags: c_uint) @ shake::made(stream, real)
        => after session.create_stream(read(stream)?, flags);
    N cuStreamCreateWithPriority(stream: *mut Stream, flags: c_uint, priority: c_int)
        @ shake::made(stream, real)
        => after session.create_stream(read(stream)?, flags);
    N cuStreamDestroy(stream: Stream) @ shake::ended(stream, real)
        => before session.destroy_stream(stream), hold::destroy_stream(stream, real);
    N cuStreamDestroy_v2(stream: Stream) @ shake::ended(stream, real)
        => before session.destroy_stream(stream), hold::destroy_stream(stream, real);
    P cuStreamSynchronize(stream: Stream) [Change::Measures] => after session.synchronize_stream(call, stream)
        => Some(What::StreamSynchronize { stream: session.stream(call, stream) }), hold::synchronized(real());
    P cuStreamQuery(stream: Stream) => after session.query_stream(call, stream)
        => Some(What::StreamQuery { stream: session.stream(call, stream), is_idle: false });
    P cuStreamWaitEvent(stream: Stream, event: Event, flags: c_uint)
        => after session.wait_event(call, stream, event, flags);
    P cuStreamAddCallback(stream: Stream, function: usize, data: usize, flags: c_uint)
        => around host_functions::add_callback;
    P cuLaunchHostFunc(stream: Stream, function: usize, data: usize) => around host_functions::launch;
    P cuStreamWriteValue32(stream: Stream, at: u64, value: u32, flags: c_uint)
        => after session.move_bytes(call, stream, &[(at, 4, Act::Write)]);
    P cuStreamWriteValue32_v2(stream: Stream, at: u64, value: u32, flags: c_uint)
        => after session.move_bytes(call, stream, &[(at, 4, Act::Write)]);
    P cuStreamWriteValue64(stream: Stream, at: u64, value: u64, flags: c_uint)
        => after session.move_bytes(call, stream, &[(at, 8, Act::Write)]);
    P cuStreamWriteValue64_v2(stream: Stream, at: u64, value: u64, flags: c_uint)
        => after session.move_bytes(call, stream, &[(at, 8, Act::Write)]);
    P cuStreamWaitValue32(stream: Stream, at: u64, value: u32, flags: c_uint)
        => after session.move_bytes(call, stream, &[(at, 4, Act::Read)]);
    P cuStreamWaitValue32_v2(stream: Stream, at: u64, value: u32, flags: c_uint)
        => after session.move_bytes(call, stream, &[(at, 4, Act::Read)]);
    P cuStreamWaitValue64(stream: Stream, at: u64, value: u64, flags: c_uint)
        => after session.move_bytes(call, stream, &[(at, 8, Act::Read)]);
    P cuStreamWaitValue64_v2(stream: Stream, at: u64, value: u64, flags: c_uint)
        => after session.move_bytes(call, stream, &[(at, 8, Act::Read)]);
    P cuStreamBatchMemOp(stream: Stream, count: c_uint, ops: *const StreamMemOp, flags: c_uint)
        => after session.work_on_words(call, stream, list(ops, count as usize));
    P cuStreamBatchMemOp_v2(stream: Stream, count: c_uint, ops: *const StreamMemOp, flags: c_uint)
        => after session.work_on_words(call, stream, list(ops, count as usize));

    N cuEventCreate(event: *mut Event, flags: c_uint)
        => after session.add_event(read(event)?, flags & EVENT_INTERPROCESS != 0);
    N cuEventDestroy(event: Event) => before session.destroy_event(event);
    N cuEventDestroy_v2(event: Event) => before session.destroy_event(event);
    P cuEventRecord(event: Event, stream: Stream) => after session.record_event(call, event, stream, 0);
    P cuEventRecordWithFlags(event: Event, stream: Stream, flags: c_uint)
        => after session.record_event(call, event, stream, flags);
    N cuEventQuery(event: Event) => after session.query_event(event)
        => Some(What::EventQuery { event: session.event(event), is_over: false });
    N cuEventSynchronize(event: Event) [Change::Measures] => after session.synchronize_event(event)
        => Some(What::EventSynchronize { event: session.event(event) }), hold::synchronized(real());
    // It answers only if both events have completed.
    N cuEventElapsedTime(time: *mut f32, first: Event, second: Event)
        => after [first, second].into_iter().for_each(|event| session.query_event(event));
    N cuEventElapsedTime_v2(time: *mut f32, first: Event, second: Event)
        => after [first, second].into_iter().for_each(|event| session.query_event(event));

    P cuMemAllocAsync(at: *mut u64, bytes: usize, stream: Stream) [Change::Draws(at, bytes, None, stream)]
        => after session.alloc_in(call, read(at)?, bytes, None, stream),
            give::alloc_async(call, at, bytes, stream, real);
    P cuMemAllocFromPoolAsync(at: *mut u64, bytes: usize, pool: Pool, stream: Stream)
        [Change::Draws(at, bytes, Some(pool), stream)]
        => after session.alloc_in(call, read(at)?, bytes, Some(pool), stream),
            give::alloc_from_pool(call, at, bytes, pool, stream, real);
    P cuMemFreeAsync(at: u64, stream: Stream) [Change::Ends(Key::Address(at))]
        => around memory::free_async, give::free_async(call, at, stream, real);
    N cuMemAlloc_v2(at: *mut u64, bytes: usize) [Change::memory(Memory::Memory, at, bytes)]
        => after session.add_memory_now(read(at)?, bytes as u64, Kind::Device)
        => Some(session.refused_memory(bytes as u64, Kind::Device)), made_for(real);
    N cuMemAllocPitch_v2(at: *mut u64, pitch: *mut usize, width: usize, height: usize, element: c_uint)
        [Change::rows(at, pitch, width, height)]
        => after session.add_memory_now(read(at)?, (read(pitch)? * height) as u64, Kind::Device)
        => Some(session.refused_memory((width * height) as u64, Kind::Device)), made_for(real);
    N cuMemAllocManaged(at: *mut u64, bytes: usize, flags: c_uint) [Change::memory(Memory::Managed, at, bytes)]
        => after session.add_memory_now(read(at)?, bytes as u64, Kind::Managed)
        => Some(session.refused_memory(bytes as u64, Kind::Managed)), made_for(real);
    N cuMemFree_v2(at: u64) [Change::Ends(Key::Address(at))] => around memory::free_now, give::free(at, real);
    N cuMemAllocHost_v2(at: *mut u64, bytes: usize)
        => after session.add_memory_now(read(at)?, bytes as u64, Kind::Host)
        => Some(session.refused_memory(bytes as u64, Kind::Host));
    N cuMemHostAlloc(at: *mut u64, bytes: usize, flags: c_uint)
        => after session.add_memory_now(read(at)?, bytes as u64, Kind::Host)
        => Some(session.refused_memory(bytes as u64, Kind::Host));
    N cuMemFreeHost(at: u64) => around memory::free_now;
    N cuMemHostRegister_v2(at: u64, bytes: usize, flags: c_uint)
        => after session.add_memory_now(at, bytes as u64, Kind::Host);
    N cuMemHostUnregister(at: u64) => around memory::free_now;

    N cuMemMap(at: u64, bytes: usize, offset: usize, handle: u64, flags: u64) [Change::Maps(at, bytes, handle)]
        => after session.map(at, bytes as u64);
    N cuMemUnmap(at: u64, bytes: usize) [Change::Unmaps(at, bytes)] => around ranges::unmap;
    // A program treats what it opens at once as one range.
    N cuMemSetAccess(at: u64, bytes: usize, access: *const AccessDesc, count: usize)
        => after session.index.join(at, at.saturating_add(bytes as u64));
    N cuIpcOpenMemHandle_v2(at: *mut u64, handle: EventName, flags: c_uint) => after session.open(read(at)?);
    N cuIpcCloseMemHandle(at: u64) => around ranges::close;
    N cuMemPoolImportPointer(at: *mut u64, pool: Pool, data: *const c_void) => after session.import(read(at)?);

    N cuMemCreate(handle: *mut u64, bytes: usize, props: *const c_void, flags: u64)
        [Change::physical(handle, bytes, props)] => -, made_for(real);
    N cuMemRelease(handle: u64) [Change::Ends(Key::Handle(handle))] => -;
    N cuMemRetainAllocationHandle(handle: *mut u64, at: u64) [Change::Retains(handle, at)]
        => -, answer::refuse(at, real);
    N cuMemGetInfo_v2(free: *mut usize, total: *mut usize) [Change::Tells(free, total)] => -;
    N cuDeviceTotalMem_v2(total: *mut usize, device: c_int) [Change::TellsTotal(total, device)] => -;
    N cuMemGetAddressRange_v2(base: *mut u64, bytes: *mut usize, at: u64) => -, answer::range(base, bytes, at, real);
    N cuPointerGetAttribute(place: *mut c_void, attribute: c_int, at: u64)
        => -, answer::attribute(real(), place, attribute, at);
    N cuPointerGetAttributes(count: c_uint, attributes: *const c_int, places: *const *mut c_void, at: u64)
        => -, answer::attributes(real(), count, attributes, places, at);
    N cuIpcGetMemHandle(handle: *mut c_void, at: u64) => -, answer::refuse(at, real);
    N cuMemPoolExportPointer(data: *mut c_void, at: u64) => -, answer::refuse(at, real);

    N cuArrayCreate_v2(array: *mut usize, shape: *const arrays::Flat) [Change::array(array, shape)]
        => -, made_for(real);
    N cuArray3DCreate_v2(array: *mut usize, shape: *const arrays::Deep) [Change::deep_array(array, shape)]
        => -, made_for(real);
    N cuArrayDestroy(array: usize) [Change::Ends(Key::Array(array))] => -;
    N cuMipmappedArrayCreate(array: *mut usize, shape: *const arrays::Deep, levels: c_uint)
        [Change::mipmapped(array, shape, levels)] => -, made_for(real);
    N cuMipmappedArrayDestroy(array: usize) [Change::Ends(Key::Mipmapped(array))] => -;

    N cuMemPoolCreate(pool: *mut Pool, props: *const PoolProps) [Change::MakesPool(pool, read(props))]
        => after session.create_pool(read(pool)?, read(props))
        => Some(session.refused_pool()), keep::create(real(), read(pool), read(props));
    N cuMemPoolDestroy(pool: Pool) [Change::EndsPool(pool)]
        => before session.destroy_pool(pool), keep::destroy(pool, real);
    N cuMemPoolSetAccess(pool: Pool, access: *const AccessDesc, count: usize)
        => after session.open_pool(pool, list(access, count)), keep::set_access(real(), pool, access, count);
    N cuDeviceSetMemPool(device: c_int, pool: Pool)
        => after session.set_pool(device, pool), keep::set_current(real(), Some(device));

    N cuMemSetMemPool(location: *const Location, kind: c_int, pool: Pool)
        => after session.set_pool(device_at(location)?, pool), keep::set_current(real(), device_at(location));
    N cuMemPoolTrimTo(pool: Pool, keep_bytes: usize) [Change::Measures] => -, keep::trim(real(), pool, keep_bytes);
    N cuMemPoolSetAttribute(pool: Pool, attribute: c_int, value: *mut c_void)
        => -, keep::set_attribute(real(), pool, attribute, value);
    N cuMemPoolGetAttribute(pool: Pool, attribute: c_int, value: *mut c_void)
        => -, keep::attribute(real(), pool, attribute, value);

    D cuMemcpy(to: u64, from: u64, bytes: usize) => after session.copy(call, None, to, from, bytes);
    D cuMemcpyPeer(to: u64, context: Context, from: u64, other: Context, bytes: usize)
        => after session.copy(call, None, to, from, bytes);
    D cuMemcpyHtoD_v2(to: u64, from: u64, bytes: usize) => after session.copy(call, None, to, from, bytes);
    D cuMemcpyDtoH_v2(to: u64, from: u64, bytes: usize) => after session.copy(call, None, to, from, bytes);
    D cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) => after session.copy(call, None, to, from, bytes);
    D cuMemcpy2D_v2(rows: *const Rows) => after session.copy_rows(call, None, &read(rows)?);
    D cuMemcpy2DUnaligned_v2(rows: *const Rows) => after session.copy_rows(call, None, &read(rows)?);
    D cuMemcpy3D_v2(copy: *const CopyParams) => after session.copy_slices(call, None, &read(copy)?);
    P cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: Stream)
        @ shake::work(call, stream, Work::Copy, real)
        => after session.copy(call, Some(stream), to, from, bytes);
    P cuMemcpyPeerAsync(to: u64, context: Context, from: u64, other: Context, bytes: usize, stream: Stream)
        @ shake::work(call, stream, Work::Copy, real)
        => after session.copy(call, Some(stream), to, from, bytes);
    P cuMemcpyHtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Stream)
        @ shake::work(call, stream, Work::Copy, real)
        => after session.copy(call, Some(stream), to, from, bytes);
    P cuMemcpyDtoHAsync_v2(to: u64, from: u64, bytes: usize, stream: Stream)
        @ shake::work(call, stream, Work::Copy, real)
        => after session.copy(call, Some(stream), to, from, bytes);
    P cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Stream)
        @ shake::work(call, stream, Work::Copy, real)
        => after session.copy(call, Some(stream), to, from, bytes);
    P cuMemcpy2DAsync_v2(rows: *const Rows, stream: Stream) @ shake::work(call, stream, Work::Copy, real)
        => after session.copy_rows(call, Some(stream), &read(rows)?);
    P cuMemcpy3DAsync_v2(copy: *const CopyParams, stream: Stream) @ shake::work(call, stream, Work::Copy, real)
        => after session.copy_slices(call, Some(stream), &read(copy)?);
    P cuMemcpyBatchAsync(
        to: *const u64, from: *const u64, sizes: *const usize, count: usize, attributes: *const c_void,
        of: *const usize, kinds: usize, failed: *mut usize, stream: Stream
    ) @ shake::work(call, stream, Work::Copy, real)
        => after session.copy_each(call, stream, list(to, count), list(from, count), list(sizes, count));
    P cuMemcpyBatchAsync_v2(
        to: *const u64, from: *const u64, sizes: *const usize, count: usize, attributes: *const c_void,
        of: *const usize, kinds: usize, stream: Stream
    ) @ shake::work(call, stream, Work::Copy, real)
        => after session.copy_each(call, stream, list(to, count), list(from, count), list(sizes, count));
    D cuMemsetD8_v2(at: u64, value: u8, count: usize) @ shake::work(call, Stream(0), Work::Fill, real)
        => after session.fill(call, Stream(0), at, count);
    D cuMemsetD16_v2(at: u64, value: u16, count: usize) @ shake::work(call, Stream(0), Work::Fill, real)
        => after session.fill(call, Stream(0), at, 2 * count);
    D cuMemsetD32_v2(at: u64, value: u32, count: usize) @ shake::work(call, Stream(0), Work::Fill, real)
        => after session.fill(call, Stream(0), at, 4 * count);
    D cuMemsetD2D8_v2(at: u64, pitch: usize, value: u8, width: usize, height: usize)
        @ shake::work(call, Stream(0), Work::Fill, real)
        => after session.fill_rows(call, Stream(0), at, pitch, width, height);
    D cuMemsetD2D16_v2(at: u64, pitch: usize, value: u16, width: usize, height: usize)
        @ shake::work(call, Stream(0), Work::Fill, real)
        => after session.fill_rows(call, Stream(0), at, pitch, 2 * width, height);
    D cuMemsetD2D32_v2(at: u64, pitch: usize, value: u32, width: usize, height: usize)
        @ shake::work(call, Stream(0), Work::Fill, real)
        => after session.fill_rows(call, Stream(0), at, pitch, 4 * width, height);
    P cuMemsetD8Async(at: u64, value: u8, count: usize, stream: Stream)
        @ shake::work(call, stream, Work::Fill, real) => after session.fill(call, stream, at, count);
    P cuMemsetD16Async(at: u64, value: u16, count: usize, stream: Stream)
        @ shake::work(call, stream, Work::Fill, real)
        => after session.fill(call, stream, at, 2 * count);
    P cuMemsetD32Async(at: u64, value: u32, count: usize, stream: Stream)
        @ shake::work(call, stream, Work::Fill, real)
        => after session.fill(call, stream, at, 4 * count);
    P cuMemsetD2D8Async(at: u64, pitch: usize, value: u8, width: usize, height: usize, stream: Stream)
        @ shake::work(call, stream, Work::Fill, real)
        => after session.fill_rows(call, stream, at, pitch, width, height);
    P cuMemsetD2D16Async(at: u64, pitch: usize, value: u16, width: usize, height: usize, stream: Stream)
        @ shake::work(call, stream, Work::Fill, real)
        => after session.fill_rows(call, stream, at, pitch, 2 * width, height);
    P cuMemsetD2D32Async(at: u64, pitch: usize, value: u32, width: usize, height: usize, stream: Stream)
        @ shake::work(call, stream, Work::Fill, real)
        => after session.fill_rows(call, stream, at, pitch, 4 * width, height);
    P cuMemPrefetchAsync(at: u64, bytes: usize, device: c_int, stream: Stream)
        => after session.move_bytes(call, stream, &[(at, bytes as u64, Act::Read)]);
    P cuMemPrefetchAsync_v2(at: u64, bytes: usize, location: u64, flags: c_uint, stream: Stream)
        => after session.move_bytes(call, stream, &[(at, bytes as u64, Act::Read)]);

    P cuLaunchKernel(
        function: Function, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint,
        stream: Stream, params: *const *const c_void, extra: *const *const c_void
    ) @ shake::work(call, stream, Work::Kernel, real) => after session.kernel(call, function, stream, params, extra);
    P cuLaunchKernelEx(
        config: *const LaunchConfig, function: Function, params: *const *const c_void, extra: *const *const c_void
    ) @ shake::kernel(call, read(config), real)
        => after session.launch_ex(call, read(config)?, function, params, extra);
    P cuLaunchCooperativeKernel(
        function: Function, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint,
        stream: Stream, params: *const *const c_void
    ) @ shake::work(call, stream, Work::Kernel, real)
        => after session.kernel(call, function, stream, params, std::ptr::null());
    N cuModuleLoad(module: *mut usize, file: *const c_char) [Change::Loads(module)] => -;
    N cuModuleLoadData(module: *mut usize, image: *const c_void) [Change::Loads(module)] => -;
    N cuModuleLoadDataEx(
        module: *mut usize, image: *const c_void, count: c_uint, options: *mut c_int, values: *mut *mut c_void
    ) [Change::Loads(module)] => -;
    N cuModuleLoadFatBinary(module: *mut usize, image: *const c_void) [Change::Loads(module)] => -;
    // From now on a function's handle may belong to another function.
    N cuModuleUnload(module: usize) [Change::Ends(Key::Module(module))] => before session.kernels.forget();
    N cuLibraryUnload(library: usize) => before session.kernels.forget();

    P cuStreamBeginCapture(stream: Stream) @ shake::capture(real)
        => after session.begin_capture(call, stream, 0), captured::begin(call, stream, real);
    P cuStreamBeginCapture_v2(stream: Stream, mode: c_int) @ shake::capture(real)
        => after session.begin_capture(call, stream, mode), captured::begin(call, stream, real);
    P cuStreamBeginCaptureToGraph(
        stream: Stream, graph: Graph, after: *const GraphNode, edges: *const c_void, count: usize, mode: c_int
    ) @ shake::capture(real)
        => after session.begin_capture_into(call, stream, graph), captured::begin(call, stream, real);
    N cuThreadExchangeStreamCaptureMode(mode: *mut c_int) => around captures::exchange_mode;
    P cuStreamEndCapture(stream: Stream, graph: *mut Graph) @ shake::end_capture(call, stream, real)
        => around captures::end, captured::end(call, stream, real);
    P cuStreamUpdateCaptureDependencies(stream: Stream, nodes: *const GraphNode, count: usize, flags: c_uint)
        => after session.lose_capture(call, stream);
    P cuStreamUpdateCaptureDependencies_v2(
        stream: Stream, nodes: *const GraphNode, edges: *const c_void, count: usize, flags: c_uint
    ) => after session.lose_capture(call, stream);

    N cuGraphCreate(graph: *mut Graph, flags: c_uint) => after session.create_graph(read(graph)?);
    N cuGraphDestroy(graph: Graph) => before session.destroy_graph(graph);
    N cuGraphClone(copy: *mut Graph, graph: Graph) => after session.clone_graph(read(copy)?, graph);
    N cuGraphAddDependencies(graph: Graph, from: *const GraphNode, to: *const GraphNode, count: usize)
        => after session.edges(graph, list(from, count), list(to, count), false);
    N cuGraphAddDependencies_v2(
        graph: Graph, from: *const GraphNode, to: *const GraphNode, data: *const c_void, count: usize
    ) => after session.edges(graph, list(from, count), list(to, count), false);
    N cuGraphRemoveDependencies(graph: Graph, from: *const GraphNode, to: *const GraphNode, count: usize)
        => after session.edges(graph, list(from, count), list(to, count), true);
    N cuGraphRemoveDependencies_v2(
        graph: Graph, from: *const GraphNode, to: *const GraphNode, data: *const c_void, count: usize
    ) => after session.edges(graph, list(from, count), list(to, count), true);
    N cuGraphDestroyNode(node: GraphNode) => around graphs::destroy_node;
    N cuGraphInstantiate_v2(exec: *mut GraphExec, graph: Graph, node: *mut GraphNode, log: *mut c_char, bytes: usize)
        [Change::Measures]
        => after session.instance(read(exec)?, graph, 0) => session.refused_instance(graph);
    N cuGraphInstantiateWithFlags(exec: *mut GraphExec, graph: Graph, flags: u64) [Change::Measures]
        => after session.instance(read(exec)?, graph, flags) => session.refused_instance(graph);
    P cuGraphInstantiateWithParams(exec: *mut GraphExec, graph: Graph, params: *const InstantiateParams)
        [Change::Measures]
        => after session.instance(read(exec)?, graph, read(params).map_or(0, |params| params.flags))
        => session.refused_instance(graph);
    N cuGraphExecUpdate(exec: GraphExec, graph: Graph, node: *mut GraphNode, result: *mut c_int)
        => after session.update_exec(exec, graph);
    N cuGraphExecUpdate_v2(exec: GraphExec, graph: Graph, info: *mut c_void) => after session.update_exec(exec, graph);
    N cuDeviceGraphMemTrim(device: c_int) [Change::Measures] => -;
    P cuGraphUpload(exec: GraphExec, stream: Stream) [Change::Measures]
        => after session.upload_graph(call, exec, stream);
    P cuGraphLaunch(exec: GraphExec, stream: Stream) [Change::Measures]
        @ shake::work(call, stream, Work::Graph, real)
        => after session.launch_graph(call, exec, stream);
    N cuGraphExecDestroy(exec: GraphExec) [Change::Measures] => before session.destroy_exec(exec);

    N cuGraphAddEmptyNode(node: *mut GraphNode, graph: Graph, after: *const GraphNode, count: usize)
        => after session.add_node(read(node)?, graph, list(after, count), |_| Some(NodeOp::Empty));
    N cuGraphAddKernelNode(
        node: *mut GraphNode, graph: Graph, after: *const GraphNode, count: usize, params: *const KernelNode
    ) => after session.add_node(read(node)?, graph, list(after, count), |session| {
        Some(session.kernel_op(read(params)?, Function(0)))
    });
    N cuGraphAddKernelNode_v2(
        node: *mut GraphNode, graph: Graph, after: *const GraphNode, count: usize, params: *const KernelNode2
    ) => after session.add_node(read(node)?, graph, list(after, count), |session| {
        let KernelNode2 { first, kernel, .. } = read(params)?;
        Some(session.kernel_op(first, kernel))
    });
    N cuGraphAddMemcpyNode(
        node: *mut GraphNode, graph: Graph, after: *const GraphNode, count: usize, params: *const CopyParams,
        context: Context
    ) => after session.add_node(read(node)?, graph, list(after, count), |session| {
        Some(session.copy_op(&read(params)?))
    });
    N cuGraphAddMemsetNode(
        node: *mut GraphNode, graph: Graph, after: *const GraphNode, count: usize, params: *const MemsetParams,
        context: Context
    ) => after session.add_node(read(node)?, graph, list(after, count), |session| {
        Some(session.fill_op(&read(params)?))
    });
    N cuGraphAddHostNode(
        node: *mut GraphNode, graph: Graph, after: *const GraphNode, count: usize, params: *const c_void
    ) => after session.add_node(read(node)?, graph, list(after, count), |_| {
        Some(NodeOp::HostFunction(SmallVec::new()))
    });
    N cuGraphAddChildGraphNode(node: *mut GraphNode, graph: Graph, after: *const GraphNode, count: usize, child: Graph)
        => after session.add_node(read(node)?, graph, list(after, count), |session| {
            Some(NodeOp::Child(session.handles.graph(child)?))
        });
    N cuGraphAddEventRecordNode(node: *mut GraphNode, graph: Graph, after: *const GraphNode, count: usize, event: Event)
        => after session.add_node(read(node)?, graph, list(after, count), |session| {
            Some(NodeOp::EventRecord(session.event(event)))
        });
    N cuGraphAddEventWaitNode(node: *mut GraphNode, graph: Graph, after: *const GraphNode, count: usize, event: Event)
        => after session.add_node(read(node)?, graph, list(after, count), |session| {
            Some(NodeOp::EventWait(session.event(event)))
        });
    N cuGraphAddMemAllocNode(
        node: *mut GraphNode, graph: Graph, after: *const GraphNode, count: usize, params: *mut AllocNode
    ) [Change::AddsNode(read(params))] => after session.add_node(read(node)?, graph, list(after, count), |session| {
        Some(session.alloc_op(&read(params)?))
    });
    N cuGraphAddMemFreeNode(node: *mut GraphNode, graph: Graph, after: *const GraphNode, count: usize, at: u64)
        => after session.add_node(read(node)?, graph, list(after, count), |session| session.free_op(at));
    N cuGraphAddNode(node: *mut GraphNode, graph: Graph, after: *const GraphNode, count: usize, params: *mut c_int)
        [Change::node(params)]
        => after session.add_node(read(node)?, graph, list(after, count), |session| session.any_op(params));
    N cuGraphAddNode_v2(
        node: *mut GraphNode, graph: Graph, after: *const GraphNode, data: *const c_void, count: usize,
        params: *mut c_int
    ) [Change::node(params)]
        => after session.add_node(read(node)?, graph, list(after, count), |session| session.any_op(params));
    N cuGraphKernelNodeSetParams(node: GraphNode, params: *const c_void) => after session.change_node(node);
    N cuGraphKernelNodeSetParams_v2(node: GraphNode, params: *const c_void) => after session.change_node(node);
    N cuGraphMemcpyNodeSetParams(node: GraphNode, params: *const c_void) => after session.change_node(node);
    N cuGraphMemsetNodeSetParams(node: GraphNode, params: *const c_void) => after session.change_node(node);
    N cuGraphNodeSetParams(node: GraphNode, params: *const c_void) => after session.change_node(node);
    N cuGraphExecKernelNodeSetParams(exec: GraphExec, node: GraphNode, params: *const c_void)
        => after session.obscure_exec(exec);
    N cuGraphExecKernelNodeSetParams_v2(exec: GraphExec, node: GraphNode, params: *const c_void)
        => after session.obscure_exec(exec);
    N cuGraphExecMemcpyNodeSetParams(exec: GraphExec, node: GraphNode, params: *const c_void, context: Context)
        => after session.obscure_exec(exec);
    N cuGraphExecMemsetNodeSetParams(exec: GraphExec, node: GraphNode, params: *const c_void, context: Context)
        => after session.obscure_exec(exec);
    N cuGraphExecNodeSetParams(exec: GraphExec, node: GraphNode, params: *const c_void)
        => after session.obscure_exec(exec);
    N cuGraphExecChildGraphNodeSetParams(exec: GraphExec, node: GraphNode, child: Graph)
        => after session.obscure_exec(exec);
    N cuGraphNodeSetEnabled(exec: GraphExec, node: GraphNode, enabled: c_uint) => after session.obscure_exec(exec);
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
