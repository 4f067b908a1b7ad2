//! `libmillpond_cuda.so`: stands between a CUDA program and `libcuda`, and turns the program's calls into operations.
//!
//! The command `millpond` preloads it (`millpond record`, `check`, `run`, `shake -- PROGRAM`). It has no rules of its
//! own: [`millpond_core::check`] judges the operations, and [`millpond`] serves memory. A module uses only those above
//! it in this list:
//! | module | what it is |
//! |---|---|
//! | `ranks` | the order in which its locks are taken |
//! | `mode` | what the command asks for |
//! | `abi` | CUDA's types that the driver crate does not have |
//! | `entry` | the entries of calls, the real functions, the calls that are passed on and counted |
//! | `mapping` | what the system knows of an address |
//! | `ask` | questions to the real library |
//! | `kernel_name` | names of kernels for people |
//! | `python` | the line of Python that a thread runs |
//! | `place`, `index`, `handles` | the places of calls; the allocation at an address; numbers for handles |
//! | `arguments` | the addresses of known memory among a kernel's arguments |
//! | `interface` | help as calls of PyTorch, CuPy, CUDA |
//! | `report`, `judge`, `own_file`, `sink` | the report to the command; the checker; a trace's file; the sink |
//! | `signals` | how a process ends, is replaced, and forks |
//! | `once` | a value that is made once, in programs that fork |
//! | `session` | the state of a process, behind one lock |
//! | `calls` | what each call means, as operations |
//! | `capturing` | whether any stream may be capturing |
//! | `shake` | delays before operations that the command chooses |
//! | `limit` | the limit of device memory: what each call makes and ends, and the account of all processes |
//! | `serve` | Millpond's pool in place of the driver's |
//! | `table` | the wrapped calls: one description, from which names, wrappers and lookups are made |
//! | `search` | `dlsym` |
//!
//! A program that makes no CUDA call is left alone: no file is opened or written, and no thread is started.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod abi;
mod arguments;
mod ask;
mod calls;
mod capturing;
mod entry;
mod handles;
mod index;
mod interface;
mod judge;
mod kernel_name;
mod limit;
mod mapping;
mod mode;
mod once;
mod own_file;
mod place;
mod python;
mod ranks;
mod report;
mod search;
mod serve;
mod session;
mod shake;
mod signals;
mod sink;
mod table;
mod thread;
