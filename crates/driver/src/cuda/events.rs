//! Events without timing: a handle stands for one record, and the library's event is reused for others.
//!
//! Knows handles and the library's events, which are called native here. A native event takes a microsecond to create
//! and a tenth of that to record, so forgotten ones are kept. A stream that waits for a recorded event waits for that
//! record, even if the native event is then recorded again.
//!
//! Interprocess events are separate, in `ipc`. They are looked up if the table has no slot for a handle.
//!
//! Invariants: `event-stays`: a native event is destroyed only with the table, so that a stale handle at worst gets a
//! wrong answer; `odd-live`: a slot's generation is odd while a handle of it lives; `last-forgets`: a handle lives
//! until each of its holders has forgotten it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::PLACES_MAX;
use super::abi::{Code, EVENT_DISABLE_TIMING, Event, Stream};
use super::gpu::{Entered, Gpu};
use super::ipc::InterprocessEvents;
use super::table::AllTable;
use crate::errors::failed;
use crate::places::Places;
use crate::{RawEvent, Result};

/// A native event and its holders.
#[derive(Debug, Default)]
struct Slot {
    generation: AtomicU32,
    /// The number of holders that have not forgotten the event.
    holders: AtomicU32,
    /// The generation of the event, once it is known to have completed. The writes of its work are visible then.
    over: AtomicU32,
    /// 0 until one is created.
    native: AtomicUsize,
}

/// The events of one device.
#[derive(Debug)]
pub(super) struct Events {
    gpu: Arc<Gpu>,
    slots: Places<Slot>,
    pub(super) ipc: InterprocessEvents,
}

impl Events {
    pub(super) fn new(gpu: Arc<Gpu>) -> Self {
        Self { ipc: InterprocessEvents::new(gpu.clone()), gpu, slots: Places::new(PLACES_MAX) }
    }

    /// Records an event after a stream's present work. The caller holds the stream.
    pub(super) fn record(&self, stream: Stream) -> Result<RawEvent> {
        // SAFETY: the event is ours (event-stays), and the stream is held open.
        self.record_by(|entered, native| unsafe { (entered.table.record_event)(native, stream) })
    }

    /// Records an event after all present work of the context.
    pub(super) fn record_all(&self, table: &AllTable) -> Result<RawEvent> {
        // SAFETY: the context is ours, and the event belongs to it (event-stays).
        self.record_by(|_, native| unsafe { (table.record)(self.gpu.context(), native) })
    }

    fn record_by(&self, record: impl FnOnce(&Entered<'_>, Event) -> Code) -> Result<RawEvent> {
        const CALL: &str = "record";
        let (number, slot) = self.slots.take(Slot::default).ok_or_else(|| failed(CALL, "too many events are kept"))?;
        if let Err(error) = self.record_in(slot, record) {
            self.slots.give_back(number);
            return Err(error);
        }
        slot.holders.store(1, Ordering::Relaxed);
        // Reset, so that an old handle does not count as completed once generations wrap around.
        slot.over.store(0, Ordering::Relaxed);
        let generation = slot.generation.load(Ordering::Relaxed).wrapping_add(1);
        slot.generation.store(generation, Ordering::Release);
        Ok(RawEvent(u64::from(generation) << 32 | u64::from(number)))
    }

    fn record_in(&self, slot: &Slot, record: impl FnOnce(&Entered<'_>, Event) -> Code) -> Result<()> {
        const CALL: &str = "record";
        let entered = self.gpu.enter(CALL)?;
        let mut native = Event(slot.native.load(Ordering::Relaxed));
        if native == Event::default() {
            native = entered.open_event(CALL, EVENT_DISABLE_TIMING)?;
            slot.native.store(native.0, Ordering::Release);
        }
        self.gpu.check(CALL, record(&entered, native))
    }

    /// Adds a holder to an event that has one already (last-forgets). Returns `false` for an interprocess event.
    pub(super) fn share(&self, event: RawEvent) -> bool {
        let slot = self.live(event);
        slot.inspect(|slot| _ = slot.holders.fetch_add(1, Ordering::Relaxed)).is_some()
    }

    /// Makes the stream, which the caller holds in its context, wait for an event.
    pub(super) fn wait(&self, entered: &Entered<'_>, stream: Stream, event: RawEvent) -> Result<()> {
        const CALL: &str = "wait";
        let native = self.native(event)?;
        // SAFETY: the event is ours (event-stays), and the stream is held open.
        entered.check(CALL, unsafe { (entered.table.wait_event)(stream, native, 0) })
    }

    /// Returns the native event of a handle that is not forgotten.
    pub(super) fn native(&self, event: RawEvent) -> Result<Event> {
        self.find("wait", event)
    }

    #[inline]
    pub(super) fn is_over(&self, event: RawEvent) -> Result<bool> {
        const CALL: &str = "is_over";
        if self.is_known_over(event) {
            return self.gpu.check_lost().map(|()| true);
        }
        let (native, entered) = (self.find(CALL, event)?, self.gpu.enter_apart(CALL)?);
        // SAFETY: the event is ours (event-stays).
        match unsafe { (entered.table.query_event)(native) } {
            Code::SUCCESS => {
                let slot = self.live(event);
                slot.into_iter().for_each(|slot| slot.over.store(unpack(event).1, Ordering::Release));
                Ok(true)
            }
            Code::NOT_READY => Ok(false),
            code => Err(self.gpu.refusal(CALL, code)),
        }
    }

    /// Returns `true` if the event is already known to have completed, without a query.
    #[inline]
    pub(super) fn is_known_over(&self, event: RawEvent) -> bool {
        self.live(event).is_some_and(|slot| slot.over.load(Ordering::Acquire) == unpack(event).1)
    }

    pub(super) fn block_on(&self, event: RawEvent) -> Result<()> {
        const CALL: &str = "block_on";
        let (native, entered) = (self.find(CALL, event)?, self.gpu.enter_apart(CALL)?);
        // SAFETY: the event is ours (event-stays).
        self.gpu.check(CALL, unsafe { (entered.table.block_on_event)(native) })?;
        self.gpu.check_lost()
    }

    pub(super) fn forget(&self, event: RawEvent) {
        let (number, generation) = unpack(event);
        let Some(slot) = self.live(event) else { return self.ipc.forget(event) };
        if slot.holders.fetch_sub(1, Ordering::AcqRel) == 1 {
            slot.generation.store(generation.wrapping_add(1), Ordering::Release);
            self.slots.give_back(number);
        }
    }

    #[inline]
    fn find(&self, call: &'static str, event: RawEvent) -> Result<Event> {
        match self.live(event) {
            Some(slot) => Ok(Event(slot.native.load(Ordering::Acquire))),
            None => self.ipc.find(call, event),
        }
    }

    /// Returns the slot of an event that is not forgotten.
    #[inline]
    fn live(&self, event: RawEvent) -> Option<&Slot> {
        let (number, generation) = unpack(event);
        let slot = self.slots.find(number)?;
        (generation % 2 == 1 && slot.generation.load(Ordering::Acquire) == generation).then_some(slot)
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let Ok(entered) = self.gpu.enter("forget") else { return };
        for slot in self.slots.iter() {
            let native = Event(slot.native.swap(0, Ordering::Relaxed));
            if native != Event::default() {
                // SAFETY: an event of ours, which is not used again (event-stays). If this fails, the context keeps it.
                let _ = unsafe { (entered.table.close_event)(native) };
            }
        }
    }
}

fn unpack(event: RawEvent) -> (u32, u32) {
    (event.0 as u32, (event.0 >> 32) as u32)
}
