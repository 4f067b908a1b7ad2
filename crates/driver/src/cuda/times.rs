//! Times: events with timing, each recorded once and then reused.
//!
//! Knows events, but not the work between them. They are separate from events without timing, which are cheaper to
//! record. Times are few, so one lock guards them. A device whose library has no `cuEventElapsedTime` has none.
//!
//! Invariant **event-stays**, as in `events`: an event is destroyed only with the table.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::abi::{Code, EVENT_DEFAULT, Event, Stream};
use super::gpu::Gpu;
use super::table::TimeTable;
use crate::errors::{failed, unknown};
use crate::locks::{Guard, Leaf, Mutex, lock};
use crate::{RawTime, Result};

/// The times of one device.
#[derive(Debug)]
pub(super) struct Times {
    gpu: Arc<Gpu>,
    state: Mutex<Leaf, State>,
}

#[derive(Debug, Default)]
struct State {
    /// The recorded times, by number.
    taken: HashMap<u64, Event>,
    /// Events that are not in use.
    free: Vec<Event>,
    /// The number of times recorded so far.
    count: u64,
}

impl Times {
    pub(super) fn new(gpu: Arc<Gpu>) -> Self {
        Self { gpu, state: Mutex::default() }
    }

    /// Records the time at the end of a stream's present work. The caller holds the stream.
    pub(super) fn record(&self, stream: Stream) -> Result<RawTime> {
        const CALL: &str = "record_time";
        self.table(CALL)?;
        let entered = self.gpu.enter(CALL)?;
        let mut state = self.lock();
        let mut event = state.free.pop().unwrap_or_default();
        if event == Event::default() {
            event = entered.open_event(CALL, EVENT_DEFAULT)?;
        }
        // SAFETY: an event of ours (event-stays) and a stream that is held open.
        if let Err(error) = self.gpu.check(CALL, unsafe { (entered.table.record_event)(event, stream) }) {
            state.free.push(event);
            return Err(error);
        }
        state.count += 1;
        let number = state.count;
        state.taken.insert(number, event);
        Ok(RawTime(number))
    }

    pub(super) fn elapsed(&self, from: RawTime, to: RawTime) -> Result<Duration> {
        const CALL: &str = "elapsed";
        let table = self.table(CALL)?;
        // Held during the call, so that neither event is recorded again.
        let state = self.lock();
        let find = |time: RawTime| {
            let event = state.taken.get(&time.0).copied();
            event.ok_or_else(|| unknown(CALL, "time", time.0))
        };
        let (from, to, mut milliseconds) = (find(from)?, find(to)?, 0.0);
        let _entered = self.gpu.enter_apart(CALL)?;
        // SAFETY: the pointer is valid for a number, and the events are ours and were recorded (event-stays).
        match unsafe { (table.elapsed)(&raw mut milliseconds, from, to) } {
            Code::NOT_READY => Err(failed(CALL, "the work before it has not completed")),
            code => {
                self.gpu.check(CALL, code)?;
                let seconds = f64::from(milliseconds) / 1000.0;
                Ok(Duration::try_from_secs_f64(seconds).unwrap_or_default())
            }
        }
    }

    pub(super) fn forget_time(&self, time: RawTime) {
        let mut state = self.lock();
        if let Some(event) = state.taken.remove(&time.0) {
            state.free.push(event);
        }
    }

    fn table(&self, call: &'static str) -> Result<TimeTable> {
        self.gpu.api.times.ok_or_else(|| failed(call, "the driver library has no function `cuEventElapsedTime`"))
    }

    fn lock(&self) -> Guard<'_, State> {
        lock(&self.state)
    }
}

impl Drop for Times {
    fn drop(&mut self) {
        let State { taken, free, .. } = std::mem::take(self.state.get_mut());
        if taken.is_empty() && free.is_empty() {
            return;
        }
        let Ok(entered) = self.gpu.enter("forget_time") else { return };
        for event in taken.into_values().chain(free) {
            // SAFETY: an event of ours, which is not used again (event-stays). If this fails, the context keeps it.
            let _ = unsafe { (entered.table.close_event)(event) };
        }
    }
}
