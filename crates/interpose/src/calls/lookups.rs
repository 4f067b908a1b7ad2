//! `cuGetProcAddress`: a program that asks for a wrapped function gets the wrapper.
//!
//! The real function is asked first, and the address that it returns decides. So no table of versions is needed, and
//! names that are not wrapped cost nothing.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;

use crate::abi::Code;
use crate::entry::substitute;
use crate::session::At;

/// `cuGetProcAddress`
pub(crate) unsafe fn proc_address(
    at: &At,
    real: impl FnOnce() -> Code,
    symbol: *const c_char,
    place: *mut *mut c_void,
    version: c_int,
    flags: u64,
) -> Code {
    // SAFETY: the caller's arguments.
    unsafe { proc_address_v2(at, real, symbol, place, version, flags, null_mut()) }
}

/// `cuGetProcAddress_v2`: replaces the address that the real call has written.
pub(crate) unsafe fn proc_address_v2(
    _at: &At,
    real: impl FnOnce() -> Code,
    symbol: *const c_char,
    place: *mut *mut c_void,
    _version: c_int,
    _flags: u64,
    _status: *mut c_int,
) -> Code {
    let code = real();
    if code == Code::SUCCESS && !place.is_null() && !symbol.is_null() {
        // SAFETY: the caller's place, which the real function has written.
        let found = unsafe { *place }.expose_provenance();
        // SAFETY: the caller's string.
        if let (Ok(name), true) = (unsafe { CStr::from_ptr(symbol) }.to_str(), found != 0) {
            // SAFETY: as above.
            unsafe { *place = substitute(name, found) };
        }
    }
    code
}
