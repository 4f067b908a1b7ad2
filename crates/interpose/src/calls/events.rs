//! Events: created, recorded, waited for.
//!
//! An event that is shared between processes may carry an order that another process has made: that process waits for
//! one event of this process, and records one that this process waits for. So a wait for a shared event comes after
//! everything that was recorded in shared events before.

use std::ffi::c_uint;

use millpond_core::ids::{DeviceId, EventId, StreamId};
use millpond_core::op::{EventKind, StreamRole, What};

use crate::abi::{EXTERNAL, Event, Stream};
use crate::ask;
use crate::session::{At, Session};

impl Session {
    /// Notes that an event is destroyed.
    pub(crate) fn destroy_event(&mut self, event: Event) {
        if let Some(event) = self.handles.end_event(event) {
            self.push(What::EventDestroy { event });
        }
    }

    /// Notes that an event is recorded.
    pub(crate) fn record_event(&mut self, at: &At, event: Event, stream: Stream, flags: c_uint) {
        if self.is_lost(at, stream) {
            return;
        }
        let (stream, event) = (self.stream(at, stream), self.event(event));
        let external = flags & EXTERNAL != 0;
        self.push(What::EventRecord { event, stream, external, kind: EventKind::Completion });
        if self.captures.is_empty() && self.handles.shared_events.contains(&event) {
            let (others, _) = self.others();
            self.push(What::EventWait { event, stream: others, external: false });
        }
    }

    /// Returns the stream that stands for all that the other processes have waited for, and its device.
    fn others(&mut self) -> (StreamId, DeviceId) {
        if let Some(others) = self.others {
            return others;
        }
        let (stream, device) = (self.handles.new_stream(), DeviceId(ask::current_device() as u32));
        self.others = Some((stream, device));
        self.push(What::StreamCreate { stream, role: StreamRole::NonBlocking, device });
        (stream, device)
    }

    /// Notes a wait for a shared event. The wait also covers what the other processes may have waited for.
    pub(crate) fn after_others(&mut self, event: EventId, wait: impl Fn(EventId) -> What) {
        let may_stand = self.captures.is_empty() && self.handles.shared_events.contains(&event);
        let Some((stream, device)) = self.others.filter(|_| may_stand) else { return };
        let event = self.handles.new_unnamed_event();
        self.push(What::EventCreate { event, device, shared: false });
        self.push(What::EventRecord { event, stream, external: false, kind: EventKind::Completion });
        self.push(wait(event));
        self.handles.end_unnamed_event(event);
        self.push(What::EventDestroy { event });
    }

    /// Notes that an event was found complete.
    pub(crate) fn query_event(&mut self, event: Event) {
        let event = self.event(event);
        self.push(What::EventQuery { event, is_over: true });
        self.after_others(event, |event| What::EventQuery { event, is_over: true });
    }

    /// Notes that the host has waited for an event.
    pub(crate) fn synchronize_event(&mut self, event: Event) {
        let event = self.event(event);
        self.push(What::EventSynchronize { event });
        self.after_others(event, |event| What::EventSynchronize { event });
    }
}
