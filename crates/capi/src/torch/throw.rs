//! Telling a C++ program that there is no memory.
//!
//! PyTorch takes a null pointer of a pluggable allocator for memory and faults at its first use. A C++ exception is
//! what it understands, and reports as RuntimeError. The C++ runtime of the process is asked to throw it; where there
//! is none (C, ctypes) no caller expects an exception.

use std::ffi::{CStr, c_char, c_int};

/// The C++ runtime of PyTorch's binaries for Linux. It is looked for by name: a Python module's libraries are not in
/// the default scope.
const RUNTIME: &CStr = c"libstdc++.so.6";
/// It is found where it is there already, and never loaded.
const IF_LOADED: c_int = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
/// `std::__throw_runtime_error(char const*)`.
const THROW: &CStr = c"_ZSt21__throw_runtime_errorPKc";

/// Throws where that is possible; else says it and returns. `text` is copied by the exception. Nothing of Rust's is on
/// the way that would have to be dropped.
#[cold]
pub(super) fn throw(text: *const c_char) {
    // SAFETY: the name ends with a zero, and nothing is loaded.
    let runtime = unsafe { libc::dlopen(RUNTIME.as_ptr(), IF_LOADED) };
    if runtime.is_null() {
        return say(text);
    }
    // SAFETY: the handle is that of a library that stays; the name ends with a zero.
    let function = unsafe { libc::dlsym(runtime, THROW.as_ptr()) };
    if function.is_null() {
        return say(text);
    }
    // SAFETY: the symbol is that function, which takes a text and does not return.
    let throw: extern "C-unwind" fn(*const c_char) = unsafe { std::mem::transmute(function) };
    throw(text);
}

/// Says it on the standard error stream: the caller has no way to learn of it.
#[cold]
pub(super) fn say(text: *const c_char) {
    // SAFETY: a text of this thread's, which ends with a zero.
    let text = unsafe { CStr::from_ptr(text) };
    millpond_driver::output::say(text.to_string_lossy());
}
