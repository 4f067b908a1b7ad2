//! Page-locked host memory, which the device's copies read and write as they run.
//!
//! Knows addresses, but not their users. The library frees it only while no work runs, so that freeing may wait: it is
//! freed where the caller waits anyway.

use std::collections::HashMap;
use std::ffi::c_uint;
use std::sync::Arc;

use super::abi::Code;
use super::gpu::Gpu;
use super::table::PinTable;
use crate::errors::{failed, unknown};
use crate::locks::{Guard, Leaf, Mutex, lock};
use crate::{DriverError, Result};

/// `CU_MEMHOSTALLOC_PORTABLE`: page-locked for all contexts, also the contexts of the program's streams.
const PORTABLE: c_uint = 1;

/// The alignment of the memory, in bytes. CUDA promises no alignment, so more bytes are requested.
const ALIGNED: usize = 512;

/// The page-locked memory of one device; see the module.
#[derive(Debug)]
pub(super) struct Pinned {
    gpu: Arc<Gpu>,
    /// CUDA's address of the memory, by the address that was returned.
    kept: Mutex<Leaf, HashMap<u64, u64>>,
}

impl Pinned {
    pub(super) fn new(gpu: Arc<Gpu>) -> Self {
        Self { gpu, kept: Mutex::default() }
    }

    pub(super) fn alloc_host(&self, bytes: u64) -> Result<u64> {
        const CALL: &str = "alloc_host";
        let table = self.table(CALL)?;
        let most = isize::MAX as usize - ALIGNED;
        let size = usize::try_from(bytes).ok().filter(|size| (1..=most).contains(size));
        let size = size.ok_or(DriverError::OutOfHostMemory { call: CALL, bytes, limits: ", nor has any" })?;
        let (_entered, mut at) = (self.gpu.enter_apart(CALL)?, std::ptr::null_mut());
        // SAFETY: the pointer is valid for a pointer (context-current).
        match unsafe { (table.alloc)(&raw mut at, size + ALIGNED - 1, PORTABLE) } {
            Code::SUCCESS if !at.is_null() => {}
            Code::SUCCESS => return Err(failed(CALL, "the driver answered no memory")),
            Code::OUT_OF_MEMORY => {
                let limits = " that can be page-locked (RLIMIT_MEMLOCK, and the control group's memory.max)";
                return Err(DriverError::OutOfHostMemory { call: CALL, bytes, limits });
            }
            code => return Err(self.gpu.refusal(CALL, code)),
        }
        let raw = at.expose_provenance() as u64;
        let at = raw.next_multiple_of(ALIGNED as u64);
        let memory = std::ptr::with_exposed_provenance_mut::<u8>(at as usize);
        // SAFETY: there are this many bytes, just allocated. The library does not say what they contain.
        unsafe { memory.write_bytes(0, size) };
        self.lock().insert(at, raw);
        Ok(at)
    }

    /// # Safety
    /// As of `Driver::free_host`.
    pub(super) unsafe fn free_host(&self, at: u64) -> Result<()> {
        const CALL: &str = "free_host";
        let table = self.table(CALL)?;
        let mut kept = self.lock();
        let Some(&raw) = kept.get(&at) else {
            return Err(unknown(CALL, "host memory", at));
        };
        let _entered = self.gpu.enter_apart(CALL)?;
        // SAFETY: the memory is from `alloc_host`; the caller promises that nothing uses it.
        self.gpu.check(CALL, unsafe { (table.free)(std::ptr::with_exposed_provenance_mut(raw as usize)) })?;
        kept.remove(&at);
        Ok(())
    }

    fn table(&self, call: &'static str) -> Result<PinTable> {
        let missing = "the driver library has no functions `cuMemHostAlloc` and `cuMemFreeHost`";
        self.gpu.api.pins.ok_or_else(|| failed(call, missing))
    }

    fn lock(&self) -> Guard<'_, HashMap<u64, u64>> {
        lock(&self.kept)
    }
}

impl Drop for Pinned {
    /// Frees the memory once no work of the context runs any more. If that cannot be waited for, the memory stays until
    /// the process ends.
    fn drop(&mut self) {
        let kept = std::mem::take(self.kept.get_mut());
        if kept.is_empty() || !self.gpu.synchronize() {
            return;
        }
        let (Some(table), Ok(_entered)) = (self.gpu.api.pins, self.gpu.enter_apart("close")) else { return };
        for raw in kept.into_values() {
            // SAFETY: the memory is from `alloc_host` and freed once; all work has completed. If this fails, it stays
            // allocated.
            let _ = unsafe { (table.free)(std::ptr::with_exposed_provenance_mut(raw as usize)) };
        }
    }
}
