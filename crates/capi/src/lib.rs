//! Millpond for C: the functions of `millpond.h`, and the allocator entry points for PyTorch and CuPy.
//!
//! It decides nothing about memory. Each entry turns handles and pointers into the library's values, calls the library,
//! and turns the result into a status.
//!
//! Each module uses only those above it:
//!
//! * `callers`: the places of calls in the program, for traces.
//! * `words`: the library's texts, with C's names.
//! * `status`: every call returns a status; its text is kept for the thread; no panic reaches the caller.
//! * `tables`: the caller's handles are numbers (`handle`): stale, null and foreign ones are refused. The buffer at an
//!   address is found in a table of many small locks (`pointers`).
//! * `calls`: the functions. Devices, pools, streams, events; memory by pointer; launches and copies, whose pointers
//!   become declared accesses (`access`); graphs; traces.
//! * `torch`: memory for programs whose order is trusted: PyTorch, CuPy.
//!
//! Invariants: **no-unwind**: every entry is a [`status::guard`], so that no panic crosses the boundary.
//! **number-handles**: no handle is an address; its entry is found in a table and cannot dangle. **one-place**: each
//! live buffer of the C side is in `tables/pointers`, once; code that takes it out owns it.
//!
//! Every pointer argument must be null, or valid for the call's use of it. C callers promise only this, and it is each
//! entry's `# Safety`.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![allow(non_camel_case_types)] // The names are C's.
#![allow(unreachable_pub)] // The functions are reached from C.
#![allow(clippy::missing_safety_doc)] // It is one promise, stated above.

mod callers;
mod calls;
mod status;
mod tables;
mod torch;
mod words;
