//! An importer, as its exporter sees it: its socket, its process, and its leases.
//!
//! A thread that must know now what an importer has sent receives it ([`Connection::receive`]). The device's thread
//! does so, too, when there is something to receive. This takes packets and applies their effects
//! (`millpond_core::share::Effect`). It closes, accepts and receives no file, sends nothing and answers nothing:
//! questions are left to the device's thread. So its cost depends on how much a holder of leases sends, and that is
//! limited for each lease.
//!
//! The system identifies an importer (**own-word**): its process, which speaks for one device. What it still holds
//! when its connection ends is taken back when that process has ended. On a system without pidfds, the end of the
//! socket counts as the end of the process.
//!
//! Locks: first a connection's, then heaps, lives and foreign chains; no thread that holds one of those takes a
//! connection's. A lease is released under the connection's lock, so that a thread that has received finds it
//! released. It is dropped after the lock is released, because the last reference to an allocation may own its whole
//! pool.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock, Weak};

use millpond_core::ids::HostId;
use millpond_core::share::{Broken, ChunkName, Effect, ExporterEnd, LeaseId, Part, Refusal, Request, Stage};
use millpond_driver::locks::{Mutex, lock};
use rustc_hash::FxHashMap;
use rustix::io::Errno;

use super::Exporter;
use super::lease::Lease;
use crate::share::foreign::Speaker;
use crate::share::socket::{self, Party, Received};
use crate::state::allocation::Allocation;
use crate::state::context::Context;
use crate::state::context::FoundContext;
use crate::state::lent::Importer;
use crate::sync::ranks;

/// The most packets that are received at once. If an importer obeys the rules, its socket never holds more.
const PACKETS_MAX: usize = 1024;
/// The most bytes of a request.
const REQUEST_BYTES_MAX: usize = 48 * 1024;

/// A connection of an importer. See the module.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) number: u64,
    party: Party,
    exporter: Weak<Exporter>,
    /// Readable once the process has ended; `None` if the system has no such files. Set by the first claim.
    life: OnceLock<Option<OwnedFd>>,
    state: Mutex<ranks::Connection, State>,
}

#[derive(Debug)]
struct State {
    end: ExporterEnd,
    /// Removed by the exporter's thread, the only one that closes it.
    socket: Option<Arc<OwnedFd>>,
    leases: FxHashMap<LeaseId, Lease>,
    /// The speaker for its chains, once it has said which device it is.
    speaker: Option<Speaker>,
    /// The host that stands for it in a trace.
    host: Option<HostId>,
}

/// Things to be dropped after the lock is released: released leases, and allocations that they kept.
#[derive(Debug, Default)]
struct Ended {
    leases: Vec<Lease>,
    allocations: Vec<Arc<Allocation>>,
}

impl Importer for Connection {
    fn catch_up(&self) {
        Connection::receive(self);
    }
}

/// Messages of the importer.
impl Connection {
    /// Receives what the importer has sent so far. Call it with no locks held.
    pub(crate) fn receive(&self) {
        let Some(exporter) = self.exporter.upgrade() else { return };
        let Some(context) = FoundContext::upgrade(&exporter.context) else { return };
        if self.receive_some(&exporter, context.handle(), PACKETS_MAX) {
            exporter.call(self.number);
        }
    }

    /// As [`receive`](Self::receive), for at most `packets` packets. Returns `true` if the device's thread must
    /// handle the connection.
    pub(super) fn receive_some(&self, exporter: &Exporter, context: &Arc<Context>, packets: usize) -> bool {
        let mut ended = Ended::default();
        let mut state = lock(&self.state);
        let before = (state.end.stage(), state.end.has_question());
        for _ in 0..packets {
            if !self.receive_one(exporter, context, &mut state, &mut ended) {
                break;
            }
        }
        let has_news = before != (state.end.stage(), state.end.has_question());
        drop(state);
        drop(ended);
        has_news
    }

    /// Receives one packet. Returns `true` if there may be more.
    fn receive_one(&self, exporter: &Exporter, context: &Arc<Context>, state: &mut State, ended: &mut Ended) -> bool {
        if let (Stage::Talks, Some(socket)) = (state.end.stage(), state.socket.clone()) {
            match read(&socket) {
                Ok(None) => return false,
                // An importer that breaks the rules is disconnected.
                Ok(Some(request)) => state.end.receive(request).unwrap_or_default().into_iter().for_each(|effect| {
                    self.apply(exporter, context, state, effect, ended);
                }),
                Err(Broken) => state.end.leave(),
            }
            return true;
        }
        let lives = self.life().is_some_and(|life| !socket::is_over(life));
        if let Some(left) = state.end.end(!lives) {
            exporter.count(|counts| {
                counts.reclaimed += left.held as u64;
                counts.lost += u64::from(left.held > 0);
            });
            // Traced before the leases are released, so that what the owner does after that also comes later in its
            // trace.
            if let (Some(tracer), Some(host)) = (&context.tracer, state.host) {
                tracer.process_ended(host);
            }
            state.leases.values_mut().for_each(Lease::let_go);
            ended.leases.extend(state.leases.drain().map(|(_, lease)| lease));
            state.speaker = None;
        }
        false
    }

    /// Applies an effect of a request.
    fn apply(&self, exporter: &Exporter, context: &Arc<Context>, state: &mut State, effect: Effect, ended: &mut Ended) {
        match effect {
            Effect::Returned { lease: id, uses } => {
                if let (None, Some(first)) = (&state.speaker, uses.first()) {
                    let key = socket::process_key(self.party, self.life(), self.number);
                    state.speaker = Some(context.speaker(key, self.process(), first.point.device));
                }
                let uses = match &state.speaker {
                    Some(speaker) if !uses.is_empty() => {
                        context.uses_here(exporter.number, speaker, self.process(), &uses)
                    }
                    _ => Some(Vec::new()),
                };
                let Some(uses) = uses else { return state.end.disbelieve(id) };
                // In the same order as at the end of a process: first the trace.
                if let Some(tracer) = &context.tracer {
                    tracer.released(id);
                }
                if let Some(lease) = state.leases.get_mut(&id) {
                    lease.release(&uses);
                }
                exporter.count(|counts| counts.released += 1);
            }
            Effect::Completed(id) => ended.allocations.extend(state.leases.get_mut(&id).and_then(Lease::complete)),
            Effect::Known(id) => ended.leases.extend(state.leases.remove(&id).map(|mut lease| {
                lease.let_go();
                lease
            })),
            Effect::Forgotten(id) => ended.leases.extend(state.leases.remove(&id).map(Lease::forget)),
        }
    }
}

/// Returns the next request, if there is one. The end of the connection is an error, too.
fn read(socket: &OwnedFd) -> std::result::Result<Option<Request>, Broken> {
    thread_local! {
        static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    }
    // A thread that ends may have lost the buffer before its last frees. It then makes a new one for each request.
    let mut room = ROOM.try_with(Cell::take).unwrap_or_default();
    room.resize(REQUEST_BYTES_MAX, 0);
    let read = match socket::take(socket, &mut room) {
        Ok(Received::Nothing) => Ok(None),
        Ok(Received::Packet(bytes, _)) => Request::from_bytes(&room[..bytes]).map(Some).map_err(|_| Broken),
        Ok(Received::End) | Err(_) => Err(Broken),
    };
    let _ = ROOM.try_with(|kept| kept.set(room));
    read
}

impl Connection {
    pub(super) fn new(number: u64, socket: OwnedFd, party: Party, exporter: &Arc<Exporter>) -> Connection {
        let (end, leases, speaker, host) = Default::default();
        let state = State { end, socket: Some(Arc::new(socket)), leases, speaker, host };
        let (exporter, life, state) = (Arc::downgrade(exporter), OnceLock::new(), Mutex::new(state));
        Connection { number, party, exporter, life, state }
    }

    /// Returns its process, as messages name it.
    pub(super) fn process(&self) -> u32 {
        self.party.process
    }

    /// Opens a pidfd of its process. Without it, nothing is lent to the importer.
    pub(super) fn identify(&self, socket: &OwnedFd) -> std::result::Result<(), Refusal> {
        if self.life.get().is_some() {
            return Ok(());
        }
        let life = socket::life(socket, self.party).map_err(|error| match error {
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => Refusal::Full,
            _ => Refusal::System,
        })?;
        // Only one thread identifies.
        let _ = self.life.set(life);
        Ok(())
    }

    pub(super) fn life(&self) -> Option<&OwnedFd> {
        self.life.get().and_then(Option::as_ref)
    }

    /// Removes the socket, for the device's thread to close.
    pub(super) fn take_socket(&self) -> Option<Arc<OwnedFd>> {
        lock(&self.state).socket.take()
    }

    /// Takes the open question, with the socket for the reply.
    pub(super) fn take_question(&self) -> Option<(Request, Arc<OwnedFd>)> {
        let mut state = lock(&self.state);
        let socket = state.socket.clone()?;
        Some((state.end.take_question()?, socket))
    }

    /// Adds a lease, and returns the host that stands for the importer in a trace. Returns the lease as the error if
    /// the connection has ended.
    pub(super) fn lend(
        &self,
        exporter: &Exporter,
        context: &Context,
        (id, lease): (LeaseId, Lease),
        (parts, can_write): (Arc<[Part]>, bool),
    ) -> std::result::Result<Option<HostId>, Lease> {
        let mut state = lock(&self.state);
        if !state.end.lend(id, parts, can_write) {
            return Err(lease);
        }
        state.leases.insert(id, lease);
        exporter.count(|counts| counts.lent += 1);
        if state.host.is_none() {
            state.host = context.tracer.as_ref().map(|tracer| tracer.process(self.process()));
        }
        Ok(state.host)
    }

    /// Returns chunks whose files the importer has and that do not exist any more.
    pub(super) fn forget_gone(&self, context: &Context) -> Vec<ChunkName> {
        if !self.end(|end| end.has_fetched()) {
            return Vec::new();
        }
        let pools = context.pools();
        let exists = |name: &ChunkName| {
            let pool = pools.iter().find(|pool| pool.id.0 == name.pool);
            pool.is_some_and(|pool| pool.lock().chunk_of(name.serial).is_some())
        };
        self.end(|end| end.forget_gone(exists))
    }

    /// Gives access to its state machine.
    pub(in crate::share) fn end<R>(&self, act: impl FnOnce(&mut ExporterEnd) -> R) -> R {
        act(&mut lock(&self.state).end)
    }
}
