//! Records of the end of a stream: a snapshot for the order, an event of the driver for the device.
//!
//! Depends on streams and events, not on memory.

use std::panic::Location;
use std::sync::Arc;

use millpond_core::op::Place;
use millpond_core::order::Snapshot;
use millpond_driver::{Driver, RawTime};

use crate::clock::device_event::DeviceEvent;
use crate::names::error::Result;
use crate::names::role::Ask;
use crate::state::stream::Mode;
use crate::state::stream::{State, StreamShared};
use crate::stream::event::{Event, Record};
use crate::trace::tracer::{TracedEvent, Tracer};

impl StreamShared {
    /// Records the present end of the stream, for the order and for the device.
    #[inline(always)] // The result is made in its caller's place, not copied there.
    pub(crate) fn record(&self, state: &mut State) -> Result<Record> {
        let raw = self.context.driver.record(self.raw)?;
        let snapshot = self.end(state);
        self.leave(state);
        Ok((snapshot, Arc::new(DeviceEvent::new(raw, &self.context.driver))))
    }

    /// As [`record`](Self::record), as an operation of the program. `time` is its time, if that was recorded.
    #[inline(always)] // As above.
    pub(crate) fn record_op(&self, state: &mut State, time: Option<RawTime>) -> Result<Record> {
        let raw = self.context.driver.record(self.raw)?;
        state.chain.submit();
        let snapshot = state.chain.snapshot();
        self.leave(state);
        Ok((snapshot, Arc::new(DeviceEvent::with_time(raw, time, &self.context.driver))))
    }

    /// Records an event for the program, and traces it.
    pub(crate) fn record_event(&self, state: &mut State, caller: &'static Location<'static>) -> Result<Event> {
        let record = self.record_op(state, None)?;
        Ok(self.traced(record, |tracer, event| tracer.record(self.id, event, Place::Source(caller))))
    }

    /// As [`record_event`](Self::record_event), with the time at which the stream reaches the event.
    pub(crate) fn record_timed_event(&self, state: &mut State, caller: &'static Location<'static>) -> Result<Event> {
        let driver = &self.context.driver;
        let time = driver.record_time(self.raw)?;
        let record = self.record_op(state, Some(time)).inspect_err(|_| driver.forget_time(time))?;
        Ok(self.traced(record, |tracer, event| tracer.record(self.id, event, Place::Source(caller))))
    }

    #[inline]
    fn traced(&self, record: Record, trace: impl FnOnce(&Tracer, &TracedEvent)) -> Event {
        let traced = self.context.tracer.as_ref().map(Tracer::event);
        if let (Some(tracer), Some(event)) = (&self.context.tracer, &traced) {
            trace(tracer, event);
        }
        Event::at(record, traced, &self.context)
    }

    /// As [`enter`](Self::enter), for a call that waits for the stream or asks how far it is: a capture of the stream
    /// and captures that forbid unsafe calls refuse it.
    pub(crate) fn enter_to_ask(&self, state: &mut State, call: &'static str) -> Result<()> {
        loop {
            let mode = self.enter(state)?;
            // Not refused where the capture ended this moment.
            self.context.graphs.refuse_to_ask(self.id, call)?;
            if mode != Mode::Capturing {
                return Ok(());
            }
        }
    }

    /// The same, for a host that asks the device about it: a stream that captures has no such end.
    pub(crate) fn record_to_ask(&self, ask: Ask, caller: &'static Location<'static>) -> Result<Event> {
        let once = || {
            let mut state = self.state.lock();
            self.enter_to_ask(&mut state, ask.call())?;
            let record = self.record(&mut state)?;
            Ok(self.traced(record, |tracer, event| tracer.record_to_ask(self.id, event, Place::Source(caller))))
        };
        once().inspect_err(|error| self.note_refused(error, |tracer| tracer.asked(self.id, ask, caller)))
    }

    /// As [`record`](Self::record), for a host that waits and for no stream. For the legacy default stream nothing is
    /// published, so that no stream comes after this end if the wait fails.
    pub(crate) fn record_for_host(&self, state: &mut State) -> Result<Record> {
        let raw = self.context.driver.record(self.raw)?;
        let snapshot = self.end(state);
        self.progress.publish(snapshot.point().seq);
        Ok((snapshot, Arc::new(DeviceEvent::new(raw, &self.context.driver))))
    }

    /// Returns the present end of the stream, for the order. For a shared stream this is a new point, because the
    /// program may have submitted work after the last one.
    #[inline]
    pub(crate) fn end(&self, state: &mut State) -> Snapshot {
        if self.is_shared() {
            state.chain.pass();
        }
        state.chain.snapshot()
    }

    /// Returns the end of a stream that is being closed. All work that the program has in it counts as submitted.
    pub(crate) fn last_end(&self, state: &mut State) -> Snapshot {
        let end = self.end(state);
        self.progress.publish(end.point().seq);
        end
    }
}
