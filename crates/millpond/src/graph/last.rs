//! The end of a launch, for the next launch to come after.
//!
//! Depends on the stream of the launch. If the launch had no event recorded, one is recorded only once another stream
//! waits: a launch after launches of its own stream never waits, and an event would cost it a driver call.

use std::sync::Arc;

use millpond_core::order::Snapshot;
use millpond_driver::RawEvent;
use smallvec::SmallVec;

use crate::clock::device_event::DeviceEvent;
use crate::clock::progress::Progress;
use crate::names::error::Result;
use crate::state::stream::{State, StreamShared};

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Last {
    /// The end of the launch in the order.
    pub(crate) snapshot: Snapshot,
    progress: Arc<Progress>,
    /// The event after it, if one was recorded.
    pub(crate) event: Option<Arc<DeviceEvent>>,
}

/// Launches to come after.
pub(crate) type Lasts = SmallVec<[Last; 1]>;

impl Last {
    /// Returns the present end of `stream`.
    fn of(stream: &StreamShared, state: &State, event: Option<Arc<DeviceEvent>>) -> Self {
        Self { snapshot: state.chain.snapshot(), progress: Arc::clone(&stream.progress), event }
    }

    /// Replaces an older end by the present end of `stream`. The older one is nearly always of the same stream, so that
    /// hardly any shared reference count is touched.
    #[inline]
    pub(crate) fn put(
        place: &mut Option<Last>,
        stream: &StreamShared,
        state: &State,
        event: Option<&Arc<DeviceEvent>>,
    ) {
        match place {
            Some(last) if Arc::ptr_eq(&last.progress, &stream.progress) => {
                state.chain.renew(&mut last.snapshot);
                if last.event.is_some() || event.is_some() {
                    last.event = event.cloned();
                }
            }
            _ => *place = Some(Last::of(stream, state, event.cloned())),
        }
    }

    /// As [`put`](Self::put), with an event that only this launch has. It nearly always takes the older event's place
    /// in memory, so that no shared reference count is touched.
    #[inline]
    pub(crate) fn put_recorded(place: &mut Option<Last>, stream: &StreamShared, state: &State, raw: RawEvent) {
        let driver = &stream.context.driver;
        if let Some(last) = place
            && Arc::ptr_eq(&last.progress, &stream.progress)
            && let Some(event) = last.event.as_mut().and_then(Arc::get_mut)
        {
            event.become_another(raw, driver);
            return state.chain.renew(&mut last.snapshot);
        }
        Self::put(place, stream, state, Some(&Arc::new(DeviceEvent::new(raw, driver))));
    }

    /// Makes a stream come after it.
    pub(crate) fn before(&self, stream: &StreamShared, state: &mut State) -> Result<()> {
        match &self.event {
            Some(event) => stream.wait_for(state, &self.snapshot, event.raw),
            None => stream.wait_for_chain(state, &self.snapshot, &self.progress),
        }
    }
}
