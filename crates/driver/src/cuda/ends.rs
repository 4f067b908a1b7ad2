//! The last event of a stream, which is returned again while nothing was submitted to the stream since.
//!
//! Knows events, but not the submitted work. The simple version calls `cuEventRecord` for each event and
//! `cuStreamWaitEvent` for each wait, at a few hundred nanoseconds a call. Streams to which other code may submit work
//! use the simple version, and so do blocking streams, which also come after the legacy default stream's work.
//!
//! Invariants: `noted-after`: work is noted here after it was submitted, and before the submission returns;
//! `held-here`: this type holds the events that it keeps, so that their native events are not reused.

use super::abi::Stream;
use super::events::Events;
use crate::{BiasedLock, RawEvent, Result};

/// The last event and the last wait of a stream.
#[derive(Debug, Default)]
pub(super) struct End(BiasedLock<State>);

#[derive(Debug, Default)]
struct State {
    /// The last event, if nothing was submitted since.
    last: Option<RawEvent>,
    /// The event that the stream waited for last.
    waited: Option<RawEvent>,
}

impl End {
    /// Records an event at the end of the stream, which the caller holds.
    pub(super) fn record(&self, events: &Events, stream: Stream) -> Result<RawEvent> {
        // Held until the record is made: work that is submitted at the same time is noted after it.
        let mut known = self.0.lock();
        if let Some(last) = known.last.filter(|&last| events.share(last)) {
            return Ok(last);
        }
        let event = events.record(stream)?;
        known.last = Some(event).filter(|&event| events.share(event));
        Ok(event)
    }

    /// Calls `wait` to make the stream wait for an event, unless that was the stream's last wait.
    pub(super) fn wait(&self, events: &Events, event: RawEvent, wait: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut known = self.0.lock();
        if known.waited == Some(event) {
            return Ok(());
        }
        wait()?;
        let waited = Some(event).filter(|&event| events.share(event));
        let former = [known.last.take(), std::mem::replace(&mut known.waited, waited)];
        former.into_iter().flatten().for_each(|event| events.forget(event));
        Ok(())
    }

    /// Notes that work was submitted to the stream (noted-after).
    pub(super) fn note(&self, events: &Events) {
        let last = self.0.lock().last.take();
        last.into_iter().for_each(|event| events.forget(event));
    }

    /// Forgets both events.
    pub(super) fn clear(&self, events: &Events) {
        let State { last, waited } = std::mem::take(&mut *self.0.lock());
        last.into_iter().chain(waited).for_each(|event| events.forget(event));
    }
}
