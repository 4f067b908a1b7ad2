//! Events by handle: as in CUDA an event is a place that a position is recorded in, again and again.
//!
//! What a stream records is an `Event`. Once a node of a graph names the event it is an `ExternalEvent` as well, which
//! then holds all records but those of captures.

use millpond::graph::ExternalEvent;
use millpond::{Device, Event, Stream};

use super::handle::Table;
use crate::status::Result;

/// Opaque handle.
pub enum millpond_event {}
/// An event (CUDA: cudaEvent_t).
pub type millpond_event_t = *mut millpond_event;

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
    pub(crate) fn last(&self) -> Option<Event> {
        self.recorded.clone().or_else(|| self.external.as_ref()?.last())
    }
}

/// Does something with the event as nodes of graphs know it. It is of one device from then on; where that is refused,
/// nothing has happened to it.
pub(crate) fn with_external<R>(
    event: millpond_event_t,
    device: &Device,
    act: impl FnOnce(&ExternalEvent) -> Result<R>,
) -> Result<R> {
    // What it stood for, and what was made in vain, is dropped behind the event's lock.
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

/// Records on a stream. In a capture it is an edge, or else a node.
pub(crate) fn record(event: millpond_event_t, stream: &Stream, device: &Device, is_node: bool) -> Result<()> {
    if is_node && stream.is_capturing()? {
        return with_external(event, device, |place| Ok(stream.record_external(place)?));
    }
    // The former record is dropped behind the event's lock.
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

/// Makes a stream wait. In a capture it is an edge, or else a node.
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
