//! The devices that Millpond uses: one trait, and its implementations.
//!
//! A driver acts and does not decide: it has no policy and trusts its caller, the `millpond` crate. Nearly all `unsafe`
//! code of the project is here.
//!
//! | module | one line |
//! |---|---|
//! | `contract` | [`Driver`]: the calls of a device, and the promises of its caller |
//! | `errors` | the errors of calls |
//! | `graphs` | the nodes of a device's graph |
//! | `calls` | the kinds of calls and their counts |
//! | `failures` | calls that fail on demand |
//! | `tap` | [`Counting`] and [`Failing`]: drivers that wrap drivers |
//! | `biased_lock` | [`BiasedLock`]: a lock that one thread takes nearly always |
//! | [`locks`] | locks with ranks: the order in which locks may be taken |
//! | `prefetch` | [`prefetch`]: loads memory into the cache ahead of its use |
//! | [`output`] | the library's own writes: a failed write does not end the program |
//! | [`process`] | the end and the forks of the process |
//! | `ledger` | ranges, chunks and mappings, as bookkeeping |
//! | `pages` | host memory for copies |
//! | `places` | numbered slots that never move, found without a lock |
//! | `peers` | access and waits between devices |
//! | `sockets` | the process at the other end of a socket |
//! | `checked` | [`Checked`]: a driver that wraps another one and checks that its caller keeps the contract |
//! | `host` | [`HostDriver`]: real memory and real threads on a machine without a GPU |
//! | [`cuda`] | [`CudaDriver`]: NVIDIA GPUs, through the driver library that is loaded at run time |

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod biased_lock;
mod biased_lock_sync;
mod calls;
mod checked;
mod contract;
pub mod cuda;
mod errors;
mod failures;
mod graphs;
mod host;
mod ledger;
pub mod locks;
pub mod output;
mod pages;
mod panics;
mod peers;
mod places;
mod prefetch;
pub mod process;
mod sockets;
mod tap;

pub use biased_lock::{BiasedLock, BiasedLockGuard};
pub use calls::{CallCounts, CallKind, Counters};
pub use checked::{Call, Checked, Violation, WorkCall};
pub use contract::{
    Access, CopyKind, Driver, EventHandle, Label, MemoryInfo, Properties, RawChunk, RawEvent, RawStream, RawTime,
    StreamFlags, Task, Tie, Work,
};
pub use cuda::{CudaConfig, CudaDriver};
pub use errors::{DriverError, Result};
pub use failures::Failures;
pub use graphs::{Node, NodeWork, RawExec, RawGraph, Repeated};
pub use host::{HostConfig, HostDriver, STREAMS_MAX, Schedule, WORKERS_MAX, drop_after_item, is_in_item};
pub use peers::{Fence, HeldMemory, HostFence, HostWaiter, Peer, PeerAccess, Waiter};
pub use places::Places;
pub use prefetch::prefetch;
pub use sockets::{SocketPeer, is_unread, refuse_files, socket_peer, socket_peer_file};
pub use tap::{Counting, Failing, Tap, Tapped};
