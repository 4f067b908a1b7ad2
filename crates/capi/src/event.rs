//! Events: as in CUDA an event is a place that a position is recorded in, again and again.

use millpond::Event;

use crate::handle::Table;
use crate::status::{Failure, guard, millpond_status, place};
use crate::stream::{STREAMS, millpond_stream_t};

/// Not a type to look into: an event's handle points to it in name only.
pub enum millpond_event {}
/// An event (CUDA: cudaEvent_t).
pub type millpond_event_t = *mut millpond_event;

/// What was recorded last, if anything was.
pub(crate) static EVENTS: Table<Option<Event>> = Table::new("event", 4);

/// Makes an event that nothing is recorded in yet (CUDA: cudaEventCreateWithFlags, cudaEventDisableTiming).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_event_create(event: *mut millpond_event_t) -> millpond_status {
    guard("millpond_event_create", || {
        *place(event, "event")? = EVENTS.insert(None)?;
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
        EVENTS.find(event)?;
        let recorded = STREAMS.find(stream)?.stream.record()?;
        let before = EVENTS.with(event, |entry| Ok(entry.replace(recorded)))?;
        drop(before);
        Ok(())
    })
}

/// Waits until what was recorded is over (CUDA: cudaEventSynchronize).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_event_synchronize(event: millpond_event_t) -> millpond_status {
    guard("millpond_event_synchronize", || match EVENTS.find(event)? {
        Some(event) => Ok(event.synchronize()?),
        None => Ok(()),
    })
}

/// Whether what was recorded is over: MILLPOND_SUCCESS or MILLPOND_NOT_READY (CUDA: cudaEventQuery).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_event_query(event: millpond_event_t) -> millpond_status {
    guard("millpond_event_query", || match EVENTS.find(event)? {
        Some(event) if !event.is_over()? => Err(Failure::NotReady),
        _ => Ok(()),
    })
}
