//! Events between processes: what the order knows of them, and how the device learns that they are over.
//!
//! The exporter announces an event through a socket of its own: when the work before it is over, a closure of a stream
//! made for that writes one byte. The importer makes a stream whose only work waits for the byte: its mark is the
//! event's. Both are work like any other, so that nobody waits who did not ask to. Where the exporter goes before, the
//! wait ends: its work is over with it. On a device that runs no closures the caller waits for the byte.
//!
//! Knows snapshots and marks; no memory.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use millpond_core::order::Snapshot;
use millpond_core::share::{EventGrant, POINTS_MAX, Reply, Ticket, TicketKind};
use millpond_driver::{Driver, RawStream, StreamFlags, Work};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::error::ShareError;
use super::exporter::Target;
use super::import::check_kind;
use super::socket;
use crate::context::Context;
use crate::error::Result;
use crate::event::{At, Event, Mark};
use crate::shell;

/// What a ticket for an event stands for.
#[derive(Debug)]
pub(super) struct Announced {
    pub(super) grant: EventGrant,
    mark: Arc<Mark>,
}

impl Announced {
    /// A socket that gets a byte when the event is over.
    pub(super) fn announce(&self, context: &Context) -> Result<OwnedFd> {
        let (own, theirs) = socket::pair().map_err(ShareError::system("announce an event"))?;
        let say = move || {
            // Who imported it may be gone.
            let _ = socket::send(&own, &[1], &[], false);
        };
        match context.driver.peek(self.mark.raw) {
            Ok(true) => say(),
            _ => run_alone(context, |stream| context.driver.wait(stream, self.mark.raw), Box::new(say)).map(drop)?,
        }
        Ok(theirs)
    }
}

/// Does something in a stream made for it; the mark of its end.
fn run_alone(
    context: &Context,
    before: impl FnOnce(RawStream) -> millpond_driver::Result<()>,
    task: Box<dyn FnOnce() + Send>,
) -> Result<Mark> {
    let raw = context.driver.open_stream(StreamFlags::default())?;
    let mut work = Some(Work::Run(task));
    let done = before(raw).and_then(|()| shell::submit_task(context, raw, &mut work));
    let mark = done.and_then(|()| context.driver.mark(raw));
    // What the driver refuses to close stays open until the device goes.
    let _ = context.driver.close_stream(raw);
    Ok(Mark::new(mark?, &context.driver))
}

/// Waits for the byte, or for the end of whoever would send it.
fn hear(file: &OwnedFd) {
    while poll(&mut [PollFd::new(file, PollFlags::IN)], None) == Err(Errno::INTR) {}
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
        let exporter = context.exporter()?;
        let abroad = |point| context.point_abroad(exporter.number, point);
        let known: Vec<_> = snapshot.points().into_iter().map(abroad).collect();
        if known.len() > POINTS_MAX {
            return Err(ShareError::Full(format!("the event comes after more than {POINTS_MAX} streams")).into());
        }
        let grant = EventGrant { point: abroad(snapshot.point()), known };
        exporter.issue(TicketKind::Event, Target::Event(Announced { grant, mark: Arc::clone(mark) }), 0)
    }
}

impl Context {
    pub(super) fn import_event(self: &Arc<Self>, ticket: &Ticket) -> Result<Event> {
        check_kind(ticket, TicketKind::Event)?;
        let number = self.share.number()?;
        let peer = self.peer(ticket.exporter)?;
        let (reply, mut files) = peer.claim(ticket)?;
        let (Reply::Event(grant), Some(file)) = (reply, files.pop()) else {
            return Err(ShareError::answer("it is for something else"));
        };
        let here = |point| self.point_here(number, point);
        let known: Option<Vec<_>> = grant.known.iter().copied().map(here).collect();
        let (Some(point), Some(known)) = (here(grant.point), known) else {
            return Err(ShareError::answer("its order cannot be true"));
        };
        let mark = match self.properties.runs_closures {
            true => run_alone(self, |_| Ok(()), Box::new(move || hear(&file)))?,
            // Host functions wait for each other there: one that waits for another process may be what that waits for.
            false => {
                hear(&file);
                run_alone(self, |_| Ok(()), Box::new(|| ()))?
            }
        };
        let snapshot = Snapshot::foreign(point, known);
        Ok(Event { traced: None, at: At::Live { snapshot, mark: Arc::new(mark), context: Arc::clone(self) } })
    }
}
