//! An exporter: its tickets, its connections, and its counts.
//!
//! The device's thread serves it (`serving`): it accepts importers, answers their questions and closes their files.
//! The messages of importers are received by whichever thread needs them (`connection`). So no verdict depends on how
//! fast the device's thread is, and an importer that is refused, idle or flooding costs no launch, allocation or free
//! anything. The core has the rules for messages (`millpond_core::share::ExporterEnd`).

mod connection;
mod lease;
mod serving;

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use millpond_core::share::{Stage, Ticket, TicketKind, Tickets};
use millpond_driver::locks::{Mutex, lock};
use rustc_hash::FxHashMap;
use rustix::event::epoll;

use super::SharingStatistics;
use super::announced::Announced;
use super::socket;
use super::thread::Watch;
use crate::names::error::Result;
use crate::names::share_error::ShareError;
use crate::state::context::Context;
use crate::state::pool::PoolShared;
use crate::sync::ranks;
use connection::Connection;
pub(super) use lease::Offer;
use serving::Serving;

/// The thing that a ticket stands for.
#[derive(Debug)]
pub(super) enum Target {
    Memory(Offer),
    Event(Announced),
    Pool(Weak<PoolShared>),
}

/// The exporting side of a device.
pub(crate) struct Exporter {
    pub(super) number: u128,
    /// The name of its socket.
    name: u128,
    context: Weak<Context>,
    /// Its files. Ready if one of them is.
    epoll: OwnedFd,
    listener: OwnedFd,
    /// The number for the next file or lease.
    next: AtomicU64,
    watch: Arc<Watch>,
    /// The number by which the thread calls it.
    entry: OnceLock<u64>,
    is_stopped: AtomicBool,
    books: Mutex<ranks::Table, Books>,
    began: Instant,
}

#[derive(Debug, Default)]
struct Books {
    tickets: Tickets<Target>,
    connections: FxHashMap<u64, Arc<Connection>>,
    /// The connections that the thread must handle.
    called: Vec<u64>,
    /// The counts of events.
    counts: SharingStatistics,
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporter").finish_non_exhaustive()
    }
}

impl Exporter {
    /// Opens the socket and starts to serve it.
    pub(super) fn open(context: &Arc<Context>) -> Result<Arc<Exporter>> {
        let number = context.share.number()?;
        let system = |call| ShareError::system(call);
        let name = socket::random().map_err(system("make a random number"))?;
        let listener = socket::listen(name).map_err(system("listen for importers"))?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("listen for importers"))?;
        let (is_stopped, books) = Default::default();
        let exporter = Arc::new(Exporter {
            number,
            name,
            context: Arc::downgrade(context),
            epoll,
            listener,
            next: AtomicU64::new(serving::FIRST),
            watch: context.share.watch()?,
            entry: OnceLock::new(),
            is_stopped,
            books,
            began: Instant::now(),
        });
        exporter.listen_as(&exporter.listener, serving::LISTENER).map_err(system("listen for importers"))?;
        let entry = exporter.watch.add(Serving::new(&exporter)).map_err(|_| ShareError::System {
            call: "wait for importers",
            reason: "the system has no room for a thread or a file more".into(),
        })?;
        let _ = exporter.entry.set(entry);
        Ok(exporter)
    }

    /// Stops serving when the device is gone. The socket is closed.
    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Release);
        self.call_thread();
    }

    fn call_thread(&self) {
        if let Some(entry) = self.entry.get() {
            self.watch.call(*entry);
        }
    }

    /// Returns a time in the unit of ticket lifetimes, nanoseconds.
    fn time(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.began).as_nanos() as u64
    }

    /// Issues a ticket that is valid for `life`.
    pub(super) fn issue(&self, kind: TicketKind, target: Target, bytes: u64, life: Duration) -> Result<Ticket> {
        let nonce = socket::random().map_err(ShareError::system("make a ticket"))?;
        let now = self.time(Instant::now());
        let end = now.saturating_add(life.as_nanos().try_into().unwrap_or(u64::MAX));
        let mut books = lock(&self.books);
        let mut gone = books.tickets.expire(now);
        gone.extend(books.tickets.issue(nonce, kind, target, end));
        let is_first = books.tickets.next_end() == Some(end);
        books.counts.tickets += 1;
        drop(books);
        self.drop_tickets(gone);
        if is_first {
            self.call_thread();
        }
        Ok(Ticket { kind, exporter: self.name, nonce, bytes })
    }

    /// Revokes a ticket. Returns `true` if it was valid.
    pub(super) fn revoke(&self, ticket: &Ticket) -> bool {
        let gone = (ticket.exporter == self.name).then(|| lock(&self.books).tickets.revoke(ticket.nonce)).flatten();
        let was_good = gone.is_some();
        self.drop_tickets(gone);
        was_good
    }

    /// Drops the targets of tickets without a lock held, because each may be the last reference.
    fn drop_tickets(&self, gone: impl IntoIterator<Item = Target>) {
        for target in gone {
            self.count(|counts| counts.expired += 1);
            drop(target);
        }
    }

    fn count(&self, act: impl FnOnce(&mut SharingStatistics)) {
        act(&mut lock(&self.books).counts);
    }

    /// Returns the counts and the present numbers of this side.
    pub(super) fn counts(&self) -> SharingStatistics {
        let all = self.all();
        let (mut leases, mut importers) = (0, 0);
        for connection in &all {
            leases += connection.end(|end| end.held());
            importers += usize::from(connection.end(|end| end.stage() == Stage::Talks));
        }
        let books = lock(&self.books);
        let unused_tickets = books.tickets.len();
        SharingStatistics { unused_tickets, leases, importers, connections: all.len(), ..books.counts }
    }

    /// Receives the messages that some importers have sent so far. Call it with no locks held.
    pub(super) fn settle(&self, whom: impl Fn(&Connection) -> bool) {
        self.all().iter().filter(|connection| whom(connection)).for_each(|connection| connection.receive());
    }

    fn all(&self) -> Vec<Arc<Connection>> {
        lock(&self.books).connections.values().cloned().collect()
    }

    fn find(&self, number: u64) -> Option<Arc<Connection>> {
        lock(&self.books).connections.get(&number).cloned()
    }

    /// Makes the thread handle a connection.
    fn call(&self, connection: u64) {
        lock(&self.books).called.push(connection);
        self.call_thread();
    }

    /// Watches a file, under a number that no other file has.
    fn listen(&self, file: impl AsFd) -> rustix::io::Result<u64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.listen_as(file, number).map(|()| number)
    }

    fn listen_as(&self, file: impl AsFd, number: u64) -> rustix::io::Result<()> {
        epoll::add(&self.epoll, file, epoll::EventData::new_u64(number), epoll::EventFlags::IN)
    }

    fn listen_no_more(&self, file: impl AsFd) {
        let _ = epoll::delete(&self.epoll, file);
    }
}
