//! Allocate and free by pointer.
//!
//! The hot path is `malloc_async` and `free_async`: the stream's entry, the library's own path, one place of
//! `pointers`. A free that is refused puts the buffer back, so that nothing is lost.

use std::ffi::{c_char, c_void};

use millpond::{Buffer, Pool, Refused};

use crate::access::graph_memory;
use crate::device::{DEVICES, DeviceEntry, lock, millpond_device_t};
use crate::pointers::POINTERS;
use crate::pool::{POOLS, millpond_pool_t};
use crate::status::{Failure, Result, guard, millpond_status, place, text};
use crate::stream::{STREAMS, StreamEntry, millpond_stream_t};

/// What is allocated belongs to the C side from here on.
#[inline]
fn publish(buffer: Buffer<u8>, device: &DeviceEntry, pointer: &mut *mut c_void) {
    let address = buffer.address();
    if address != 0 {
        if buffer.is_captured() {
            lock(&device.captured).push(address);
        }
        let stale = POINTERS.insert(buffer);
        drop(stale);
    }
    *pointer = address as *mut c_void;
}

#[inline]
fn allocate(entry: &mut StreamEntry, pool: Option<&Pool>, bytes: usize, pointer: &mut *mut c_void) -> Result<()> {
    let (stream, current) = entry.with_pool();
    let buffer = stream.alloc::<u8>(pool.unwrap_or(current), bytes)?;
    publish(buffer, &entry.device, pointer);
    Ok(())
}

/// Allocates `bytes` from the device's current pool, from this point of the stream on (CUDA: cudaMallocAsync). The
/// address is a multiple of 512; for 0 bytes it is null. In a capture it is an alloc node's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_malloc_async(
    pointer: *mut *mut c_void,
    bytes: usize,
    stream: millpond_stream_t,
) -> millpond_status {
    guard("millpond_malloc_async", || {
        let pointer = place(pointer, "pointer")?;
        STREAMS.with(stream, |entry| allocate(entry, None, bytes, pointer))
    })
}

/// Allocates from a pool (CUDA: cudaMallocFromPoolAsync).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_malloc_from_pool_async(
    pointer: *mut *mut c_void,
    bytes: usize,
    pool: millpond_pool_t,
    stream: millpond_stream_t,
) -> millpond_status {
    guard("millpond_malloc_from_pool_async", || {
        let pointer = place(pointer, "pointer")?;
        let pool = POOLS.find(pool)?;
        STREAMS.with(stream, |entry| allocate(entry, Some(&pool), bytes, pointer))
    })
}

/// Frees memory at this point of the stream, wherever it was allocated (CUDA: cudaFreeAsync): the free must come after
/// the allocation and every declared use. Null has no effect. In a capture it is a free node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_free_async(pointer: *mut c_void, stream: millpond_stream_t) -> millpond_status {
    guard("millpond_free_async", || {
        let address = pointer as u64;
        STREAMS.with(stream, |entry| match POINTERS.remove(address) {
            Some((buffer, _)) => match entry.stream.free(buffer) {
                Ok(()) => Ok(()),
                Err(refused) => put_back(&entry.device, refused),
            },
            None => free_unknown(entry, address),
        })
    })
}

/// Cold: the free was refused. Where checks are off, or report only, the memory is free after all declared uses.
#[cold]
fn put_back(device: &DeviceEntry, refused: Refused<u8>) -> Result<()> {
    let Refused { error, buffer } = refused;
    if device.lets_pass(&error) {
        drop(buffer);
        return Ok(());
    }
    drop(POINTERS.insert(buffer));
    Err(error.into())
}

/// Cold: no buffer of the C side is at the address: a graph's memory that a capture frees, or no allocation.
#[cold]
fn free_unknown(entry: &StreamEntry, address: u64) -> Result<()> {
    if address == 0 {
        return Ok(());
    }
    if let Some((node, 0)) = graph_memory(&entry.device, None, address) {
        return Ok(entry.stream.free_alloc_node(node)?);
    }
    Ok(entry.stream.free_address(address)?)
}

/// Allocates memory that is there at once, for every stream (CUDA: cudaMalloc). It can be freed by millpond_free and by
/// millpond_free_async.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_malloc(
    pointer: *mut *mut c_void,
    bytes: usize,
    device: millpond_device_t,
) -> millpond_status {
    guard("millpond_malloc", || {
        let pointer = place(pointer, "pointer")?;
        let device = DEVICES.find(device)?;
        let stream = device.immediate()?;
        let buffer = stream.alloc::<u8>(&device.device.current_pool(), bytes)?;
        // What the host was told of comes before everything that it submits from now on.
        stream.record()?.synchronize()?;
        publish(buffer, &device, pointer);
        Ok(())
    })
}

/// Frees memory at once, however it was allocated (CUDA: cudaFree). It does not wait: the host must have synchronised
/// with every declared use. Null has no effect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_free(pointer: *mut c_void, device: millpond_device_t) -> millpond_status {
    guard("millpond_free", || {
        let device = DEVICES.find(device)?;
        match POINTERS.remove(pointer as u64) {
            Some((buffer, _)) => match device.device.free(buffer) {
                Ok(()) => Ok(()),
                Err(refused) => put_back(&device, refused),
            },
            None => Ok(device.device.free_address(pointer as u64)?),
        }
    })
}

/// Gives an allocation a name, for messages and pictures, until it is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_set_name(pointer: *mut c_void, name: *const c_char) -> millpond_status {
    guard("millpond_set_name", || {
        let name = text(name, "name")?;
        match POINTERS.peek(pointer as u64) {
            Some(memory) => memory.set_name(name),
            None => return Err(Failure::Value(format!("{pointer:p} is not the start of a live allocation"))),
        }
        Ok(())
    })
}
