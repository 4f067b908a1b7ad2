//! `dlsym`: a program that asks for a wrapped function gets the wrapper.
//!
//! The real `dlsym` is asked first, and the address that it returns decides. So no table of versions is needed, and
//! names that are not wrapped cost nothing. A lookup of the *next* definition depends on the caller's place in the
//! order of libraries: it is passed on as a jump, so that the loader sees that caller. Also `dlclose`: after it,
//! addresses may belong to other code.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::entry::thunk::is_inside;
use crate::entry::{real, substitute};
use crate::place::Places;
use crate::table::WRAPPED;
use crate::{limit, mode, place, session};

/// Returns the address to jump to for a lookup of the next definition.
#[cfg_attr(test, allow(dead_code))]
extern "C" fn real_dlsym() -> usize {
    real::dlsym() as usize
}

/// The exported `dlsym`. `RTLD_NEXT` is -1.
#[cfg(not(test))]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn dlsym() {
    #[cfg(target_arch = "x86_64")]
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
    );
    #[cfg(target_arch = "aarch64")]
    std::arch::naked_asm!(
        "cmn x0, #1",
        "b.eq 2f",
        "b {body}",
        "2:",
        "stp x29, x30, [sp, #-32]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "bl {real}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "br x16",
        body = sym found,
        real = sym real_dlsym,
    );
}

/// The exported `dlclose`.
#[cfg(not(test))]
#[unsafe(no_mangle)]
unsafe extern "C" fn dlclose(library: *mut c_void) -> c_int {
    // SAFETY: the caller's handle.
    unsafe { close(library) }
}

/// Closes a library. Another library may be loaded at these addresses next, so what is known of them is forgotten.
///
/// # Safety
/// As of `dlclose`.
#[cfg_attr(test, allow(dead_code))]
unsafe fn close(library: *mut c_void) -> c_int {
    if !mode::is_noting() {
        // SAFETY: the caller's promise.
        return unsafe { real::dlclose()(library) };
    }
    let before = place::unloaded();
    if let Some(code) = place::code_of(library) {
        session::forget_code(|places| places.forget_code(&code));
    }
    // SAFETY: the caller's promise.
    let answer = unsafe { real::dlclose()(library) };
    // Nearly always the library is still in use elsewhere. Otherwise others may be gone with it, and addresses that
    // were noted while its destructors ran.
    if place::unloaded() != before {
        session::forget_code(Places::forget_all_code);
    }
    answer
}

/// Returns the definition of a name in a library; for a wrapped function, its wrapper.
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
    // Lookups by this library itself, above all by Millpond's driver, get the real function. If the call counts for a
    // limit of memory, they get the function that also counts it.
    if is_inside() {
        let inner = real::inner(answer.expose_provenance());
        return inner.map_or(answer, std::ptr::with_exposed_provenance_mut);
    }
    // SAFETY: the caller's string, which the real one has read.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    if name.starts_with(b"nvml") && limit::is_on() {
        let found = answer.expose_provenance();
        return limit::nvml::substitute(library, name, found).unwrap_or(answer);
    }
    if !name.starts_with(b"cu") || name.get(2).is_none_or(|c| !c.is_ascii_uppercase()) {
        return answer;
    }
    replaced(library, name, answer)
}

#[cfg_attr(test, allow(dead_code))]
fn replaced(library: *mut c_void, name: &[u8], answer: *mut c_void) -> *mut c_void {
    let at = answer.expose_provenance();
    let Ok(name) = str::from_utf8(name) else { return answer };
    let entry = real::exported(name, &WRAPPED);
    if entry == Some(at) {
        // This library's own definition: a lookup in all libraries finds it. It is given out only if there is a real
        // one.
        return if real::is_served(at, &WRAPPED) { answer } else { std::ptr::null_mut() };
    }
    if entry.is_some() || name == "cuInit" || name == "cuDriverGetVersion" {
        real::attach(library, &WRAPPED);
    }
    substitute(name, at)
}
