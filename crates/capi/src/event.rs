//! Events: as in CUDA an event is a place that a position is recorded in, again and again.
//!
//! What a stream records is an `Event`. Once a node of a graph names the event it is an `ExternalEvent` as well, which
//! then holds all records but those of captures.

use millpond::graph::ExternalEvent;
use millpond::{Device, Event, Stream};

use crate::handle::Table;
use crate::status::{Failure, Result, guard, millpond_status, place};
use crate::stream::{STREAMS, millpond_stream_t};

/// Not a type to look into: an event's handle points to it in name only.
pub enum millpond_event {}
/// An event (CUDA: cudaEvent_t).
pub type millpond_event_t = *mut millpond_event;

/// For millpond_event_record_with_flags: as millpond_event_record.
pub const MILLPOND_EVENT_RECORD_DEFAULT: u32 = 0;
/// For millpond_event_record_with_flags: in a capture it is an event record node, not an edge (CUDA:
/// cudaEventRecordExternal).
pub const MILLPOND_EVENT_RECORD_EXTERNAL: u32 = 1;
/// For millpond_stream_wait_event_with_flags: as millpond_stream_wait_event.
pub const MILLPOND_EVENT_WAIT_DEFAULT: u32 = 0;
/// For millpond_stream_wait_event_with_flags: in a capture it is an event wait node (CUDA: cudaEventWaitExternal).
pub const MILLPOND_EVENT_WAIT_EXTERNAL: u32 = 1;

/// What an event stands for.
#[derive(Clone, Default)]
pub(crate) struct EventEntry {
    /// What a stream recorded last, unless the place below has it.
    recorded: Option<Event>,
    /// What graphs know it by, once one does.
    external: Option<ExternalEvent>,
}

pub(crate) static EVENTS: Table<EventEntry> = Table::new("event", 4);

impl EventEntry {
    /// The record that it stands for; none before the first.
    fn last(&self) -> Option<Event> {
        self.recorded.clone().or_else(|| self.external.as_ref()?.last())
    }
}

/// The event as nodes of graphs know it; it is of one device from then on.
pub(crate) fn external(event: millpond_event_t, device: &Device) -> Result<ExternalEvent> {
    let made = device.external_event();
    // The former record is dropped behind the event's lock.
    let (known, _former) = EVENTS.with(event, |entry| {
        if let Some(known) = &entry.external {
            return Ok((known.clone(), None));
        }
        let held = entry.recorded.as_ref().and_then(Event::to_external);
        let former = if held.is_some() { entry.recorded.take() } else { None };
        Ok((entry.external.insert(held.unwrap_or(made)).clone(), former))
    })?;
    Ok(known)
}

/// Records on a stream. In a capture it is an edge, or else a node.
fn record(event: millpond_event_t, stream: &Stream, device: &Device, is_node: bool) -> Result<()> {
    let known = EVENTS.find(event)?.external;
    let place = match known {
        _ if is_node => Some(external(event, device)?),
        Some(known) if !stream.is_capturing()? => Some(known),
        _ => None,
    };
    let recorded = match place {
        Some(place) => {
            stream.record_external(&place)?;
            None
        }
        None => Some(stream.record()?),
    };
    // The former record is dropped behind the event's lock.
    let former = EVENTS.with(event, |entry| Ok(std::mem::replace(&mut entry.recorded, recorded)))?;
    drop(former);
    Ok(())
}

/// Makes a stream wait. In a capture it is an edge, or else a node.
pub(crate) fn wait(event: millpond_event_t, stream: &Stream, device: &Device, is_node: bool) -> Result<()> {
    let entry = EVENTS.find(event)?;
    match (&entry.recorded, &entry.external) {
        _ if is_node => Ok(stream.wait_external(&external(event, device)?)?),
        (None, Some(place)) if !stream.is_capturing()? => Ok(stream.wait_external(place)?),
        _ => entry.last().map_or(Ok(()), |last| Ok(stream.wait(&last)?)),
    }
}

/// Makes an event that nothing is recorded in yet (CUDA: cudaEventCreateWithFlags, cudaEventDisableTiming).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_event_create(event: *mut millpond_event_t) -> millpond_status {
    guard("millpond_event_create", || {
        *place(event, "event")? = EVENTS.insert(EventEntry::default())?;
        Ok(())
    })
}

/// Destroys an event (CUDA: cudaEventDestroy). What waits for it still does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_event_destroy(event: millpond_event_t) -> millpond_status {
    guard("millpond_event_destroy", || EVENTS.remove(event).map(drop))
}

/// Records all work submitted to the stream so far (CUDA: cudaEventRecord).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_event_record(event: millpond_event_t, stream: millpond_stream_t) -> millpond_status {
    guard("millpond_event_record", || {
        let entry = STREAMS.find(stream)?;
        record(event, &entry.stream, &entry.device.device, false)
    })
}

/// As millpond_event_record; with MILLPOND_EVENT_RECORD_EXTERNAL it is a node in a capture, which records at each
/// launch (CUDA: cudaEventRecordWithFlags).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_event_record_with_flags(
    event: millpond_event_t,
    stream: millpond_stream_t,
    flags: u32,
) -> millpond_status {
    guard("millpond_event_record_with_flags", || {
        let is_node = is_external(flags, [MILLPOND_EVENT_RECORD_DEFAULT, MILLPOND_EVENT_RECORD_EXTERNAL])?;
        let entry = STREAMS.find(stream)?;
        record(event, &entry.stream, &entry.device.device, is_node)
    })
}

/// Whether the one flag is set that there is.
pub(crate) fn is_external(flags: u32, [default, external]: [u32; 2]) -> Result<bool> {
    match flags {
        flags if flags == default => Ok(false),
        flags if flags == external => Ok(true),
        other => Err(Failure::Value(format!("{other:#x} has flags that mean nothing here"))),
    }
}

/// Waits until what was recorded has completed (CUDA: cudaEventSynchronize).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_event_synchronize(event: millpond_event_t) -> millpond_status {
    guard("millpond_event_synchronize", || match EVENTS.find(event)?.last() {
        Some(event) => Ok(event.synchronize()?),
        None => Ok(()),
    })
}

/// Whether what was recorded has completed: MILLPOND_SUCCESS or MILLPOND_NOT_READY (CUDA: cudaEventQuery).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_event_query(event: millpond_event_t) -> millpond_status {
    guard("millpond_event_query", || match EVENTS.find(event)?.last() {
        Some(event) if !event.is_over()? => Err(Failure::NotReady),
        _ => Ok(()),
    })
}
