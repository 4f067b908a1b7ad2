//! The driver's pointer queries, for addresses of Millpond's.
//!
//! To the driver such an address is mapped memory (`cuMemMap`); to the program it is memory of a pool. So the driver is
//! asked, and its answers about the mapping are replaced by the allocation's. What CUDA refuses for memory of a pool is
//! refused here, too: otherwise the program would get a handle of a chunk that also has other allocations.

use std::ffi::{c_int, c_uint, c_void};

use super::live::{self, Found};
use super::{devices, is_ours, put};
use crate::abi::Code;
use crate::calls::list;

/// `CU_POINTER_ATTRIBUTE_...`
mod attribute {
    pub(super) const BUFFER_ID: i32 = 7;
    pub(super) const RANGE_START: i32 = 11;
    pub(super) const RANGE_SIZE: i32 = 12;
    pub(super) const HANDLE_TYPES: i32 = 14;
    pub(super) const POOL: i32 = 17;
}

/// Returns Millpond's allocation that an address is in.
fn around(at: u64) -> Option<Found> {
    if !is_ours() {
        return None;
    }
    if let Some(known) = live::starting_at(at) {
        return Some(known);
    }
    let memory = devices::all().find_map(|it| it.device.memory_around(at))?;
    live::starting_at(memory.address()).filter(|known| at - known.start < known.bytes)
}

/// Replaces the answer, if it is one of the allocation's.
///
/// # Safety
/// The place is null, or valid for the attribute's type.
unsafe fn replace(known: &Found, which: c_int, place: *mut c_void) {
    match which {
        // SAFETY: the caller's promise: an unsigned number of 64 bits, as the next two.
        attribute::BUFFER_ID => unsafe { put(place.cast::<u64>(), known.number) },
        // SAFETY: as above.
        attribute::RANGE_START => unsafe { put(place.cast::<u64>(), known.start) },
        // SAFETY: as above.
        attribute::RANGE_SIZE => unsafe { put(place.cast::<usize>(), known.bytes as usize) },
        // SAFETY: a set of flags.
        attribute::HANDLE_TYPES => unsafe { put(place.cast::<u64>(), 0) },
        // SAFETY: a handle.
        attribute::POOL => unsafe { put(place.cast::<usize>(), known.pool.handle.0) },
        _ => {}
    }
}

/// `cuPointerGetAttribute`
///
/// # Safety
/// The place is null, or valid for the attribute's type.
pub(crate) unsafe fn attribute(code: Code, place: *mut c_void, which: c_int, address: u64) -> Code {
    let is_ours_to_say = matches!(
        which,
        attribute::BUFFER_ID
            | attribute::RANGE_START
            | attribute::RANGE_SIZE
            | attribute::HANDLE_TYPES
            | attribute::POOL
    );
    match around(address).filter(|_| is_ours_to_say && !place.is_null()) {
        // The driver has no such answer for mapped memory.
        Some(known) => {
            // SAFETY: the caller's promise.
            unsafe { replace(&known, which, place) };
            Code::SUCCESS
        }
        None => code,
    }
}

/// `cuPointerGetAttributes`: an attribute that does not apply gives null or 0, and no error.
///
/// # Safety
/// If the call succeeded, `count` attributes and places are there, and the places are null or valid for their
/// attributes.
pub(crate) unsafe fn attributes(
    code: Code,
    count: c_uint,
    which: *const c_int,
    places: *const *mut c_void,
    address: u64,
) -> Code {
    if code != Code::SUCCESS {
        return code;
    }
    if let Some(known) = around(address) {
        // SAFETY: the caller's promise.
        let which = unsafe { list(which, count as usize) };
        // SAFETY: as above.
        let places = unsafe { list(places, count as usize) };
        for (which, place) in which.iter().zip(places) {
            // SAFETY: the caller's promise.
            unsafe { replace(&known, *which, *place) };
        }
    }
    code
}

/// `cuMemGetAddressRange`
///
/// # Safety
/// The places are null or valid.
pub(crate) unsafe fn range(base: *mut u64, bytes: *mut usize, address: u64, real: impl Fn() -> Code) -> Code {
    let Some(known) = around(address) else { return real() };
    // SAFETY: the caller's promise.
    unsafe { put(base, known.start) };
    // SAFETY: as above.
    unsafe { put(bytes, known.bytes as usize) };
    Code::SUCCESS
}

/// Refuses a query that memory of this process's pools does not answer: for a handle, for a name for other processes.
pub(crate) fn refuse(address: u64, real: impl Fn() -> Code) -> Code {
    if around(address).is_some() { Code::INVALID_VALUE } else { real() }
}
