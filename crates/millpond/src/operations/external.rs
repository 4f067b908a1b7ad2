//! Records of external events, and waits for them: at once, or as nodes of a capture.

use std::panic::Location;

use millpond_core::check::Place;
use millpond_driver::process;

use crate::names::error::Result;
use crate::state::stream::Mode;
use crate::stream::external::{EventNode, ExternalEvent, traced_in_order};
use crate::stream::handle::Stream;

impl Stream {
    /// Records an external event. From now on it stands for everything submitted to the stream so far. In a capture
    /// this adds an event record node, which every launch of the graph runs (CUDA: `cudaEventRecordWithFlags`,
    /// `cudaEventRecordExternal`).
    ///
    /// # Errors
    /// Returns an error if the event is of another device or the driver refuses.
    #[track_caller]
    pub fn record_external(&self, event: &ExternalEvent) -> Result<()> {
        let place = Place::Source(Location::caller());
        let shared = &self.shared;
        event.check_stream(shared)?;
        let mut state = shared.state.lock();
        let mode = shared.enter(&mut state);
        match mode {
            Err(error) => {
                drop(state);
                shared.note_refused(&error, |tracer| {
                    event.traced().into_iter().for_each(|event| tracer.record(shared.id, event, place));
                });
                Err(error)
            }
            Ok(Mode::Capturing) => state.counted(shared.capture_event(EventNode::Record, event, place)),
            Ok(Mode::Live) => {
                let record = shared.record_op(&mut state, None)?;
                let _order = traced_in_order(&shared.context);
                event.set(record);
                if let (Some(tracer), Some(event)) = (&shared.context.tracer, event.traced()) {
                    tracer.record(shared.id, event, place);
                }
                Ok(())
            }
        }
    }

    /// Makes all later work of this stream come after the last record of an external event. If the event was never
    /// recorded, this has no effect. In a capture this adds an event wait node, which waits for the record that the
    /// event holds when the graph is launched (CUDA: `cudaStreamWaitEvent`, `cudaEventWaitExternal`). Outside captures
    /// the event may be of another device of the same kind.
    ///
    /// # Errors
    /// Returns an error if the event is of another device and cannot be waited for, or the driver refuses.
    #[track_caller]
    pub fn wait_external(&self, event: &ExternalEvent) -> Result<()> {
        process::refuse_forked()?;
        let place = Place::Source(Location::caller());
        let shared = &self.shared;
        let mut state = shared.state.lock();
        let was_recorded = event.record().is_some();
        // Without a record the stream comes after nothing, and learns nothing.
        let mode = if was_recorded { shared.enter(&mut state) } else { shared.enter_to_begin(&mut state) };
        match mode {
            Err(error) => {
                drop(state);
                shared.note_refused(&error, |tracer| {
                    event.traced().into_iter().for_each(|event| tracer.wait(shared.id, event, place));
                });
                Err(error)
            }
            Ok(Mode::Capturing) => {
                event.check_stream(shared)?;
                state.counted(shared.capture_event(EventNode::Wait, event, place))
            }
            Ok(Mode::Live) => {
                let order = was_recorded.then(|| traced_in_order(&shared.context));
                if let Some((snapshot, device_event)) = event.record().filter(|_| was_recorded) {
                    let owner = event.owner();
                    match owner.number == shared.context.number {
                        true => shared.wait_for(&mut state, &snapshot, device_event.raw)?,
                        false => shared.wait_foreign(&mut state, &snapshot, &device_event, owner)?,
                    }
                    state.chain.submit();
                    if let (Some(tracer), Some(event)) = (&shared.context.tracer, event.traced()) {
                        tracer.wait(shared.id, event, place);
                    }
                    drop(order);
                    shared.leave(&mut state);
                }
                Ok(())
            }
        }
    }
}
