//! The devices under Millpond: one trait, and what stands behind it.
//!
//! A driver acts and does not decide: it has no policy and trusts its caller, who is the `millpond` crate. Nearly all
//! the `unsafe` of the project lives here.
//!
//! | module | one line |
//! |---|---|
//! | `contract` | [`Driver`]: what a device must be able to do, and what its caller promises |
//! | `errors` | why calls fail |
//! | `graphs` | what a device's graph is made of |
//! | `calls` | the kinds of calls and their counts |
//! | `failures` | calls made to fail on demand |
//! | `tap` | [`Counting`] and [`Failing`]: drivers around drivers |
//! | `biased_lock` | [`BiasedLock`]: a lock for what one thread uses nearly always |
//! | [`locks`] | locks with ranks: what may be waited for while what is held |
//! | `prefetch` | [`prefetch`]: memory that is wanted soon |
//! | [`output`] | what the library itself writes: no failure of that ends the program |
//! | [`process`] | what becomes of the process as a whole |
//! | `ledger` | ranges, chunks and mappings, as bookkeeping |
//! | `pages` | host memory for copies |
//! | `places` | numbered places that never move, found without a lock |
//! | `peers` | devices that know each other |
//! | `sockets` | who is at the other end of a socket |
//! | `checked` | [`Checked`]: a driver around a driver that holds its caller to the contract |
//! | `host` | [`HostDriver`]: real memory and real threads on a machine without a GPU |
//! | [`cuda`] | [`CudaDriver`]: NVIDIA GPUs, their library loaded at run time |

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
    Access, CopyKind, Driver, EventHandle, Label, Properties, RawChunk, RawEvent, RawStream, RawTime, StreamFlags,
    Task, Tie, Work,
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
