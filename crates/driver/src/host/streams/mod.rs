//! Streams: first in, first out each, at once with each other, and events between them. No memory, no `unsafe`.
//!
//! A stream is a queue in a slot (`slot`). Whoever sees to a stream takes a turn at it (`turn`); who that is, is the
//! schedule's matter (`scheduler`): workers, or whoever waits. This file is what callers ask for.
//!
//! Locks: a slot's queue, then (under it) the lock of `scheduler`; never two queues, and none while an item
//! runs, anything of a caller is dropped or another device is woken, for that may call in here: it is left in `after`.
//!
//! Invariants, beside those of the slots and the scheduler:
//! * `one-place`: a busy stream is in exactly one place: with a thread, ready, or parked behind one event;
//! * `past-events`: an event is recorded after the work it covers, so streams never wait for each other in a circle,
//!   nor do those of several devices;
//! * `lost-for-good`: once the device is lost no item begins to run; what waits is dropped.

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

/// How items are run; the streams know nothing else of them.
pub(crate) trait Execute: Send + Sync + 'static {
    /// What a stream's work consists of.
    type Item: Send + 'static;

    /// Runs one item to its end. An error or a panic loses the device.
    fn execute(&self, item: Self::Item) -> Result<(), String>;
}

/// Why streams refuse.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// The handle is of no open stream.
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

/// Who runs ready work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Schedule {
    /// Threads, as soon as it is ready; work of different streams runs at once.
    #[default]
    Parallel,
    /// No worker threads: a thread that blocks on an event runs ready work until the event has completed, one that asks
    /// whether an event has completed runs one ready item where it has not. The seed chooses among the streams that are
    /// ready, so that orders can be explored and, where one thread uses the device, repeated. What is left when the
    /// program lets the last stream go is run then; work that owns a stream's or the device's handle itself waits for
    /// ever where no thread waits for it.
    Seeded(u64),
    /// No worker threads: work runs on the thread that submits it, before that call returns, unless another thread is
    /// at it already. Such a device has nothing to do with others, for whom it would have to wait there. For tests of
    /// what is above a driver: work must not need a lock that its caller holds.
    AtOnce,
    /// No worker threads: a thread that blocks on an event runs what is ready until the event has completed. Asking
    /// runs nothing.
    AtWait,
}

/// The streams of one device.
pub(crate) struct Streams<E: Execute> {
    executor: E,
    table: Table<E::Item>,
    scheduler: Scheduler,
    schedule: Schedule,
    lost: OnceLock<String>,
    /// Streams that are open.
    open: AtomicU64,
}

/// A slot and its locked queue.
type Locked<'a, I> = (&'a Slot<I>, MutexGuard<'a, Queue<I>>);

/// How many items of one stream a worker runs before others get a turn.
const TURN_ITEMS: u32 = 64;

/// Where the system refused a thread and work is ready, who waits asks for one again after this long.
const REFUSED_FOR: Duration = Duration::from_millis(100);

impl<E: Execute> Streams<E> {
    /// Streams without work.
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

    /// Takes the item out where it succeeds.
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
        // A stream's own event, also of the slot's earlier streams, lies behind it already.
        if over || event.slot() == stream.slot() {
            return Ok(());
        }
        if append(slot, &mut queue, Entry::Wait(event)) {
            drop(queue);
            // The stream was idle, so the wait is at its front: park it here, and not by way of a worker.
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
            // As in `wait`. A seeded device asks when it is run.
            let is_parked =
                self.scheduler.has_workers() && matches!(self.await_foreign(stream.slot(), &*fence), Ok(Wait::Parked));
            if !is_parked {
                self.make_ready(stream.slot());
            }
        }
        Ok(())
    }

    /// Whether the items before the event are done. Seeded: runs one ready item where they are not.
    #[inline]
    pub(crate) fn is_over(self: &Arc<Self>, event: Packed) -> Result<bool, Refusal> {
        if self.is_done(event)? { Ok(true) } else { self.look_closer(event) }
    }

    /// Whether the items before the event are done, running nothing.
    #[inline]
    pub(crate) fn peek(&self, event: Packed) -> Result<bool, Refusal> {
        self.is_done(event)
    }

    /// Blocks until the items before the event are done. Where the device is lost instead, until nothing of that
    /// stream runs any more.
    pub(crate) fn block_on(self: &Arc<Self>, event: Packed) -> Result<(), Refusal> {
        if self.is_done(event)? {
            return self.check_lost();
        }
        if at_work::runs_before(self.address(), event) {
            return Err(Refusal::Stuck);
        }
        if self.scheduler.has_workers() { self.sleep_until(event) } else { self.run_until(event) }
    }

    /// Waits until all work is done and all workers have ended. An item of some device does not wait, for our work may
    /// wait for that item: the streams then go with the last thread that runs them.
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
    /// device alive. This runs them: on this thread, or on a thread of its own where this thread runs an item.
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
            // A worker does not panic: what it runs is caught.
            let _ = worker.join();
        }
    }

    /// Loses the device outside a turn.
    fn lose_now(&self, reason: String) {
        let mut after = After::new();
        self.lose(reason, &mut after);
        after.settle();
    }

    /// What distinguishes its items from those of other devices.
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Threads that run work at present.
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

    /// An open stream's slot, locked.
    fn lock_stream(&self, stream: Packed) -> Result<Locked<'_, E::Item>, Refusal> {
        let slot = self.table.find(stream.slot()).ok_or(Refusal::UnknownStream)?;
        let queue = lock(&slot.queue);
        if slot.generation.load(Ordering::Relaxed) == stream.number() {
            Ok((slot, queue))
        } else {
            Err(Refusal::UnknownStream)
        }
    }

    /// As [`lock_stream`](Self::lock_stream), for one more entry.
    fn lock_to_append(&self, stream: Packed) -> Result<Locked<'_, E::Item>, Refusal> {
        let locked = self.lock_stream(stream)?;
        self.check_lost()?;
        if locked.0.has_tickets() { Ok(locked) } else { Err(Refusal::Spent) }
    }

    /// A stream with so much work behind it.
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
        // Only what is not over can be an event that was never recorded.
        let made = event.number() <= slot.submitted.load(Ordering::Acquire);
        if made { Ok(false) } else { Err(Refusal::UnknownEvent) }
    }

    /// Cold: the event is not over. A loss is an error only once nothing of the stream runs, as in `block_on`.
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
            // Read again: the last item may have ended well.
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
                // Another thread has run something meanwhile.
                Duty::Stuck => {}
                Duty::Over => return self.check_lost(),
            }
            next = self.next_for(event);
        }
    }

    /// Without workers: runs an item of a stream that was chosen. What it leaves behind is done once the caller does
    /// not count as running any more.
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

    /// With [`Schedule::AtOnce`]: runs what is ready, on the thread that submits. The caller holds no lock of ours.
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

/// Appends an entry; whether the stream was idle, and now is the caller's to see to.
fn append<I>(slot: &Slot<I>, queue: &mut Queue<I>, entry: Entry<I>) -> bool {
    queue.entries.push_back(entry);
    let ticket = slot.submitted.load(Ordering::Relaxed) + 1;
    slot.submitted.store(ticket, Ordering::Release);
    !std::mem::replace(&mut queue.busy, true)
}
