//! Slots: the queues of streams, and the numbers of streams and events.
//!
//! A stream has a slot; when it is closed and drained, a later stream takes the slot. Each item of work gets the slot's
//! next *ticket*. The tickets of a new stream continue those of the slot's last stream. So an event is just a slot and
//! a ticket, and has completed once the slot has done that many items. An event of a stream that was closed long ago
//! can still be queried, although nothing is kept for it.
//!
//! Knows nothing of threads, nor of the content of items.
//!
//! Invariants:
//! * `ticket-order`: a slot's items are done in the order of their tickets; `done <= submitted`;
//! * `drained-slot`: another stream takes a slot only when `done == submitted`.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::{HostFence, Label, Places, Waiter};

use super::sync::{AtomicU64, Condvar, Mutex, Ordering};

/// The number of a slot.
pub(crate) type SlotIndex = u16;

/// The most streams that can be open at the same time.
pub const STREAMS_MAX: usize = 1 << SLOT_BITS;

const SLOT_BITS: u32 = 16;

/// The largest number of a [`Packed`].
const NUMBER_MAX: u64 = u64::MAX >> SLOT_BITS;

/// The number of tickets that a slot must have left for another stream.
const TICKETS_LEFT: u64 = 1 << 40;

/// A slot in the low bits, and above it a number that only grows: a stream's handle (its generation) or an event (a
/// ticket). 48 bits at 100 ns each last for 300 days on one slot; a stream that has used them up accepts no more work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Packed(pub(crate) u64);

impl Packed {
    pub(crate) fn new(slot: SlotIndex, number: u64) -> Self {
        debug_assert!(number <= NUMBER_MAX);
        Self(number << SLOT_BITS | u64::from(slot))
    }

    pub(crate) fn slot(self) -> SlotIndex {
        self.0 as SlotIndex
    }

    pub(crate) fn number(self) -> u64 {
        self.0 >> SLOT_BITS
    }
}

/// An entry of a stream's queue. Each has a ticket.
pub(crate) enum Entry<I> {
    /// An item of work.
    Work(I),
    /// Later entries wait for an event.
    Wait(Packed),
    /// Later entries wait for another device's event.
    Foreign(Arc<dyn HostFence>),
}

/// One slot. The atomics are written under the lock of `queue` and read without it.
#[repr(align(128))]
pub(crate) struct Slot<I> {
    /// Odd while a stream is open; the number in its handle.
    pub(crate) generation: AtomicU64,
    /// The last ticket that was given.
    pub(crate) submitted: AtomicU64,
    /// The last ticket done.
    pub(crate) done: AtomicU64,
    pub(crate) queue: Mutex<Queue<I>>,
    /// Notified for threads when `done` has reached `Queue::due`, or when the device is lost and no item of the slot
    /// runs any more.
    pub(crate) over: Condvar,
}

/// The guarded part of a slot.
pub(crate) struct Queue<I> {
    pub(crate) entries: VecDeque<Entry<I>>,
    /// `true` if the stream has a holder: a thread runs it, it is ready to be taken, or it is parked behind an event.
    /// There is at most one holder.
    pub(crate) busy: bool,
    /// `true` while an item of the stream runs.
    pub(crate) running: bool,
    /// For messages.
    pub(crate) label: Label,
    /// The streams that are parked behind this one: ticket and slot.
    pub(crate) parked: Vec<(u64, SlotIndex)>,
    /// The streams of other devices that are parked behind this one: ticket and waiter.
    pub(crate) foreign: Vec<(u64, Waiter)>,
    /// The number of threads that sleep on `Slot::over`. Without it, a notification would cost a system call even if no
    /// thread waits.
    pub(crate) blocked: u32,
    /// The least ticket for which a parked stream or a blocked thread waits.
    pub(crate) due: u64,
}

/// The value of [`Queue::due`] if no thread waits.
pub(crate) const NO_WAITER: u64 = u64::MAX;

impl<I> Slot<I> {
    fn new() -> Self {
        let queue = Queue {
            entries: VecDeque::new(),
            busy: false,
            running: false,
            label: Label::default(),
            parked: Vec::new(),
            foreign: Vec::new(),
            blocked: 0,
            due: NO_WAITER,
        };
        Self {
            generation: AtomicU64::new(0),
            submitted: AtomicU64::new(0),
            done: AtomicU64::new(0),
            queue: Mutex::new(queue),
            over: Condvar::new(),
        }
    }

    /// Returns `true` if the first `ticket` items are done. The effects of these items are then visible to the caller.
    #[inline]
    pub(crate) fn has_done(&self, ticket: u64) -> bool {
        self.done.load(Ordering::Acquire) >= ticket
    }

    /// Returns `true` if work is left.
    pub(crate) fn is_busy(&self) -> bool {
        self.done.load(Ordering::Acquire) < self.submitted.load(Ordering::Acquire)
    }

    /// Returns `true` if there is a number for another entry. Does not change under the lock of `queue`.
    pub(crate) fn has_tickets(&self) -> bool {
        self.submitted.load(Ordering::Relaxed) < NUMBER_MAX
    }

    /// Returns `true` if there are numbers for another stream and its work.
    fn serves_again(&self) -> bool {
        let [generation, submitted] = [&self.generation, &self.submitted].map(|it| it.load(Ordering::Relaxed));
        generation < NUMBER_MAX - 1 && submitted < NUMBER_MAX - TICKETS_LEFT
    }

    /// Returns `true` if the slot has no open stream. Does not change under the lock of `queue`.
    pub(crate) fn is_closed(&self) -> bool {
        self.generation.load(Ordering::Acquire).is_multiple_of(2)
    }
}

impl<I> Queue<I> {
    /// Counts the item at the front as done and removes those that waited for it: streams one at a time through `wake`,
    /// other devices' waiters into `waiters`. Returns `true` if a blocked thread may have waited as well. Called with
    /// the slot's lock held, like all code that writes `done`.
    pub(crate) fn finish(&mut self, slot: &Slot<I>, waiters: &mut Vec<Waiter>, wake: impl FnMut(SlotIndex)) -> bool {
        let done = slot.done.load(Ordering::Relaxed) + 1;
        debug_assert!(done <= slot.submitted.load(Ordering::Relaxed), "ticket-order");
        slot.done.store(done, Ordering::Release);
        done >= self.due && self.release(done, waiters, wake)
    }

    /// Cold: something waited for this very item.
    #[cold]
    fn release(&mut self, done: u64, waiters: &mut Vec<Waiter>, wake: impl FnMut(SlotIndex)) -> bool {
        self.parked.extract_if(.., |&mut (ticket, _)| ticket <= done).map(|(_, slot)| slot).for_each(wake);
        waiters.extend(self.foreign.extract_if(.., |(ticket, _)| *ticket <= done).map(|(_, waiter)| waiter));
        let (parked, foreign) = (self.parked.iter().map(|it| it.0), self.foreign.iter().map(|it| it.0));
        self.due = parked.chain(foreign).min().unwrap_or(NO_WAITER);
        // Threads that wait for a later ticket wake too, and write it into `due` again.
        self.blocked > 0
    }
}

/// All slots. They never move and are freed only with the table, so a lookup takes no lock.
pub(crate) struct Table<I>(Places<Slot<I>>);

impl<I> Table<I> {
    pub(crate) fn new() -> Self {
        Self(Places::new(STREAMS_MAX as u32))
    }

    /// Returns a slot that was in use at some time.
    #[inline]
    pub(crate) fn find(&self, index: SlotIndex) -> Option<&Slot<I>> {
        self.0.find(index.into())
    }

    /// Returns a slot that is known to exist.
    #[inline]
    pub(crate) fn slot(&self, index: SlotIndex) -> &Slot<I> {
        self.find(index).expect("slots stay for as long as the table")
    }

    /// Takes a slot without a stream.
    pub(crate) fn take(&self) -> Option<SlotIndex> {
        self.0.take(Slot::new).map(|(index, _)| index as SlotIndex)
    }

    /// Returns a closed slot to the table for a later stream, unless its numbers are nearly used up. INVARIANT:
    /// drained-slot.
    pub(crate) fn give_back(&self, index: SlotIndex) {
        debug_assert!({
            let slot = self.slot(index);
            slot.is_closed() && slot.done.load(Ordering::Relaxed) == slot.submitted.load(Ordering::Relaxed)
        });
        if self.slot(index).serves_again() {
            self.0.give_back(index.into());
        }
    }

    /// Returns every slot that was ever in use.
    pub(crate) fn indices(&self) -> impl Iterator<Item = SlotIndex> + use<I> {
        (0..self.0.taken()).map(|index| index as SlotIndex)
    }
}
