//! What has to be done before an event is reached, by way of the streams that its stream waits for.
//!
//! One queue is locked at a time. What an item that runs keeps waiting goes on waiting meanwhile.

use super::slot::{Entry, SlotIndex};
use super::sync::lock;
use super::{Execute, Packed, Streams, at_work};

impl<E: Execute> Streams<E> {
    /// Whether the event's stream waits, by way of others of the device, for an item that the calling thread runs.
    /// What that item keeps waiting goes on waiting while it runs, so that what was seen one after the other holds at
    /// once.
    pub(super) fn waits_for_caller(&self, event: Packed) -> bool {
        let mut at = event;
        while at_work::is_in_item() {
            if at_work::runs_before(self.address(), at) {
                return true;
            }
            let slot = self.table.slot(at.slot());
            if slot.has_done(at.number()) {
                return false;
            }
            let queue = lock(&slot.queue);
            match queue.entries.front() {
                // What comes behind an item that runs may come behind the event, too.
                Some(&Entry::Wait(before)) if !queue.running => at = before,
                _ => return false,
            }
        }
        false
    }

    /// The stream whose turn it is for an event to be reached: its own, or the one that it waits for.
    pub(super) fn next_for(&self, event: Packed) -> SlotIndex {
        let mut at = event.slot();
        loop {
            let queue = lock(&self.table.slot(at).queue);
            match queue.entries.front() {
                // What comes behind an item that runs is not before the event, and may be behind it.
                Some(&Entry::Wait(before))
                    if !queue.running && !self.table.slot(before.slot()).has_done(before.number()) =>
                {
                    at = before.slot();
                }
                _ => return at,
            }
        }
    }
}
