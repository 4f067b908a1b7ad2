//! Marks: events without timing, recorded once each and used again.
//!
//! Knows events and the handles of marks. An event costs a microsecond to make and a tenth to record, so forgotten ones
//! are kept. What waits for a recorded event waits for that record, also where the event is recorded again meanwhile.
//!
//! Marks that pass between processes are kept apart, in `ipc`, and found here where the table has no such slot.
//!
//! Invariants: `event-stays`: an event is destroyed only with the table, so that a stale mark asks at worst a wrong
//! question; `odd-live`: a slot's generation is odd while a mark of it lives; `last-forgets`: a mark lives until each
//! of its holders has forgotten it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::PLACES_MAX;
use super::abi::{Code, EVENT_DISABLE_TIMING, Event, Stream};
use super::gpu::{Entered, Gpu};
use super::ipc::InterprocessEvents;
use super::table::AllTable;
use crate::errors::failed;
use crate::places::Places;
use crate::{RawMark, Result};

/// An event and who has it.
#[derive(Debug, Default)]
struct Slot {
    generation: AtomicU32,
    /// Who is still to forget the mark.
    holders: AtomicU32,
    /// The generation of the mark, once that is known to have completed. What its work wrote is seen then.
    over: AtomicU32,
    /// 0 until one is made.
    event: AtomicUsize,
}

/// The marks of one device.
#[derive(Debug)]
pub(super) struct Marks {
    gpu: Arc<Gpu>,
    slots: Places<Slot>,
    pub(super) ipc: InterprocessEvents,
}

impl Marks {
    pub(super) fn new(gpu: Arc<Gpu>) -> Self {
        Self { ipc: InterprocessEvents::new(gpu.clone()), gpu, slots: Places::new(PLACES_MAX) }
    }

    /// Marks the end of a stream's present work. The stream is held by the caller.
    pub(super) fn record(&self, stream: Stream) -> Result<RawMark> {
        // SAFETY: an event of ours (event-stays) and a stream that is held open.
        self.record_by(|entered, event| unsafe { (entered.table.record_event)(event, stream) })
    }

    /// Marks the end of all work that the context has at present.
    pub(super) fn record_all(&self, table: &AllTable) -> Result<RawMark> {
        // SAFETY: our context, and an event of it (event-stays).
        self.record_by(|_, event| unsafe { (table.record)(self.gpu.context(), event) })
    }

    fn record_by(&self, record: impl FnOnce(&Entered<'_>, Event) -> Code) -> Result<RawMark> {
        const CALL: &str = "mark";
        let (number, slot) = self.slots.take(Slot::default).ok_or_else(|| failed(CALL, "too many marks are kept"))?;
        if let Err(error) = self.record_in(slot, record) {
            self.slots.give_back(number);
            return Err(error);
        }
        slot.holders.store(1, Ordering::Relaxed);
        // Reset, so that no old mark is taken for completed once generations begin again.
        slot.over.store(0, Ordering::Relaxed);
        let generation = slot.generation.load(Ordering::Relaxed).wrapping_add(1);
        slot.generation.store(generation, Ordering::Release);
        Ok(RawMark(u64::from(generation) << 32 | u64::from(number)))
    }

    fn record_in(&self, slot: &Slot, record: impl FnOnce(&Entered<'_>, Event) -> Code) -> Result<()> {
        const CALL: &str = "mark";
        let entered = self.gpu.enter(CALL)?;
        let mut event = Event(slot.event.load(Ordering::Relaxed));
        if event == Event::default() {
            event = entered.open_event(CALL, EVENT_DISABLE_TIMING)?;
            slot.event.store(event.0, Ordering::Release);
        }
        self.gpu.check(CALL, record(&entered, event))
    }

    /// One more holds the mark, which is held already (last-forgets). Not one that passes between processes.
    pub(super) fn share(&self, mark: RawMark) -> bool {
        let slot = self.live(mark);
        slot.inspect(|slot| _ = slot.holders.fetch_add(1, Ordering::Relaxed)).is_some()
    }

    /// The stream, held by the caller in its context, waits for a mark.
    pub(super) fn wait(&self, entered: &Entered<'_>, stream: Stream, mark: RawMark) -> Result<()> {
        const CALL: &str = "wait";
        let event = self.event(mark)?;
        // SAFETY: an event of ours (event-stays) and a stream that is held open.
        entered.check(CALL, unsafe { (entered.table.wait_event)(stream, event, 0) })
    }

    /// The event of a mark, as long as that is not forgotten.
    pub(super) fn event(&self, mark: RawMark) -> Result<Event> {
        self.find("wait", mark)
    }

    #[inline]
    pub(super) fn is_over(&self, mark: RawMark) -> Result<bool> {
        const CALL: &str = "is_over";
        if self.is_known_over(mark) {
            return self.gpu.check_lost().map(|()| true);
        }
        let (event, entered) = (self.find(CALL, mark)?, self.gpu.enter_apart(CALL)?);
        // SAFETY: an event of ours (event-stays).
        match unsafe { (entered.table.query_event)(event) } {
            Code::SUCCESS => {
                let slot = self.live(mark);
                slot.into_iter().for_each(|slot| slot.over.store(unpack(mark).1, Ordering::Release));
                Ok(true)
            }
            Code::NOT_READY => Ok(false),
            code => Err(self.gpu.refusal(CALL, code)),
        }
    }

    /// Whether a caller knows it.
    #[inline]
    pub(super) fn is_known_over(&self, mark: RawMark) -> bool {
        self.live(mark).is_some_and(|slot| slot.over.load(Ordering::Acquire) == unpack(mark).1)
    }

    pub(super) fn block_on(&self, mark: RawMark) -> Result<()> {
        const CALL: &str = "block_on";
        let (event, entered) = (self.find(CALL, mark)?, self.gpu.enter_apart(CALL)?);
        // SAFETY: an event of ours (event-stays).
        self.gpu.check(CALL, unsafe { (entered.table.block_on_event)(event) })?;
        self.gpu.check_lost()
    }

    pub(super) fn forget(&self, mark: RawMark) {
        let (number, generation) = unpack(mark);
        let Some(slot) = self.live(mark) else { return self.ipc.forget(mark) };
        if slot.holders.fetch_sub(1, Ordering::AcqRel) == 1 {
            slot.generation.store(generation.wrapping_add(1), Ordering::Release);
            self.slots.give_back(number);
        }
    }

    #[inline]
    fn find(&self, call: &'static str, mark: RawMark) -> Result<Event> {
        match self.live(mark) {
            Some(slot) => Ok(Event(slot.event.load(Ordering::Acquire))),
            None => self.ipc.find(call, mark),
        }
    }

    /// The slot of a mark that is not forgotten.
    #[inline]
    fn live(&self, mark: RawMark) -> Option<&Slot> {
        let (number, generation) = unpack(mark);
        let slot = self.slots.find(number)?;
        (generation % 2 == 1 && slot.generation.load(Ordering::Acquire) == generation).then_some(slot)
    }
}

impl Drop for Marks {
    fn drop(&mut self) {
        let Ok(entered) = self.gpu.enter("forget") else { return };
        for slot in self.slots.iter() {
            let event = Event(slot.event.swap(0, Ordering::Relaxed));
            if event != Event::default() {
                // SAFETY: an event of ours, for the last time (event-stays). A refusal leaves it to the context.
                let _ = unsafe { (entered.table.close_event)(event) };
            }
        }
    }
}

fn unpack(mark: RawMark) -> (u32, u32) {
    (mark.0 as u32, (mark.0 >> 32) as u32)
}
