//! Events: made, recorded, waited for by the host.

use std::ffi::c_uint;

use millpond_core::op::{Mark, What};

use crate::abi::{EXTERNAL, Event, Stream};
use crate::session::{At, Session};

impl Session {
    /// An event is destroyed.
    pub(crate) fn destroy_event(&mut self, event: Event) {
        if let Some(event) = self.handles.end_event(event) {
            self.push(What::EventDestroy { event });
        }
    }

    /// An event is recorded.
    pub(crate) fn record_event(&mut self, at: &At, event: Event, stream: Stream, flags: c_uint) {
        if self.is_lost(at, stream) {
            return;
        }
        let (stream, event) = (self.stream(at, stream), self.event(event));
        let external = flags & EXTERNAL != 0;
        self.push(What::EventRecord { event, stream, external, mark: Mark::Completion });
    }

    /// An event was found to have completed.
    pub(crate) fn query_event(&mut self, event: Event) {
        let event = self.event(event);
        self.push(What::EventQuery { event, is_over: true });
    }

    /// The host has waited for an event.
    pub(crate) fn synchronize_event(&mut self, event: Event) {
        let event = self.event(event);
        self.push(What::EventSynchronize { event });
    }
}
