//! Events between processes: what the order knows of them, and how the device learns that they have completed.
//!
//! The exporter announces an event through a socket of its own, the *line*: when the work before it has completed, a
//! closure of a stream made for that writes one byte. Where its device has marks with names (CUDA), that stream is
//! marked so as well, and the name goes along: the importer's device then waits by itself, and the line tells when
//! neither side needs the mark any more. Without a name, or where the importer's device does not open it, the importer
//! makes a stream whose only work waits for the byte. All of it is work like any other, so that nobody waits who did
//! not ask to; but on a device that runs no closures and opens no name the caller waits for the byte. Where the
//! exporter goes before, the wait for a byte ends: its work ends with it. The wait for a name does not: no device
//! can be told.
//!
//! Knows snapshots and marks; no memory.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use millpond_core::order::Snapshot;
use millpond_core::share::{EventGrant, ForeignEnd, ForeignPoint, POINTS_MAX, Reply, Ticket, TicketKind};
use millpond_driver::{Driver, MarkName, RawMark, RawStream, StreamFlags, Work, process};

use super::abroad::{EVERYBODYS, Namers};
use super::awaits::{Line, Opened};
use super::connection::Connection;
use super::exporter::Target;
use super::import::check_kind;
use super::socket;
use crate::clock::mark::Mark;
use crate::names::error::Result;
use crate::names::share_error::ShareError;
use crate::pool::shell;
use crate::state::context::Context;
use crate::stream::event::{At, Event};

/// What a ticket for an event stands for.
#[derive(Debug)]
pub(super) struct Announced {
    pub(super) grant: EventGrant,
    mark: Arc<Mark>,
}

/// A mark that an importer was told the name of: kept until it has let go. Where the exporter goes before, the mark is
/// never forgotten: the importer may have it open.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) line: Arc<OwnedFd>,
    mark: RawMark,
}

impl Named {
    /// Nobody else has it open any more.
    pub(super) fn forget(&self, context: &Context) {
        context.driver.forget(self.mark);
    }
}

/// Says that the event has completed when it is dropped: by then it has, or the device runs nothing any more.
struct Over(Arc<OwnedFd>);

impl Drop for Over {
    fn drop(&mut self) {
        // Who imported it may be gone.
        let _ = socket::send(&self.0, &[1], &[], false);
    }
}

impl Announced {
    /// The importer's end of the line; and where the device has marks with names, that and what stands behind it.
    pub(super) fn announce(&self, context: &Context) -> Result<(OwnedFd, Option<(MarkName, Named)>)> {
        let (own, theirs) = socket::pair().map_err(ShareError::system("announce an event"))?;
        let line = Arc::new(own);
        let over = Over(Arc::clone(&line));
        if let Ok(true) = context.driver.peek(self.mark.raw) {
            return Ok((theirs, None));
        }
        let mut named = None;
        let before = |stream| {
            context.driver.wait(stream, self.mark.raw)?;
            // A device that has no such marks, or refuses, leaves it to the byte.
            named = context.driver.export_mark(stream).ok();
            Ok(())
        };
        let announced = run_alone(context, before, Some(Box::new(move || drop(over))));
        let named = named.map(|(mark, name)| (name, Named { line, mark }));
        match announced {
            Ok(_) => Ok((theirs, named)),
            Err(error) => {
                named.into_iter().for_each(|(_, named)| named.forget(context));
                Err(error)
            }
        }
    }
}

/// Does something in a stream made for it; the mark of its end.
fn run_alone(
    context: &Context,
    before: impl FnOnce(RawStream) -> millpond_driver::Result<()>,
    task: Option<Box<dyn FnOnce() + Send>>,
) -> Result<Mark> {
    let raw = context.driver.open_stream(StreamFlags::default())?;
    let mut work = task.map(Work::Run);
    let done = before(raw).and_then(|()| shell::submit_task(context, raw, &mut work));
    let mark = done.and_then(|()| context.driver.mark(raw));
    // What the driver refuses to close stays open until the device goes.
    let _ = context.driver.close_stream(raw);
    Ok(Mark::new(mark?, &context.driver))
}

impl Event {
    /// A ticket for this event, good for one import by another process: work there can then be ordered after it
    /// (CUDA: `cudaIpcGetEventHandle`).
    ///
    /// # Errors
    /// [`ShareError`]: it is an event of a capture; it comes after work of more than 4096 streams; the system refused.
    pub fn export(&self) -> Result<Ticket> {
        let At::Live { snapshot, mark, context } = &self.at else {
            let why = "it is an edge of a graph that is being captured";
            return Err(ShareError::NotExportable { what: "the event".into(), why }.into());
        };
        let context = &context.arc();
        let exporter = context.exporter()?;
        let number = exporter.number;
        // Whatever importers have said by now, or that they are gone, comes before it.
        exporter.settle(Connection::has_leases);
        let namers = Namers::new(context, number);
        let abroad = |point| namers.end(point);
        let ends = snapshot.points().into_iter().filter_map(abroad);
        let (mut known, theirs): (Vec<_>, Vec<_>) = ends.partition(|end| end.point.device == number);
        if known.len() > POINTS_MAX {
            return Err(ShareError::Full(format!("the event comes after more than {POINTS_MAX} streams")).into());
        }
        // What others did is told as far as there is room: their number must not keep this device from exporting.
        let room = POINTS_MAX - known.len();
        known.extend(context.over_abroad().into_iter().chain(theirs).take(room));
        // A chain that is forgotten has completed.
        let over = ForeignEnd { point: ForeignPoint { device: number, slot: 0, seq: 0 }, process: 0 };
        let end = abroad(snapshot.point()).unwrap_or(over);
        let grant = EventGrant { end, known, name: None, device: number };
        let announced = Target::Event(Announced { grant, mark: mark.arc() });
        exporter.issue(TicketKind::Event, announced, 0, context.share().times().ticket_life)
    }
}

impl Context {
    pub(crate) fn import_event(self: &Arc<Self>, ticket: &Ticket) -> Result<Event> {
        process::refuse_forked()?;
        check_kind(ticket, TicketKind::Event)?;
        let number = self.share().number()?;
        let until = self.import_end();
        let (peer, (reply, mut files)) = self.ask_exporter(ticket, until, |peer| peer.claim(ticket, until))?;
        let (Reply::Event(grant), Some(file)) = (reply, files.pop()) else {
            return Err(ShareError::answer("it is for something else"));
        };
        let line = Line::new(file, Arc::clone(&peer));
        let speaker = peer.speaker(self, grant.device)?;
        let Some(point) = self.point_here(number, speaker, &grant.end) else {
            return Err(ShareError::answer("its order cannot be true"));
        };
        // What another process says of this device's own chains it need not believe: it orders those itself. Of an own
        // position that comes back it does not know what came before that.
        let point = if grant.end.point.device == number { EVERYBODYS } else { point };
        let theirs = grant.known.iter().filter(|end| end.point.device != number);
        let known: Vec<_> = theirs.filter_map(|end| self.point_here(number, speaker, end)).collect();
        // A name that the device does not open leaves it to the byte.
        let opened = grant.name.and_then(|name| self.driver.import_mark(&name).ok());
        let mark = match opened {
            Some(raw) => {
                let opened = Opened::new(Mark::new(raw, &self.driver), line);
                let mark = Arc::new(run_alone(self, |stream| self.driver.wait(stream, raw), None)?);
                self.share().awaits.add(self, opened, Arc::clone(&mark));
                mark
            }
            None if self.properties.runs_closures => Arc::new(run_alone(
                self,
                |_| Ok(()),
                Some(Box::new(move || {
                    line.hear_end();
                })),
            )?),
            // Host functions wait for each other there: one that waits for another process may be what that waits for.
            None => {
                line.hear_end();
                Arc::new(run_alone(self, |_| Ok(()), None)?)
            }
        };
        let snapshot = Snapshot::foreign(point, known);
        Ok(Event::at((snapshot, mark), None, self))
    }
}
