//! Events by handle: as in CUDA an event is a place that a position is recorded in, again and again.
//!
//! What a stream records is an `Event`. Once a node of a graph names the event it is an `ExternalEvent` as well, which
//! then holds all records but those of captures.

use millpond::graph::ExternalEvent;
use millpond::{Device, Event, Stream};

use super::handle::Table;
use crate::status::Result;

/// Not a type to look into: an event's handle points to it in name only.
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
pub(crate) fn record(event: millpond_event_t, stream: &Stream, device: &Device, is_node: bool) -> Result<()> {
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
