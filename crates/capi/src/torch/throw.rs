//! Tells a C++ program that there is no memory.
//!
//! PyTorch takes a null pointer of a pluggable allocator for memory, and faults at its first use. It expects a C++
//! exception, which it reports as RuntimeError. The exception is thrown by the process's C++ runtime. If there is none
//! (C, ctypes), no caller expects an exception.

use std::ffi::{CStr, c_char, c_int};

/// The C++ runtime of PyTorch's Linux binaries. It is looked up by name, because a Python module's libraries are not in
/// the default scope.
const RUNTIME: &CStr = c"libstdc++.so.6";
/// Finds a library that is loaded already, and never loads one.
const IF_LOADED: c_int = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
/// `std::__throw_runtime_error(char const*)`.
const THROW: &CStr = c"_ZSt21__throw_runtime_errorPKc";

/// Throws if that is possible; otherwise prints the text and returns. The exception copies `text`. No Rust value that
/// would have to be dropped is on the way.
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

/// Prints the text on the standard error stream, because no caller gets it.
#[cold]
pub(super) fn say(text: *const c_char) {
    // SAFETY: this thread's text, which ends with a zero.
    let text = unsafe { CStr::from_ptr(text) };
    millpond_driver::output::say(text.to_string_lossy());
}
