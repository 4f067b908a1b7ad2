//! Events by handle. As in CUDA, an event can be recorded again and again.
//!
//! A record on a stream is an `Event`. Once a node of a graph uses the event, there is an `ExternalEvent` as well,
//! which then holds all records but those of captures.

use millpond::graph::ExternalEvent;
use millpond::{Device, Event, Stream};

use super::handle::Table;
use crate::status::Result;

/// Opaque handle.
pub enum millpond_event {}
/// An event (CUDA: cudaEvent_t).
pub type millpond_event_t = *mut millpond_event;

/// The state of an event.
#[derive(Clone, Default)]
pub(crate) struct EventEntry {
    /// The last record on a stream, unless `external` has it.
    recorded: Option<Event>,
    /// The event for nodes of graphs, once one uses it.
    external: Option<ExternalEvent>,
}

pub(crate) static EVENTS: Table<EventEntry> = Table::new("event", 4);

impl EventEntry {
    /// Returns the last record; `None` before the first.
    pub(crate) fn last(&self) -> Option<Event> {
        self.recorded.clone().or_else(|| self.external.as_ref()?.last())
    }
}

/// Calls `act` with the event for nodes of graphs. From then on the event belongs to one device. If `act` is refused,
/// the event does not change.
pub(crate) fn with_external<R>(
    event: millpond_event_t,
    device: &Device,
    act: impl FnOnce(&ExternalEvent) -> Result<R>,
) -> Result<R> {
    // The former record, and an event that was made and not used, are dropped after the event's lock is released.
    let (mut made, mut _former) = (device.external_event(), None);
    EVENTS.with(event, |entry| {
        if let Some(known) = &entry.external {
            return act(known);
        }
        let held = entry.recorded.as_ref().and_then(Event::to_external);
        let is_held = held.is_some();
        made = held.unwrap_or_else(|| made.clone());
        let done = act(&made)?;
        entry.external = Some(made.clone());
        if is_held {
            _former = entry.recorded.take();
        }
        Ok(done)
    })
}

/// Records an event on a stream. In a capture this is an edge; with `is_node`, a node.
pub(crate) fn record(event: millpond_event_t, stream: &Stream, device: &Device, is_node: bool) -> Result<()> {
    if is_node && stream.is_capturing()? {
        return with_external(event, device, |place| Ok(stream.record_external(place)?));
    }
    // The former record is dropped after the event's lock is released.
    let mut _former = None;
    EVENTS.with(event, |entry| {
        let recorded = match &entry.external {
            Some(place) if !stream.is_capturing()? => {
                stream.record_external(place)?;
                None
            }
            _ => Some(stream.record()?),
        };
        _former = std::mem::replace(&mut entry.recorded, recorded);
        Ok(())
    })
}

/// Makes a stream wait for an event. In a capture this is an edge; with `is_node`, a node.
pub(crate) fn wait(event: millpond_event_t, stream: &Stream, device: &Device, is_node: bool) -> Result<()> {
    let is_capturing = stream.is_capturing()?;
    if is_node && is_capturing {
        return with_external(event, device, |place| Ok(stream.wait_external(place)?));
    }
    let entry = EVENTS.find(event)?;
    match (&entry.recorded, &entry.external) {
        (None, Some(place)) if !is_capturing => Ok(stream.wait_external(place)?),
        _ => entry.last().map_or(Ok(()), |last| Ok(stream.wait(&last)?)),
    }
}
