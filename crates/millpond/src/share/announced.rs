//! Events between processes: what the order knows of them, and how the device learns that they have completed.
//!
//! The exporter announces an event through a socket of its own, the *line*: when the work before it has completed, a
//! closure of a stream made for that writes one byte. Where its device has events with names (CUDA), one of
//! these is recorded in that stream as well, and its name goes along: the importer's device then waits by itself, and
//! the line tells when neither side needs that event any more. Without a name, or where the importer's device does not
//! open it, the importer makes a stream whose only work waits for the byte. All of it is work like any other, so that
//! no stream waits that did not ask to; but on a device that runs no closures and opens no name the caller waits for
//! the byte. Where the exporter goes before, the wait for a byte ends: its work ends with it. The wait for a name does
//! not: no device is known.
//!
//! This is the exporter's side; the importer's is in `event`.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use millpond_core::share::EventGrant;
use millpond_driver::{Driver, EventHandle, Fence, RawEvent, RawStream, StreamFlags, Waiter, Work};

use super::socket;
use crate::clock::device_event::DeviceEvent;
use crate::names::error::Result;
use crate::names::share_error::ShareError;
use crate::pool::shell;
use crate::state::context::Context;

/// The event that a ticket stands for.
#[derive(Debug)]
pub(super) struct Announced {
    pub(super) grant: EventGrant,
    pub(super) event: Arc<DeviceEvent>,
}

/// An event whose name an importer knows: kept until it has let go. Where the exporter goes before, it is
/// never forgotten: the importer may have it open.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) line: Arc<OwnedFd>,
    event: RawEvent,
}

impl Named {
    /// Forgets it, because no other process has it open any more.
    pub(super) fn forget(&self, context: &Context) {
        context.driver.forget(self.event);
    }
}

/// Sends, when it is dropped, that the event has completed: by then it has, or the device runs nothing any more.
struct Over(Arc<OwnedFd>);

impl Drop for Over {
    fn drop(&mut self) {
        // The importer may be gone.
        let _ = socket::send(&self.0, &[1], &[], false);
    }
}

impl Announced {
    /// The importer's end of the line; and where the device has events with names, such a name and what stands behind
    /// it.
    pub(super) fn announce(&self, context: &Context) -> Result<(OwnedFd, Option<(EventHandle, Named)>)> {
        let (own, theirs) = socket::pair().map_err(ShareError::system("announce an event"))?;
        let line = Arc::new(own);
        let over = Over(Arc::clone(&line));
        if let Ok(true) = context.driver.peek(self.event.raw) {
            return Ok((theirs, None));
        }
        let mut named = None;
        let before = |stream| {
            context.driver.wait(stream, self.event.raw)?;
            // A device that has no such events, or refuses, leaves it to the byte.
            named = context.driver.export_event(stream).ok();
            Ok(())
        };
        let announced = run_alone(context, before, Some(Box::new(move || drop(over))));
        let named = named.map(|(event, name)| (name, Named { line, event }));
        match announced {
            Ok(event) => {
                // A seeded device runs work only while a thread waits. A lost one has dropped the closure.
                if let Ok(Fence::Host(fence)) = event.fence() {
                    let _ = fence.park(Waiter::none());
                }
                Ok((theirs, named))
            }
            Err(error) => {
                named.into_iter().for_each(|(_, named)| named.forget(context));
                Err(error)
            }
        }
    }
}

/// Does something in a stream made for it; the event at its end.
pub(super) fn run_alone(
    context: &Context,
    before: impl FnOnce(RawStream) -> millpond_driver::Result<()>,
    task: Option<Box<dyn FnOnce() + Send>>,
) -> Result<DeviceEvent> {
    let raw = context.driver.open_stream(StreamFlags::default())?;
    let mut work = task.map(Work::Run);
    let done = before(raw).and_then(|()| shell::submit_task(context, raw, &mut work));
    let event = done.and_then(|()| context.driver.record(raw));
    // A stream that the driver refuses to close stays open until the device is gone.
    let _ = context.driver.close_stream(raw);
    Ok(DeviceEvent::new(event?, &context.driver))
}
