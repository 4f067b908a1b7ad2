//! Waits for other devices: a stream is parked behind an event of another device and woken from there.
//!
//! In the simple version a thread blocks on the other device. Then each wait blocks a thread, and devices that wait for
//! each other run out of threads. So a wait is a [`Waiter`] in the other device's slot, which keeps no device alive and
//! blocks no thread. Departure: a seeded device runs nothing by itself, so
//! 1. a seeded stream's wait stays ready and queries the event (which lets the other device run, if that is seeded
//!    too);
//! 2. the first stream that is parked behind a seeded event starts a thread that waits for such events, as long as
//!    there are any.
//!
//! Locks: no queue of one device is locked under one of another; waiters are woken while none is locked (`after`).
//!
//! Invariants: `woken-once`: a parked waiter is woken exactly once, by the end of the work before its event, or by the
//! loss of the event's device once no item of that stream runs; `away-counted`: the workers of a device count its
//! streams that are parked behind events of other devices, so that a worker exists to take them.

use std::sync::{Arc, Weak};

use super::slot::{Packed, SlotIndex};
use super::sync::{lock, spawn, thread};
use super::{Execute, Streams};
use crate::{HostFence, HostWaiter, Waiter};

/// An event, for other devices.
pub(crate) struct EventFence<E: Execute> {
    pub(crate) streams: Arc<Streams<E>>,
    pub(crate) event: Packed,
}

/// The outcome of a wait for another device.
pub(super) enum Wait {
    /// The event has completed.
    Over,
    /// The stream is parked, and does not belong to the caller any more.
    Parked,
    /// The stream stays ready and queries the event again.
    Asks,
}

impl<E: Execute> Streams<E> {
    /// Makes a stream, which the caller holds, wait for another device. If the device has workers, this runs no work.
    pub(super) fn await_foreign(self: &Arc<Self>, index: SlotIndex, fence: &dyn HostFence) -> Result<Wait, String> {
        if !self.scheduler.has_workers() {
            let is_over = fence.is_over()?;
            if !is_over {
                thread::yield_now();
            }
            return Ok(if is_over { Wait::Over } else { Wait::Asks });
        }
        let device: Weak<Self> = Arc::downgrade(self);
        // Counted before it can be woken. INVARIANT: away-counted.
        self.scheduler.depart();
        let parked = fence.park(Waiter::new(device, u64::from(index)));
        if parked != Ok(false) {
            self.scheduler.stay();
        }
        parked.map(|is_over| if is_over { Wait::Over } else { Wait::Parked })
    }

    /// Parks a waiter behind an event. Returns `true` if the event has completed, and an error if it never will.
    /// INVARIANT: woken-once.
    fn park_waiter(&self, event: Packed, waiter: Waiter) -> Result<bool, String> {
        let slot = self.table.find(event.slot()).ok_or("the event was never recorded")?;
        let mut queue = lock(&slot.queue);
        if slot.has_done(event.number()) {
            return Ok(true);
        }
        if !queue.running
            && let Some(reason) = self.lost.get()
        {
            return Err(reason.clone());
        }
        queue.foreign.push((event.number(), waiter));
        queue.due = queue.due.min(event.number());
        Ok(false)
    }

    /// Without workers: makes sure that a thread runs the work before an event that another device waits for.
    fn see_through(self: &Arc<Self>, event: Packed) -> Result<(), String> {
        if self.scheduler.has_workers() || !self.scheduler.want(event) {
            return Ok(());
        }
        let streams = self.clone();
        spawn("millpond-seeded", move || streams.run_wanted()).map(drop).map_err(|error| {
            self.scheduler.give_up();
            format!("it is seeded, and the system refuses a thread to run it: {error}")
        })
    }

    /// Runs work until all events have completed that other devices wait for.
    fn run_wanted(self: &Arc<Self>) {
        while let Some(event) = self.scheduler.wanted() {
            // The waiter notices a loss itself.
            let _ = self.block_on(event);
        }
    }
}

impl<E: Execute> HostFence for EventFence<E> {
    fn is_over(&self) -> Result<bool, String> {
        self.streams.is_over(self.event).map_err(|why| why.to_string())
    }

    fn park(&self, waiter: Waiter) -> Result<bool, String> {
        self.streams.see_through(self.event)?;
        self.streams.park_waiter(self.event, waiter)
    }
}

impl<E: Execute> HostWaiter for Streams<E> {
    fn wake(self: Arc<Self>, stream: u64) {
        // INVARIANT: lost-for-good. The entries of a lost device are dropped, so nothing is left to run.
        let ready = (!self.is_lost()).then_some(stream as SlotIndex);
        self.scheduler.come_back(ready, &|| self.spawn_worker());
    }
}
