//! Devices that know each other: whose memory whose work may use, and marks that streams of other devices wait for.
//!
//! Plain data, but for the queues of host devices, which are asked by a trait. Who lets whom in is decided above.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// Who a device is to others of its process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Peer {
    /// A host device: all memory of the process is within its reach.
    Host,
    /// A CUDA device, by its ordinal.
    Cuda(i32),
}

/// What another device's work may do with memory (CUDA: `cudaMemAccessFlags`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum PeerAccess {
    /// Nothing (CUDA: `cudaMemAccessFlagsProtNone`).
    #[default]
    None,
    /// Read it (CUDA: `cudaMemAccessFlagsProtRead`).
    Read,
    /// Read and write it (CUDA: `cudaMemAccessFlagsProtReadWrite`).
    ReadWrite,
}

impl fmt::Display for PeerAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PeerAccess::None => "no access",
            PeerAccess::Read => "read access",
            PeerAccess::ReadWrite => "read and write access",
        })
    }
}

/// Keeps a device's memory where it is, also when the device goes.
pub type HeldMemory = Arc<dyn Any + Send + Sync>;

/// A mark as streams of other devices wait for it.
#[derive(Clone)]
#[non_exhaustive]
pub enum Fence {
    /// Of a host device.
    Host(Arc<dyn HostFence>),
    /// Of a CUDA device: a `CUevent`, as long as its mark is not forgotten.
    Event(usize),
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fence::Host(_) => f.write_str("Host"),
            Fence::Event(event) => write!(f, "Event {event:#x}"),
        }
    }
}

/// A mark of a host device. An error is that the device is lost, with the reason.
pub trait HostFence: Send + Sync {
    /// Whether the work before the mark is over. With a seeded schedule: runs one ready item where it is not.
    fn is_over(&self) -> Result<bool, String>;

    /// Waits until it is over.
    fn block(&self) -> Result<(), String>;
}
