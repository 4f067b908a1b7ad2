//! An importer, as its exporter knows it: what it has said, and what it holds.
//!
//! Whoever must know now what an importer has said receives it ([`Connection::receive`]); so does the exporter's thread
//! when something is there. That takes packets in and does what they state: a lease ends, its uses have completed. It
//! closes, accepts and receives no file, sends nothing and answers nothing: questions are left to the thread, one at a
//! time. So what it costs depends on how much a holder of leases says, and a holder can say only so much of each lease.
//!
//! Invariant **own-word**: who an importer is the system says: its process, and by its first release the device of that
//! process which it speaks for. All that a message names is looked up among what this connection has. A message that
//! breaks the rules ends the talk, and so does the end of the socket. What the importer still holds then comes back
//! when its process has ended: work of a process that was killed may run on for a moment. Where the system has no
//! pidfds, the end of the socket counts as the end of the process.
//!
//! Locks: a connection's, then heaps and lives, chains of others; no thread that holds one of those takes it. A lease
//! lets go under it, so that whoever has received finds it so, and is dropped behind it: the last reference to an
//! allocation may have its whole pool with it.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use millpond_core::ids::HostId;
use millpond_core::share::{ChunkName, ForeignUse, LeaseId, PARTS_MAX, Part, Refusal, Request};
use millpond_driver::locks::{Mutex, lock};
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::io::Errno;

use super::abroad::Speaker;
use super::bell::{Bell, Counters};
use super::lease::Lease;
use super::socket::{self, Party, Received};
use crate::state::context::Context;
use crate::state::context::FoundContext;
use crate::state::device::Allocation;
use crate::state::lent::Importer;
use crate::sync::ranks;

/// Packets that are received at once; no socket holds more of an importer that obeys the rules.
const PACKETS_MAX: usize = 1024;
/// No request is larger, in bytes.
const REQUEST_BYTES_MAX: usize = 48 * 1024;
/// The most leases of one importer.
const LEASES_MAX: usize = 1 << 15;
/// Leases remembered of one importer whose host never learned that their uses have completed.
const OVER_MAX: usize = 4096;
/// Words about leases that are forgotten, beyond those that are owed; whoever says more breaks the rules.
const STRAYS_MAX: usize = 2 * OVER_MAX;

/// See the module.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(super) number: u64,
    pub(super) party: Party,
    /// The exporting device, and its number.
    context: Weak<Context>,
    device: u128,
    bell: Arc<Bell>,
    counters: Arc<Counters>,
    /// Readable once the process has ended; none where the system has no such files. Set with the first claim.
    life: OnceLock<Option<OwnedFd>>,
    /// Whether a claim of it was granted.
    has_claimed: AtomicBool,
    state: Mutex<ranks::Connection, State>,
    fetched: Mutex<ranks::Fetched, Fetched>,
}

/// What becomes of an importer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// It is read.
    Talks,
    /// Nothing comes from it any more; its process has yet to end.
    Leaves,
    /// It has nothing any more.
    Gone,
}

#[derive(Debug)]
struct State {
    stage: Stage,
    /// Taken away by the exporter's thread, which alone closes it.
    socket: Option<Arc<OwnedFd>>,
    /// Asked and not answered.
    question: Option<Request>,
    leases: FxHashMap<LeaseId, Lease>,
    /// How many it has given back.
    returned: u64,
    /// How many of them have completed, and are not known to have by the importer's host.
    over: usize,
    /// Words that may yet come about leases that are forgotten.
    owed: usize,
    strays: usize,
    /// Marks whose names it knows.
    named: usize,
    speaker: Option<Speaker>,
    /// Who stands for it in a trace.
    host: Option<HostId>,
}

/// The importer broke the rules.
pub(super) struct Broken;

/// What is to be dropped behind the lock: leases that have let go, and what others kept.
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

impl Connection {
    pub(super) fn new(
        number: u64,
        socket: OwnedFd,
        party: Party,
        (context, device): (&Arc<Context>, u128),
        bell: &Arc<Bell>,
        counters: &Arc<Counters>,
    ) -> Connection {
        let (leases, has_claimed) = Default::default();
        let state = State {
            stage: Stage::Talks,
            socket: Some(Arc::new(socket)),
            question: None,
            leases,
            returned: 0,
            over: 0,
            owed: 0,
            strays: 0,
            named: 0,
            speaker: None,
            host: None,
        };
        let (bell, counters, life) = (Arc::clone(bell), Arc::clone(counters), OnceLock::new());
        let (state, fetched) = (Mutex::new(state), Mutex::default());
        let context = Arc::downgrade(context);
        Connection { number, party, context, device, bell, counters, life, has_claimed, state, fetched }
    }

    /// Its process, as messages name it.
    pub(super) fn process(&self) -> u32 {
        self.party.process
    }

    /// Whether it is another process than this.
    pub(super) fn is_foreign(&self) -> bool {
        self.party.process != std::process::id()
    }

    /// Takes a file of its process, without which nothing is lent to it.
    pub(super) fn identify(&self, socket: &OwnedFd) -> std::result::Result<(), Refusal> {
        if self.life.get().is_some() {
            return Ok(());
        }
        let life = socket::life(socket, self.party).map_err(|error| match error {
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => Refusal::Full,
            _ => Refusal::System,
        })?;
        // One thread identifies.
        let _ = self.life.set(life);
        Ok(())
    }

    pub(super) fn has_claimed(&self) -> bool {
        self.has_claimed.load(Ordering::Acquire)
    }

    /// Receives what the importer has said so far. Called with no locks held.
    pub(crate) fn receive(&self) {
        if let Some(context) = FoundContext::upgrade(&self.context) {
            self.receive_some(context.handle(), PACKETS_MAX);
        }
    }

    /// As [`receive`](Self::receive), of so many packets.
    pub(super) fn receive_some(&self, context: &Arc<Context>, packets: usize) {
        let mut ended = Ended::default();
        let mut state = lock(&self.state);
        let before = (state.stage, state.question.is_some());
        for _ in 0..packets {
            if !self.receive_one(context, &mut state, &mut ended) {
                break;
            }
        }
        let has_news = before != (state.stage, state.question.is_some());
        drop(state);
        drop(ended);
        if has_news {
            self.bell.ring(self.number);
        }
    }

    /// Takes one packet in; whether there may be more.
    fn receive_one(&self, context: &Arc<Context>, state: &mut State, ended: &mut Ended) -> bool {
        match (state.stage, state.socket.clone()) {
            (Stage::Talks, Some(socket)) => {
                let received = match read(&socket) {
                    Ok(None) => return false,
                    Ok(Some(request)) => self.take_in(context, state, request, ended),
                    Err(broken) => Err(broken),
                };
                if received.is_err() {
                    self.leave(state);
                }
                true
            }
            (Stage::Talks | Stage::Leaves, _) => {
                let lives = self.life.get().and_then(Option::as_ref).is_some_and(|life| !socket::is_over(life));
                // What has completed needs no more than the end of the talk.
                if !lives || (state.named == 0 && state.leases.values().all(Lease::is_over)) {
                    self.end(context, state, ended);
                }
                false
            }
            (Stage::Gone, _) => false,
        }
    }

    /// Nothing more comes from it.
    fn leave(&self, state: &mut State) {
        if state.stage == Stage::Talks {
            state.stage = Stage::Leaves;
            state.question = None;
        }
    }

    /// All that it had is given back.
    fn end(&self, context: &Context, state: &mut State, ended: &mut Ended) {
        state.stage = Stage::Gone;
        let held = state.leases.values().filter(|lease| !lease.is_returned()).count();
        self.counters.reclaimed(held);
        // Before the leases let go: what the owner does after that comes later in its trace, too.
        if let (Some(tracer), Some(host)) = (&context.tracer, state.host) {
            tracer.process_ended(host, self.process());
        }
        state.leases.values_mut().for_each(Lease::let_go);
        ended.leases.extend(state.leases.drain().map(|(_, lease)| lease));
        state.speaker = None;
    }

    /// What a packet says.
    fn take_in(
        &self,
        context: &Arc<Context>,
        state: &mut State,
        request: Request,
        ended: &mut Ended,
    ) -> std::result::Result<(), Broken> {
        match request {
            Request::Claim { .. } | Request::Parts { .. } | Request::Fetch(_) => {
                match state.question.replace(request) {
                    None => Ok(()),
                    Some(_) => Err(Broken),
                }
            }
            Request::Release { lease, uses } => self.release(context, state, lease, &uses, ended),
            Request::Over(id) => {
                let returned = state.leases.get_mut(&id).filter(|lease| lease.is_returned());
                let Some(kept) = returned.and_then(Lease::over) else { return state.stray() };
                ended.allocations.push(kept);
                state.over += 1;
                if state.over > OVER_MAX {
                    // As its host does, which remembers the last.
                    let over = state.leases.values().filter(|lease| lease.is_over());
                    let oldest = over.min_by_key(|lease| lease.returned).map(|lease| lease.id);
                    let oldest = oldest.and_then(|id| state.leases.remove(&id));
                    state.over -= 1;
                    // Its host may yet learn of it.
                    state.owed += 1;
                    ended.leases.extend(oldest.map(Lease::forget));
                }
                Ok(())
            }
            Request::Known(id) => {
                let known = match state.leases.get(&id).is_some_and(Lease::is_returned) {
                    true => state.leases.remove(&id),
                    false => None,
                };
                let Some(mut lease) = known else { return state.stray() };
                match lease.is_over() {
                    true => state.over -= 1,
                    // Its host knew before a thread of it came to say so.
                    false => state.owed += 1,
                }
                lease.let_go();
                ended.leases.push(lease);
                Ok(())
            }
        }
    }

    /// A hold ends in the order of the program. Everything is checked before anything changes.
    fn release(
        &self,
        context: &Arc<Context>,
        state: &mut State,
        id: LeaseId,
        uses: &[ForeignUse],
        ended: &mut Ended,
    ) -> std::result::Result<(), Broken> {
        let State { leases, speaker, returned, .. } = state;
        let lease = leases.get_mut(&id).filter(|lease| !lease.is_returned()).ok_or(Broken)?;
        if let (None, Some(first)) = (&speaker, uses.first()) {
            let key = socket::process_key(self.party, self.life.get().and_then(Option::as_ref), self.number);
            *speaker = Some(context.speaker(key, self.process(), first.point.device));
        }
        let uses = match speaker {
            Some(speaker) if !uses.is_empty() => context.uses_here(self.device, speaker, self.process(), uses),
            _ => Some(Vec::new()),
        };
        let uses = uses.ok_or(Broken)?;
        // As where it ends: first the trace.
        if let Some(tracer) = &context.tracer {
            tracer.released(id);
        }
        lease.release(&uses, *returned);
        *returned += 1;
        self.counters.released();
        if let Some(mut lease) = state.leases.remove(&id) {
            match lease.is_settled() {
                true => {
                    lease.let_go();
                    ended.leases.push(lease);
                }
                false => drop(state.leases.insert(id, lease)),
            }
        }
        Ok(())
    }
}

/// The next request, if one is there; the end of the talk breaks it as well.
fn read(socket: &OwnedFd) -> std::result::Result<Option<Request>, Broken> {
    thread_local! {
        static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    }
    // A thread that ends may have lost it before what it frees last: it makes room for each request.
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

impl State {
    /// A word about a lease that is forgotten, or never was.
    fn stray(&mut self) -> std::result::Result<(), Broken> {
        if self.owed > 0 {
            self.owed -= 1;
            return Ok(());
        }
        self.strays += 1;
        if self.strays > STRAYS_MAX { Err(Broken) } else { Ok(()) }
    }
}

/// What the exporter's thread does with it.
impl Connection {
    pub(super) fn stage(&self) -> Stage {
        lock(&self.state).stage
    }

    /// The question that waits for its answer, and the socket for that.
    pub(super) fn take_question(&self) -> Option<(Request, Arc<OwnedFd>)> {
        let mut state = lock(&self.state);
        let socket = state.socket.clone()?;
        Some((state.question.take()?, socket))
    }

    /// It broke the rules, or there is no room for it.
    pub(super) fn break_off(&self) {
        self.leave(&mut lock(&self.state));
    }

    /// The socket, for the exporter's thread to close.
    pub(super) fn take_socket(&self) -> Option<Arc<OwnedFd>> {
        lock(&self.state).socket.take()
    }

    pub(super) fn life(&self) -> Option<&OwnedFd> {
        self.life.get().and_then(Option::as_ref)
    }

    /// Whether it may have one lease more.
    pub(super) fn has_room(&self) -> bool {
        lock(&self.state).leases.len() < LEASES_MAX
    }

    /// It has a lease more; who stands for it in a trace. Given back where it leaves.
    pub(super) fn lend(&self, context: &Context, lease: Lease) -> std::result::Result<Option<HostId>, Lease> {
        let mut state = lock(&self.state);
        if state.stage != Stage::Talks {
            return Err(lease);
        }
        state.leases.insert(lease.id, lease);
        self.counters.lent();
        if state.host.is_none() {
            state.host = context.tracer.as_ref().map(|tracer| tracer.process(self.process()));
        }
        Ok(state.host)
    }

    /// A claim of it was granted.
    pub(super) fn claimed(&self) {
        self.has_claimed.store(true, Ordering::Release);
    }

    /// The chunks under a lease of it.
    pub(super) fn parts(&self, id: LeaseId) -> std::result::Result<Arc<[Part]>, Refusal> {
        let state = lock(&self.state);
        let lease = state.leases.get(&id).filter(|lease| !lease.is_returned()).ok_or(Refusal::NotLent)?;
        Ok(Arc::clone(&lease.parts))
    }

    /// The chunks under all leases of it, and whether it may write to them.
    pub(super) fn all_parts(&self) -> Vec<(Arc<[Part]>, bool)> {
        let state = lock(&self.state);
        state
            .leases
            .values()
            .filter(|lease| !lease.is_returned())
            .map(|lease| (Arc::clone(&lease.parts), lease.can_write))
            .collect()
    }

    /// It knows the name of a mark more, or of so many fewer.
    pub(super) fn count_named(&self, change: isize) {
        let mut state = lock(&self.state);
        state.named = state.named.saturating_add_signed(change);
    }

    /// Leases that it holds, and whether it is read.
    pub(super) fn counts(&self) -> (usize, bool) {
        let state = lock(&self.state);
        (state.leases.values().filter(|lease| !lease.is_returned()).count(), state.stage == Stage::Talks)
    }

    /// Whether something depends on what it says.
    pub(super) fn has_leases(&self) -> bool {
        !lock(&self.state).leases.is_empty()
    }
}

/// What it has files of; only the exporter's thread asks.
#[derive(Debug, Default)]
pub(super) struct Fetched {
    chunks: FxHashSet<ChunkName>,
}

impl Connection {
    pub(super) fn fetched(&self, chunks: &[ChunkName]) {
        lock(&self.fetched).chunks.extend(chunks);
    }

    /// Chunks that it has files of and that exist no more.
    pub(super) fn forget_gone(&self, context: &Context) -> Vec<ChunkName> {
        let mut fetched = lock(&self.fetched);
        if fetched.chunks.is_empty() {
            return Vec::new();
        }
        let pools = context.pools();
        let mut gone = Vec::new();
        let is_there = |name: &ChunkName| {
            let pool = pools.iter().find(|pool| pool.id.0 == name.pool);
            pool.is_some_and(|pool| pool.lock().chunk_of(name.serial).is_some())
        };
        fetched.chunks.retain(|name| {
            let keeps = gone.len() == PARTS_MAX || is_there(name);
            if !keeps {
                gone.push(*name);
            }
            keeps
        });
        gone
    }
}
