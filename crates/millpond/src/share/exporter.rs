//! An exporter: one thread that serves importers over a socket, and what it remembers of them.
//!
//! All that is known is behind one lock, the server's. The thread waits for packets without it and serves them under
//! it; so does whoever must know now what importers have said ([`Exporter::settle`]): what was sent before somebody
//! was told of it is then served, and no verdict depends on how fast the thread is. Locks: the server's, then a pool's
//! heap, then lives; nobody who holds one of those takes the server's.
//!
//! An importer that breaks the rules of the messages, or does not read what it asked for, is treated as gone. What one
//! that is gone has not given back comes back when its process is over, and not with its socket: work of a process that
//! was killed may run on for a moment. Where the system has no files of processes, the socket's end has to do.

mod leaving;

use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use millpond_core::ids::{HostId, Point};
use millpond_core::share::{ChunkName, ConnectionId, Counts, Desk, FETCH_CHUNKS_MAX, LeaseId, PARTS_MAX};
use millpond_core::share::{Part, Refusal, Reply, Request, Ticket, TicketKind};
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;

use super::error::ShareError;
use super::event::{Announced, Named};
use super::lend::{Lease, Offer};
use super::socket::{self, Received};
use crate::context::{Context, lock};
use crate::error::Result;
use crate::pool::PoolShared;

const LISTENER: u64 = 0;
const STOP: u64 = 1;
/// The first number of a connection.
const FIRST: u64 = 2;
/// Packets that are served before whoever wants to know what was said gets its answer: importers that never stop
/// talking hold nobody up.
const ROUNDS_MAX: usize = 4096;
/// Releases remembered of one importer whose host was never told that they are over.
const RETURNING_MAX: usize = 4096;
/// How long the thread rests where the system has no room for another importer.
const PAUSE: Duration = Duration::from_millis(1);

/// What a ticket stands for.
#[derive(Debug)]
pub(super) enum Target {
    Memory(Offer),
    Event(Announced),
    Pool(Weak<PoolShared>),
}

/// A release whose uses the owner does not come after by itself.
struct Returning {
    lease: Lease,
    points: Vec<Point>,
    is_over: bool,
}

/// An importer.
struct Connection {
    socket: OwnedFd,
    process: u32,
    /// Readable once the process is over.
    life: Option<OwnedFd>,
    /// Nothing is heard of it any more; its process has yet to end.
    is_leaving: bool,
    /// Marks that it was told the names of, by their numbers here.
    named: FxHashMap<u64, Named>,
    /// Who stands for it in a trace.
    host: Option<HostId>,
    pools: FxHashSet<u32>,
    /// The chunks that it has files of.
    fetched: FxHashSet<ChunkName>,
    returning: FxHashMap<LeaseId, Returning>,
    /// Devices that its releases named.
    devices: FxHashSet<u128>,
}

struct Server {
    listener: OwnedFd,
    desk: Desk<Target, Lease>,
    connections: FxHashMap<u64, Connection>,
    room: Vec<u8>,
}

/// The exporting side of a device.
pub(crate) struct Exporter {
    pub(super) number: u128,
    context: Weak<Context>,
    epoll: OwnedFd,
    /// What is listened to next gets this number.
    next: AtomicU64,
    stop: OwnedFd,
    server: Mutex<Server>,
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exporter").finish_non_exhaustive()
    }
}

/// What is said back, and whether the connection goes on.
type Answer = std::result::Result<Option<(Reply, Vec<OwnedFd>)>, Broken>;

/// The importer broke the rules.
struct Broken;

impl Exporter {
    /// Opens the socket and starts the thread.
    pub(super) fn open(context: &Arc<Context>) -> Result<Arc<Exporter>> {
        let number = context.share.number()?;
        let system = |call| ShareError::system(call);
        let listener = socket::listen(number).map_err(system("listen for importers"))?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(system("listen for importers"))?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(system("listen for importers"))?;
        for (file, number) in [(&listener, LISTENER), (&stop, STOP)] {
            let data = epoll::EventData::new_u64(number);
            epoll::add(&epoll, file, data, epoll::EventFlags::IN).map_err(system("listen for importers"))?;
        }
        let (desk, connections) = Default::default();
        let server = Server { listener, desk, connections, room: socket::room() };
        let context = Arc::downgrade(context);
        let exporter = Arc::new(Exporter {
            number,
            context,
            epoll,
            next: AtomicU64::new(FIRST),
            stop,
            server: Mutex::new(server),
        });
        let served = Arc::clone(&exporter);
        std::thread::Builder::new().name("millpond share".into()).spawn(move || served.serve()).map_err(|error| {
            ShareError::System { call: "start the thread for importers", reason: error.to_string() }
        })?;
        Ok(exporter)
    }

    /// The device is gone: the thread ends, and with it the socket.
    pub(super) fn stop(&self) {
        // It has room for one more: nobody else writes.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
    }

    /// Gives a ticket out.
    pub(super) fn issue(&self, kind: TicketKind, target: Target, bytes: u64) -> Result<Ticket> {
        let nonce = socket::random().map_err(ShareError::system("make a ticket"))?;
        let is_good = |target: &Target| match target {
            Target::Memory(offer) => offer.is_good(),
            Target::Event(_) => true,
            Target::Pool(pool) => pool.strong_count() > 0,
        };
        let issued = lock(&self.server).desk.issue(nonce, kind, target, is_good);
        issued.map_err(|full| ShareError::Full(full.to_string()))?;
        Ok(Ticket { kind, exporter: self.number, nonce, bytes })
    }

    /// How often things happened, leases that are out, and importers that are connected.
    pub(super) fn counts(&self) -> (Counts, usize, usize) {
        self.settle();
        let server = lock(&self.server);
        let importers = server.connections.values().filter(|connection| !connection.is_leaving).count();
        (server.desk.counts(), server.desk.leases().count(), importers)
    }

    /// Serves all that importers have said so far. Called with no locks held.
    pub(crate) fn settle(&self) {
        let Some(context) = self.context.upgrade() else { return };
        let mut ended = Vec::new();
        {
            let mut server = lock(&self.server);
            for _ in 0..ROUNDS_MAX {
                let Ok(ready) = self.ready(true) else { break };
                let others: Vec<u64> = ready.into_iter().filter(|number| *number != STOP).collect();
                if others.is_empty() {
                    break;
                }
                self.serve_ready(&context, &mut server, &others, &mut ended);
            }
        }
        // Behind the lock: the last reference to an allocation may have its whole pool with it.
        drop(ended);
    }

    fn ready(&self, at_once: bool) -> rustix::io::Result<Vec<u64>> {
        const NONE: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut events = Vec::with_capacity(64);
        epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), at_once.then_some(&NONE))?;
        Ok(events.into_iter().map(|event: epoll::Event| event.data.u64()).collect())
    }

    fn serve(&self) {
        loop {
            let ready = match self.ready(false) {
                Ok(ready) => ready,
                Err(Errno::INTR) => continue,
                Err(_) => return,
            };
            let Some(context) = self.context.upgrade() else { return };
            let mut ended = Vec::new();
            self.serve_ready(&context, &mut lock(&self.server), &ready, &mut ended);
            drop(ended);
            if ready.contains(&STOP) {
                return;
            }
        }
    }

    fn serve_ready(&self, context: &Arc<Context>, server: &mut Server, ready: &[u64], ended: &mut Vec<Lease>) {
        for number in ready {
            match *number {
                STOP => {}
                LISTENER => self.admit(context, server),
                number => match server.connections.get(&number).map(|connection| connection.is_leaving) {
                    Some(true) => self.close(context, server, number, ended),
                    Some(false) => {
                        if self.serve_one(context, server, number, ended).is_err() {
                            self.leave(context, server, number, ended);
                        }
                    }
                    None => self.hear(context, server, number),
                },
            }
        }
    }

    /// Takes new importers in, if their users may.
    fn admit(&self, context: &Context, server: &mut Server) {
        loop {
            let connection = match socket::accept(&server.listener) {
                Ok(Some(connection)) => connection,
                Ok(None) => return,
                // As many files are open as may be: the importer waits, and is looked at again soon.
                Err(_) => return std::thread::sleep(PAUSE),
            };
            let Ok(party) = socket::party(&connection) else { continue };
            if !context.share.allows(party.user) {
                server.desk.refused();
                let no = Reply::Refused(Refusal::OtherUser).to_bytes();
                let _ = socket::send(&connection, &no, &[], false);
                continue;
            }
            let Ok(number) = self.listen(&connection) else { continue };
            let life = socket::life(&connection, party);
            let host = context.tracer.as_ref().map(|tracer| tracer.process(party.process));
            let (pools, fetched, returning, devices, named) = Default::default();
            let (socket, process, is_leaving) = (connection, party.process, false);
            let connection =
                Connection { socket, process, life, is_leaving, named, host, pools, fetched, returning, devices };
            server.connections.insert(number, connection);
        }
    }

    /// Serves one packet of an importer.
    fn serve_one(
        &self,
        context: &Arc<Context>,
        server: &mut Server,
        number: u64,
        ended: &mut Vec<Lease>,
    ) -> std::result::Result<(), Broken> {
        let Some(connection) = server.connections.get_mut(&number) else { return Ok(()) };
        let request = match socket::receive(&connection.socket, &mut server.room, false) {
            Ok(Received::Nothing) => return Ok(()),
            Ok(Received::Packet(bytes, _)) => Request::from_bytes(&server.room[..bytes]),
            Ok(Received::End) | Err(_) => return Err(Broken),
        };
        let who = ConnectionId(number);
        let answer = match request {
            Err(_) => Ok(Some((Reply::Refused(Refusal::Malformed), Vec::new()))),
            Ok(request) => self.answer(context, &mut server.desk, connection, who, request, ended),
        };
        let Some((reply, files)) = answer? else { return Ok(()) };
        if let Reply::Refused(_) = &reply {
            server.desk.refused();
        }
        let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        socket::send(&connection.socket, &reply.to_bytes(), &files, false).map_err(|_| Broken)
    }

    fn answer(
        &self,
        context: &Arc<Context>,
        desk: &mut Desk<Target, Lease>,
        connection: &mut Connection,
        who: ConnectionId,
        request: Request,
        ended: &mut Vec<Lease>,
    ) -> Answer {
        let alone = |reply| Ok(Some((reply, Vec::new())));
        match request {
            Request::Claim { kind, nonce } => match self.claim(context, desk, connection, who, (kind, nonce)) {
                Ok((reply, files)) => Ok(Some((reply, files))),
                Err(why) => alone(Reply::Refused(why)),
            },
            Request::Parts { lease, from } => match desk.lent(who, lease) {
                Ok(lease) => {
                    alone(Reply::Parts(lease.parts.iter().copied().skip(from as usize).take(PARTS_MAX).collect()))
                }
                Err(why) => alone(Reply::Refused(why)),
            },
            Request::Fetch(chunks) => match fetch(context, desk, connection, who, &chunks) {
                Ok(files) => Ok(Some((Reply::Chunks(files.len() as u32), files))),
                Err(why) => alone(Reply::Refused(why)),
            },
            Request::Release { lease: id, uses } => {
                let lease = desk.release(who, id).map_err(|_| Broken)?;
                connection.devices.extend(uses.iter().map(|known| known.point.device));
                let points = lease.release(context, self.number, &uses).map_err(|_| Broken)?;
                if let (Some(tracer), Some(host)) = (&context.tracer, connection.host) {
                    tracer.released(host, id);
                }
                match points.is_empty() {
                    true => ended.push(lease),
                    false => connection.keep(id, Returning { lease, points, is_over: false }, ended),
                }
                Ok(None)
            }
            Request::Over(id) => {
                if let Some(returning) = connection.returning.get_mut(&id) {
                    returning.over();
                }
                Ok(None)
            }
            Request::Known(id) => {
                if let Some(mut returning) = connection.returning.remove(&id) {
                    returning.over();
                    returning.lease.known(&returning.points);
                    ended.push(returning.lease);
                }
                Ok(None)
            }
        }
    }

    fn claim(
        &self,
        context: &Arc<Context>,
        desk: &mut Desk<Target, Lease>,
        connection: &mut Connection,
        who: ConnectionId,
        (kind, nonce): (TicketKind, u128),
    ) -> std::result::Result<(Reply, Vec<OwnedFd>), Refusal> {
        match desk.redeem(nonce, kind)? {
            Target::Memory(offer) => {
                let (mut grant, lease) = offer.lend(context, self.number, connection.process)?;
                grant.lease = desk.lend(who, lease);
                if let (Some(tracer), Some(host)) = (&context.tracer, connection.host) {
                    tracer.lent(host, nonce, grant.lease);
                }
                grant.gone = connection.forget_gone(context);
                Ok((Reply::Memory(grant), Vec::new()))
            }
            Target::Event(announced) => {
                let (file, named) = announced.announce(context).map_err(|_| Refusal::System)?;
                let mut grant = announced.grant;
                if let Some((name, named)) = named {
                    let number = self.listen(&*named.line);
                    let Ok(number) = number else {
                        named.forget(context);
                        return Err(Refusal::System);
                    };
                    connection.named.insert(number, named);
                    grant.name = Some(name);
                }
                Ok((Reply::Event(grant), vec![file]))
            }
            Target::Pool(pool) => {
                let pool = pool.upgrade().ok_or(Refusal::Stale)?;
                connection.pools.insert(pool.id.0);
                Ok((Reply::Pool(pool.id.0), Vec::new()))
            }
        }
    }

    /// Listens to a file, by a number that no other has.
    fn listen(&self, file: impl AsFd) -> rustix::io::Result<u64> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        epoll::add(&self.epoll, file, epoll::EventData::new_u64(number), epoll::EventFlags::IN)?;
        Ok(number)
    }
}

impl Returning {
    fn over(&mut self) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.lease.over();
        }
    }
}

impl Connection {
    /// Remembers a release; of those that are over, the oldest are forgotten where there are too many.
    fn keep(&mut self, id: LeaseId, returning: Returning, ended: &mut Vec<Lease>) {
        self.returning.insert(id, returning);
        if self.returning.len() > RETURNING_MAX {
            let oldest = self.returning.iter().filter(|(_, it)| it.is_over).map(|(id, _)| *id).min();
            ended.extend(oldest.and_then(|id| self.returning.remove(&id)).map(|it| it.lease));
        }
    }

    /// Chunks that it has files of and that exist no more.
    fn forget_gone(&mut self, context: &Context) -> Vec<ChunkName> {
        if self.fetched.is_empty() {
            return Vec::new();
        }
        let pools = context.pools();
        let mut gone = Vec::new();
        let is_there = |name: &ChunkName| {
            let pool = pools.iter().find(|pool| pool.id.0 == name.pool);
            pool.is_some_and(|pool| pool.lock().chunk_of(name.serial).is_some())
        };
        self.fetched.retain(|name| {
            let keeps = gone.len() == PARTS_MAX || is_there(name);
            if !keeps {
                gone.push(*name);
            }
            keeps
        });
        gone
    }
}

/// The files of chunks, where the importer may have them.
fn fetch(
    context: &Context,
    desk: &Desk<Target, Lease>,
    connection: &mut Connection,
    who: ConnectionId,
    chunks: &[ChunkName],
) -> std::result::Result<Vec<OwnedFd>, Refusal> {
    debug_assert!(chunks.len() <= FETCH_CHUNKS_MAX, "the reader of requests refuses more");
    let lent: FxHashSet<ChunkName> =
        desk.lent_to(who).flat_map(|lease| &lease.parts).map(|part: &Part| part.chunk).collect();
    let pools = context.pools();
    let mut files = Vec::with_capacity(chunks.len());
    for name in chunks {
        if !lent.contains(name) && !connection.pools.contains(&name.pool) {
            return Err(Refusal::NotLent);
        }
        let pool = pools.iter().find(|pool| pool.id.0 == name.pool).ok_or(Refusal::NotLent)?;
        let heap = pool.lock();
        let chunk = heap.chunk_of(name.serial).ok_or(Refusal::NotLent)?;
        files.push(millpond_driver::Driver::export(&*context.driver, chunk).map_err(|_| Refusal::System)?);
    }
    connection.fetched.extend(chunks);
    Ok(files)
}
