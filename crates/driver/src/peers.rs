//! Devices that use each other's memory: access, and events that streams of other devices wait for.
//!
//! Plain data, except the queues of host devices, which are queried by one trait and wake waiters by another. Access is
//! decided above.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Weak};

use crate::locks::{Leaf, Mutex, lock};

/// The identity of a device for other devices of its process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Peer {
    /// A host device: it can use all memory of the process.
    Host,
    /// A CUDA device, by its ordinal.
    Cuda(i32),
}

/// The access of another device's work to memory (CUDA: `cudaMemAccessFlags`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum PeerAccess {
    /// No access (CUDA: `cudaMemAccessFlagsProtNone`).
    #[default]
    None,
    /// Reads (CUDA: `cudaMemAccessFlagsProtRead`).
    Read,
    /// Reads and writes (CUDA: `cudaMemAccessFlagsProtReadWrite`).
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

/// Keeps a device's memory in place, also after the device is dropped.
pub type HeldMemory = Arc<dyn Any + Send + Sync>;

/// Memory of other devices that work of a device uses.
pub(crate) type Borrowed = Mutex<Leaf, Vec<HeldMemory>>;

/// Implements [`Driver::keep`](crate::Driver::keep).
pub(crate) fn keep(borrowed: &Borrowed, memory: HeldMemory) {
    let mut borrowed = lock(borrowed);
    if !borrowed.iter().any(|it| Arc::ptr_eq(it, &memory)) {
        borrowed.push(memory);
    }
}

/// Implements [`Driver::let_go`](crate::Driver::let_go).
pub(crate) fn let_go(borrowed: &Borrowed, memory: &HeldMemory) {
    let gone: Vec<_> = lock(borrowed).extract_if(.., |it| Arc::ptr_eq(it, memory)).collect();
    // This may be the last reference, so it is dropped after the lock is released.
    drop(gone);
}

/// An event that streams of other devices can wait for.
#[derive(Clone)]
#[non_exhaustive]
pub enum Fence {
    /// An event of a host device.
    Host(Arc<dyn HostFence>),
    /// An event of a CUDA device: a `CUevent`, until it is forgotten.
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

/// An event of a host device. An error means that the device is lost, with the reason.
pub trait HostFence: Send + Sync {
    /// Returns `true` if the work before the event has completed. If it has not, a seeded schedule first runs one ready
    /// item.
    fn is_over(&self) -> Result<bool, String>;

    /// Returns `true` if the work before the event has completed. If it has not, the waiter is woken once, when the
    /// work has completed or the device is lost. It does not wait itself, so that no thread is blocked.
    fn park(&self, waiter: Waiter) -> Result<bool, String>;
}

/// A stream of a host device that is parked until another device wakes it. It does not keep its device alive.
pub struct Waiter {
    device: Weak<dyn HostWaiter>,
    stream: u64,
}

impl Waiter {
    /// Returns the waiter of a stream, by its number in its device.
    pub fn new(device: Weak<dyn HostWaiter>, stream: u64) -> Self {
        Self { device, stream }
    }

    /// Returns a waiter that wakes no stream: a seeded device runs the work before an event if any waiter is parked
    /// there.
    pub fn none() -> Self {
        struct Nothing;
        impl HostWaiter for Nothing {
            fn wake(self: Arc<Self>, _stream: u64) {}
        }
        Self { device: Weak::<Nothing>::new(), stream: 0 }
    }

    /// Wakes the stream if its device still exists. Not under a lock, because this may drop the device.
    pub fn wake(self) {
        if let Some(device) = self.device.upgrade() {
            device.wake(self.stream);
        }
    }
}

/// A host device whose streams wait for other devices.
pub trait HostWaiter: Send + Sync {
    /// Called when the event that a stream is parked for has completed, or its device is lost.
    fn wake(self: Arc<Self>, stream: u64);
}
