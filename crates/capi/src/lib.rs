//! Millpond for C: the functions of `millpond.h`, and the allocator entry points for PyTorch and CuPy.
//!
//! Decides nothing about memory: each entry turns handles and pointers into the library's things, calls it, and turns
//! what comes back into a status.
//!
//! Each uses only those above it:
//!
//! * `callers`: where calls stand in the program, for traces.
//! * `words`: the library's texts in words of C.
//! * `status`: every call gives a status; its text is kept for the thread; nothing unwinds into the caller.
//! * `tables`: what the caller holds is a number (`handle`): stale, null and foreign ones are refused. Which buffer is
//!   at an address, found without a lock (`pointers`).
//! * `calls`: the functions. Devices, pools, streams, events; memory by pointer; launches and copies, whose pointers
//!   become declared accesses (`access`); graphs; traces.
//! * `torch`: memory for programs whose order is trusted: PyTorch, CuPy.
//!
//! Invariants: **no-unwind**: every entry is a [`status::guard`], so that no panic crosses the boundary.
//! **number-handles**: no handle is an address; what it names is found in a table and cannot dangle.
//! **one-place**: each live buffer of the C side is in `tables/pointers`, once; whoever takes it out owns it.
//!
//! Every pointer argument must be null or valid for what the call does with it; that is the one promise that C callers
//! make, and each entry's `# Safety` is that.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![allow(non_camel_case_types)] // The names are C's.
#![allow(unreachable_pub)] // The functions are reached from C.
#![allow(clippy::missing_safety_doc)] // It is one promise, said above.

mod callers;
mod calls;
mod status;
mod tables;
mod torch;
mod words;
