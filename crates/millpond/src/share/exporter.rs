//! An exporter: tickets, and how importers are served over a socket, by the thread that watches sockets (`watch.rs`).
//!
//! The thread takes importers in, answers their questions and closes their files; no lock that others take is held
//! while it accepts, receives a file, sends or closes. What importers state is received by whoever must know it, the
//! thread or not (`connection.rs`): no verdict depends on how fast the thread is, and no importer that is refused, idle
//! or loud costs a launch, an allocation or a free anything.
//!
//! An importer that breaks the rules of the messages, or does not read what it asked for, is treated as gone.

mod answers;
mod door;

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use door::Door;
use millpond_core::share::{Desk, Refusal, Ticket, TicketKind};
use millpond_driver::locks::{Mutex, lock};
use rustc_hash::FxHashMap;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};

use super::announced::Announced;
use super::bell::{Bell, Counters};
use super::connection::{Connection, Stage};
use super::lend::Offer;
use super::socket;
use super::watch::{Next, Watched};
use crate::names::error::Result;
use crate::names::share_error::ShareError;
use crate::state::context::Context;
use crate::state::device::PoolShared;
use crate::sync::ranks;

const LISTENER: u64 = 0;
const BELL: u64 = 1;
/// The first number of a connection.
const FIRST: u64 = 2;
/// Packets of one importer that the thread receives before it turns to the next.
const TURN: usize = 64;

/// What a ticket stands for.
#[derive(Debug)]
pub(super) enum Target {
    Memory(Offer),
    Event(Announced),
    Pool(Weak<PoolShared>),
}

/// What the counters say, and what there is at present.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) issued: u64,
    pub(super) expired: u64,
    pub(super) refused: u64,
    pub(super) lent: u64,
    pub(super) released: u64,
    pub(super) reclaimed: u64,
    pub(super) lost: u64,
    pub(super) unused: usize,
    pub(super) leases: usize,
    pub(super) importers: usize,
    pub(super) connections: usize,
}

/// The exporting side of a device.
pub(crate) struct Exporter {
    pub(super) number: u128,
    /// By which its socket is known.
    name: u128,
    context: Weak<Context>,
    /// Its files: ready where one of them is.
    epoll: OwnedFd,
    listener: OwnedFd,
    /// What is listened to next, and what is lent next, gets this number.
    next: AtomicU64,
    bell: Arc<Bell>,
    counters: Arc<Counters>,
    desk: Mutex<ranks::Desk, Desk<Target>>,
    connections: Mutex<ranks::Connections, FxHashMap<u64, Arc<Connection>>>,
    began: Instant,
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporter").finish_non_exhaustive()
    }
}

impl Exporter {
    /// Opens the socket and has it served.
    pub(super) fn open(context: &Arc<Context>) -> Result<Arc<Exporter>> {
        let number = context.share().number()?;
        let system = |call| ShareError::system(call);
        let name = socket::random().map_err(system("make a random number"))?;
        let listener = socket::listen(name).map_err(system("listen for importers"))?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("listen for importers"))?;
        let file =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(system("listen for importers"))?;
        let (rung, is_stopped, counters, desk, connections) = Default::default();
        let (asked, made, turned) = Default::default();
        let exporter = Arc::new(Exporter {
            number,
            name,
            context: Arc::downgrade(context),
            epoll,
            listener,
            next: AtomicU64::new(FIRST),
            bell: Arc::new(Bell { file, rung, is_stopped, asked, made, turned }),
            counters,
            desk,
            connections,
            began: Instant::now(),
        });
        for (file, number) in [(&exporter.listener, LISTENER), (&exporter.bell.file, BELL)] {
            exporter.listen_as(file, number).map_err(system("listen for importers"))?;
        }
        let serving = Serving { exporter: Arc::clone(&exporter), door: Door::default() };
        context.share().watch()?.add(serving).map_err(|_| ShareError::System {
            call: "wait for importers",
            reason: "the system has no room for a thread or a file more".into(),
        })?;
        Ok(exporter)
    }

    /// The device is gone: nothing is served any more, and the socket goes.
    pub(super) fn stop(&self) {
        self.bell.is_stopped.store(true, Ordering::Release);
        self.bell.sound();
    }

    /// What tickets count their lives in.
    fn time(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.began).as_nanos() as u64
    }

    /// Gives a ticket out, good for so long.
    pub(super) fn issue(&self, kind: TicketKind, target: Target, bytes: u64, life: Duration) -> Result<Ticket> {
        let nonce = socket::random().map_err(ShareError::system("make a ticket"))?;
        let now = self.time(Instant::now());
        let end = now.saturating_add(life.as_nanos().try_into().unwrap_or(u64::MAX));
        let mut desk = lock(&self.desk);
        let mut gone = desk.expire(now);
        gone.extend(desk.issue(nonce, kind, target, end));
        let wakes = desk.next_end() == Some(end);
        drop(desk);
        self.counters.issued.fetch_add(1, Ordering::Relaxed);
        self.drop_tickets(gone);
        if wakes {
            self.bell.sound();
        }
        Ok(Ticket { kind, exporter: self.name, nonce, bytes })
    }

    /// Makes a ticket good no more; whether it was good.
    pub(super) fn revoke(&self, ticket: &Ticket) -> bool {
        let gone = (ticket.exporter == self.name).then(|| lock(&self.desk).revoke(ticket.nonce)).flatten();
        let was_good = gone.is_some();
        self.drop_tickets(gone);
        was_good
    }

    /// What tickets stood for is dropped behind the lock: it may be the last of it.
    fn drop_tickets(&self, gone: impl IntoIterator<Item = Target>) {
        for target in gone {
            self.counters.expired.fetch_add(1, Ordering::Relaxed);
            drop(target);
        }
    }

    /// How often things happened, and what there is; what importers have said by now is in it.
    pub(super) fn counts(&self) -> Counts {
        self.settle(|_| true);
        self.bell.wait();
        let all = self.all();
        let counts: Vec<_> = all.iter().map(|connection| connection.counts()).collect();
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            issued: read(&self.counters.issued),
            expired: read(&self.counters.expired),
            refused: read(&self.counters.refused),
            lent: read(&self.counters.lent),
            released: read(&self.counters.released),
            reclaimed: read(&self.counters.reclaimed),
            lost: read(&self.counters.lost),
            unused: lock(&self.desk).len(),
            leases: counts.iter().map(|(leases, _)| leases).sum(),
            importers: counts.iter().filter(|(_, talks)| *talks).count(),
            connections: all.len(),
        }
    }

    /// Receives what some importers have said so far. Called with no locks held.
    pub(super) fn settle(&self, whom: impl Fn(&Connection) -> bool) {
        self.all().iter().filter(|connection| whom(connection)).for_each(|connection| connection.receive());
    }

    fn all(&self) -> Vec<Arc<Connection>> {
        lock(&self.connections).values().cloned().collect()
    }

    fn find(&self, number: u64) -> Option<Arc<Connection>> {
        lock(&self.connections).get(&number).cloned()
    }

    /// Listens to a file, by a number that no other has.
    fn listen(&self, file: impl AsFd) -> rustix::io::Result<u64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.listen_as(file, number).map(|()| number)
    }

    fn listen_as(&self, file: impl AsFd, number: u64) -> rustix::io::Result<()> {
        epoll::add(&self.epoll, file, epoll::EventData::new_u64(number), epoll::EventFlags::IN)
    }

    /// The files that are ready, the connections that the bell rang for, and how many rounds had been asked for before
    /// either was looked at: who asks later may have been missed. The bell is answered in each round, as more files may
    /// be ready than the system names at a time.
    fn ready(&self) -> (Vec<u64>, u64) {
        let asked = self.bell.asked.load(Ordering::Acquire);
        let rung = self.bell.answer();
        let mut events: Vec<epoll::Event> = Vec::with_capacity(64);
        // An interrupted call finds them the next time: they are ready still.
        let _ = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&Timespec::default()));
        (rung.into_iter().chain(events.iter().map(|event| event.data.u64())).collect(), asked)
    }

    /// When something ends that the thread has to see to.
    fn next_end(&self, door: &Door) -> Option<Instant> {
        let ticket = lock(&self.desk).next_end().and_then(|end| self.began.checked_add(Duration::from_nanos(end)));
        ticket.into_iter().chain(door.next_end()).min()
    }

    /// Sees to one connection, or to the line of one.
    fn attend(&self, context: &Arc<Context>, door: &mut Door, number: u64) {
        let Some(connection) = self.find(number) else { return self.receive_line(context, door, number) };
        connection.receive_some(context, TURN);
        if let Some((question, socket)) = connection.take_question()
            && self.answer(context, door, &connection, &socket, question).is_err()
        {
            connection.break_off();
            connection.receive_some(context, 1);
        }
        match connection.stage() {
            Stage::Talks => {}
            Stage::Leaves => self.part(&connection),
            Stage::Gone => self.remove(context, door, &connection),
        }
    }

    /// Says no to a process that is not let in.
    fn turn_away(&self, connection: &OwnedFd, why: Refusal) {
        self.counters.refused();
        let _ = socket::send(connection, &millpond_core::share::Reply::Refused(why).to_bytes(), &[], false);
    }
}

/// An exporter whose importers are served.
#[derive(Debug)]
struct Serving {
    exporter: Arc<Exporter>,
    door: Door,
}

impl Watched for Serving {
    fn file(&self) -> BorrowedFd<'_> {
        self.exporter.epoll.as_fd()
    }

    fn ready(&mut self) -> Next {
        let Serving { exporter, door } = self;
        let (ready, asked) = exporter.ready();
        if exporter.bell.is_stopped.load(Ordering::Acquire) {
            return Next::Done;
        }
        let Some(context) = exporter.context.upgrade() else { return Next::Done };
        for number in ready {
            match number {
                LISTENER => exporter.admit(&context, door),
                BELL => {}
                number => exporter.attend(&context, door, number),
            }
        }
        exporter.tidy(&context, door);
        drop(context);
        *lock(&exporter.bell.made) = asked;
        exporter.bell.turned.notify_all();
        Next::Again(exporter.next_end(door))
    }
}
