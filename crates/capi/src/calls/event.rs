//! Events: created, recorded, waited for by the host.

use crate::status::{Failure, Result, answer, guard, millpond_status};
use crate::tables::event::{EVENTS, EventEntry, millpond_event_t, record};
use crate::tables::stream::{STREAMS, millpond_stream_t};

/// For millpond_event_record_with_flags: as millpond_event_record.
pub const MILLPOND_EVENT_RECORD_DEFAULT: u32 = 0;
/// For millpond_event_record_with_flags: in a capture it is an event record node, not an edge (CUDA:
/// cudaEventRecordExternal).
pub const MILLPOND_EVENT_RECORD_EXTERNAL: u32 = 1;
/// For millpond_stream_wait_event_with_flags: as millpond_stream_wait_event.
pub const MILLPOND_EVENT_WAIT_DEFAULT: u32 = 0;
/// For millpond_stream_wait_event_with_flags: in a capture it is an event wait node (CUDA: cudaEventWaitExternal).
pub const MILLPOND_EVENT_WAIT_EXTERNAL: u32 = 1;

/// Creates an event without a record (CUDA: cudaEventCreateWithFlags, cudaEventDisableTiming).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_event_create(event: *mut millpond_event_t) -> millpond_status {
    guard("millpond_event_create", || answer(event, "event", || EVENTS.insert(EventEntry::default())))
}

/// Destroys an event (CUDA: cudaEventDestroy). Work that waits for it still does.
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

/// As millpond_event_record. With MILLPOND_EVENT_RECORD_EXTERNAL it is a node in a capture, which records the event at
/// each launch (CUDA: cudaEventRecordWithFlags). Outside captures the flag has no effect.
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

/// Returns `true` if the external flag is set.
pub(crate) fn is_external(flags: u32, [default, external]: [u32; 2]) -> Result<bool> {
    match flags {
        flags if flags == default => Ok(false),
        flags if flags == external => Ok(true),
        other => Err(Failure::Value(format!("{other:#x} has flags that mean nothing here"))),
    }
}

/// Waits until the recorded work has completed (CUDA: cudaEventSynchronize).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_event_synchronize(event: millpond_event_t) -> millpond_status {
    guard("millpond_event_synchronize", || match EVENTS.find(event)?.last() {
        Some(event) => Ok(event.synchronize()?),
        None => Ok(()),
    })
}

/// Returns MILLPOND_SUCCESS if the recorded work has completed, and else MILLPOND_NOT_READY (CUDA: cudaEventQuery).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millpond_event_query(event: millpond_event_t) -> millpond_status {
    guard("millpond_event_query", || match EVENTS.find(event)?.last() {
        Some(event) if !event.is_over()? => Err(Failure::NotReady),
        _ => Ok(()),
    })
}
