//! Who comes in and who goes: connections taken, limited, closed.
//!
//! A new connection costs one file for a few seconds. Until it has claimed something it is a guest, and guests are
//! limited: over the limit, the oldest guest of the process that has most is closed, so that a flood displaces its own.
//! Where files are scarce no connection is accepted, and each gets the reason.

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millpond_core::share::Refusal;
use millpond_driver::locks::lock;
use rustc_hash::FxHashMap;
use rustix::event::epoll;
use rustix::process::{Resource, getrlimit};

use super::{Exporter, LISTENER};
use crate::share::announced::Named;
use crate::share::connection::Connection;
use crate::share::socket::{self, Received};
use crate::state::context::Context;

/// Taken in before others are served.
const ADMITTED_AT_ONCE: usize = 32;
/// Connections that have claimed nothing.
const GUESTS_MAX: usize = 64;
/// How long a connection may claim nothing.
const GUEST_LIFE: Duration = Duration::from_secs(5);
/// Connections of one process.
const PROCESS_MAX: usize = 64;
/// How long no process is let in where the system has no room for another file.
const REST: Duration = Duration::from_millis(100);

/// What the thread knows of who is there.
#[derive(Debug, Default)]
pub(super) struct Door {
    /// By age.
    guests: VecDeque<(Instant, Arc<Connection>)>,
    /// Connections of each process.
    processes: FxHashMap<u32, usize>,
    /// Lines of marks that were named, by their numbers: whose they are.
    pub(super) lines: FxHashMap<u64, (Arc<Connection>, Named)>,
    /// No process is let in until then.
    rests: Option<Instant>,
}

impl Door {
    pub(super) fn next_end(&self) -> Option<Instant> {
        let guest = self.guests.front().map(|(came, _)| *came + GUEST_LIFE);
        guest.into_iter().chain(self.rests).min()
    }

    fn count(&mut self, process: u32) -> &mut usize {
        self.processes.entry(process).or_default()
    }

    /// It is a guest no more.
    pub(super) fn welcome(&mut self, connection: &Arc<Connection>) {
        self.guests.retain(|(_, guest)| !Arc::ptr_eq(guest, connection));
    }

    /// The guest that goes where one more wants to come.
    fn least(&self) -> Option<Arc<Connection>> {
        let mut counts = FxHashMap::<u32, usize>::default();
        self.guests.iter().for_each(|(_, guest)| *counts.entry(guest.process()).or_default() += 1);
        let most = counts.into_iter().max_by_key(|(_, count)| *count)?.0;
        self.guests.iter().find(|(_, guest)| guest.process() == most).map(|(_, guest)| Arc::clone(guest))
    }
}

/// Whether a new file leaves enough for the rest of the process.
fn leaves_room(file: &OwnedFd) -> bool {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    (file.as_raw_fd() as u64) < limit - (limit / 8).min(64)
}

impl Exporter {
    /// Takes new importers in, if they may come.
    pub(super) fn admit(&self, context: &Arc<Context>, door: &mut Door) {
        for _ in 0..ADMITTED_AT_ONCE {
            match socket::accept(&self.listener) {
                Ok(Some(connection)) => self.let_in(context, door, connection),
                Ok(None) => return,
                Err(_) => {
                    // As many files are open as may be.
                    self.watch_door(false);
                    door.rests = Some(Instant::now() + REST);
                    return;
                }
            }
        }
    }

    fn watch_door(&self, watches: bool) {
        let flags = if watches { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
        let _ = epoll::modify(&self.epoll, &self.listener, epoll::EventData::new_u64(LISTENER), flags);
    }

    fn let_in(&self, context: &Arc<Context>, door: &mut Door, socket: OwnedFd) {
        let Ok(party) = socket::party(&socket) else { return };
        if !context.share().allows(party.user) {
            return self.turn_away(&socket, Refusal::OtherUser);
        }
        let is_full = party.process != 0 && *door.count(party.process) >= PROCESS_MAX;
        if is_full || !leaves_room(&socket) {
            return self.turn_away(&socket, Refusal::Full);
        }
        if door.guests.len() >= GUESTS_MAX
            && let Some(least) = door.least()
        {
            least.break_off();
            self.attend(context, door, least.number);
        }
        let Ok(number) = self.listen(&socket) else { return self.turn_away(&socket, Refusal::Full) };
        let connection = Connection::new(number, socket, party, (context, self.number), &self.bell, &self.counters);
        let connection = Arc::new(connection);
        *door.count(party.process) += 1;
        lock(&self.connections).insert(number, Arc::clone(&connection));
        door.guests.push_back((Instant::now(), connection));
    }

    /// Nothing comes any more from one whose process has yet to end.
    pub(super) fn part(&self, connection: &Arc<Connection>) {
        let Some(socket) = connection.take_socket() else { return };
        let _ = epoll::delete(&self.epoll, &*socket);
        socket::hang_up(&socket);
        if let Some(life) = connection.life() {
            // Where that is not noticed, whoever needs to know asks.
            let _ = self.listen_as(life, connection.number);
        }
    }

    /// An importer is gone: its files go, and the marks whose names it knows.
    pub(super) fn remove(&self, context: &Context, door: &mut Door, connection: &Arc<Connection>) {
        let Some(removed) = lock(&self.connections).remove(&connection.number) else { return };
        if let Some(socket) = connection.take_socket() {
            let _ = epoll::delete(&self.epoll, &*socket);
            socket::hang_up(&socket);
        } else if let Some(life) = connection.life() {
            let _ = epoll::delete(&self.epoll, life);
        }
        let process = connection.process();
        *door.count(process) -= 1;
        if *door.count(process) == 0 {
            door.processes.remove(&process);
        }
        door.welcome(connection);
        let its = |(_, line): &(&u64, &mut (Arc<Connection>, Named))| Arc::ptr_eq(&line.0, connection);
        for (_, (_, named)) in door.lines.extract_if(|number, line| its(&(number, line))) {
            let _ = epoll::delete(&self.epoll, &*named.line);
            named.forget(context);
        }
        drop(removed);
    }

    /// An importer let go of a mark whose name it knew, or is gone: then the mark stays until its process is
    /// over.
    pub(super) fn receive_line(&self, context: &Arc<Context>, door: &mut Door, number: u64) {
        let Some((connection, named)) = door.lines.get(&number) else { return };
        let received = socket::take(&*named.line, &mut [0]);
        if let Ok(Received::Nothing) = received {
            return;
        }
        let (connection, line) = (Arc::clone(connection), Arc::clone(&named.line));
        let _ = epoll::delete(&self.epoll, &*line);
        if let Ok(Received::Packet(..)) = received
            && let Some((_, named)) = door.lines.remove(&number)
        {
            named.forget(context);
            connection.count_named(-1);
            // It may be the last that it held.
            self.attend(context, door, connection.number);
        }
    }

    /// What has ended by now: tickets, guests that claimed nothing, a rest.
    pub(super) fn tidy(&self, context: &Arc<Context>, door: &mut Door) {
        let now = Instant::now();
        let ended = lock(&self.desk).expire(self.time(now));
        self.drop_tickets(ended);
        while door.guests.front().is_some_and(|(came, _)| now >= *came + GUEST_LIFE) {
            let Some((_, guest)) = door.guests.pop_front() else { break };
            guest.break_off();
            self.attend(context, door, guest.number);
        }
        if door.rests.is_some_and(|until| now >= until) {
            door.rests = None;
            self.watch_door(true);
        }
    }
}
