//! Events without timing: a handle stands for one record, and the library's event is used again for others.
//!
//! Knows handles and the library's events, which are called native here. A native event costs a microsecond to make and
//! a tenth to record, so forgotten ones are kept. What waits for a recorded event waits for that record, also where the
//! native event is recorded again meanwhile.
//!
//! Events that pass between processes are kept apart, in `ipc`, and found here where the table has no such slot.
//!
//! Invariants: `event-stays`: a native event is destroyed only with the table, so that a stale handle asks at worst a
//! wrong question; `odd-live`: a slot's generation is odd while a handle of it lives; `last-forgets`: a handle lives
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

/// A native event and who has it.
#[derive(Debug, Default)]
struct Slot {
    generation: AtomicU32,
    /// Who is still to forget the event.
    holders: AtomicU32,
    /// The generation of the event, once that is known to have completed. What its work wrote is seen then.
    over: AtomicU32,
    /// 0 until one is made.
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

    /// Records an event after a stream's present work. The stream is held by the caller.
    pub(super) fn record(&self, stream: Stream) -> Result<RawEvent> {
        // SAFETY: an event of ours (event-stays) and a stream that is held open.
        self.record_by(|entered, native| unsafe { (entered.table.record_event)(native, stream) })
    }

    /// Records an event after all work that the context has at present.
    pub(super) fn record_all(&self, table: &AllTable) -> Result<RawEvent> {
        // SAFETY: our context, and an event of it (event-stays).
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
        // Reset, so that no old handle is taken for a completed event once generations begin again.
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

    /// One more holds the event, which is held already (last-forgets). Not one that passes between processes.
    pub(super) fn share(&self, event: RawEvent) -> bool {
        let slot = self.live(event);
        slot.inspect(|slot| _ = slot.holders.fetch_add(1, Ordering::Relaxed)).is_some()
    }

    /// The stream, held by the caller in its context, waits for an event.
    pub(super) fn wait(&self, entered: &Entered<'_>, stream: Stream, event: RawEvent) -> Result<()> {
        const CALL: &str = "wait";
        let native = self.native(event)?;
        // SAFETY: an event of ours (event-stays) and a stream that is held open.
        entered.check(CALL, unsafe { (entered.table.wait_event)(stream, native, 0) })
    }

    /// The native event, as long as the handle is not forgotten.
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
        // SAFETY: an event of ours (event-stays).
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

    /// Whether a caller knows it.
    #[inline]
    pub(super) fn is_known_over(&self, event: RawEvent) -> bool {
        self.live(event).is_some_and(|slot| slot.over.load(Ordering::Acquire) == unpack(event).1)
    }

    pub(super) fn block_on(&self, event: RawEvent) -> Result<()> {
        const CALL: &str = "block_on";
        let (native, entered) = (self.find(CALL, event)?, self.gpu.enter_apart(CALL)?);
        // SAFETY: an event of ours (event-stays).
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

    /// The slot of an event that is not forgotten.
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
                // SAFETY: an event of ours, for the last time (event-stays). A refusal leaves it to the context.
                let _ = unsafe { (entered.table.close_event)(native) };
            }
        }
    }
}

fn unpack(event: RawEvent) -> (u32, u32) {
    (event.0 as u32, (event.0 >> 32) as u32)
}
