//! The few calls of the CUDA runtime whose answers differ from the driver's: those about null and about no bytes.

use std::ffi::{c_int, c_void};

use millpond_driver::cuda::abi::{Code, Stream};

/// The names under which the loader looks for it.
const NAMES: [&str; 4] = ["libcudart.so.13", "libcudart.so.12", "libcudart.so", "/usr/local/cuda/lib64/libcudart.so"];

/// The runtime's library.
pub(crate) struct Runtime(libloading::Library);

impl Runtime {
    /// Loads it. Returns `None` if it is not installed.
    pub(crate) fn load() -> Option<Self> {
        // SAFETY: loading it runs nothing.
        NAMES.iter().find_map(|name| unsafe { libloading::Library::new(*name) }.ok()).map(Self)
    }

    fn function<F: Copy>(&self, name: &str) -> F {
        // SAFETY: the callers below give the signatures of the header.
        *unsafe { self.0.get::<F>(name) }.unwrap_or_else(|error| panic!("the runtime has no `{name}`: {error}"))
    }

    /// Calls `cudaMallocAsync` on a stream. Returns the code and the address.
    pub(crate) fn alloc(&self, bytes: usize, stream: Stream) -> (Code, u64) {
        let mut at = std::ptr::without_provenance_mut::<c_void>(7);
        let function =
            self.function::<unsafe extern "C" fn(*mut *mut c_void, usize, Stream) -> c_int>("cudaMallocAsync");
        // SAFETY: a place for an address, and an open stream.
        let code = unsafe { function(&raw mut at, bytes, stream) };
        (Code(code as u32), at as u64)
    }

    /// Calls `cudaFreeAsync` with null.
    pub(crate) fn free_null(&self, stream: Stream) -> Code {
        let function = self.function::<unsafe extern "C" fn(*mut c_void, Stream) -> c_int>("cudaFreeAsync");
        // SAFETY: null has no effect, and the stream is open.
        Code(unsafe { function(std::ptr::null_mut(), stream) } as u32)
    }

    /// Calls `cudaFree` with null.
    pub(crate) fn free_null_now(&self) -> Code {
        let function = self.function::<unsafe extern "C" fn(*mut c_void) -> c_int>("cudaFree");
        // SAFETY: null has no effect.
        Code(unsafe { function(std::ptr::null_mut()) } as u32)
    }
}
