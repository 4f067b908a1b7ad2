//! The operations by which a program orders streams and asks for their progress: records, waits, synchronisations.

use std::panic::Location;

use millpond_core::check::Place;
use millpond_core::order::Snapshot;

use crate::names::error::{Invalid, Result};
use crate::names::role::Ask;
use crate::state::stream::{Mode, StreamShared};
use crate::stream::event::{At, Event};
use crate::stream::handle::Stream;
use crate::trace::away;

impl StreamShared {
    /// Traces a wait for an event of another device, which may be in another trace, or in none.
    #[cold]
    fn trace_wait_foreign(&self, event: &Event, snapshot: &Snapshot, caller: &'static Location<'static>) {
        let (tracer, place) = (self.context.tracer.as_ref(), Place::Source(caller));
        match (tracer, &event.traced) {
            (Some(tracer), Some(event)) if event.is_of(tracer) => return tracer.wait(self.id, event, place),
            (_, Some(event)) => away::leave(snapshot.point(), event),
            _ => {}
        }
        if let Some(tracer) = tracer {
            away::wait(tracer, |point| snapshot.covers(point), |event| tracer.wait(self.id, event, place));
        }
    }
}

impl Stream {
    /// Records an event. It stands for everything submitted to the stream so far (CUDA: `cudaEventRecord`).
    ///
    /// # Errors
    /// Returns an error if the device is lost or the driver refuses.
    #[track_caller]
    pub fn record(&self) -> Result<Event> {
        let (shared, caller) = (&self.shared, Location::caller());
        let mut state = shared.state.lock();
        let recorded = loop {
            break match shared.enter(&mut state) {
                Ok(Mode::Live) => return shared.record_event(&mut state, caller),
                Ok(Mode::Capturing) => match shared.capture_record(&mut state, caller) {
                    // Another thread ended the capture at this moment.
                    Err(_) if state.capture.as_ref().is_some_and(|capture| !capture.is_open()) => continue,
                    recorded => recorded,
                },
                Err(error) => Err(error),
            };
        };
        drop(state);
        recorded.inspect_err(|error| {
            let place = Place::Source(caller);
            shared.note_refused(error, |tracer| tracer.record(shared.id, &tracer.event(), place));
        })
    }

    /// As [`record`](Self::record), with the time at which the stream reaches the event, for [`Event::elapsed_since`]
    /// (CUDA: `cudaEventRecord` of an event made without `cudaEventDisableTiming`). It costs more than an event without
    /// a time.
    ///
    /// # Errors
    /// As for [`record`](Self::record), and [`Invalid::Uncapturable`] in a capture, which goes on.
    #[track_caller]
    pub fn record_timed(&self) -> Result<Event> {
        let (shared, caller) = (&self.shared, Location::caller());
        let mut state = shared.state.lock();
        match shared.enter(&mut state)? {
            Mode::Live => shared.record_timed_event(&mut state, caller),
            Mode::Capturing => Err(Invalid::Uncapturable { call: "record_timed" }.into()),
        }
    }

    /// Makes all later work of this stream come after the event (CUDA: `cudaStreamWaitEvent`). It costs nothing if that
    /// order is known already. The event may be of another device of the same kind.
    ///
    /// # Errors
    /// Returns [`Invalid::NotPeers`] if the event's device is of another kind, and an error if the driver refuses. A
    /// stream that captures takes only events of its own device.
    #[track_caller]
    pub fn wait(&self, event: &Event) -> Result<()> {
        let (shared, caller) = (&self.shared, Location::caller());
        let is_foreign = event.device() != shared.context.number;
        let mut state = shared.state.lock();
        let waited = match (shared.enter(&mut state), &event.at) {
            (Ok(Mode::Live), At::Live { snapshot, device_event, context }) => {
                match is_foreign {
                    true => shared.wait_foreign(&mut state, snapshot, device_event, context)?,
                    false => shared.wait_for(&mut state, snapshot, device_event.raw)?,
                }
                state.chain.submit();
                match is_foreign {
                    true => shared.trace_wait_foreign(event, snapshot, caller),
                    false => {
                        if let (Some(tracer), Some(event)) = (&shared.context.tracer, &event.traced) {
                            tracer.wait(shared.id, event, Place::Source(caller));
                        }
                    }
                }
                shared.leave(&mut state);
                return Ok(());
            }
            (Ok(_), _) if is_foreign => {
                let (what, with) = ("an event".into(), shared.title());
                Err(Invalid::OtherDevice { what, with }.into())
            }
            (Ok(_), _) => shared.capture_wait(&mut state, event, caller),
            (Err(error), _) => Err(error),
        };
        drop(state);
        waited.inspect_err(|error| {
            if let Some(event) = &event.traced {
                shared.note_refused(error, |tracer| tracer.wait(shared.id, event, Place::Source(caller)));
            }
        })
    }

    /// Waits until all work submitted to the stream so far has completed (CUDA: `cudaStreamSynchronize`). Pools may
    /// then give idle memory back: see [`Pool::set_release_threshold`](crate::Pool::set_release_threshold).
    ///
    /// # Errors
    /// Returns an error if the device is lost.
    #[track_caller]
    pub fn synchronize(&self) -> Result<()> {
        let caller = Location::caller();
        self.shared.record_to_ask(Ask::Synchronize, caller)?.wait(caller)
    }

    /// Returns `true` if all work submitted so far has completed (CUDA: `cudaStreamQuery`). Then everything that the
    /// host submits from now on comes after that work.
    ///
    /// # Errors
    /// Returns an error if the device is lost. The device is not asked again about work that is known to have
    /// completed.
    #[track_caller]
    pub fn is_idle(&self) -> Result<bool> {
        let caller = Location::caller();
        self.shared.record_to_ask(Ask::Query, caller)?.poll(caller)
    }
}
