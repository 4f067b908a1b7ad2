//! The postponed actions of a turn: waiters of other devices to wake, and values of callers to drop.
//!
//! Waking may start or end another device, and dropping a closure, a panic's payload or another device's fence runs
//! code that may call in here. So neither happens under a lock or while an item runs: the actions are put on this list,
//! which is made before any lock is taken and settled by a thread that holds nothing.

use crate::panics::{Payload, drop_quietly};
use crate::{HostFence, Waiter};

use super::slot::Entry;
use std::sync::Arc;

/// The actions to take when no lock is held and no item runs.
pub(super) struct After<I> {
    pub(super) waiters: Vec<Waiter>,
    pub(super) entries: Vec<Entry<I>>,
    pub(super) payloads: Vec<Payload>,
    /// Values that items left, whose drop may wait for any stream.
    pub(super) left: Vec<Payload>,
}

impl<I> After<I> {
    pub(super) fn new() -> Self {
        Self { waiters: Vec::new(), entries: Vec::new(), payloads: Vec::new(), left: Vec::new() }
    }

    /// Adds a fence that was waited for. It may be the last reference to its device.
    pub(super) fn drop_fence(&mut self, fence: Arc<dyn HostFence>) {
        self.entries.push(Entry::Foreign(fence));
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty() && self.entries.is_empty() && self.payloads.is_empty() && self.left.is_empty()
    }

    /// Returns `true` if settling may take as long as any work. The thread that settles then must not hold a stream.
    #[inline]
    pub(super) fn may_wait(&self) -> bool {
        !self.left.is_empty()
    }

    /// Takes the actions. All waiters are woken before anything is dropped, because a destructor may wait for a stream
    /// that this wakes.
    pub(super) fn settle(&mut self) {
        self.waiters.drain(..).for_each(Waiter::wake);
        // A destructor may panic, so each value is dropped separately.
        self.entries.drain(..).for_each(drop_quietly);
        self.payloads.drain(..).for_each(drop_quietly);
        self.left.drain(..).for_each(drop_quietly);
    }
}
