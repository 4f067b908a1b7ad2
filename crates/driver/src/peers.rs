//! Devices that know each other: whose memory whose work may use, and events that streams of other devices wait for.
//!
//! Plain data, but for the queues of host devices, which are asked by a trait and wake who waits
//! by another. Who lets whom in is decided above.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, Weak};

use crate::locks::{Leaf, Mutex, lock};

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

/// Memory of other devices that work of a device uses.
pub(crate) type Borrowed = Mutex<Leaf, Vec<HeldMemory>>;

/// Of [`Driver::keep`](crate::Driver::keep).
pub(crate) fn keep(borrowed: &Borrowed, memory: HeldMemory) {
    let mut borrowed = lock(borrowed);
    if !borrowed.iter().any(|it| Arc::ptr_eq(it, &memory)) {
        borrowed.push(memory);
    }
}

/// Of [`Driver::let_go`](crate::Driver::let_go).
pub(crate) fn let_go(borrowed: &Borrowed, memory: &HeldMemory) {
    let gone: Vec<_> = lock(borrowed).extract_if(.., |it| Arc::ptr_eq(it, memory)).collect();
    // This may be the last reference: it is dropped after the lock.
    drop(gone);
}

/// An event as streams of other devices wait for it.
#[derive(Clone)]
#[non_exhaustive]
pub enum Fence {
    /// Of a host device.
    Host(Arc<dyn HostFence>),
    /// Of a CUDA device: a `CUevent`, as long as that is not forgotten.
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

/// An event of a host device. An error is that the device is lost, with the reason.
pub trait HostFence: Send + Sync {
    /// Whether the work before the event has completed. With a seeded schedule: runs one ready item where it has not.
    fn is_over(&self) -> Result<bool, String>;

    /// Whether the work before the event has completed. Where it has not, the waiter is woken once, when it has or the
    /// device is lost. Waits for nothing, so that no thread is kept.
    fn park(&self, waiter: Waiter) -> Result<bool, String>;
}

/// A stream of a host device that is parked until another device wakes it. It keeps no device.
pub struct Waiter {
    device: Weak<dyn HostWaiter>,
    stream: u64,
}

impl Waiter {
    /// The waiter of a stream, by the number that its device knows.
    pub fn new(device: Weak<dyn HostWaiter>, stream: u64) -> Self {
        Self { device, stream }
    }

    /// Wakes no stream: a seeded device runs the work before an event where any waiter is parked there.
    pub fn none() -> Self {
        struct Nothing;
        impl HostWaiter for Nothing {
            fn wake(self: Arc<Self>, _stream: u64) {}
        }
        Self { device: Weak::<Nothing>::new(), stream: 0 }
    }

    /// Wakes the stream, where its device is still there. Not under a lock: the device may end by it.
    pub fn wake(self) {
        if let Some(device) = self.device.upgrade() {
            device.wake(self.stream);
        }
    }
}

/// A host device whose streams wait for other devices.
pub trait HostWaiter: Send + Sync {
    /// What a stream was parked for has completed, or its device is lost.
    fn wake(self: Arc<Self>, stream: u64);
}
