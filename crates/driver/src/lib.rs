//! The devices under Millpond: one trait, and what stands behind it.
//!
//! A driver acts and does not decide: it has no policy and trusts its caller, who is the `millpond` crate. Nearly all
//! the `unsafe` of the project lives here.
//!
//! | module | one line |
//! |---|---|
//! | `contract` | [`Driver`]: what a device must be able to do, and what its caller promises |
//! | `graphs` | what a device's graph is made of |
//! | `calls` | the kinds of calls and their counts |
//! | `failures` | calls made to fail on demand |
//! | `tap` | [`Counting`] and [`Failing`]: drivers around drivers |
//! | `biased_lock` | [`BiasedLock`]: a lock for what one thread uses nearly always |
//! | `prefetch` | [`prefetch`]: memory that is wanted soon |
//! | [`process`] | what becomes of the process as a whole |
//! | `ledger` | ranges, chunks and mappings, as bookkeeping |
//! | `peers` | devices that know each other |
//! | `sockets` | who is at the other end of a socket |
//! | `sim` | [`SimDriver`]: no memory, no threads; every call is data |
//! | `host` | [`HostDriver`]: real memory and real threads on a machine without a GPU |
//! | [`cuda`] | [`CudaDriver`]: NVIDIA GPUs, their library loaded at run time |

#[cfg(not(target_os = "linux"))]
compile_error!("Millpond runs on Linux only: its devices are made of memfd, mmap and membarrier");

#[cfg(target_os = "linux")]
mod biased_lock;
#[cfg(target_os = "linux")]
mod biased_lock_sync;
#[cfg(target_os = "linux")]
mod calls;
#[cfg(target_os = "linux")]
mod contract;
#[cfg(target_os = "linux")]
pub mod cuda;
#[cfg(target_os = "linux")]
mod failures;
#[cfg(target_os = "linux")]
mod graphs;
#[cfg(target_os = "linux")]
mod host;
#[cfg(target_os = "linux")]
mod ledger;
#[cfg(target_os = "linux")]
mod panics;
#[cfg(target_os = "linux")]
mod peers;
#[cfg(target_os = "linux")]
mod prefetch;
#[cfg(target_os = "linux")]
pub mod process;
#[cfg(target_os = "linux")]
mod sim;
#[cfg(target_os = "linux")]
mod sockets;
#[cfg(target_os = "linux")]
mod tap;

#[cfg(target_os = "linux")]
pub use biased_lock::{BiasedLock, BiasedLockGuard};
#[cfg(target_os = "linux")]
pub use calls::{CallCounts, CallKind, Counters};
#[cfg(target_os = "linux")]
pub use contract::{
    Access, CopyKind, Driver, DriverError, MarkName, Properties, RawChunk, RawMark, RawStream, Result, StreamFlags,
    Task, Tie, Work,
};
#[cfg(target_os = "linux")]
pub use cuda::{CudaConfig, CudaDriver};
#[cfg(target_os = "linux")]
pub use failures::Failures;
#[cfg(target_os = "linux")]
pub use graphs::{Node, NodeWork, RawExec, RawGraph, Repeated};
#[cfg(target_os = "linux")]
pub use host::{HostConfig, HostDriver, STREAMS_MAX, Schedule, WORKERS_MAX, drop_after_item};
#[cfg(target_os = "linux")]
pub use peers::{Fence, HeldMemory, HostFence, HostWaiter, Peer, PeerAccess, Waiter};
#[cfg(target_os = "linux")]
pub use prefetch::prefetch;
#[cfg(target_os = "linux")]
pub use sim::{Call, Completion, SimConfig, SimDriver, Violation, Watch, WorkCall};
#[cfg(target_os = "linux")]
pub use sockets::{SocketPeer, is_unread, refuse_files, socket_peer, socket_peer_file};
#[cfg(target_os = "linux")]
pub use tap::{Counting, Failing, Tap, Tapped};
