//! Turns: what is done with a stream by whoever sees to it.
//!
//! The simple version:
//!
//! ```text
//! lock the queue; repeat
//!     the front is   nothing          -> the stream is idle; leave it
//!                    a wait, over     -> count it as done, and wake who waited for that
//!                    a wait, not over -> park the stream behind the mark's stream; leave it
//!                    a wait abroad    -> unlock, wait for the other device, lock, count it as done
//!                    work             -> unlock, run it, lock, count it as done, and wake who waited for that
//! ```
//!
//! Departures:
//! 1. one somebody at most sees to a stream (`one-place`), so waking a stream is handing it on, without a look at its
//!    queue, and a parked stream keeps no thread;
//! 2. a turn ends after some items, so that others get theirs;
//! 3. who leaves a stream sees to the first stream that it woke: handing work back and forth between two streams then
//!    wakes no thread (1240 ns a hand-over became 500 on two busy cores). It never runs another item while it holds a
//!    woken stream.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::slot::{Entry, Queue, Slot, SlotIndex};
use super::sync::{MutexGuard, lock, thread};
use super::{Drive, Execute, Packed, Streams};
use crate::HostFence;

/// What became of a stream that was seen to.
pub(super) enum Left {
    /// Idle, parked or dropped: somebody else's business now.
    Alone,
    /// A stream is ready and the caller's to see to: the same one, which has more to run, or where that is left alone,
    /// one that waited for it.
    Ready(SlotIndex),
}

impl<E: Execute> Streams<E> {
    /// Sees to a stream, as the head of this file has it, for up to so many items.
    pub(super) fn see_to(self: &Arc<Self>, index: SlotIndex, mut items: u32) -> Left {
        let slot = self.table.slot(index);
        let mut woken = None;
        let mut queue = lock(&slot.queue);
        loop {
            if self.is_lost() {
                abandon(slot, queue);
                return Left::Alone;
            }
            match queue.entries.front() {
                None => {
                    self.leave(index, slot, queue);
                    return woken.map_or(Left::Alone, Left::Ready);
                }
                Some(&Entry::Wait(mark)) if self.table.slot(mark.slot()).has_done(mark.number()) => {
                    queue.entries.pop_front();
                    self.finish(slot, &mut queue, &mut woken);
                }
                Some(&Entry::Wait(mark)) => {
                    drop(queue);
                    if self.park(index, mark) {
                        return woken.map_or(Left::Alone, Left::Ready);
                    }
                    queue = lock(&slot.queue);
                }
                Some(Entry::Abroad(fence)) => {
                    let fence = Arc::clone(fence);
                    if let Some(other) = woken.take() {
                        self.make_ready(other);
                    }
                    queue.running = true;
                    drop(queue);
                    let outcome = self.await_abroad(&*fence);
                    queue = lock(&slot.queue);
                    queue.running = false;
                    match outcome {
                        Ok(false) => return Left::Ready(index),
                        // A device that was lost meanwhile has dropped the entry.
                        Ok(true) if !self.is_lost() => {
                            queue.entries.pop_front();
                            self.finish(slot, &mut queue, &mut woken);
                        }
                        Ok(true) => {}
                        Err(reason) => {
                            let reason = format!("stream {} waits for a device that is lost: {reason}", queue.label);
                            drop(queue);
                            self.lose(reason);
                            queue = lock(&slot.queue);
                        }
                    }
                }
                Some(Entry::Work(_)) => {
                    if let Some(other) = woken.take() {
                        self.make_ready(other);
                    }
                    if items == 0 {
                        return Left::Ready(index);
                    }
                    items -= 1;
                    queue = self.run_front(slot, queue, &mut woken);
                }
            }
        }
    }

    /// Waits for another device, where a thread is there to wait; else looks and says whether it is over. That may run
    /// work of the other device on this thread: it never blocks there, so that devices may wait for each other.
    fn await_abroad(&self, fence: &dyn HostFence) -> Result<bool, String> {
        match &self.drive {
            Drive::Workers(_) => fence.block().map(|()| true),
            Drive::Seeded(_) => fence.is_over().inspect(|over| {
                if !over {
                    thread::yield_now();
                }
            }),
        }
    }

    /// Takes the item at the front, runs it without the lock, and counts it as done.
    fn run_front<'a>(
        self: &Arc<Self>,
        slot: &'a Slot<E::Item>,
        mut queue: MutexGuard<'a, Queue<E::Item>>,
        woken: &mut Option<SlotIndex>,
    ) -> MutexGuard<'a, Queue<E::Item>> {
        let Some(Entry::Work(item)) = queue.entries.pop_front() else { unreachable!("the front is work") };
        queue.running = true;
        drop(queue);
        let outcome = catch_unwind(AssertUnwindSafe(|| self.executor.execute(item)));
        let failure = match outcome {
            Ok(Ok(())) => None,
            Ok(Err(reason)) => Some(reason),
            Err(payload) => Some(format!("a kernel panicked: {}", crate::panics::message(payload))),
        };
        let mut queue = lock(&slot.queue);
        if let Some(reason) = failure {
            let reason = format!("stream {}: {reason}", queue.label);
            drop(queue);
            self.lose(reason);
            queue = lock(&slot.queue);
        } else {
            self.finish(slot, &mut queue, woken);
        }
        queue.running = false;
        queue
    }

    /// Counts the front as done and wakes who waited for it; the first stream goes to `woken` if there is room.
    fn finish(self: &Arc<Self>, slot: &Slot<E::Item>, queue: &mut Queue<E::Item>, woken: &mut Option<SlotIndex>) {
        let wake = |parked| match woken {
            None => *woken = Some(parked),
            Some(_) => self.make_ready(parked),
        };
        if queue.finish(slot, wake) {
            slot.over.notify_all();
        }
    }

    /// Puts a stream behind another one's mark; `false` where the mark is over by now. INVARIANTS: one-place,
    /// past-marks.
    pub(super) fn park(&self, index: SlotIndex, mark: Packed) -> bool {
        let other = self.table.slot(mark.slot());
        let mut queue = lock(&other.queue);
        if other.has_done(mark.number()) {
            return false;
        }
        queue.parked.push((mark.number(), index));
        queue.due = queue.due.min(mark.number());
        true
    }

    /// Leaves a stream that has nothing to do.
    fn leave(&self, index: SlotIndex, slot: &Slot<E::Item>, mut queue: MutexGuard<'_, Queue<E::Item>>) {
        queue.busy = false;
        let closed = slot.is_closed();
        drop(queue);
        if closed {
            self.table.give_back(index);
        }
    }

    /// Cold: ends the device, for the first reason given. INVARIANT: lost-for-good. A submission that did not see
    /// the loss under its slot's lock has put its item where the sweep finds it.
    #[cold]
    fn lose(&self, reason: String) {
        // The first reason stays.
        let _ = self.lost.set(reason);
        for index in self.table.indices() {
            let slot = self.table.slot(index);
            abandon(slot, lock(&slot.queue));
        }
    }
}

/// Drops what waits in a stream of a lost device and wakes who blocks on it. The items are dropped without the lock.
fn abandon<I>(slot: &Slot<I>, mut queue: MutexGuard<'_, Queue<I>>) {
    let dropped = std::mem::take(&mut queue.entries);
    queue.parked.clear();
    drop(queue);
    slot.over.notify_all();
    for entry in dropped {
        crate::panics::drop_quietly(entry);
    }
}
