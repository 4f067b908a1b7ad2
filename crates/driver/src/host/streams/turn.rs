//! Turns: the steps of the thread that holds a stream.
//!
//! The simple version:
//!
//! ```text
//! lock the queue; repeat
//!     the front is   nothing          -> the stream is idle; leave it
//!                    a wait, over     -> count it as done, and wake its waiters
//!                    a wait, not over -> park the stream behind the event's stream; leave it
//!                    a foreign wait   -> the same, at the other device
//!                    work             -> unlock, run it, lock, count it as done, and wake its waiters
//! ```
//!
//! Departures:
//! 1. at most one holder runs a stream (`one-place`), so a woken stream is passed on without a look at its queue, and a
//!    parked stream blocks no thread;
//! 2. a turn ends after some items, so that other streams get theirs;
//! 3. a thread that leaves a stream takes the first stream that it woke: passing work back and forth between two
//!    streams then wakes no thread (1240 ns for each pass became 500 on two busy cores). It never runs another item
//!    while it holds a woken stream;
//! 4. waking other devices and running destructors of callers are postponed (`after`) until nothing is locked and
//!    nothing runs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::after::After;
use super::foreign::Wait;
use super::slot::{Entry, Queue, Slot, SlotIndex};
use super::sync::{MutexGuard, Ordering, lock};
use super::{Execute, Locked, Packed, Streams, at_work};

/// The state of a stream after a turn.
pub(super) enum Left {
    /// The stream is idle, parked or dropped, and does not belong to the caller any more.
    Alone,
    /// A stream is ready and belongs to the caller: the same one, which has more to run, or, if the caller has left
    /// that one, a stream that waited for it.
    Ready(SlotIndex),
}

impl<E: Execute> Streams<E> {
    /// Takes a turn at a stream, as this module's documentation describes, for up to `items` items. The caller settles
    /// `after` as soon as it holds nothing.
    pub(super) fn see_to(self: &Arc<Self>, index: SlotIndex, mut items: u32, after: &mut After<E::Item>) -> Left {
        let slot = self.table.slot(index);
        let mut woken = None;
        let mut queue = lock(&slot.queue);
        loop {
            if self.is_lost() {
                abandon(slot, queue, after);
                return Left::Alone;
            }
            match queue.entries.front() {
                None => {
                    self.leave(index, slot, queue);
                    return woken.map_or(Left::Alone, Left::Ready);
                }
                Some(&Entry::Wait(event)) if self.table.slot(event.slot()).has_done(event.number()) => {
                    queue.entries.pop_front();
                    self.finish(slot, &mut queue, &mut woken, after);
                }
                Some(&Entry::Wait(event)) => {
                    drop(queue);
                    if self.park(index, event) {
                        return woken.map_or(Left::Alone, Left::Ready);
                    }
                    queue = lock(&slot.queue);
                }
                // No woken stream waits for an item that may take long.
                Some(Entry::Foreign(_) | Entry::Work(_)) if woken.is_some() || !after.is_empty() => {
                    drop(queue);
                    woken.take().into_iter().for_each(|other| self.make_ready(other));
                    if after.may_wait() {
                        self.make_ready(index);
                        return Left::Alone;
                    }
                    after.settle();
                    queue = lock(&slot.queue);
                }
                Some(Entry::Foreign(_)) => match self.pass_foreign(index, (slot, queue), &mut woken, after) {
                    Ok(locked) => queue = locked,
                    Err(left) => return left,
                },
                Some(Entry::Work(_)) => {
                    if items == 0 {
                        return Left::Ready(index);
                    }
                    items -= 1;
                    queue = self.run_front(index, (slot, queue), &mut woken, after);
                }
            }
        }
    }

    /// Handles the wait for another device at the front. Returns the queue if the stream continues at once.
    fn pass_foreign<'a>(
        self: &Arc<Self>,
        index: SlotIndex,
        (slot, queue): Locked<'a, E::Item>,
        woken: &mut Option<SlotIndex>,
        after: &mut After<E::Item>,
    ) -> Result<MutexGuard<'a, Queue<E::Item>>, Left> {
        let Some(Entry::Foreign(fence)) = queue.entries.front() else { unreachable!("the front is a foreign wait") };
        let (fence, label) = (Arc::clone(fence), queue.label);
        drop(queue);
        let outcome = self.await_foreign(index, &*fence);
        after.drop_fence(fence);
        match outcome {
            Ok(Wait::Parked) => return Err(Left::Alone),
            Ok(Wait::Asks) => return Err(Left::Ready(index)),
            Ok(Wait::Over) => {}
            Err(why) => self.lose(format!("{label} waits for a device that is lost: {why}"), after),
        }
        let mut queue = lock(&slot.queue);
        // If the device was lost in the meantime, the entry is already dropped.
        if let Some(Entry::Foreign(fence)) = queue.entries.pop_front() {
            after.drop_fence(fence);
            self.finish(slot, &mut queue, woken, after);
        }
        Ok(queue)
    }

    /// Takes the item at the front, runs it without the lock, and counts it as done. If it fails, the device is lost
    /// after it, so that no item of the stream runs any more when other threads see the loss.
    fn run_front<'a>(
        self: &Arc<Self>,
        index: SlotIndex,
        (slot, mut queue): Locked<'a, E::Item>,
        woken: &mut Option<SlotIndex>,
        after: &mut After<E::Item>,
    ) -> MutexGuard<'a, Queue<E::Item>> {
        let Some(Entry::Work(item)) = queue.entries.pop_front() else { unreachable!("the front is work") };
        let ticket = slot.done.load(Ordering::Relaxed) + 1;
        queue.running = true;
        drop(queue);
        let outcome = at_work::run(self.address(), index, ticket, &mut after.left, || {
            catch_unwind(AssertUnwindSafe(|| self.executor.execute(item)))
        });
        let failure = match outcome {
            Ok(Ok(())) => None,
            Ok(Err(reason)) => Some(reason),
            Err(payload) => {
                let reason = format!("a kernel panicked: {}", crate::panics::text(&payload));
                after.payloads.push(payload);
                Some(reason)
            }
        };
        let mut queue = lock(&slot.queue);
        queue.running = false;
        if let Some(reason) = failure {
            let label = queue.label;
            drop(queue);
            self.lose(format!("{label}: {reason}"), after);
            queue = lock(&slot.queue);
        } else {
            self.finish(slot, &mut queue, woken, after);
        }
        queue
    }

    /// Counts the front as done and wakes its waiters; the first stream goes to `woken` if that is empty.
    fn finish(
        self: &Arc<Self>,
        slot: &Slot<E::Item>,
        queue: &mut Queue<E::Item>,
        woken: &mut Option<SlotIndex>,
        after: &mut After<E::Item>,
    ) {
        let wake = |parked| match woken {
            None => *woken = Some(parked),
            Some(_) => self.make_ready(parked),
        };
        if queue.finish(slot, &mut after.waiters, wake) {
            slot.over.notify_all();
        }
    }

    /// Parks a stream behind another one's event. Returns `false` if the event has completed by now. INVARIANTS:
    /// one-place, past-events.
    pub(super) fn park(&self, index: SlotIndex, event: Packed) -> bool {
        let other = self.table.slot(event.slot());
        let mut queue = lock(&other.queue);
        if other.has_done(event.number()) {
            return false;
        }
        queue.parked.push((event.number(), index));
        queue.due = queue.due.min(event.number());
        true
    }

    /// Leaves a stream that has no entries.
    fn leave(&self, index: SlotIndex, slot: &Slot<E::Item>, mut queue: MutexGuard<'_, Queue<E::Item>>) {
        queue.busy = false;
        let closed = slot.is_closed();
        drop(queue);
        if closed {
            self.table.give_back(index);
        }
    }

    /// Cold: loses the device, for the first reason given. INVARIANT: lost-for-good. A submission that did not see the
    /// loss under its slot's lock has appended its item before this loop reaches the slot. Nothing is dropped before
    /// all waiters are woken.
    #[cold]
    pub(super) fn lose(&self, reason: String, after: &mut After<E::Item>) {
        // The first reason stays.
        let _ = self.lost.set(reason);
        for index in self.table.indices() {
            let slot = self.table.slot(index);
            abandon(slot, lock(&slot.queue), after);
        }
        self.scheduler.lose();
    }
}

/// Removes the entries of a stream of a lost device and wakes the threads that block on it; other devices only if no
/// item of the stream runs.
fn abandon<I>(slot: &Slot<I>, mut queue: MutexGuard<'_, Queue<I>>, after: &mut After<I>) {
    after.entries.extend(queue.entries.drain(..));
    queue.parked.clear();
    if !queue.running {
        after.waiters.extend(queue.foreign.drain(..).map(|(_, waiter)| waiter));
    }
    drop(queue);
    slot.over.notify_all();
}
