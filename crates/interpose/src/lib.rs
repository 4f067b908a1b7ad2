//! `libmillpond_cuda.so`: stands between a CUDA program and `libcuda`, and says what the program does as operations.
//!
//! The command `millpond` preloads it (`millpond record`, `millpond check -- PROGRAM`). It has no law of its own: what
//! is right or wrong is said by [`millpond_core::check`]. Three floors, each of which uses only those below it:
//!
//! | module | one line |
//! |---|---|
//! | `entry` | how calls come in: exported names, `dlsym`, `cuGetProcAddress`, and where the real functions are |
//! | `table` | which calls are wrapped: one description, from which names, wrappers and lookups are made |
//! | `calls` | what each call means, as operations |
//! | `session` | the state of a process: handles, addresses, places; one lock |
//! | `sink`, `judge` | where operations go: into a trace, or to the checker |
//!
//! A program that makes no CUDA call is not touched: nothing is opened, no thread is started, no file is written.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod abi;
mod ask;
mod calls;
mod entry;
mod handles;
mod index;
mod judge;
mod place;
mod report;
mod session;
mod signals;
mod sink;
mod table;
