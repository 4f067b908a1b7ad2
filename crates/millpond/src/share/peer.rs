//! An exporter, as an importer knows it: the connection, and the chunks that it has of it.
//!
//! A chunk's file is fetched once and its handle kept while an import lies on it, or while its pool is imported as a
//! whole. Nothing that the exporter says is trusted: sizes are checked against the files, and against each other.
//!
//! An import has one deadline, whatever is asked for it. An answer that comes later is waited for by the thread that
//! watches sockets (`watch.rs`), and what it grants is given back.
//!
//! Locks: all leaves; a turn (one question at a time) is no lock.

mod claimed;
mod later;

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, OnceLock};
use std::time::{Duration, Instant};

use millpond_core::share::{ChunkName, FETCH_CHUNKS_MAX, Part, Reply, Request, Ticket, TicketKind};
use millpond_driver::locks::{Mutex, lock, wait_timeout};
use millpond_driver::{Driver, RawChunk};
use rustc_hash::FxHashMap;
use rustix::io::Errno;
use rustix::net::sockopt::Timeout;

use super::abroad::Speaker;
use super::socket::{self, ProcessKey, Received};
use super::watch::Watch;
use crate::names::error::{Error, Result};
use crate::names::share_error::ShareError;
use crate::state::context::Context;
use crate::sync::ranks;
pub(super) use claimed::Claimed;
use claimed::check;
use later::{Late, Rest};

/// A connection to an exporter.
#[derive(Debug)]
pub(crate) struct Peer {
    /// The name of its socket.
    pub(super) name: u128,
    /// Its process.
    pub(super) process: u32,
    key: ProcessKey,
    /// Readable once that has completed; none where the system has no such thing.
    pub(super) life: Option<OwnedFd>,
    /// When it was first seen to be gone.
    left: OnceLock<Instant>,
    socket: OwnedFd,
    pub(super) watch: Arc<Watch>,
    turn: Mutex<ranks::PeerTurn, Turn>,
    /// A turn has ended.
    turned: Condvar,
    /// As whom its chains are known here, once it has said which device it is.
    speaker: OnceLock<Speaker>,
    unsaid: Mutex<ranks::PeerUnsaid, Unsaid>,
    pub(super) chunks: Mutex<ranks::PeerChunks, Chunks>,
}

/// Who asks.
#[derive(Debug, Default)]
struct Turn {
    is_taken: bool,
    room: Vec<u8>,
}

/// The right to ask, one question at a time. An answer that did not come in time is waited for all the same: until then
/// no other thread asks.
struct Asking<'p> {
    peer: &'p Arc<Peer>,
    room: Vec<u8>,
    until: Instant,
    is_owed: bool,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if !self.is_owed {
            return self.peer.end_turn(std::mem::take(&mut self.room));
        }
        let (peer, room) = (Arc::clone(self.peer), std::mem::take(&mut self.room));
        let late = peer.socket.try_clone().map(|socket| Late { peer, socket, room });
        if late.is_ok_and(|late| self.peer.watch.add(late).is_ok()) {
            return;
        }
        // Nothing will come from it any more, and the exporter notices.
        socket::hang_up(&self.peer.socket);
        self.peer.end_turn(Vec::new());
    }
}

/// What was to be said when there was no room.
#[derive(Debug, Default)]
struct Unsaid {
    packets: VecDeque<Vec<u8>>,
    /// Whether the thread says it once there is room.
    is_watched: bool,
    /// How long callers have waited for room so far, less what was made.
    waited: Duration,
}

impl Unsaid {
    /// The exporter took a word, or is gone.
    fn is_taken(&mut self) {
        self.waited = self.waited.saturating_sub(ROOM_CREDIT);
    }
}

/// A process that ends has ended so long after it has closed its socket, at the latest.
const PARTING: Duration = Duration::from_millis(250);
/// So long callers wait for room all in all: an exporter that listens makes it in no time.
const ROOM_WAIT: Duration = Duration::from_secs(1);
/// And so much longer for each word that it takes: it listens, on a busy machine.
const ROOM_CREDIT: Duration = Duration::from_millis(1);
/// And so long at once.
const ROOM_STEP: Duration = Duration::from_millis(20);

/// A chunk, and whether it can be written to here.
pub(super) type Handle = (ChunkName, bool);

/// The chunks of an exporter that this process has files of.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    known: FxHashMap<Handle, HeldChunk>,
    /// Pools that are imported as a whole, and how often.
    pools: FxHashMap<u32, u32>,
    /// What the driver refused to destroy.
    rest: Vec<RawChunk>,
}

#[derive(Debug)]
struct HeldChunk {
    raw: RawChunk,
    bytes: u64,
    /// Mappings of imports.
    users: u32,
    /// The exporter has it no more.
    is_gone: bool,
}

impl Peer {
    pub(super) fn connect(context: &Context, name: u128, until: Instant) -> Result<Peer> {
        let connecting = "connect to the exporter";
        let socket = socket::connect(name, until).map_err(|error| match error {
            Errno::CONNREFUSED | Errno::NOENT => Error::from(ShareError::ExporterGone),
            Errno::AGAIN => no_answer(),
            other => ShareError::system(connecting)(other),
        })?;
        let party = socket::party(&socket).map_err(ShareError::system(connecting))?;
        if !context.share().allows(party.user) {
            return Err(ShareError::OtherUser { user: party.user }.into());
        }
        let life = socket::life(&socket, party).map_err(|error| match error {
            Errno::SRCH | Errno::INVAL => ShareError::ExporterGone.into(),
            other => ShareError::system(connecting)(other),
        })?;
        let key = socket::process_key(party, life.as_ref(), context.share().next_key());
        let watch = context.share().watch()?;
        let (left, turn, turned, speaker, unsaid, chunks) = Default::default();
        let process = party.process;
        Ok(Peer { name, process, key, life, left, socket, watch, turn, turned, speaker, unsaid, chunks })
    }

    /// Whether the exporter is gone.
    pub(super) fn is_gone(&self) -> bool {
        socket::is_hung_up(&self.socket)
    }

    /// Whether it is gone and its process has ended, as all processes can see: until then others may still speak of
    /// what it did. A process that ends closes its socket a moment before; one that goes on has let its device go.
    pub(super) fn has_left(&self) -> bool {
        let goes_on = |life| self.process != std::process::id() && !socket::is_over(life);
        self.is_gone()
            && (!self.life.as_ref().is_some_and(goes_on) || self.left.get_or_init(Instant::now).elapsed() > PARTING)
    }

    /// As whom its chains are known here. It says once which device it is.
    pub(super) fn speaker(&self, context: &Arc<Context>, device: u128) -> Result<&Speaker> {
        let speaker = self.speaker.get_or_init(|| context.speaker(self.key, self.process, device));
        match speaker.device == device {
            true => Ok(speaker),
            false => Err(ShareError::answer("it says that it is another device than before")),
        }
    }

    fn begin_turn(self: &Arc<Self>, until: Instant) -> Result<Asking<'_>> {
        let mut turn = lock(&self.turn);
        while turn.is_taken {
            let rest = until.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return Err(no_answer());
            }
            turn = wait_timeout(&self.turned, turn, rest);
        }
        turn.is_taken = true;
        let mut room = std::mem::take(&mut turn.room);
        if room.is_empty() {
            room = socket::room();
        }
        Ok(Asking { peer: self, room, until, is_owed: false })
    }

    fn end_turn(&self, room: Vec<u8>) {
        let mut turn = lock(&self.turn);
        *turn = Turn { is_taken: false, room };
        drop(turn);
        self.turned.notify_one();
    }
}

fn no_answer() -> Error {
    let reason = "it does not answer in time (`Device::set_import_patience`); the ticket may be used up".into();
    ShareError::System { call: "wait for the exporter", reason }.into()
}

impl Asking<'_> {
    /// Asks, and waits for the answer.
    fn ask(&mut self, request: &Request) -> Result<(Reply, Vec<OwnedFd>)> {
        let socket = &self.peer.socket;
        let waits = |what| socket::wait_until(socket, what, self.until).map_err(|_| no_answer());
        waits(Timeout::Send)?;
        // A connection that was refused has the reason lying there, though it takes nothing any more.
        let sent = socket::send(socket, &request.to_bytes(), &[], true);
        if sent == Err(Errno::AGAIN) {
            return Err(no_answer());
        }
        if waits(Timeout::Recv).is_err() {
            self.is_owed = true;
            return Err(no_answer());
        }
        match socket::receive(socket, &mut self.room, true) {
            Ok(Received::Packet(bytes, files)) => {
                let reply =
                    Reply::from_bytes(&self.room[..bytes]).map_err(|why| ShareError::answer(why.to_string()))?;
                Ok((reply, files))
            }
            Ok(Received::End | Received::Nothing) => Err(ShareError::ExporterGone.into()),
            Err(_) if sent.is_err() => Err(ShareError::ExporterGone.into()),
            Err(Errno::AGAIN) => {
                self.is_owed = true;
                Err(no_answer())
            }
            Err(other) => Err(ShareError::system("receive from the exporter")(other)),
        }
    }

    fn claim(&mut self, ticket: &Ticket) -> Result<(Reply, Vec<OwnedFd>)> {
        let (what, nonce) = (ticket.kind, ticket.nonce);
        match self.ask(&Request::Claim { kind: what, nonce })? {
            (Reply::Refused(why), _) => Err(ShareError::Refused { what, why }.into()),
            answer => Ok(answer),
        }
    }
}

impl Peer {
    /// Claims what a ticket stands for.
    pub(super) fn claim(self: &Arc<Self>, ticket: &Ticket, until: Instant) -> Result<(Reply, Vec<OwnedFd>)> {
        self.begin_turn(until)?.claim(ticket)
    }

    /// Says something that has no answer. An exporter that listens has room for it in a moment, so that it has been
    /// said when this returns. Where one does not listen it is said later, in order: a second of waiting is all that it
    /// ever costs, and a thousandth of one for each word that it takes. To one that is gone it is said in vain.
    pub(super) fn tell(self: &Arc<Self>, request: &Request) {
        self.say(request, ROOM_WAIT);
    }

    /// Says something where callers have waited for less than `patience` so far.
    fn say(self: &Arc<Self>, request: &Request, patience: Duration) {
        let packet = request.to_bytes();
        let mut unsaid = lock(&self.unsaid);
        while unsaid.packets.is_empty() {
            if socket::send(&self.socket, &packet, &[], false) != Err(Errno::AGAIN) {
                return unsaid.is_taken();
            }
            if unsaid.waited >= patience {
                break;
            }
            let begin = Instant::now();
            socket::wait_for_room(&self.socket, ROOM_STEP);
            unsaid.waited += begin.elapsed();
        }
        unsaid.packets.push_back(packet);
        if !unsaid.is_watched {
            let rest = self.socket.try_clone().map(|socket| Rest { peer: Arc::clone(self), socket });
            // Where nothing watches, it waits for what is said next.
            unsaid.is_watched = rest.is_ok_and(|rest| self.watch.add(rest).is_ok());
        }
    }

    /// Claims memory, with handles of all its chunks, each counted as used once more.
    pub(super) fn claim_memory<'c>(
        self: &Arc<Self>,
        context: &'c Context,
        ticket: &Ticket,
        until: Instant,
    ) -> Result<Claimed<'c>> {
        let mut asking = self.begin_turn(until)?;
        let reply = match asking.claim(ticket)? {
            (Reply::Memory(grant), _) => grant,
            _ => return Err(ShareError::answer("it is for something else")),
        };
        // From here on what fails gives the lease back.
        let mut claimed = Claimed { peer: Arc::clone(self), grant: reply, held: Vec::new(), context, is_taken: false };
        let granularity = context.properties.granularity;
        let count_max = context.properties.total_bytes / granularity;
        if u64::from(claimed.grant.part_count) > count_max {
            return Err(ShareError::answer("it has more chunks than fit this device"));
        }
        while claimed.grant.parts.len() < claimed.grant.part_count as usize {
            let from = claimed.grant.parts.len() as u32;
            match asking.ask(&Request::Parts { lease: claimed.grant.lease, from })? {
                (Reply::Parts(more), _) if !more.is_empty() => claimed.grant.parts.extend(more),
                _ => return Err(ShareError::answer("chunks are missing")),
            }
        }
        check(&claimed.grant, granularity)?;
        self.drop_gone(context, &std::mem::take(&mut claimed.grant.gone));
        let parts = claimed.grant.parts.clone();
        for some in parts.chunks(FETCH_CHUNKS_MAX) {
            self.hold(context, &mut asking, (some, claimed.grant.can_write), &mut claimed.held)?;
        }
        // In the order of the allocation again: those that were known came first.
        let order: FxHashMap<ChunkName, usize> = parts.iter().enumerate().map(|(at, part)| (part.chunk, at)).collect();
        claimed.held.sort_by_key(|(part, _)| order.get(&part.chunk).copied());
        Ok(claimed)
    }

    /// Counts chunks as used once more; of those that are not known yet it gets files, and handles for them. What is
    /// counted is in `held`, also where something fails.
    fn hold(
        &self,
        context: &Context,
        asking: &mut Asking<'_>,
        (parts, writes): (&[Part], bool),
        held: &mut Vec<(Part, RawChunk)>,
    ) -> Result<()> {
        let mut missing = Vec::new();
        let mut chunks = lock(&self.chunks);
        for part in parts {
            match chunks.known.get_mut(&(part.chunk, writes)) {
                Some(known) if known.bytes == part.bytes => {
                    known.users += 1;
                    held.push((*part, known.raw));
                }
                Some(_) => return Err(ShareError::answer("a chunk has two sizes")),
                None => missing.push(*part),
            }
        }
        drop(chunks);
        if missing.is_empty() {
            return Ok(());
        }
        let names = missing.iter().map(|part| part.chunk).collect();
        let files = match asking.ask(&Request::Fetch(names))? {
            (Reply::Chunks(count), files) if count as usize == missing.len() && files.len() == missing.len() => files,
            (Reply::Refused(why), _) => return Err(ShareError::Refused { what: TicketKind::Memory, why }.into()),
            _ => return Err(ShareError::answer("files are missing")),
        };
        for (part, file) in missing.into_iter().zip(files) {
            let raw = match writes {
                true => context.driver.import(file, part.bytes)?,
                false => context.driver.import_to_read(file, part.bytes)?,
            };
            lock(&self.chunks)
                .known
                .insert((part.chunk, writes), HeldChunk { raw, bytes: part.bytes, users: 1, is_gone: false });
            held.push((part, raw));
        }
        Ok(())
    }

    /// One more mapping of a chunk that is in use.
    pub(super) fn use_again(&self, name: Handle) {
        if let Some(known) = lock(&self.chunks).known.get_mut(&name) {
            known.users += 1;
        }
    }

    /// An import lies on a chunk no more.
    pub(super) fn unuse(&self, names: impl IntoIterator<Item = Handle>) {
        let mut chunks = lock(&self.chunks);
        for name in names {
            if let Some(known) = chunks.known.get_mut(&name) {
                known.users = known.users.saturating_sub(1);
            }
        }
    }

    /// Destroys the handles that nothing needs. What the driver refuses is tried again with the next.
    pub(super) fn drop_unused(&self, context: &Context) {
        let mut chunks = lock(&self.chunks);
        let Chunks { known, pools, rest } = &mut *chunks;
        let is_kept = |name: &ChunkName, known: &HeldChunk| !known.is_gone && pools.contains_key(&name.pool);
        let unused = known.extract_if(|(name, _), known| known.users == 0 && !is_kept(name, known));
        rest.extend(unused.map(|(_, known)| known.raw));
        rest.retain(|raw| context.driver.destroy(*raw).is_err());
    }

    /// Tries once more to destroy what the driver refused.
    pub(super) fn drop_rest(&self, context: &Context) {
        lock(&self.chunks).rest.retain(|raw| context.driver.destroy(*raw).is_err());
    }

    /// Chunks exist no more at the exporter.
    fn drop_gone(&self, context: &Context, gone: &[ChunkName]) {
        if gone.is_empty() {
            return;
        }
        let mut chunks = lock(&self.chunks);
        for name in gone.iter().flat_map(|name| [(*name, true), (*name, false)]) {
            if let Some(known) = chunks.known.get_mut(&name) {
                // It may still be mapped here: it goes with the last of that.
                known.is_gone = true;
            }
        }
        drop(chunks);
        self.drop_unused(context);
    }

    /// A pool is imported as a whole, once more or once less.
    pub(super) fn keep_pool(&self, context: &Context, pool: u32, keeps: bool) {
        let mut chunks = lock(&self.chunks);
        match keeps {
            true => *chunks.pools.entry(pool).or_default() += 1,
            false => {
                if let Some(count) = chunks.pools.get_mut(&pool) {
                    *count -= 1;
                    if *count == 0 {
                        chunks.pools.remove(&pool);
                    }
                }
            }
        }
        drop(chunks);
        if !keeps {
            self.drop_unused(context);
        }
    }

    /// Chunks that there are handles of, and handles that could not be destroyed.
    pub(super) fn chunk_count(&self) -> usize {
        let chunks = lock(&self.chunks);
        chunks.known.len() + chunks.rest.len()
    }
}
