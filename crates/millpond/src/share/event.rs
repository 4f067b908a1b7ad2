//! Tickets for events, and imports of them: what the order knows of another process's event, and how the device
//! learns that it has completed (`announced` is the exporter's side).
//!
//! An event of another process that this device has open is kept until the device is past it. An exporter that says
//! that its event has completed is followed by the device in no time, and the event is closed before the exporter
//! learns of it: it must not destroy what others have open. The event of one that is gone before it could say so stays
//! open: the device may wait for it for ever, and knows no way to stop. Knows snapshots and the driver's events; no
//! memory.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use millpond_core::order::Snapshot;
use millpond_core::share::{EventGrant, ForeignEnd, ForeignPoint, POINTS_MAX, Reply, Ticket, TicketKind};
use millpond_driver::{Driver, DriverError, process};

use super::announced::{Announced, run_alone};
use super::exporter::Target;
use super::foreign::{EVERYBODYS, Names};
use super::import::check_kind;
use super::peer::Peer;
use super::socket::{self, Received};
use super::thread::{Called, Entry, Next, Pace, wait_for_event};
use crate::clock::device_event::{DeviceEvent, insist};
use crate::names::error::Result;
use crate::names::share_error::ShareError;
use crate::state::context::Context;
use crate::stream::event::{At, Event};

/// The most workers of host devices that wait for other processes at a time: far fewer than one device has.
const WAITING_MAX: usize = 64;
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// A worker that waits for another process.
struct Waiting;

impl Waiting {
    /// Counts one more worker, if the limit allows it.
    fn begin() -> Option<Waiting> {
        let one_more = |waiting| (waiting < WAITING_MAX).then_some(waiting + 1);
        WAITING.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).ok().map(|_| Waiting)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Event {
    /// Makes a ticket for this event, valid for one import by another process. Work there can then be ordered after
    /// it (CUDA: `cudaIpcGetEventHandle`).
    ///
    /// # Errors
    /// [`ShareError`] if it is an event of a capture, it comes after work of more than 4096 streams, or the system
    /// refused.
    pub fn export(&self) -> Result<Ticket> {
        let At::Live { snapshot, device_event, context } = &self.at else {
            let why = "it was recorded in a capture, and stands for a node of that graph";
            return Err(ShareError::NotExportable { what: "the event".into(), why }.into());
        };
        let exporter = context.exporter()?;
        let number = exporter.number;
        // Everything that importers have sent by now, and that they are gone, comes before it.
        exporter.settle(|connection| connection.end(|end| end.has_leases()));
        let names = Names::new(context, number);
        let foreign = |point| names.end(point);
        let ends = snapshot.points().into_iter().filter_map(foreign);
        let (mut known, theirs): (Vec<_>, Vec<_>) = ends.partition(|end| end.point.device == number);
        if known.len() > POINTS_MAX {
            return Err(ShareError::Full(format!("the event comes after more than {POINTS_MAX} streams")).into());
        }
        // Work of others is sent only as far as there is room: their number must not keep this device from exporting.
        let room = POINTS_MAX - known.len();
        known.extend(context.completed_foreign().into_iter().chain(theirs).take(room));
        // A chain that is forgotten has completed.
        let over = ForeignEnd { point: ForeignPoint { device: number, chain: 0, seq: 0 }, process: 0 };
        let end = foreign(snapshot.point()).unwrap_or(over);
        let grant = EventGrant { end, known, name: None, device: number };
        let announced = Target::Event(Announced { grant, event: Arc::clone(device_event) });
        exporter.issue(TicketKind::Event, announced, 0, context.share.ticket_life())
    }
}

impl Context {
    pub(crate) fn import_event(self: &Arc<Self>, ticket: &Ticket) -> Result<Event> {
        process::refuse_forked()?;
        check_kind(ticket, TicketKind::Event)?;
        let number = self.share.number()?;
        let until = self.import_end();
        let (peer, (reply, mut files)) = self.ask_exporter(ticket, until, |peer| peer.claim(ticket, until))?;
        let (Reply::Event(grant), Some(file)) = (reply, files.pop()) else {
            return Err(ShareError::answer("it is for something else"));
        };
        let line = Line { file, peer: Arc::clone(&peer) };
        let speaker = peer.speaker(self, grant.device)?;
        let Some(point) = self.point_here(number, speaker, &grant.end) else {
            return Err(ShareError::answer("its order cannot be true"));
        };
        // This device need not believe what another process says of its own chains, which it orders itself. If one of
        // its own positions comes back, it does not know what came before that.
        let point = if grant.end.point.device == number { EVERYBODYS } else { point };
        let theirs = grant.known.iter().filter(|end| end.point.device != number);
        let known: Vec<_> = theirs.filter_map(|end| self.point_here(number, speaker, end)).collect();
        // If the device cannot open the name, it waits for the byte.
        let opened = grant.name.and_then(|name| self.driver.import_event(&name).ok());
        let waiting = match opened {
            None if self.properties.runs_closures => Waiting::begin(),
            _ => None,
        };
        let device_event = match (opened, waiting) {
            (Some(raw), _) => {
                let theirs = DeviceEvent::new(raw, &self.driver);
                let own = Arc::new(run_alone(self, |stream| self.driver.wait(stream, raw), None)?);
                Opened::keep(self, theirs, &own, line);
                own
            }
            (None, Some(waiting)) => Arc::new(run_alone(
                self,
                |_| Ok(()),
                Some(Box::new(move || {
                    line.wait_end();
                    drop(waiting);
                })),
            )?),
            // On CUDA, host functions wait for each other, and the other process may wait for a function behind the
            // one that waits for it. A host device has a fixed number of workers, and if all of them wait, none is
            // left for the work that they wait for.
            (None, None) => {
                line.wait_end();
                Arc::new(run_alone(self, |_| Ok(()), None)?)
            }
        };
        let snapshot = Snapshot::foreign(point, known);
        Ok(Event::at((snapshot, device_event), None, self))
    }
}

/// An importer's end of the socket of an exported event. When it is dropped it sends a byte: nothing here needs the
/// event any more.
#[derive(Debug)]
struct Line {
    file: OwnedFd,
    peer: Arc<Peer>,
}

impl Line {
    /// Waits for the byte. If the exporter is gone before it sends one, its process has ended when this returns.
    fn wait_end(&self) {
        socket::wait_for(&self.file);
        if !matches!(self.receive(), Ok(Received::Packet(..)))
            && let Some(life) = &self.peer.life
        {
            socket::wait_for(life);
        }
    }

    fn receive(&self) -> rustix::io::Result<Received> {
        socket::receive(&self.file, &mut [0], false)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // The exporter may be gone, or need no notice.
        let _ = socket::send(&self.file, &[1], &[], false);
    }
}

/// An event of another process, until the exporter says that it has completed.
#[derive(Debug)]
struct Opened {
    /// Theirs, and that of this device behind it.
    events: Option<(DeviceEvent, Arc<DeviceEvent>)>,
    line: Arc<Line>,
    context: Arc<Context>,
}

impl Opened {
    /// Keeps an event of another process until the device is `past` it. Where the system has no room for that, the
    /// caller waits.
    fn keep(context: &Arc<Context>, theirs: DeviceEvent, past: &Arc<DeviceEvent>, line: Line) {
        let events = Some((theirs, Arc::clone(past)));
        let opened = Opened { events, line: Arc::new(line), context: Arc::clone(context) };
        let watch = Arc::clone(&opened.line.peer.watch);
        if let Err(mut opened) = watch.add(opened) {
            socket::wait_for(&opened.line.file);
            if let Ok(Some(closing)) = opened.receive() {
                insist(|| context.driver.block_on(closing.past.raw));
            }
        }
    }

    /// Continues once the exporter has answered or is gone: the device may then wait for the event.
    fn receive(&mut self) -> std::result::Result<Option<Closing>, Nothing> {
        let received = self.line.receive();
        if let Ok(Received::Nothing) = received {
            return Err(Nothing);
        }
        let Some((theirs, past)) = self.events.take() else { return Ok(None) };
        if let Ok(Received::Packet(..)) = received {
            let (line, context, pace) = (Arc::clone(&self.line), Arc::clone(&self.context), Pace::default());
            return Ok(Some(Closing { theirs, past, line, context, pace }));
        }
        std::mem::forget(theirs);
        Ok(None)
    }
}

/// The exporter has not sent anything.
struct Nothing;

impl Entry for Opened {
    fn file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.line.file.as_fd())
    }

    fn ready(&mut self, called: Called<'_>) -> Next {
        match self.receive() {
            Err(Nothing) => return Next::Again(None),
            // The entry has no file, and the thread exists, so there is room for it.
            Ok(closing) => closing.into_iter().for_each(|closing| drop(called.watch.add(closing))),
        }
        Next::Done
    }
}

/// An event of another process that has completed, until the device is past it: closed first, and then that is said.
#[derive(Debug)]
struct Closing {
    #[expect(dead_code, reason = "it is dropped before the line")]
    theirs: DeviceEvent,
    past: Arc<DeviceEvent>,
    #[expect(dead_code, reason = "it says that the event is closed when it is dropped")]
    line: Arc<Line>,
    context: Arc<Context>,
    pace: Pace,
}

impl Entry for Closing {
    fn file(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn ready(&mut self, called: Called<'_>) -> Next {
        match self.context.driver.peek(self.past.raw) {
            // A lost device runs nothing any more.
            Ok(true) | Err(DriverError::Lost { .. }) => Next::Done,
            Ok(false) | Err(_) => Next::Again(wait_for_event(&self.past, called, &mut self.pace)),
        }
    }
}
