//! `dlsym` and `cuGetProcAddress`: who asks for a wrapped function gets the wrapper.
//!
//! The real ones are asked first. Their answer, an address, decides: so there is no table of versions here, and names
//! that are not wrapped cost nothing. A question for the *next* definition is about the caller's own place in the
//! order of libraries; it goes on as a jump, so that the loader sees that caller.

use std::ffi::{CStr, c_char, c_int, c_void};

use millpond_driver::cuda::abi::Code;

use super::{passed, real};
use crate::session::At;
use crate::table;

/// Where a question for the next definition goes on, once known.
#[cfg_attr(test, allow(dead_code))]
extern "C" fn real_dlsym() -> usize {
    real::dlsym() as usize
}

/// The exported `dlsym`. `RTLD_NEXT` is -1.
#[cfg(not(test))]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn dlsym() {
    std::arch::naked_asm!(
        "cmp rdi, -1",
        "jne {body}",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {real}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        body = sym found,
        real = sym real_dlsym,
    )
}

/// What a library has under a name; of a wrapped function the wrapper.
///
/// # Safety
/// As of `dlsym`.
#[cfg_attr(test, allow(dead_code))]
unsafe extern "C" fn found(library: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the caller's promise.
    let answer = unsafe { real::dlsym()(library, name) };
    if answer.is_null() || name.is_null() {
        return answer;
    }
    // SAFETY: the caller's string, which the real one has read.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    if !name.starts_with(b"cu") || name.get(2).is_none_or(|c| !c.is_ascii_uppercase()) {
        return answer;
    }
    replaced(library, name, answer)
}

#[cfg_attr(test, allow(dead_code))]
fn replaced(library: *mut c_void, name: &[u8], answer: *mut c_void) -> *mut c_void {
    let at = answer.expose_provenance();
    let Ok(name) = str::from_utf8(name) else { return answer };
    let entry = table::entry(name);
    if entry == Some(at) {
        // This library's own: asked of all libraries, it is there where a real one is.
        return if table::is_served(at) { answer } else { std::ptr::null_mut() };
    }
    if entry.is_some() || name == "cuInit" || name == "cuDriverGetVersion" {
        real::attach(library);
    }
    substitute(name, at)
}

/// What stands for a real function of this name: its wrapper, a counter, or itself.
fn substitute(name: &str, real: usize) -> *mut c_void {
    let at = real::wrapper(real).or_else(|| passed::counter(name, real)).unwrap_or(real);
    std::ptr::with_exposed_provenance_mut(at)
}

/// The answer of `cuGetProcAddress` is replaced in place.
///
/// # Safety
/// As of the header.
unsafe fn replace(code: Code, symbol: *const c_char, place: *mut *mut c_void) -> Code {
    if code == Code::SUCCESS && !place.is_null() && !symbol.is_null() {
        // SAFETY: the caller's place, which the real function has written.
        let real = unsafe { *place }.expose_provenance();
        // SAFETY: the caller's string.
        if let (Ok(name), true) = (unsafe { CStr::from_ptr(symbol) }.to_str(), real != 0) {
            // SAFETY: as above.
            unsafe { *place = substitute(name, real) };
        }
    }
    code
}

/// `cuGetProcAddress`
///
/// # Safety
/// As of the header.
pub(crate) unsafe fn proc_address(
    _at: &At,
    real: impl FnOnce() -> Code,
    symbol: *const c_char,
    place: *mut *mut c_void,
    _version: c_int,
    _flags: u64,
) -> Code {
    // SAFETY: the caller's promise.
    unsafe { replace(real(), symbol, place) }
}

/// `cuGetProcAddress_v2`
///
/// # Safety
/// As of the header.
pub(crate) unsafe fn proc_address_v2(
    _at: &At,
    real: impl FnOnce() -> Code,
    symbol: *const c_char,
    place: *mut *mut c_void,
    _version: c_int,
    _flags: u64,
    _status: *mut c_int,
) -> Code {
    // SAFETY: the caller's promise.
    unsafe { replace(real(), symbol, place) }
}
