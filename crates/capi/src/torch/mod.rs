//! Memory for programs whose order is trusted: PyTorch's pluggable allocator, and CuPy.
//!
//! Such a program declares the stream of each allocation and free, and not the uses of the memory. It follows this
//! rule: memory is used on the stream that allocated it, or on streams that the program has recorded for it. So nothing
//! is checked here. A free is a point of its stream, after everything that was submitted there.
//!
//! [`Trusted`](millpond::raw::Trusted) says what the program's calls mean. Here are its entry points, the buffers by
//! address ([`pointers`](crate::tables::pointers)), and the memory of graphs that it captures ([`private`]).
//!
//! A stream is known by its handle, is never forgotten, and is queried later. It must not be destroyed while the
//! library is used. PyTorch never destroys its own streams. For CuPy the Python package keeps the streams that
//! allocated. PyTorch announces a capture by beginning a private pool. CuPy does not: its streams are queried each
//! time. Memory that such a stream allocates while it captures comes from a private pool that is never released. Other
//! memory that it frees meanwhile is freed once it does not capture any more ([`late`]).

mod devices;
mod late;
mod peaks;
mod private;
mod throw;

use std::ffi::{c_char, c_void};

use crate::calls::picture::{hand_out, picture};
use crate::calls::pool::millpond_pool_statistics;
use crate::status::{Failure, Result, begin_last_error, guard, millpond_last_error, millpond_status, place};
use crate::tables::pointers::POINTERS;
use devices::{TorchDevice, device};
use private::millpond_pool_key;

/// Allocates memory; returns 0 for 0 bytes.
#[inline]
fn allocate(ordinal: i32, bytes: usize, handle: u64) -> Result<u64> {
    let device = device(ordinal)?;
    if device.private.is_recording()
        && let Some(address) = device.private.allocate(&device.trusted, bytes as u64, handle)?
    {
        return Ok(address);
    }
    let buffer = device.trusted.alloc(bytes, handle)?;
    let address = buffer.address();
    if address != 0 {
        POINTERS.insert(buffer);
    }
    Ok(address)
}

/// Frees memory at this point of the stream.
#[inline]
fn free(ordinal: i32, address: u64, handle: u64) -> Result<()> {
    if address == 0 {
        return Ok(());
    }
    POINTERS.expect(address);
    free_on(device(ordinal)?, address, handle)
}

#[inline]
fn free_on(device: &'static TorchDevice, address: u64, handle: u64) -> Result<()> {
    match POINTERS.remove(address) {
        Some((buffer, is_shared)) => {
            device.trusted.free(buffer, is_shared, handle).map_err(|refused| keep(refused, is_shared))
        }
        None => free_unknown(device, address, handle),
    }
}

/// Cold: keeps memory live whose free is refused.
#[cold]
fn keep(refused: millpond::Refused<u8>, is_shared: bool) -> Failure {
    let address = refused.buffer.address();
    POINTERS.insert(refused.buffer);
    if is_shared {
        POINTERS.share(address, || ());
    }
    refused.error.into()
}

/// As [`allocate`], for a program that does not announce its captures.
fn allocate_asking(ordinal: i32, bytes: usize, handle: u64) -> Result<u64> {
    let device = device(ordinal)?;
    free_late(device);
    if !device.private.is_recording() && device.trusted.is_captured(handle)? {
        return device.private.allocate_unannounced(&device.trusted, bytes as u64, handle);
    }
    allocate(ordinal, bytes, handle)
}

/// As [`free`], for a program that does not announce its captures.
fn free_asking(ordinal: i32, address: u64, handle: u64) -> Result<()> {
    let device = device(ordinal)?;
    free_late(device);
    if address == 0 || !device.trusted.is_captured(handle)? {
        return free(ordinal, address, handle);
    }
    match POINTERS.peek(address) {
        Some(_) => device.late.add(address, handle),
        None => expect_known(address, device.private.free(address, handle, &device.trusted, true)?),
    }
}

/// Frees the memory that was freed in captures which have ended since.
fn free_late(device: &'static TorchDevice) {
    for (address, handle) in device.late.take_over(&device.trusted) {
        // The program's call has returned long ago.
        say_refusal(guard("millpond_cupy_free", || free_on(device, address, handle)));
    }
}

/// Cold: frees memory of a private pool, or refuses an unknown address.
#[cold]
fn free_unknown(device: &'static TorchDevice, address: u64, handle: u64) -> Result<()> {
    expect_known(address, device.private.free(address, handle, &device.trusted, false)?)
}

fn expect_known(address: u64, is_known: bool) -> Result<()> {
    match is_known {
        true => Ok(()),
        false => Err(Failure::Value(format!("{address:#x} is not the start of a live allocation"))),
    }
}

/// For entries without a result: prints a refusal on the standard error stream.
fn say_refusal(status: millpond_status) {
    if status != millpond_status::MILLPOND_SUCCESS {
        throw::say(millpond_last_error());
    }
}

/// The allocation function for CUDAPluggableAllocator. If no memory is left, it throws a C++ exception with the report,
/// which begins with "CUDA out of memory.", because PyTorch would go on with a null pointer. Without a C++ runtime in
/// the process, and for 0 bytes, it returns null.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn millpond_torch_alloc(size: isize, device: i32, stream: *mut c_void) -> *mut c_void {
    let mut address = 0;
    let status = guard("millpond_torch_alloc", || {
        let bytes = usize::try_from(size).map_err(|_| Failure::Value(format!("a size of {size} bytes")))?;
        address = allocate(device, bytes, stream as u64)?;
        Ok(())
    });
    if status == millpond_status::MILLPOND_ERROR_OUT_OF_MEMORY {
        // Programs look for these words of PyTorch's own allocator.
        begin_last_error("CUDA out of memory. ");
    }
    if status != millpond_status::MILLPOND_SUCCESS {
        throw::throw(millpond_last_error());
    }
    address as *mut c_void
}

/// The free function for CUDAPluggableAllocator. A refusal (of a pointer that is no allocation) is printed on the
/// standard error stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_torch_free(pointer: *mut c_void, size: isize, device: i32, stream: *mut c_void) {
    let _ = size; // The library knows the size.
    say_refusal(guard("millpond_torch_free", || free(device, pointer as u64, stream as u64)));
}

/// As millpond_cupy_malloc, with a status: for callers without C++ exceptions, such as ctypes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_trusted_malloc(
    pointer: *mut *mut c_void,
    bytes: usize,
    device: i32,
    stream: *mut c_void,
) -> millpond_status {
    guard("millpond_trusted_malloc", || {
        let pointer = place(pointer, "pointer")?;
        *pointer = allocate_asking(device, bytes, stream as u64)? as *mut c_void;
        Ok(())
    })
}

/// As millpond_cupy_free, with a status.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_trusted_free(
    pointer: *mut c_void,
    device: i32,
    stream: *mut c_void,
) -> millpond_status {
    guard("millpond_trusted_free", || free_asking(device, pointer as u64, stream as u64))
}

/// The allocation function for CuPy's CFunctionAllocator, with a stream as its parameter. It returns null for 0 bytes,
/// and if it is refused: millpond_last_error says why. On a stream that captures, the memory stays mapped for the rest
/// of the process, because graphs use it at every replay. Once freed, it serves later captures of the same stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_cupy_malloc(stream: *mut c_void, bytes: usize, device: i32) -> *mut c_void {
    let mut address = 0;
    guard("millpond_cupy_malloc", || {
        address = allocate_asking(device, bytes, stream as u64)?;
        Ok(())
    });
    address as *mut c_void
}

/// The free function for CuPy's CFunctionAllocator, with the same stream as its parameter. A refusal is printed on the
/// standard error stream. Memory that was allocated before a capture and is freed in it is freed after the capture's
/// end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_cupy_free(stream: *mut c_void, pointer: *mut c_void, device: i32) {
    say_refusal(guard("millpond_cupy_free", || free_asking(device, pointer as u64, stream as u64)));
}

/// For CUDAPluggableAllocator.set_record_stream_fn: a later free of this memory comes after all work that the stream
/// has at that time. Memory that is not the library's is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_torch_record_stream(pointer: *mut c_void, stream: *mut c_void) {
    say_refusal(guard("millpond_torch_record_stream", || {
        let address = pointer as u64;
        for device in devices::open() {
            if device.private.share(address, stream as u64, &device.trusted)? {
                return Ok(());
            }
        }
        let Some(memory) = POINTERS.peek(address) else { return Ok(()) };
        let owner = devices::open().find(|device| device.entry.device.owns(&memory));
        let Some(device) = owner else { return Ok(()) };
        let user = device.trusted.stream(stream as u64)?;
        let note = || device.trusted.record_stream(address, &user);
        POINTERS.share(address, note);
        Ok(())
    }));
}

/// For CUDAPluggableAllocator.set_begin_allocate_to_pool: memory that is allocated on the device from now on is kept
/// together under this key, and stays mapped until the pool is released. So graphs that are captured meanwhile find it
/// there at every replay. `filter` is not called: memory that other streams allocate meanwhile is in the pool, too. So
/// a device has one capture at a time. If another thread captures with another pool, this throws a C++ exception that
/// says so (without a C++ runtime it is printed on the standard error stream), and until this pool's end the calling
/// thread gets no memory.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn millpond_torch_begin_allocate_to_pool(
    device: i32,
    pool: millpond_pool_key,
    filter: *const c_void,
) {
    let _ = filter;
    let status = guard("millpond_torch_begin_allocate_to_pool", || devices::device(device)?.private.begin(pool));
    if status != millpond_status::MILLPOND_SUCCESS {
        throw::throw(millpond_last_error());
        // It could not be thrown, so the program believes that it records.
        let refuse = || {
            devices::device(device)?.private.refuse(pool);
            Ok(())
        };
        let _ = guard("millpond_torch_begin_allocate_to_pool", refuse);
    }
}

/// For CUDAPluggableAllocator.set_end_allocate_to_pool_fn.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_torch_end_allocate_to_pool(device: i32, pool: millpond_pool_key) {
    say_refusal(guard("millpond_torch_end_allocate_to_pool", || {
        devices::device(device)?.private.end(pool);
        Ok(())
    }));
}

/// For CUDAPluggableAllocator.set_release_pool: once for each begin. The memory is given back after the last release
/// and the last free in the pool, and after all work that the device has at that time, in any stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_torch_release_pool(device: i32, pool: millpond_pool_key) {
    say_refusal(guard("millpond_torch_release_pool", || {
        devices::device(device)?.private.release(pool);
        Ok(())
    }));
}

/// For CUDAPluggableAllocator.set_reset_fn (torch.cuda.empty_cache): gives idle memory of all devices back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_torch_empty_cache() {
    say_refusal(guard("millpond_torch_empty_cache", || {
        devices::open().try_for_each(|device| {
            free_late(device);
            // While the program captures, no stream may be queried.
            if device.private.is_recording() {
                return Ok(());
            }
            device.private.trim();
            Ok(device.trusted.pool().trim_to(0)?)
        })
    }));
}

/// For CUDAPluggableAllocator.set_memory_fraction_fn (torch.cuda.set_per_process_memory_fraction): from now on at most
/// this fraction of the device's memory is reserved, private pools included. A fraction that is not above 0 and at most
/// 1 is refused by a C++ exception.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn millpond_torch_set_memory_fraction(fraction: f64, device: i32) {
    let set = || devices::device(device)?.set_memory_fraction(fraction);
    if guard("millpond_torch_set_memory_fraction", set) != millpond_status::MILLPOND_SUCCESS {
        throw::throw(millpond_last_error());
    }
}

/// Returns what PyTorch's or CuPy's memory on a device uses and reserves; all zeros before the first allocation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_torch_get_statistics(
    statistics: *mut millpond_pool_statistics,
    device: i32,
) -> millpond_status {
    guard("millpond_torch_get_statistics", || {
        let out = place(statistics, "statistics")?;
        *out = devices::device(device)?.private.figures()?;
        Ok(())
    })
}

/// Sets the high values of a device's statistics to the current ones.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_torch_reset_peaks(device: i32) -> millpond_status {
    guard("millpond_torch_reset_peaks", || devices::device(device)?.private.reset_peaks())
}

/// Returns the allocations of PyTorch or CuPy on a device, as JSON, to be given back with millpond_string_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_torch_memory_picture(json: *mut *mut c_char, device: i32) -> millpond_status {
    guard("millpond_torch_memory_picture", || {
        let json = place(json, "json")?;
        hand_out(picture(&devices::device(device)?.entry.device), json)
    })
}

/// If `host` is not 0, the numbers of devices in the millpond_torch_ and millpond_trusted_ calls mean host devices
/// instead of CUDA ones, for tests on machines without a GPU. It must come before the first of those calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_torch_use_host(host: i32) -> millpond_status {
    guard("millpond_torch_use_host", || devices::use_host(host != 0))
}

#[cfg(test)]
mod tests;
