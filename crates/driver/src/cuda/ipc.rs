//! Interprocess events: events that are shared between processes, each recorded once.
//!
//! A process that opened an event sees each later record by its maker, and must not use it after its maker has
//! destroyed it. So an event is made for one record, is never recorded again, and is destroyed when its handle is
//! forgotten. The caller forgets it after all processes that opened it have closed it. Events that were exported and
//! not forgotten stay, and so does the context.
//!
//! Knows nothing of other events, except that their numbers are below [`APART`].
//!
//! Invariants: `ours-to-destroy`: an event in the list was created or opened here, and is destroyed when it leaves the
//! list.

use std::collections::HashMap;
use std::sync::Arc;

use super::abi::{EVENT_DISABLE_TIMING, EVENT_INTERPROCESS, Event, EventName, Stream, attribute};
use super::gpu::Gpu;
use super::survey;
use super::table::EventTable;
use crate::errors::{failed, unknown};
use crate::locks::{Guard, Leaf, Mutex, lock};
use crate::{EventHandle, RawEvent, Result};

/// The lower half of these handles: no slot of other events has this number.
const APART: u64 = 1 << 31;

/// An interprocess event.
#[derive(Clone, Copy, Debug)]
struct Passing {
    native: Event,
    /// `true` if another process created it.
    is_opened: bool,
}

/// The interprocess events of one device.
#[derive(Debug)]
pub(super) struct InterprocessEvents {
    gpu: Arc<Gpu>,
    /// The functions, if the device supports interprocess events.
    table: Option<EventTable>,
    passing: Mutex<Leaf, Numbered>,
}

#[derive(Debug, Default)]
struct Numbered {
    events: HashMap<u32, Passing>,
    next: u32,
}

impl InterprocessEvents {
    pub(super) fn new(gpu: Arc<Gpu>) -> Self {
        // A driver that does not know the attribute may still have the functions.
        let may = survey::attribute(&gpu.api, gpu.device, attribute::IPC_EVENTS) != Ok(0);
        let table = gpu.api.events.filter(|_| may);
        Self { gpu, table, passing: Mutex::default() }
    }

    fn table(&self, call: &'static str) -> Result<EventTable> {
        self.table.ok_or_else(|| failed(call, "this device has no events for other processes"))
    }

    /// Records an event for other processes after a stream's present work. The caller holds the stream.
    pub(super) fn export(&self, stream: Stream) -> Result<(RawEvent, EventHandle)> {
        const CALL: &str = "export_event";
        let functions = self.table(CALL)?;
        let (entered, mut name) = (self.gpu.enter(CALL)?, EventName([0; 64]));
        let native = entered.open_event(CALL, EVENT_DISABLE_TIMING | EVENT_INTERPROCESS)?;
        // SAFETY: the event was just created, and the stream is held open.
        let recorded = self.gpu.check(CALL, unsafe { (entered.table.record_event)(native, stream) });
        // SAFETY: the pointer is valid for a name, and the event is the same.
        let named = recorded.and_then(|()| self.gpu.check(CALL, unsafe { (functions.name)(&raw mut name, native) }));
        if let Err(error) = named {
            // SAFETY: it is used by no other code. If this fails, the context keeps it.
            let _ = unsafe { (entered.table.close_event)(native) };
            return Err(error);
        }
        Ok((self.add(Passing { native, is_opened: false }), name.0))
    }

    /// Opens an event of another process.
    pub(super) fn import(&self, name: &EventHandle) -> Result<RawEvent> {
        const CALL: &str = "import_event";
        let (functions, mut native) = (self.table(CALL)?, Event::default());
        let _entered = self.gpu.enter(CALL)?;
        // SAFETY: the pointer is valid for an event; the library checks the name (context-current).
        self.gpu.check(CALL, unsafe { (functions.open)(&raw mut native, EventName(*name)) })?;
        Ok(self.add(Passing { native, is_opened: true }))
    }

    /// Returns the native event of a handle that is not forgotten.
    #[cold]
    pub(super) fn find(&self, call: &'static str, event: RawEvent) -> Result<Event> {
        let passing = self.lock().events.get(&number(call, event)?).copied();
        passing.map(|passing| passing.native).ok_or_else(|| unknown(call, "event", event.0))
    }

    #[cold]
    pub(super) fn forget(&self, event: RawEvent) {
        let Ok(number) = number("forget", event) else { return };
        let Some(passing) = self.lock().events.remove(&number) else { return };
        self.destroy(passing);
    }

    fn destroy(&self, passing: Passing) {
        if let Ok(entered) = self.gpu.enter("forget") {
            // SAFETY: destroyed once (ours-to-destroy); no other process has it open, by the contract. If this fails,
            // the context keeps it.
            let _ = unsafe { (entered.table.close_event)(passing.native) };
        }
    }

    fn add(&self, passing: Passing) -> RawEvent {
        let mut numbered = self.lock();
        let mut number = numbered.next;
        while numbered.events.contains_key(&number) {
            number = number.wrapping_add(1);
        }
        numbered.next = number.wrapping_add(1);
        numbered.events.insert(number, passing);
        RawEvent(u64::from(number) << 32 | APART)
    }

    fn lock(&self) -> Guard<'_, Numbered> {
        lock(&self.passing)
    }
}

impl Drop for InterprocessEvents {
    fn drop(&mut self) {
        let events = std::mem::take(&mut self.lock().events);
        let (opened, given): (Vec<_>, Vec<_>) = events.into_values().partition(|passing| passing.is_opened);
        opened.into_iter().for_each(|passing| self.destroy(passing));
        if !given.is_empty() {
            // Other processes may have them open, so the context stays until the process ends.
            std::mem::forget(self.gpu.clone());
        }
    }
}

/// Returns the number of an event, if it is an interprocess event.
fn number(call: &'static str, event: RawEvent) -> Result<u32> {
    if event.0 & u64::from(u32::MAX) == APART {
        Ok((event.0 >> 32) as u32)
    } else {
        Err(unknown(call, "event", event.0))
    }
}
