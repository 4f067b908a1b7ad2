//! What the host threads of a device's program have synchronised with, and when streams must learn of it.
//!
//! Knows the order's [`Host`]; nothing of memory. All threads are one host: whatever a thread has learned by a
//! synchronisation holds for what any thread submits afterwards.
//!
//! The one number that the hot path looks at is the epoch: it changes when the host has learned something or the legacy
//! default stream has work that other streams must wait for. A stream that has seen the epoch has nothing to learn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millpond_core::ids::{Point, Slot};
use millpond_core::order::{Base, Chain, Host, Knows, Snapshot};
use millpond_driver::locks::{Mutex, lock};

use crate::sync::ranks;

/// The host as a party of the order: after all that it knows to have completed.
pub(crate) struct HostKnows<'a>(pub(crate) &'a Base);

impl Knows for HostKnows<'_> {
    fn slot(&self) -> Slot {
        Slot(u32::MAX)
    }

    fn covers(&self, point: Point) -> bool {
        self.0.covers(point)
    }
}

/// The host threads of one device.
#[derive(Debug)]
#[repr(align(128))] // Every operation reads the epoch: no lock that is taken shares its cache line.
pub(crate) struct Hosts {
    pub(crate) knowledge: Arc<Knowledge>,
    epoch: AtomicU64,
}

/// What they know; other devices of the process ask for it, too.
#[derive(Debug)]
pub(crate) struct Knowledge {
    /// The device's number.
    pub(crate) number: u32,
    host: Mutex<ranks::Host, Host>,
    /// Whether the order of the device and another's may know points of each other.
    pub(crate) has_met: AtomicBool,
}

/// A number for another host: bases of several devices may meet.
pub(crate) fn next_host() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Hosts {
    pub(crate) fn new(number: u32) -> Self {
        // Streams begin with 0, so that their first operation learns what there is.
        Self { knowledge: Arc::new(Knowledge::new(number)), epoch: AtomicU64::new(1) }
    }

    /// Changes whenever there is something to learn.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// There is something new to learn.
    pub(crate) fn advance(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// What the host knows.
    pub(crate) fn base(&self) -> Arc<Base> {
        self.knowledge.base()
    }

    /// A chain that the host submits to learns what that knows.
    pub(crate) fn tell(&self, chain: &mut Chain) {
        chain.learn_from(&lock(&self.knowledge.host));
    }

    /// The host knows that everything up to these has completed.
    pub(crate) fn learn<'a>(&self, snapshots: impl IntoIterator<Item = &'a Snapshot>) {
        self.change(|host| host.learn_all(snapshots));
    }

    /// The host learns what another device's host knew.
    pub(crate) fn join(&self, other: &Base) {
        self.change(|host| host.learn_base(other));
    }

    /// Changes what the host knows. The epoch moves before anybody else can find that there is no news: that one's next
    /// operation must learn of it as well.
    fn change(&self, change: impl FnOnce(&mut Host) -> bool) {
        let mut host = lock(&self.knowledge.host);
        if change(&mut host) {
            self.advance();
        }
    }
}

impl Knowledge {
    /// What a host knows that has synchronised with nothing.
    pub(crate) fn new(number: u32) -> Self {
        Self { number, host: Mutex::new(Host::new(next_host())), has_met: AtomicBool::new(false) }
    }

    /// Learns what another device's host knew.
    pub(crate) fn join(&self, other: &Base) {
        lock(&self.host).learn_base(other);
    }

    /// What the host knows.
    pub(crate) fn base(&self) -> Arc<Base> {
        Arc::clone(lock(&self.host).base())
    }
}
