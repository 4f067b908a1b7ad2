//! Streams: each runs its items in order, concurrently with the others, and events connect them. No memory, no
//! `unsafe`.
//!
//! A stream is a queue in a slot (`slot`). A thread that holds a stream takes a turn at it (`turn`). The schedule
//! decides which threads do (`scheduler`): workers, or threads that wait. This file has the functions for callers.
//!
//! Locks: a slot's queue, then (under it) the lock of `scheduler`. Two queues are never locked at once. No lock is held
//! while an item runs, a caller's value is dropped or another device is woken, because these may call in here: they are
//! postponed in `after`.
//!
//! Invariants, besides those of the slots and the scheduler:
//! * `one-place`: a busy stream is in exactly one place: held by a thread, ready, or parked behind one event;
//! * `past-events`: an event is recorded after the work it covers, so streams never wait for each other in a circle,
//!   also those of several devices;
//! * `lost-for-good`: once the device is lost no item begins to run; queued entries are dropped.

mod after;
mod at_work;
mod foreign;
mod reach;
mod scheduler;
mod slot;
mod turn;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use after::After;
pub(crate) use at_work::is_worker;
pub use at_work::{drop_after_item, is_in_item};
pub(crate) use foreign::EventFence;
use foreign::Wait;
pub use scheduler::WORKERS_MAX;
use scheduler::{Duty, Scheduler};
pub(crate) use slot::Packed;
pub use slot::STREAMS_MAX;
use slot::{Entry, Queue, Slot, SlotIndex, Table};
use turn::Left;

use crate::{HostFence, Label};

use super::sync::{self, AtomicU64, JoinHandle, MutexGuard, Ordering, lock, sleep_for, spawn};

/// Runs items. The streams know nothing else about them.
pub(crate) trait Execute: Send + Sync + 'static {
    /// An item of a stream's work.
    type Item: Send + 'static;

    /// Runs one item to its end. An error or a panic loses the device.
    fn execute(&self, item: Self::Item) -> Result<(), String>;
}

/// The reason of a refusal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// The handle belongs to no open stream.
    UnknownStream,
    /// The event was never recorded.
    UnknownEvent,
    /// Too many streams are open.
    Full,
    /// The stream has no numbers left for more work.
    Spent,
    /// The thread that runs the work, or would run it, is the one that waits for it.
    Stuck,
    /// An item panicked or failed.
    Lost(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::UnknownStream => "the stream is not open",
            Refusal::UnknownEvent => "the event was never recorded",
            Refusal::Full => "too many streams are open",
            Refusal::Spent => "the stream has had all the work that it can number: open another one",
            Refusal::Stuck => "no thread is left to run what is waited for",
            Refusal::Lost(reason) => reason,
        })
    }
}

/// The threads that run ready work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Schedule {
    /// Worker threads, as soon as work is ready; work of different streams runs concurrently.
    #[default]
    Parallel,
    /// No worker threads: a thread that blocks on an event runs ready work until the event has completed. A thread that
    /// queries an event runs one ready item if the event has not completed. The seed chooses among the ready streams,
    /// so that orders can be explored and, if one thread uses the device, repeated. When the program drops the last
    /// stream, the remaining work is run. Work that itself owns a handle of a stream or of the device is never run if
    /// no thread waits for it.
    Seeded(u64),
    /// No worker threads: work runs on the thread that submits it, before that call returns, unless another thread is
    /// already running it. Such a device does not work together with other devices, because it would have to wait for
    /// them there. For tests of the code above a driver: work must not need a lock that its caller holds.
    AtOnce,
    /// No worker threads: a thread that blocks on an event runs ready work until the event has completed. A query runs
    /// nothing.
    AtWait,
}

/// The streams of one device.
pub(crate) struct Streams<E: Execute> {
    executor: E,
    table: Table<E::Item>,
    scheduler: Scheduler,
    schedule: Schedule,
    lost: OnceLock<String>,
    /// The number of open streams.
    open: AtomicU64,
}

/// A slot and its locked queue.
type Locked<'a, I> = (&'a Slot<I>, MutexGuard<'a, Queue<I>>);

/// The number of items of one stream that a worker runs before other streams get a turn.
const TURN_ITEMS: u32 = 64;

/// If the system refused a thread and work is ready, a waiting thread requests one again after this time.
const REFUSED_FOR: Duration = Duration::from_millis(100);

impl<E: Execute> Streams<E> {
    /// Makes streams without work.
    pub(crate) fn new(executor: E, schedule: Schedule, idle_life: Duration) -> std::io::Result<Arc<Self>> {
        let streams = Arc::new(Self {
            executor,
            table: Table::new(),
            scheduler: Scheduler::new(schedule, idle_life),
            schedule,
            lost: OnceLock::new(),
            open: AtomicU64::new(0),
        });
        if streams.scheduler.has_workers() {
            streams.scheduler.start(&|| streams.spawn_worker())?;
        }
        Ok(streams)
    }

    pub(crate) fn open(&self, label: impl Into<Label>) -> Result<Packed, Refusal> {
        self.check_lost()?;
        let index = self.table.take().ok_or(Refusal::Full)?;
        let slot = self.table.slot(index);
        let mut queue = lock(&slot.queue);
        queue.label = label.into();
        let generation = slot.generation.load(Ordering::Relaxed) + 1;
        slot.generation.store(generation, Ordering::Release);
        self.open.fetch_add(1, Ordering::Relaxed);
        Ok(Packed::new(index, generation))
    }

    pub(crate) fn close(&self, stream: Packed) -> Result<(), Refusal> {
        let (slot, queue) = self.lock_stream(stream)?;
        slot.generation.store(stream.number() + 1, Ordering::Release);
        self.open.fetch_sub(1, Ordering::Relaxed);
        if !queue.busy {
            drop(queue);
            self.table.give_back(stream.slot());
        }
        Ok(())
    }

    /// Takes the item out of `item` on success.
    pub(crate) fn submit(self: &Arc<Self>, stream: Packed, item: &mut Option<E::Item>) -> Result<(), Refusal> {
        let (slot, mut queue) = self.lock_to_append(stream)?;
        let Some(item) = item.take() else { return Ok(()) };
        if append(slot, &mut queue, Entry::Work(item)) {
            drop(queue);
            self.make_ready(stream.slot());
            self.run_at_once(stream.slot());
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn record(&self, stream: Packed) -> Result<Packed, Refusal> {
        match self.table.find(stream.slot()) {
            Some(slot) if slot.generation.load(Ordering::Acquire) == stream.number() => {
                Ok(Packed::new(stream.slot(), slot.submitted.load(Ordering::Acquire)))
            }
            _ => Err(Refusal::UnknownStream),
        }
    }

    pub(crate) fn wait(self: &Arc<Self>, stream: Packed, event: Packed) -> Result<(), Refusal> {
        let over = self.is_done(event)?;
        let (slot, mut queue) = self.lock_to_append(stream)?;
        // A stream's own event, also one of the slot's earlier streams, comes before it already.
        if over || event.slot() == stream.slot() {
            return Ok(());
        }
        if append(slot, &mut queue, Entry::Wait(event)) {
            drop(queue);
            // The stream was idle, so the wait is at its front: it is parked here, not by a worker.
            if !self.park(stream.slot(), event) {
                self.make_ready(stream.slot());
                self.run_at_once(stream.slot());
            }
        }
        Ok(())
    }

    /// As [`wait`](Self::wait), for another device's event.
    pub(crate) fn wait_foreign(self: &Arc<Self>, stream: Packed, fence: Arc<dyn HostFence>) -> Result<(), Refusal> {
        let (slot, mut queue) = self.lock_to_append(stream)?;
        if append(slot, &mut queue, Entry::Foreign(Arc::clone(&fence))) {
            drop(queue);
            // As in `wait`. A seeded device queries the event when the stream runs.
            let is_parked =
                self.scheduler.has_workers() && matches!(self.await_foreign(stream.slot(), &*fence), Ok(Wait::Parked));
            if !is_parked {
                self.make_ready(stream.slot());
            }
        }
        Ok(())
    }

    /// Returns `true` if the items before the event are done. If they are not, a seeded device first runs one ready
    /// item.
    #[inline]
    pub(crate) fn is_over(self: &Arc<Self>, event: Packed) -> Result<bool, Refusal> {
        if self.is_done(event)? { Ok(true) } else { self.look_closer(event) }
    }

    /// Returns `true` if the items before the event are done. Runs nothing.
    #[inline]
    pub(crate) fn peek(&self, event: Packed) -> Result<bool, Refusal> {
        self.is_done(event)
    }

    /// Blocks until the items before the event are done or, if the device is lost, until no item of that stream runs
    /// any more.
    pub(crate) fn block_on(self: &Arc<Self>, event: Packed) -> Result<(), Refusal> {
        if self.is_done(event)? {
            return self.check_lost();
        }
        if at_work::runs_before(self.address(), event) {
            return Err(Refusal::Stuck);
        }
        if self.scheduler.has_workers() { self.sleep_until(event) } else { self.run_until(event) }
    }

    /// Waits until all work is done and all workers have ended. If the caller is an item of some device it does not
    /// wait, because our work may wait for that item: the streams are then dropped with the last thread that runs them.
    ///
    /// Nothing is submitted after this.
    pub(crate) fn end(self: &Arc<Self>) {
        if !at_work::is_at_work() {
            return self.finish_all();
        }
        match self.scheduler.has_workers() {
            true => drop(self.scheduler.end()),
            false => self.spawn_to_finish(),
        }
    }

    /// Without workers no thread runs the queues once the last stream is closed, and queued closures may keep the
    /// device alive. This runs them: on this thread, or on a thread of its own if this thread runs an item.
    ///
    /// The caller holds no lock.
    pub(crate) fn settle(self: &Arc<Self>) {
        if self.scheduler.has_workers() || self.open.load(Ordering::Relaxed) > 0 {
            return;
        }
        let is_left = |index| self.table.slot(index).is_busy();
        match self.table.indices().any(is_left) {
            true if at_work::is_at_work() => self.spawn_to_finish(),
            true => self.finish_all(),
            false => {}
        }
    }

    fn spawn_to_finish(self: &Arc<Self>) {
        let streams = self.clone();
        if let Err(error) = spawn("millpond-seeded", move || streams.finish_all()) {
            self.lose_now(format!("no thread is left to finish the work of a dropped device: {error}"));
        }
    }

    fn finish_all(self: &Arc<Self>) {
        for index in self.table.indices() {
            let last = Packed::new(index, self.table.slot(index).submitted.load(Ordering::Acquire));
            if let Err(Refusal::Stuck) = self.block_on(last) {
                self.lose_now("the device was dropped, and no thread is left to run its work".to_owned());
            }
        }
        for worker in self.scheduler.end() {
            // A worker does not panic, because panics of its items are caught.
            let _ = worker.join();
        }
    }

    /// Loses the device outside a turn.
    fn lose_now(&self, reason: String) {
        let mut after = After::new();
        self.lose(reason, &mut after);
        after.settle();
    }

    /// Returns a number that distinguishes this device's items from those of other devices.
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Returns the number of threads that run work.
    pub(crate) fn workers(&self) -> usize {
        self.scheduler.workers()
    }

    fn check_lost(&self) -> Result<(), Refusal> {
        match self.lost.get() {
            None => Ok(()),
            Some(reason) => Err(Refusal::Lost(reason.clone())),
        }
    }

    fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    /// Returns an open stream's slot, with its queue locked.
    fn lock_stream(&self, stream: Packed) -> Result<Locked<'_, E::Item>, Refusal> {
        let slot = self.table.find(stream.slot()).ok_or(Refusal::UnknownStream)?;
        let queue = lock(&slot.queue);
        if slot.generation.load(Ordering::Relaxed) == stream.number() {
            Ok((slot, queue))
        } else {
            Err(Refusal::UnknownStream)
        }
    }

    /// As [`lock_stream`](Self::lock_stream), to append one more entry.
    fn lock_to_append(&self, stream: Packed) -> Result<Locked<'_, E::Item>, Refusal> {
        let locked = self.lock_stream(stream)?;
        self.check_lost()?;
        if locked.0.has_tickets() { Ok(locked) } else { Err(Refusal::Spent) }
    }

    /// Makes a stream behave as if this many items were done.
    #[cfg(test)]
    pub(crate) fn skip_to(&self, stream: Packed, ticket: u64) {
        let slot = self.table.slot(stream.slot());
        slot.submitted.store(ticket, Ordering::Relaxed);
        slot.done.store(ticket, Ordering::Relaxed);
    }

    #[inline]
    fn is_done(&self, event: Packed) -> Result<bool, Refusal> {
        let slot = self.table.find(event.slot()).ok_or(Refusal::UnknownEvent)?;
        if slot.has_done(event.number()) {
            return Ok(true);
        }
        // Only an event that is not over can be one that was never recorded.
        let made = event.number() <= slot.submitted.load(Ordering::Acquire);
        if made { Ok(false) } else { Err(Refusal::UnknownEvent) }
    }

    /// Cold: the event is not over. A loss is an error only once no item of the stream runs, as in `block_on`.
    #[cold]
    fn look_closer(self: &Arc<Self>, event: Packed) -> Result<bool, Refusal> {
        if !self.scheduler.has_workers()
            && self.schedule != Schedule::AtWait
            && !self.is_lost()
            && let Some(slot) = self.scheduler.choose(self.next_for(event))
        {
            self.run_one(slot);
        }
        let slot = self.table.slot(event.slot());
        if self.is_lost() && !lock(&slot.queue).running {
            // Read again, because the last item may have succeeded.
            return if slot.has_done(event.number()) { Ok(true) } else { self.check_lost().map(|()| false) };
        }
        Ok(slot.has_done(event.number()))
    }

    fn sleep_until(self: &Arc<Self>, event: Packed) -> Result<(), Refusal> {
        let slot = self.table.slot(event.slot());
        loop {
            if self.waits_for_caller(event) {
                return Err(Refusal::Stuck);
            }
            let mut queue = lock(&slot.queue);
            let mut overdue = false;
            while !overdue {
                if slot.has_done(event.number()) {
                    drop(queue);
                    return self.check_lost();
                }
                if !queue.running {
                    self.check_lost()?;
                }
                queue.due = queue.due.min(event.number());
                queue.blocked += 1;
                (queue, overdue) = sleep_for(&slot.over, queue, REFUSED_FOR);
                queue.blocked -= 1;
            }
            drop(queue);
            self.scheduler.ask_again(&|| self.spawn_worker());
        }
    }

    fn run_until(self: &Arc<Self>, event: Packed) -> Result<(), Refusal> {
        let slot = self.table.slot(event.slot());
        let mut next = self.next_for(event);
        loop {
            match self.scheduler.duty(next, || slot.has_done(event.number()), || self.is_lost()) {
                Duty::Run(slot) => self.run_one(slot),
                Duty::Again => {}
                Duty::Stuck if self.next_for(event) == next => return Err(Refusal::Stuck),
                // Another thread has run something in the meantime.
                Duty::Stuck => {}
                Duty::Over => return self.check_lost(),
            }
            next = self.next_for(event);
        }
    }

    /// Without workers: runs an item of the chosen stream. The postponed actions run once the caller does not count as
    /// running any more.
    fn run_one(self: &Arc<Self>, slot: SlotIndex) {
        let mut after = After::new();
        let next = match self.see_to(slot, 1, &mut after) {
            Left::Ready(next) => Some(next),
            Left::Alone => None,
        };
        self.scheduler.ran(next, &|| self.spawn_worker());
        after.settle();
    }

    fn make_ready(self: &Arc<Self>, slot: SlotIndex) {
        self.scheduler.push(slot, &|| self.spawn_worker());
    }

    /// With [`Schedule::AtOnce`]: runs ready work on the thread that submits. The caller holds no lock of ours.
    fn run_at_once(self: &Arc<Self>, slot: SlotIndex) {
        while self.schedule == Schedule::AtOnce
            && !self.is_lost()
            && let Some(slot) = self.scheduler.choose(slot)
        {
            self.run_one(slot);
        }
    }

    fn spawn_worker(self: &Arc<Self>) -> std::io::Result<JoinHandle<()>> {
        let streams = self.clone();
        spawn("millpond-host", move || {
            at_work::become_worker();
            let mut after = After::new();
            while let Some(mut slot) = streams.scheduler.take(&|| streams.spawn_worker()) {
                while let Left::Ready(next) = streams.see_to(slot, TURN_ITEMS, &mut after) {
                    if after.may_wait() {
                        streams.make_ready(next);
                        break;
                    }
                    after.settle();
                    slot = streams.scheduler.rotate(next);
                }
                after.settle();
            }
        })
    }
}

impl<E: Execute> fmt::Debug for Streams<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams").field("workers", &self.workers()).field("lost", &self.lost.get()).finish()
    }
}

/// Appends an entry. Returns `true` if the stream was idle; the caller then holds it.
fn append<I>(slot: &Slot<I>, queue: &mut Queue<I>, entry: Entry<I>) -> bool {
    queue.entries.push_back(entry);
    let ticket = slot.submitted.load(Ordering::Relaxed) + 1;
    slot.submitted.store(ticket, Ordering::Release);
    !std::mem::replace(&mut queue.busy, true)
}
