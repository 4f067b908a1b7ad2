//! Frees in a capture of memory that is not the capture's.
//!
//! On a stream that captures, such memory has no point at which it could be freed. It is freed once the stream does not
//! capture any more, and is live until then.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};

use millpond::raw::Trusted;
use millpond_driver::locks::{Mutex, lock};

use crate::status::{Failure, Result};
use crate::tables::ranks;

/// The late frees of a device.
#[derive(Default)]
pub(super) struct Late {
    /// The handle of the stream, by the address of the memory that is freed on it.
    frees: Mutex<ranks::Entry, BTreeMap<u64, u64>>,
    /// `true` if there are any.
    is_any: AtomicBool,
}

impl Late {
    /// Adds a free of the memory at an address, on a stream that captures now.
    pub(super) fn add(&self, address: u64, handle: u64) -> Result<()> {
        match lock(&self.frees).entry(address) {
            Entry::Occupied(_) => Err(Failure::Value(format!("{address:#x} is freed already: a capture has freed it"))),
            Entry::Vacant(entry) => {
                entry.insert(handle);
                self.is_any.store(true, Ordering::Release);
                Ok(())
            }
        }
    }

    /// Removes the frees of streams that do not capture any more, and returns them as addresses and handles.
    #[inline]
    pub(super) fn take_over(&self, trusted: &Trusted) -> BTreeMap<u64, u64> {
        match self.is_any.load(Ordering::Acquire) {
            true => self.take_some(trusted),
            false => BTreeMap::new(),
        }
    }

    #[cold]
    fn take_some(&self, trusted: &Trusted) -> BTreeMap<u64, u64> {
        let mut frees = lock(&self.frees);
        let is_captured = |handle| trusted.is_captured(handle).unwrap_or(false);
        let (wait, over) = std::mem::take(&mut *frees).into_iter().partition(|(_, handle)| is_captured(*handle));
        *frees = wait;
        self.is_any.store(!frees.is_empty(), Ordering::Release);
        over
    }
}
