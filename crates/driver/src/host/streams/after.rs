//! What a turn leaves behind: waiters of other devices to wake, and values of callers to drop.
//!
//! Waking may start or end another device, and dropping a closure, a panic's payload or another device's fence runs
//! code that may call in here. So neither is done where it comes up, under a lock or while an item runs: it is put on
//! this list, which is made before any lock is taken and settled by whoever holds nothing.

use crate::panics::{Payload, drop_quietly};
use crate::{HostFence, Waiter};

use super::slot::Entry;
use std::sync::Arc;

/// What is to be done when no lock is held and no item runs.
pub(super) struct After<I> {
    pub(super) waiters: Vec<Waiter>,
    pub(super) entries: Vec<Entry<I>>,
    pub(super) payloads: Vec<Payload>,
    /// What items left, which may wait for any stream.
    pub(super) left: Vec<Payload>,
}

impl<I> After<I> {
    pub(super) fn new() -> Self {
        Self { waiters: Vec::new(), entries: Vec::new(), payloads: Vec::new(), left: Vec::new() }
    }

    /// A fence that was waited for. It may be the last to hold its device.
    pub(super) fn drop_fence(&mut self, fence: Arc<dyn HostFence>) {
        self.entries.push(Entry::Foreign(fence));
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty() && self.entries.is_empty() && self.payloads.is_empty() && self.left.is_empty()
    }

    /// Whether it may take as long as any work: who settles it must not have a stream to see to.
    #[inline]
    pub(super) fn may_wait(&self) -> bool {
        !self.left.is_empty()
    }

    /// Does it. All waiters are woken before anything is dropped, for a destructor may wait for whom this wakes.
    pub(super) fn settle(&mut self) {
        self.waiters.drain(..).for_each(Waiter::wake);
        // What a destructor does may panic: each is dropped by itself.
        self.entries.drain(..).for_each(drop_quietly);
        self.payloads.drain(..).for_each(drop_quietly);
        self.left.drain(..).for_each(drop_quietly);
    }
}
