//! The meaning of each call, as operations. There are no rules here: the checker decides what is right.
//!
//! `table` connects calls with these functions. A handler makes the real call itself, exactly once. Those that are
//! unsafe are so for one reason: they take the program's arguments, which must be what the header says.
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "the places of one call are read at once, for one reason")]

use std::ffi::c_int;

use crate::abi::Location;

pub(crate) mod captures;
pub(crate) mod contexts;
pub(crate) mod copies;
pub(crate) mod events;
pub(crate) mod graphs;
pub(crate) mod host_functions;
pub(crate) mod kernels;
pub(crate) mod lookups;
pub(crate) mod memory;
pub(crate) mod nodes;
pub(crate) mod peers;
pub(crate) mod pools;
pub(crate) mod ranges;
pub(crate) mod streams;

/// Reads the value at the program's address, once the real call has written it.
///
/// # Safety
/// Null, or valid.
pub(crate) unsafe fn read<T: Copy>(place: *const T) -> Option<T> {
    // SAFETY: the caller's promise. A place of a program may be unaligned.
    (!place.is_null()).then(|| unsafe { place.read_unaligned() })
}

/// Returns the device of a location, if it is a device's.
///
/// # Safety
/// Null, or valid.
pub(crate) unsafe fn device_at(location: *const Location) -> Option<c_int> {
    // SAFETY: the caller's promise.
    unsafe { read(location) }.filter(|it| it.kind == Location::DEVICE).map(|it| it.id)
}

/// Returns `count` elements from the program's address as a slice.
///
/// # Safety
/// Null, or `count` elements are valid.
pub(crate) unsafe fn list<'a, T>(first: *const T, count: usize) -> &'a [T] {
    // SAFETY: the caller's promise.
    if first.is_null() || count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(first, count) } }
}
