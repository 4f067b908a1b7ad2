//! Pages of host memory for copies, for devices whose library has none: plain memory, a whole number of pages each.
//!
//! Knows sizes and addresses, but not the users. Pages that were not freed are freed with the table, which all users of
//! the pages hold.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::HashMap;

use crate::errors::{failed, unknown};
use crate::locks::{Guard, Leaf, Mutex, lock};
use crate::{DriverError, Result};

/// The table of the pages; see the module.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    kept: Mutex<Leaf, HashMap<u64, Layout>>,
}

impl Pages {
    pub(crate) fn alloc_host(&self, bytes: u64) -> Result<u64> {
        const CALL: &str = "alloc_host";
        let page = rustix::param::page_size();
        let layout = usize::try_from(bytes).ok().and_then(|bytes| Layout::from_size_align(bytes, page).ok());
        let layout = layout.map(|layout| layout.pad_to_align());
        let layout = layout.ok_or(DriverError::OutOfHostMemory { call: CALL, bytes, limits: ", nor has any" })?;
        if layout.size() == 0 {
            return Err(failed(CALL, "no bytes are no memory"));
        }
        // SAFETY: the size is not zero.
        let at = unsafe { alloc_zeroed(layout) };
        if at.is_null() {
            return Err(DriverError::OutOfHostMemory { call: CALL, bytes, limits: "" });
        }
        let at = at.expose_provenance() as u64;
        self.lock().insert(at, layout);
        Ok(at)
    }

    /// # Safety
    /// As of `Driver::free_host`.
    pub(crate) unsafe fn free_host(&self, at: u64) -> Result<()> {
        let unknown = unknown("free_host", "host memory", at);
        let layout = self.lock().remove(&at).ok_or(unknown)?;
        // SAFETY: allocated with that layout, and removed from the table, so it is freed once. The caller promises that
        // nothing uses it.
        unsafe { dealloc(std::ptr::with_exposed_provenance_mut(at as usize), layout) };
        Ok(())
    }

    /// Returns the addresses and sizes of pages that are not freed.
    pub(crate) fn kept(&self) -> Vec<(u64, u64)> {
        self.lock().iter().map(|(&at, layout)| (at, layout.size() as u64)).collect()
    }

    fn lock(&self) -> Guard<'_, HashMap<u64, Layout>> {
        lock(&self.kept)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        for (at, _) in self.kept() {
            // SAFETY: the device is gone with all its work, and so are all users of the address.
            let _ = unsafe { self.free_host(at) };
        }
    }
}
