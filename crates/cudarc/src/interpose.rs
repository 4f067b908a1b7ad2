//! Millpond's `cuMemAllocAsync` and `cuMemFreeAsync` for whole, unchanged programs.
//!
//! A program that links the driver library (cudarc's feature `dynamic-linking`, which candle uses) calls these
//! functions by their names, and a definition in the program comes before the library's. With the feature `interpose`
//! the functions here have those names. Then every `CudaSlice` of cudarc is Millpond's memory, allocated and freed in
//! stream order.
//!
//! The program's order is trusted, because such programs declare the streams of allocations and frees, but not the uses
//! of the memory; see [`Trusted`]. `cuStreamDestroy` closes a stream here before the driver closes it. Calls that do
//! not concern Millpond's memory are passed on to the library: other frees, allocations in captures, allocations of 0
//! bytes. A free of Millpond's memory in a capture is refused, because the graph may use it at each launch.

use std::collections::HashMap;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use cudarc::driver::sys::{self, CUdeviceptr, CUresult, CUstream};
use millpond::error::DriverError;
use millpond::raw::Trusted;
use millpond::{Buffer, Device, Pool, PoolConfig};
use millpond_driver::locks::{Leaf, Mutex, lock};
use millpond_driver::output::say;

use crate::error::Result;
use crate::ranks;

/// A device whose memory Millpond serves.
#[derive(Debug)]
struct Served {
    trusted: Trusted,
    live: Mutex<Leaf, HashMap<u64, Buffer<u8>>>,
}

/// The devices that were used, by number.
static SERVED: Mutex<ranks::Served, Vec<(c_int, Arc<Served>)>> = Mutex::new(Vec::new());

/// Returns the device of a number, opened at its first use.
fn served(ordinal: c_int) -> millpond::Result<Arc<Served>> {
    let mut all = lock(&SERVED);
    if let Some((_, served)) = all.iter().find(|(number, _)| *number == ordinal) {
        return Ok(Arc::clone(served));
    }
    let device = Device::cuda(u32::try_from(ordinal).unwrap_or(u32::MAX))?;
    // Millpond does not see the program's synchronisations: idle memory is given back when it is needed elsewhere.
    let pool = device.pool(PoolConfig::default().release_threshold(u64::MAX))?;
    // SAFETY: the callers of the functions below promise this, and `cuStreamDestroy_v2` reports closed streams.
    let trusted = unsafe { device.trusted(pool, false) };
    let served = Arc::new(Served { trusted, live: Mutex::default() });
    all.push((ordinal, Arc::clone(&served)));
    Ok(served)
}

impl Served {
    fn alloc(&self, bytes: usize, native: u64) -> millpond::Result<CUdeviceptr> {
        let buffer = self.trusted.alloc(bytes, native)?;
        let address = buffer.address();
        lock(&self.live).insert(address, buffer);
        Ok(address)
    }

    /// Returns `false` if the memory is not Millpond's. If the free is refused, the memory stays live.
    fn free(&self, address: CUdeviceptr, native: u64) -> millpond::Result<bool> {
        let Some(buffer) = lock(&self.live).remove(&address) else { return Ok(false) };
        let checked = self.trusted.check_captured(native, "free");
        let freed = match checked {
            Ok(()) => self.trusted.free(buffer, false, native).map_err(|refused| (refused.error, refused.buffer)),
            Err(error) => Err((error, buffer)),
        };
        freed.map(|()| true).map_err(|(error, buffer)| {
            lock(&self.live).insert(address, buffer);
            error
        })
    }
}

/// Returns all devices that were used.
fn all() -> Vec<Arc<Served>> {
    lock(&SERVED).iter().map(|(_, served)| Arc::clone(served)).collect()
}

/// Returns the current context's device if Millpond may serve this stream now: in a capture the driver must make nodes.
fn serving(stream: CUstream) -> Option<c_int> {
    let (mut ordinal, mut status) = (-1, sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE);
    // SAFETY: a local for the result.
    let has_context = unsafe { sys::cuCtxGetDevice(&raw mut ordinal) } == CUresult::CUDA_SUCCESS;
    // SAFETY: the caller's stream, and a local for the result.
    let answered = unsafe { sys::cuStreamIsCapturing(stream, &raw mut status) } == CUresult::CUDA_SUCCESS;
    let is_live = status == sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    (has_context && answered && is_live).then_some(ordinal)
}

/// Runs `act`. Prints an error, and does not unwind into the caller.
fn guard<T>(call: &str, act: impl FnOnce() -> millpond::Result<T>) -> std::result::Result<T, CUresult> {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => {
            say(format_args!("millpond: {call}: {}", error.report()));
            match error {
                millpond::Error::OutOfMemory(_) => Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY),
                millpond::Error::Driver(error) if matches!(*error, DriverError::Captured { .. }) => {
                    Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
                }
                _ => Err(CUresult::CUDA_ERROR_UNKNOWN),
            }
        }
        Err(_) => Err(CUresult::CUDA_ERROR_UNKNOWN),
    }
}

/// Millpond's `cuMemAllocAsync`.
///
/// # Safety
/// As of the driver's function: a place for the address, and an open stream of the current context, which must be a
/// primary one.
#[cfg_attr(feature = "interpose", unsafe(no_mangle))]
#[allow(non_snake_case)]
pub unsafe extern "C" fn cuMemAllocAsync(address: *mut CUdeviceptr, bytes: usize, stream: CUstream) -> CUresult {
    let Some(ordinal) = serving(stream).filter(|_| bytes > 0 && !address.is_null()) else {
        // SAFETY: the caller's promise.
        return unsafe { next_alloc(address, bytes, stream) };
    };
    match guard("cuMemAllocAsync", || served(ordinal)?.alloc(bytes, stream as u64)) {
        Ok(allocated) => {
            // SAFETY: not null, and the caller's place.
            unsafe { address.write(allocated) };
            CUresult::CUDA_SUCCESS
        }
        Err(code) => code,
    }
}

/// Millpond's `cuMemFreeAsync`.
///
/// # Safety
/// As of the driver's function.
#[cfg_attr(feature = "interpose", unsafe(no_mangle))]
#[allow(non_snake_case)]
pub unsafe extern "C" fn cuMemFreeAsync(address: CUdeviceptr, stream: CUstream) -> CUresult {
    for served in all() {
        match guard("cuMemFreeAsync", || served.free(address, stream as u64)) {
            Ok(true) => return CUresult::CUDA_SUCCESS,
            Ok(false) => {}
            Err(code) => return code,
        }
    }
    // SAFETY: the caller's promise.
    unsafe { next_free(address, stream) }
}

/// `cuStreamDestroy`. First Millpond records an event for the work in the stream, because another stream may get the
/// handle later.
///
/// # Safety
/// As of the driver's function.
#[cfg_attr(feature = "interpose", unsafe(no_mangle))]
#[allow(non_snake_case)]
pub unsafe extern "C" fn cuStreamDestroy_v2(stream: CUstream) -> CUresult {
    let close = || {
        all().iter().for_each(|served| served.trusted.close_stream(stream as u64));
        Ok(())
    };
    if let Err(code) = guard("cuStreamDestroy", close) {
        return code;
    }
    // SAFETY: the header's signature.
    match unsafe { next::<Destroy>("cuStreamDestroy_v2") } {
        // SAFETY: the caller's promise.
        Some(destroy) => unsafe { destroy(stream) },
        None => CUresult::CUDA_ERROR_NOT_FOUND,
    }
}

type Alloc = unsafe extern "C" fn(*mut CUdeviceptr, usize, CUstream) -> CUresult;
type Free = unsafe extern "C" fn(CUdeviceptr, CUstream) -> CUresult;
type Destroy = unsafe extern "C" fn(CUstream) -> CUresult;

/// Returns a function of the driver library itself.
///
/// # Safety
/// The name is that of a function of this signature, by the header.
unsafe fn next<F: Copy>(name: &str) -> Option<F> {
    static LIBRARY: OnceLock<Option<libloading::Library>> = OnceLock::new();
    // SAFETY: the driver library, which is loaded already.
    let library = LIBRARY.get_or_init(|| unsafe { libloading::Library::new("libcuda.so.1") }.ok()).as_ref()?;
    // SAFETY: the caller's promise.
    unsafe { library.get::<F>(name) }.ok().map(|function| *function)
}

/// # Safety
/// As of the driver's function.
unsafe fn next_alloc(address: *mut CUdeviceptr, bytes: usize, stream: CUstream) -> CUresult {
    // SAFETY: the header's signature.
    match unsafe { next::<Alloc>("cuMemAllocAsync") } {
        // SAFETY: the caller's promise.
        Some(alloc) => unsafe { alloc(address, bytes, stream) },
        None => CUresult::CUDA_ERROR_NOT_FOUND,
    }
}

/// # Safety
/// As of the driver's function.
unsafe fn next_free(address: CUdeviceptr, stream: CUstream) -> CUresult {
    // SAFETY: the header's signature.
    match unsafe { next::<Free>("cuMemFreeAsync") } {
        // SAFETY: the caller's promise.
        Some(free) => unsafe { free(address, stream) },
        None => CUresult::CUDA_ERROR_NOT_FOUND,
    }
}

/// Returns the pool of a device's allocations: for statistics, limits, trimming. A program that interposes calls it
/// once, before its first allocation. The linker then keeps the functions, and an error says what is missing. If the
/// pool's figures stay at zero, the program calls the library's own functions: either it loads the library instead of
/// linking it, or an optimising linker removed the names.
///
/// # Errors
/// An [`Error::Millpond`](crate::Error::Millpond) says what is missing.
pub fn pool(ordinal: u32) -> Result<Pool> {
    std::hint::black_box((cuMemAllocAsync as Alloc, cuMemFreeAsync as Free, cuStreamDestroy_v2 as Destroy));
    Ok(served(c_int::try_from(ordinal).unwrap_or(-1))?.trusted.pool().clone())
}
