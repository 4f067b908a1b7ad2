//! Memory for programs whose order is trusted: PyTorch's pluggable allocator, and CuPy.
//!
//! Such a program says on which stream it allocates and frees, and not what used the memory: it keeps to the rule that
//! memory is used on the stream that allocated it, or on streams that it has recorded for it. So nothing is checked
//! here; a free is a point of its stream, after everything that was submitted there.
//!
//! What such a program means is in [`Trusted`](millpond::raw::Trusted); here are its entry points, the buffers by
//! address ([`pointers`](crate::tables::pointers)), and the memory of graphs that it captures ([`private`]).
//!
//! A stream is known by its handle, is never forgotten, and is asked later how far it is: it must not be destroyed
//! while the library is used. PyTorch's own streams never are; of CuPy's the Python package keeps those that allocated.
//! PyTorch says when it captures, by beginning a private pool. CuPy does not: its streams are asked each time. What
//! such a stream allocates while it captures comes from a private pool that is never released, and what it frees of
//! other memory is freed once it does not capture any more ([`late`]).

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

/// Allocates; nothing for 0 bytes.
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
        drop(POINTERS.insert(buffer));
    }
    Ok(address)
}

/// Frees at this point of the stream.
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

/// Cold: what is refused to be freed stays live.
#[cold]
fn keep(refused: millpond::Refused<u8>, is_shared: bool) -> Failure {
    let address = refused.buffer.address();
    drop(POINTERS.insert(refused.buffer));
    if is_shared {
        POINTERS.share(address, || ());
    }
    refused.error.into()
}

/// As [`allocate`], of a program that does not say when it captures.
fn allocate_asking(ordinal: i32, bytes: usize, handle: u64) -> Result<u64> {
    let device = device(ordinal)?;
    free_late(device);
    if !device.private.is_recording() && device.trusted.is_captured(handle)? {
        return device.private.allocate_unannounced(&device.trusted, bytes as u64, handle);
    }
    allocate(ordinal, bytes, handle)
}

/// As [`free`], of a program that does not say when it captures.
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

/// Frees what was freed in captures that have ended.
fn free_late(device: &'static TorchDevice) {
    for (address, handle) in device.late.take_over(&device.trusted) {
        // The program's call has long returned.
        say_refusal(guard("millpond_cupy_free", || free_on(device, address, handle)));
    }
}

/// Cold: memory of a private pool, or nothing of ours.
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

/// For entries that have no answer: what is refused is said on the standard error stream.
fn say_refusal(status: millpond_status) {
    if status != millpond_status::MILLPOND_SUCCESS {
        throw::say(millpond_last_error());
    }
}

/// The allocation function for CUDAPluggableAllocator. Where no memory is left it throws a C++ exception with the
/// report, which begins with "CUDA out of memory.", as PyTorch goes on with a null pointer otherwise; without a C++
/// runtime in the process, or for 0 bytes, it returns null.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn millpond_torch_alloc(size: isize, device: i32, stream: *mut c_void) -> *mut c_void {
    let mut address = 0;
    let status = guard("millpond_torch_alloc", || {
        let bytes = usize::try_from(size).map_err(|_| Failure::Value(format!("a size of {size} bytes")))?;
        address = allocate(device, bytes, stream as u64)?;
        Ok(())
    });
    if status == millpond_status::MILLPOND_ERROR_OUT_OF_MEMORY {
        // Programs look for these words, which are those of PyTorch's own allocator.
        begin_last_error("CUDA out of memory. ");
    }
    if status != millpond_status::MILLPOND_SUCCESS {
        throw::throw(millpond_last_error());
    }
    address as *mut c_void
}

/// The free function for CUDAPluggableAllocator. What is refused (a pointer that is no allocation) is said on the
/// standard error stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_torch_free(pointer: *mut c_void, size: isize, device: i32, stream: *mut c_void) {
    let _ = size; // Known here.
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

/// The allocation function for CuPy's CFunctionAllocator, with a stream as its parameter. Null for 0 bytes, and where
/// it is refused: millpond_last_error says why. On a stream that captures the memory stays mapped for the rest of the
/// process, since graphs find it there at every replay; freed, it serves later captures of the same stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_cupy_malloc(stream: *mut c_void, bytes: usize, device: i32) -> *mut c_void {
    let mut address = 0;
    guard("millpond_cupy_malloc", || {
        address = allocate_asking(device, bytes, stream as u64)?;
        Ok(())
    });
    address as *mut c_void
}

/// The free function for CuPy's CFunctionAllocator, with the same stream as its parameter. What is refused is said on
/// the standard error stream. Memory that was allocated before a capture and is freed in it is freed after its end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_cupy_free(stream: *mut c_void, pointer: *mut c_void, device: i32) {
    say_refusal(guard("millpond_cupy_free", || free_asking(device, pointer as u64, stream as u64)));
}

/// For CUDAPluggableAllocator.set_record_stream_fn: a free of this memory comes after all work that the stream has by
/// then. Memory that is not ours is left alone.
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
/// together under this key, and stays where it is until the pool is released: graphs that are captured meanwhile find
/// it there at every replay. `filter` is not asked: memory that other streams allocate meanwhile is in the pool, too.
/// So a device has one capture at a time: where another thread captures with another pool this throws a C++ exception
/// that says so (without a C++ runtime it is said on the standard error stream), and until this pool's end the calling
/// thread is refused memory.
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
        // It could not be thrown: the program believes that it records.
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

/// For CUDAPluggableAllocator.set_release_pool: once for each begin. The memory goes back with the last of these and
/// the free of what is still allocated, after all work that the device has by then, in whatever stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_torch_release_pool(device: i32, pool: millpond_pool_key) {
    say_refusal(guard("millpond_torch_release_pool", || {
        devices::device(device)?.private.release(pool);
        Ok(())
    }));
}

/// For CUDAPluggableAllocator.set_reset_fn (torch.cuda.empty_cache): idle memory of all devices goes back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_torch_empty_cache() {
    say_refusal(guard("millpond_torch_empty_cache", || {
        devices::open().try_for_each(|device| {
            free_late(device);
            // While the program captures no stream may be asked what has completed.
            if device.private.is_recording() {
                return Ok(());
            }
            device.private.trim();
            Ok(device.trusted.pool().trim_to(0)?)
        })
    }));
}

/// For CUDAPluggableAllocator.set_memory_fraction_fn (torch.cuda.set_per_process_memory_fraction): private pools
/// included, no more than this part of the device's memory is reserved from now on. A part that is not above 0 and at
/// most 1 is refused by a C++ exception.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn millpond_torch_set_memory_fraction(fraction: f64, device: i32) {
    let set = || devices::device(device)?.set_memory_fraction(fraction);
    if guard("millpond_torch_set_memory_fraction", set) != millpond_status::MILLPOND_SUCCESS {
        throw::throw(millpond_last_error());
    }
}

/// What PyTorch's or CuPy's memory on a device uses and reserves; all zeros before the first allocation.
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

/// Sets the high marks of a device's statistics to the present values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_torch_reset_peaks(device: i32) -> millpond_status {
    guard("millpond_torch_reset_peaks", || devices::device(device)?.private.reset_peaks())
}

/// What PyTorch or CuPy has allocated on a device, as JSON, to be given back to millpond_string_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_torch_memory_picture(json: *mut *mut c_char, device: i32) -> millpond_status {
    guard("millpond_torch_memory_picture", || {
        let json = place(json, "json")?;
        hand_out(picture(&devices::device(device)?.entry.device), json)
    })
}

/// Not 0: the numbers of devices in the millpond_torch_ and millpond_trusted_ calls mean host devices instead of CUDA
/// ones, for tests on machines without a GPU. Only before the first of those calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_torch_use_host(host: i32) -> millpond_status {
    guard("millpond_torch_use_host", || devices::use_host(host != 0))
}

#[cfg(test)]
mod tests;
