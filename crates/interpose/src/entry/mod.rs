//! The entries of calls, and the real functions.
//!
//! | file | what it does |
//! |---|---|
//! | `thunk` | an entry notes where it was called from, and jumps to its body with all arguments unchanged |
//! | `real` | finds the real functions by wrapped name, and the wrappers by real address |
//! | `passed` | counts functions that are not wrapped and may matter, and passes them on |
//!
//! Nothing here knows what a call means.

pub(crate) mod passed;
pub(crate) mod real;
pub(crate) mod thunk;

use std::ffi::c_void;

use crate::mode;

/// Returns the function to give out for a real function of this name: its wrapper, a counter, or itself.
pub(crate) fn substitute(name: &str, real: usize) -> *mut c_void {
    let counter = || mode::is_noting().then(|| passed::counter(name, real))?;
    let at = real::wrapper(real).or_else(counter).unwrap_or(real);
    std::ptr::with_exposed_provenance_mut(at)
}
