//! `libmillpond_cuda.so`: stands between a CUDA program and `libcuda`, and says what the program does as operations.
//!
//! The command `millpond` preloads it (`millpond record`, `check`, `run -- PROGRAM`). It has no law of its own: what
//! is right or wrong is said by [`millpond_core::check`], and memory is served by [`millpond`]. A module uses only
//! those above it in this list:
//!
//! | module | what it is |
//! |---|---|
//! | `ranks` | in which order its locks are taken |
//! | `mode` | what the command asks for |
//! | `abi` | CUDA's types that the driver crate does not have |
//! | `entry` | how a call comes in, where the real functions are, what is passed on and counted |
//! | `mapping` | what the system says of an address |
//! | `ask` | questions to the real library |
//! | `python` | where a thread stands in Python |
//! | `place`, `index`, `handles` | where calls stand; which allocation an address is in; numbers for handles |
//! | `arguments` | the addresses of known memory among a kernel's arguments |
//! | `report`, `judge`, `own_file`, `sink` | what is said; the checker; a trace's file; where operations go |
//! | `signals` | how a process ends, is replaced, and forks |
//! | `session` | the state of a process, behind one lock |
//! | `calls` | what each call means, as operations |
//! | `serve` | Millpond's pool in the place of the driver's |
//! | `table` | which calls are wrapped: one description, from which names, wrappers and lookups are made |
//! | `search` | `dlsym` |
//!
//! A program that makes no CUDA call is not touched: nothing is opened, no thread is started, no file is written.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod abi;
mod arguments;
mod ask;
mod calls;
mod entry;
mod handles;
mod index;
mod judge;
mod mapping;
mod mode;
mod own_file;
mod place;
mod python;
mod ranks;
mod report;
mod search;
mod serve;
mod session;
mod signals;
mod sink;
mod table;
mod thread;
