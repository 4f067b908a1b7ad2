//! The work before an event, through the streams that its stream waits for.
//!
//! One queue is locked at a time. Streams that wait for a running item keep waiting while it runs.

use super::slot::{Entry, SlotIndex};
use super::sync::lock;
use super::{Execute, Packed, Streams, at_work};

impl<E: Execute> Streams<E> {
    /// Returns `true` if the event's stream waits, through other streams of the device, for an item that the calling
    /// thread runs. Streams that wait for that item keep waiting while it runs, so facts that were read one after the
    /// other hold together.
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
                // An entry after a running item may also come after the event.
                Some(&Entry::Wait(before)) if !queue.running => at = before,
                _ => return false,
            }
        }
        false
    }

    /// Returns the stream that must run next for an event to complete: the event's own stream, or the one that it waits
    /// for.
    pub(super) fn next_for(&self, event: Packed) -> SlotIndex {
        let mut at = event.slot();
        loop {
            let queue = lock(&self.table.slot(at).queue);
            match queue.entries.front() {
                // An entry after a running item is not before the event, and may be after it.
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
