//! The work of the device's thread for an exporter: accepting importers, answering them, removing them.
//!
//! No lock that other threads take is held while it accepts, receives a file, sends or closes. If files are scarce,
//! no connection is accepted, and each gets the reason. Anything that is lacking is found out before a ticket is used
//! up. If a reply cannot be sent, what it lent is taken back. An importer that breaks the rules of messages, or does
//! not read the replies to its questions, is treated as gone.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use millpond_core::share::{Admission, Broken, ChunkName, LeaseId, Refusal, Reply, Request, Stage, TicketKind};
use millpond_driver::locks::lock;
use millpond_driver::{Driver, is_unread};
use rustc_hash::FxHashMap;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::connection::Connection;
use super::{Exporter, Target};
use crate::share::announced::{Announced, Named};
use crate::share::socket::{self, Received};
use crate::share::thread::{Called, Entry, Next};
use crate::state::context::Context;

/// The number of the listening socket.
pub(super) const LISTENER: u64 = 0;
/// The first number of a connection.
pub(super) const FIRST: u64 = 1;
/// The number of packets of one importer that the thread receives before it turns to the next.
const TURN: usize = 64;
/// The number of importers that are accepted before others are served.
const ADMITTED_AT_ONCE: usize = 32;
/// The time for which no importer is accepted if the system has no room for another file.
const REST: Duration = Duration::from_millis(100);

type Answer = std::result::Result<(Reply, Vec<OwnedFd>), Refusal>;

/// An exporter while it serves its importers.
#[derive(Debug)]
pub(super) struct Serving {
    exporter: Arc<Exporter>,
    admission: Admission,
    /// The sockets of events with names, by their numbers, with their connections.
    lines: FxHashMap<u64, (Arc<Connection>, Named)>,
    /// No importer is accepted until this time.
    rests: Option<Instant>,
}

impl Entry for Serving {
    fn file(&self) -> Option<BorrowedFd<'_>> {
        Some(self.exporter.epoll.as_fd())
    }

    fn ready(&mut self, _: Called<'_>) -> Next {
        if self.exporter.is_stopped.load(Ordering::Acquire) {
            return Next::Done;
        }
        let Some(context) = self.exporter.context.upgrade() else { return Next::Done };
        for number in self.ready_files() {
            match number {
                LISTENER => self.admit(&context),
                number => self.attend(&context, number),
            }
        }
        self.end_overdue(&context);
        drop(context);
        Next::Again(self.next_end())
    }
}

impl Serving {
    pub(super) fn new(exporter: &Arc<Exporter>) -> Self {
        let (admission, lines, rests) = Default::default();
        Self { exporter: Arc::clone(exporter), admission, lines, rests }
    }

    /// Returns the connections that the thread is called to, and the files that are ready.
    fn ready_files(&self) -> Vec<u64> {
        let mut ready = std::mem::take(&mut lock(&self.exporter.books).called);
        let mut events: Vec<epoll::Event> = Vec::with_capacity(64);
        let room = rustix::buffer::spare_capacity(&mut events);
        // If the call is interrupted, the next one finds them: they are still ready.
        let _ = epoll::wait(&self.exporter.epoll, room, Some(&Timespec::default()));
        ready.extend(events.iter().map(|event| event.data.u64()));
        ready
    }

    /// Returns the time at which the next thing ends that the thread must handle.
    fn next_end(&self) -> Option<Instant> {
        let end = lock(&self.exporter.books).tickets.next_end().into_iter().chain(self.admission.next_end()).min();
        let end = end.and_then(|end| self.exporter.began.checked_add(Duration::from_nanos(end)));
        end.into_iter().chain(self.rests).min()
    }

    /// Ends what has expired by now: tickets, guests that claimed nothing, a pause of accepting.
    fn end_overdue(&mut self, context: &Arc<Context>) {
        let now = Instant::now();
        let time = self.exporter.time(now);
        let ended = lock(&self.exporter.books).tickets.expire(time);
        self.exporter.drop_tickets(ended);
        while let Some(guest) = self.admission.overdue(time) {
            self.break_off(context, guest);
        }
        if self.rests.is_some_and(|until| now >= until) {
            self.rests = None;
            self.watch_listener(true);
        }
    }

    /// Handles one connection, or the socket of an event of one.
    fn attend(&mut self, context: &Arc<Context>, number: u64) {
        let Some(connection) = self.exporter.find(number) else { return self.receive_line(context, number) };
        connection.receive_some(&self.exporter, context, TURN);
        if let Some((question, socket)) = connection.take_question()
            && self.answer(context, &connection, &socket, question).is_err()
        {
            connection.end(|end| end.leave());
            connection.receive_some(&self.exporter, context, 1);
        }
        match connection.end(|end| end.stage()) {
            Stage::Talks => {}
            Stage::Leaves => self.part(&connection),
            Stage::Gone => self.remove(context, &connection),
        }
    }
}

/// Importers that come and go.
impl Serving {
    /// Accepts new importers, if they are allowed.
    fn admit(&mut self, context: &Arc<Context>) {
        for _ in 0..ADMITTED_AT_ONCE {
            match socket::accept(&self.exporter.listener) {
                Ok(Some(connection)) => self.let_in(context, connection),
                Ok(None) => return,
                Err(_) => {
                    // The limit on open files is reached.
                    self.watch_listener(false);
                    self.rests = Some(Instant::now() + REST);
                    return;
                }
            }
        }
    }

    fn watch_listener(&self, watches: bool) {
        let flags = if watches { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
        let data = epoll::EventData::new_u64(LISTENER);
        let _ = epoll::modify(&self.exporter.epoll, &self.exporter.listener, data, flags);
    }

    fn let_in(&mut self, context: &Arc<Context>, socket: OwnedFd) {
        let Ok(party) = socket::party(&socket) else { return };
        if !context.share.allows(party.user) {
            return self.turn_away(&socket, Refusal::OtherUser);
        }
        if self.admission.is_full(party.process) || !leaves_room(&socket) {
            return self.turn_away(&socket, Refusal::Full);
        }
        if let Some(guest) = self.admission.displaced() {
            self.break_off(context, guest);
        }
        let Ok(number) = self.exporter.listen(&socket) else { return self.turn_away(&socket, Refusal::Full) };
        self.admission.enter(number, party.process, self.exporter.time(Instant::now()));
        let connection = Arc::new(Connection::new(number, socket, party, &self.exporter));
        lock(&self.exporter.books).connections.insert(number, connection);
    }

    /// Refuses a process that is not accepted.
    fn turn_away(&self, connection: &OwnedFd, why: Refusal) {
        self.exporter.count(|counts| counts.refused += 1);
        let _ = socket::send(connection, &Reply::Refused(why).to_bytes(), &[], false);
    }

    /// Ends a connection: nothing more is received from it.
    fn break_off(&mut self, context: &Arc<Context>, number: u64) {
        self.admission.claimed(number);
        if let Some(connection) = self.exporter.find(number) {
            connection.end(|end| end.leave());
            self.attend(context, number);
        }
    }

    /// Closes the socket of a connection whose process has not ended yet, and waits for that.
    fn part(&self, connection: &Connection) {
        let Some(socket) = connection.take_socket() else { return };
        self.exporter.listen_no_more(&*socket);
        socket::hang_up(&socket);
        if let Some(life) = connection.life() {
            // If this fails, the threads that need to know ask for it.
            let _ = self.exporter.listen_as(life, connection.number);
        }
    }

    /// Removes an importer that is gone: its files, and the events whose names it has.
    fn remove(&mut self, context: &Context, connection: &Arc<Connection>) {
        let Some(removed) = lock(&self.exporter.books).connections.remove(&connection.number) else { return };
        if let Some(socket) = connection.take_socket() {
            self.exporter.listen_no_more(&*socket);
            socket::hang_up(&socket);
        } else if let Some(life) = connection.life() {
            self.exporter.listen_no_more(life);
        }
        self.admission.leave(connection.number, connection.process());
        for (_, (_, named)) in self.lines.extract_if(|_, (whose, _)| Arc::ptr_eq(whose, connection)) {
            self.exporter.listen_no_more(&*named.line);
            named.forget(context);
        }
        drop(removed);
    }

    /// Handles an importer that does not use the name of an event any more. If the importer is gone, the event stays
    /// until its process has ended.
    fn receive_line(&mut self, context: &Arc<Context>, number: u64) {
        let Some((connection, named)) = self.lines.get(&number) else { return };
        let received = socket::take(&*named.line, &mut [0]);
        if let Ok(Received::Nothing) = received {
            return;
        }
        let (connection, line) = (Arc::clone(connection), Arc::clone(&named.line));
        self.exporter.listen_no_more(&*line);
        if let Ok(Received::Packet(..)) = received
            && let Some((_, named)) = self.lines.remove(&number)
        {
            named.forget(context);
            connection.end(|end| end.close_event());
            // It may have been the last thing that it held.
            self.attend(context, connection.number);
        }
    }
}

/// Returns `true` if a new file leaves enough files for the rest of the process.
fn leaves_room(file: &OwnedFd) -> bool {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    (file.as_raw_fd() as u64) < limit - (limit / 8).min(64)
}

/// Replies.
impl Serving {
    fn answer(
        &mut self,
        context: &Arc<Context>,
        connection: &Arc<Connection>,
        socket: &OwnedFd,
        question: Request,
    ) -> std::result::Result<(), Broken> {
        if is_unread(socket).unwrap_or(true) {
            // It asks again without reading: files that wait to be read count against all importers.
            return Err(Broken);
        }
        let answer = match question {
            Request::Claim { kind, nonce } => self.claim(context, connection, socket, (kind, nonce)),
            Request::Parts { lease, from } => {
                connection.end(|end| end.parts(lease, from)).map(|parts| (Reply::Parts(parts), Vec::new()))
            }
            Request::Fetch(chunks) => fetch(context, connection, &chunks),
            _ => return Err(Broken),
        };
        let (reply, files) = answer.unwrap_or_else(|why| (Reply::Refused(why), Vec::new()));
        if let Reply::Refused(_) = &reply {
            self.exporter.count(|counts| counts.refused += 1);
        }
        let borrowed: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        match socket::send(socket, &reply.to_bytes(), &borrowed, false) {
            Err(Errno::TOOMANYREFS | Errno::NOMEM) => {
                // Too many files of this user are in transit. This will pass.
                self.exporter.count(|counts| counts.refused += 1);
                let full = Reply::Refused(Refusal::Full).to_bytes();
                socket::send(socket, &full, &[], false).map_err(|_| Broken)
            }
            sent => sent.map_err(|_| Broken),
        }
    }

    fn claim(
        &mut self,
        context: &Arc<Context>,
        connection: &Arc<Connection>,
        socket: &OwnedFd,
        (kind, nonce): (TicketKind, u128),
    ) -> Answer {
        connection.identify(socket)?;
        if !connection.end(|end| end.has_room()) {
            return Err(Refusal::Full);
        }
        let exporter = &self.exporter;
        let now = exporter.time(Instant::now());
        let target = lock(&exporter.books).tickets.redeem(nonce, kind, now)?;
        let answer = match target {
            Target::Memory(offer) => {
                let id = LeaseId(exporter.next.fetch_add(1, Ordering::Relaxed));
                let importer: Weak<Connection> = Arc::downgrade(connection);
                let importer = (connection.process(), importer as _);
                let (mut grant, parts, lease) = offer.lend(context, exporter.number, id, importer)?;
                let host = connection.lend(exporter, context, (id, lease), (parts, grant.can_write));
                let host = host.map_err(|_| Refusal::System)?;
                if let (Some(tracer), Some(host)) = (&context.tracer, host) {
                    tracer.lent(host, nonce, id);
                }
                grant.gone = connection.forget_gone(context);
                (Reply::Memory(grant), Vec::new())
            }
            Target::Event(announced) => self.announce(context, connection, announced)?,
            Target::Pool(pool) => {
                let pool = pool.upgrade().ok_or(Refusal::Stale)?;
                pool.is_open.store(true, Ordering::Release);
                (Reply::Pool(pool.id.0), Vec::new())
            }
        };
        self.admission.claimed(connection.number);
        Ok(answer)
    }

    fn announce(&mut self, context: &Context, connection: &Arc<Connection>, announced: Announced) -> Answer {
        let (file, named) = announced.announce(context).map_err(|_| Refusal::System)?;
        let mut grant = announced.grant;
        if let Some((name, named)) = named {
            let Ok(number) = self.exporter.listen(&*named.line) else {
                named.forget(context);
                return Err(Refusal::Full);
            };
            self.lines.insert(number, (Arc::clone(connection), named));
            connection.end(|end| end.name_event());
            grant.name = Some(name);
        }
        Ok((Reply::Event(grant), vec![file]))
    }
}

/// Returns the files of chunks that the importer may have.
fn fetch(context: &Context, connection: &Connection, chunks: &[ChunkName]) -> Answer {
    let can_write = connection.end(|end| end.may_fetch(chunks))?;
    let pools = context.pools();
    let mut files = Vec::with_capacity(chunks.len());
    for (name, can_write) in chunks.iter().zip(can_write) {
        let pool = pools.iter().find(|pool| pool.id.0 == name.pool).ok_or(Refusal::NotLent)?;
        let heap = pool.lock();
        let chunk = heap.chunk_of(name.serial).ok_or(Refusal::NotLent)?;
        let file = if can_write { context.driver.export(chunk) } else { context.driver.export_to_read(chunk) };
        files.push(file.map_err(|_| Refusal::Full)?);
    }
    connection.end(|end| end.fetched(chunks));
    Ok((Reply::Chunks(files.len() as u32), files))
}
