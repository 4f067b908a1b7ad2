//! Tickets for events, and imports of them: what the order knows of another process's event. How the device learns that
//! it has completed is `announced`'s. Knows snapshots and marks; no memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use millpond_core::order::Snapshot;
use millpond_core::share::{EventGrant, ForeignEnd, ForeignPoint, POINTS_MAX, Reply, Ticket, TicketKind};
use millpond_driver::{Driver, process};

use super::abroad::{EVERYBODYS, Namers};
use super::announced::{Announced, run_alone};
use super::connection::Connection;
use super::exporter::Target;
use super::import::check_kind;
use super::line::Line;
use super::opened::Opened;
use crate::clock::mark::Mark;
use crate::names::error::Result;
use crate::names::share_error::ShareError;
use crate::state::context::Context;
use crate::stream::event::{At, Event};

/// So many workers of host devices wait for other processes at a time, at most: far fewer than one device has.
const WAITING_MAX: usize = 64;
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// A worker that waits for another process.
struct Waiting;

impl Waiting {
    /// One more, if there may be one.
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
    /// A ticket for this event, good for one import by another process: work there can then be ordered after it
    /// (CUDA: `cudaIpcGetEventHandle`).
    ///
    /// # Errors
    /// [`ShareError`]: it is an event of a capture; it comes after work of more than 4096 streams; the system refused.
    pub fn export(&self) -> Result<Ticket> {
        let At::Live { snapshot, mark, context } = &self.at else {
            let why = "it was recorded in a capture, and stands for a node of that graph";
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
        // What others did is sent as far as there is room: their number must not keep this device from exporting.
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
        let waiting = match opened {
            None if self.properties.runs_closures => Waiting::begin(),
            _ => None,
        };
        let mark = match (opened, waiting) {
            (Some(raw), _) => {
                let theirs = Mark::new(raw, &self.driver);
                let mark = Arc::new(run_alone(self, |stream| self.driver.wait(stream, raw), None)?);
                Opened::keep(self, theirs, &mark, line);
                mark
            }
            (None, Some(waiting)) => Arc::new(run_alone(
                self,
                |_| Ok(()),
                Some(Box::new(move || {
                    line.wait_end();
                    drop(waiting);
                })),
            )?),
            // On CUDA host functions wait for each other: what waits for another process may be what that waits for.
            // A host device has so many workers, and all that wait would leave none for what they wait for.
            (None, None) => {
                line.wait_end();
                Arc::new(run_alone(self, |_| Ok(()), None)?)
            }
        };
        let snapshot = Snapshot::foreign(point, known);
        Ok(Event::at((snapshot, mark), None, self))
    }
}
