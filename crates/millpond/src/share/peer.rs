//! An exporter, as an importer knows it: the connection, and the chunks that it has of it.
//!
//! A chunk's file is fetched once and its handle kept while an import lies on it, or while its pool is imported as a
//! whole. Nothing that the exporter says is trusted: sizes are checked against the files, and against each other.
//!
//! Locks: the turn (one question at a time), then the chunks. What is unsaid has a lock of its own, a leaf.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use millpond_core::share::{ChunkName, FETCH_CHUNKS_MAX, LeaseId, MemoryGrant, Part, Refusal, Reply, Request};
use millpond_core::share::{Ticket, TicketKind};
use millpond_driver::{Driver, RawChunk};
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::io::Errno;

use super::error::ShareError;
use super::socket::{self, Received};
use crate::context::{Context, lock};
use crate::error::{Error, Result};

/// A connection to an exporter.
#[derive(Debug)]
pub(crate) struct Peer {
    /// The random number of its device.
    pub(super) number: u128,
    /// Its process.
    pub(super) process: u32,
    /// Readable once that is over; none where the system has no such thing.
    pub(super) life: Option<OwnedFd>,
    socket: OwnedFd,
    turn: Mutex<Vec<u8>>,
    is_gone: AtomicBool,
    unsaid: Mutex<Unsaid>,
    pub(super) chunks: Mutex<Chunks>,
}

/// What was to be said when there was no room.
#[derive(Debug, Default)]
struct Unsaid {
    packets: VecDeque<Vec<u8>>,
    has_thread: bool,
}

/// The chunks of an exporter that this process has files of.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    known: FxHashMap<ChunkName, Known>,
    /// Pools that are imported as a whole, and how often.
    pools: FxHashMap<u32, u32>,
    /// What the driver refused to destroy.
    rest: Vec<RawChunk>,
}

#[derive(Debug)]
struct Known {
    raw: RawChunk,
    bytes: u64,
    /// Mappings of imports.
    users: u32,
}

impl Peer {
    pub(super) fn connect(context: &Context, number: u128) -> Result<Peer> {
        let socket = socket::connect(number).map_err(|error| match error {
            Errno::CONNREFUSED | Errno::NOENT => Error::from(ShareError::ExporterGone),
            other => ShareError::system("connect to the exporter")(other),
        })?;
        let party = socket::party(&socket).map_err(ShareError::system("connect to the exporter"))?;
        if !context.share.allows(party.user) {
            return Err(ShareError::OtherUser { user: party.user }.into());
        }
        let (turn, life) = (Mutex::new(socket::room()), socket::life(&socket, party));
        let (is_gone, unsaid, chunks) = Default::default();
        Ok(Peer { number, process: party.process, life, socket, turn, is_gone, unsaid, chunks })
    }

    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// Asks, and waits for the answer.
    fn ask(&self, room: &mut [u8], request: &Request) -> Result<(Reply, Vec<OwnedFd>)> {
        let gone = || {
            self.is_gone.store(true, Ordering::Release);
            Error::from(ShareError::ExporterGone)
        };
        if self.is_gone() {
            return Err(gone());
        }
        // A connection that was refused has the reason lying there, though it takes nothing any more.
        let sent = socket::send(&self.socket, &request.to_bytes(), &[], true);
        match socket::receive(&self.socket, room, true) {
            Ok(Received::Packet(bytes, files)) => {
                let reply = Reply::from_bytes(&room[..bytes]).map_err(|why| ShareError::answer(why.to_string()))?;
                Ok((reply, files))
            }
            Ok(Received::End | Received::Nothing) => Err(gone()),
            Err(_) if sent.is_err() => Err(gone()),
            Err(Errno::AGAIN) => {
                // An answer that comes later would be taken for that of another question.
                gone();
                Err(ShareError::System { call: "wait for the exporter", reason: "it does not answer".into() }.into())
            }
            Err(other) => Err(ShareError::system("hear the exporter")(other)),
        }
    }

    /// Claims what a ticket stands for.
    pub(super) fn claim(&self, ticket: &Ticket) -> Result<(Reply, Vec<OwnedFd>)> {
        self.claim_with(&mut lock(&self.turn), ticket)
    }

    fn claim_with(&self, room: &mut [u8], ticket: &Ticket) -> Result<(Reply, Vec<OwnedFd>)> {
        let (what, nonce) = (ticket.kind, ticket.nonce);
        match self.ask(room, &Request::Claim { kind: what, nonce })? {
            (Reply::Refused(why), _) => {
                if why == Refusal::OtherUser {
                    // It was the last that is said to this connection.
                    self.is_gone.store(true, Ordering::Release);
                }
                Err(ShareError::Refused { what, why }.into())
            }
            answer => Ok(answer),
        }
    }

    /// Says something that has no answer, without waiting: where an exporter that does not listen has no more room, a
    /// thread says it later, in order. To one that is gone it is said in vain.
    pub(super) fn tell(self: &Arc<Self>, request: &Request) {
        let packet = request.to_bytes();
        let mut unsaid = lock(&self.unsaid);
        let is_next = unsaid.packets.is_empty();
        if is_next && socket::send(&self.socket, &packet, &[], false) != Err(Errno::AGAIN) {
            return;
        }
        unsaid.packets.push_back(packet);
        if !unsaid.has_thread {
            let own = Arc::clone(self);
            let thread = std::thread::Builder::new().name("millpond unsaid".into());
            // Without a thread it waits for what is said next.
            unsaid.has_thread = thread.spawn(move || own.say_rest()).is_ok();
        }
    }

    fn say_rest(&self) {
        loop {
            let mut unsaid = lock(&self.unsaid);
            let Some(packet) = unsaid.packets.front().cloned() else {
                unsaid.has_thread = false;
                return;
            };
            drop(unsaid);
            if socket::send(&self.socket, &packet, &[], true) != Err(Errno::AGAIN) {
                lock(&self.unsaid).packets.pop_front();
            }
        }
    }

    /// Claims memory, with handles of all its chunks, each counted as used once more.
    pub(super) fn claim_memory<'p>(self: &'p Arc<Self>, context: &'p Context, ticket: &Ticket) -> Result<Claimed<'p>> {
        let mut room = lock(&self.turn);
        let reply = match self.claim_with(&mut room, ticket)? {
            (Reply::Memory(grant), _) => grant,
            _ => return Err(ShareError::answer("it is for something else")),
        };
        // From here on what fails gives the lease back.
        let mut claimed = Claimed { peer: self, grant: reply, held: Vec::new(), context, is_taken: false };
        let granularity = context.properties.granularity;
        let count_max = context.properties.total_bytes / granularity;
        if u64::from(claimed.grant.part_count) > count_max {
            return Err(ShareError::answer("it has more chunks than fit this device"));
        }
        while claimed.grant.parts.len() < claimed.grant.part_count as usize {
            let from = claimed.grant.parts.len() as u32;
            match self.ask(&mut room, &Request::Parts { lease: claimed.grant.lease, from })? {
                (Reply::Parts(more), _) if !more.is_empty() => claimed.grant.parts.extend(more),
                _ => return Err(ShareError::answer("chunks are missing")),
            }
        }
        check(&claimed.grant, granularity)?;
        self.drop_gone(context, &std::mem::take(&mut claimed.grant.gone));
        let parts = claimed.grant.parts.clone();
        for some in parts.chunks(FETCH_CHUNKS_MAX) {
            self.hold(context, &mut room, some, &mut claimed.held)?;
        }
        // In the order of the allocation again: those that were known came first.
        let order: FxHashMap<ChunkName, usize> = parts.iter().enumerate().map(|(at, part)| (part.chunk, at)).collect();
        claimed.held.sort_by_key(|(part, _)| order.get(&part.chunk).copied());
        Ok(claimed)
    }

    /// Counts chunks as used once more; of those that are not known yet it gets files, and handles for them. What is
    /// counted is in `held`, also where something fails.
    fn hold(&self, context: &Context, room: &mut [u8], parts: &[Part], held: &mut Vec<(Part, RawChunk)>) -> Result<()> {
        let mut missing = Vec::new();
        let mut chunks = lock(&self.chunks);
        for part in parts {
            match chunks.known.get_mut(&part.chunk) {
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
        let files = match self.ask(room, &Request::Fetch(names))? {
            (Reply::Chunks(count), files) if count as usize == missing.len() && files.len() == missing.len() => files,
            (Reply::Refused(why), _) => return Err(ShareError::Refused { what: TicketKind::Memory, why }.into()),
            _ => return Err(ShareError::answer("files are missing")),
        };
        for (part, file) in missing.into_iter().zip(files) {
            let raw = context.driver.import(file, part.bytes)?;
            lock(&self.chunks).known.insert(part.chunk, Known { raw, bytes: part.bytes, users: 1 });
            held.push((part, raw));
        }
        Ok(())
    }

    /// One more mapping of a chunk that is in use.
    pub(super) fn use_again(&self, name: ChunkName) {
        if let Some(known) = lock(&self.chunks).known.get_mut(&name) {
            known.users += 1;
        }
    }

    /// An import lies on a chunk no more.
    pub(super) fn unuse(&self, names: impl IntoIterator<Item = ChunkName>) {
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
        let unused = known.extract_if(|name, known| known.users == 0 && !pools.contains_key(&name.pool));
        rest.extend(unused.map(|(_, known)| known.raw));
        rest.retain(|raw| context.driver.destroy(*raw).is_err());
    }

    /// Tries once more to destroy what the driver refused.
    pub(super) fn drop_rest(&self, context: &Context) {
        lock(&self.chunks).rest.retain(|raw| context.driver.destroy(*raw).is_err());
    }

    /// Chunks exist no more at the exporter.
    fn drop_gone(&self, context: &Context, gone: &[ChunkName]) {
        let mut chunks = lock(&self.chunks);
        for name in gone {
            if chunks.known.get(name).is_some_and(|known| known.users == 0)
                && let Some(known) = chunks.known.remove(name)
            {
                chunks.rest.push(known.raw);
            }
        }
        chunks.rest.retain(|raw| context.driver.destroy(*raw).is_err());
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

/// Memory that was claimed, until it is mapped: dropped before that it is given back.
pub(super) struct Claimed<'p> {
    peer: &'p Arc<Peer>,
    context: &'p Context,
    pub(super) grant: MemoryGrant,
    /// Each part with its handle, counted as used.
    pub(super) held: Vec<(Part, RawChunk)>,
    is_taken: bool,
}

impl Claimed<'_> {
    /// It is mapped: whoever has it gives it back.
    pub(super) fn take(mut self) -> (LeaseId, Vec<(Part, RawChunk)>) {
        self.is_taken = true;
        (self.grant.lease, std::mem::take(&mut self.held))
    }
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        if self.is_taken {
            return;
        }
        self.peer.unuse(self.held.iter().map(|(part, _)| part.chunk));
        self.peer.drop_unused(self.context);
        self.peer.tell(&Request::Release { lease: self.grant.lease, uses: Vec::new() });
    }
}

/// What an exporter says of memory must fit together, whatever its intent.
fn check(grant: &MemoryGrant, granularity: u64) -> Result<()> {
    /// Allocations begin at multiples of this many bytes: types rely on it.
    const GRAIN: u64 = crate::config::GRAIN;
    let whole = |part: &Part| part.bytes > 0 && part.bytes.is_multiple_of(granularity);
    if grant.parts.len() != grant.part_count as usize || !grant.parts.iter().all(whole) {
        return Err(ShareError::answer(format!(
            "its chunks are no multiples of {granularity} B, as this device's are"
        )));
    }
    let mut names = FxHashSet::default();
    if !grant.parts.iter().all(|part| names.insert(part.chunk)) {
        return Err(ShareError::answer("it lies on one chunk twice"));
    }
    let sum = grant.parts.iter().try_fold(0u64, |sum, part| sum.checked_add(part.bytes));
    let end = grant.offset.checked_add(grant.bytes);
    let begins_in_first = grant.parts.first().is_some_and(|first| grant.offset < first.bytes);
    if grant.bytes == 0 || !begins_in_first || !grant.offset.is_multiple_of(GRAIN) || end.is_none() || end > sum {
        return Err(ShareError::answer("it does not lie on its chunks"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use millpond_core::share::{ForeignPoint, ForeignUse};

    use super::*;
    use crate::MIB;

    fn grant() -> MemoryGrant {
        let part = |serial| Part { chunk: ChunkName { pool: 0, serial }, bytes: 2 * MIB };
        let point = ForeignPoint { device: 1, slot: 0, seq: 1 };
        let born = ForeignUse { point, act: millpond_core::op::Act::Allocate, stream: 0, op: 1 };
        let (gone, uses) = Default::default();
        let parts = vec![part(1), part(2)];
        MemoryGrant { lease: LeaseId(1), bytes: 3 * MIB, offset: 512, part_count: 2, parts, gone, born, uses }
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        check(&grant(), 2 * MIB).expect("it fits");
        type Spoil = fn(&mut MemoryGrant);
        let wrong: [(&str, Spoil); 10] = [
            ("past the end", |it| it.bytes = 4 * MIB),
            ("past all numbers", |it| it.bytes = u64::MAX),
            ("nothing", |it| it.bytes = 0),
            ("not in the first chunk", |it| it.offset = 2 * MIB),
            ("not aligned", |it| it.offset = 8),
            ("no chunks", |it| it.parts.clear()),
            ("fewer than said", |it| it.part_count = 3),
            ("a chunk twice", |it| it.parts[1].chunk = it.parts[0].chunk),
            ("no granules", |it| it.parts[1].bytes = MIB),
            ("more bytes than numbers", |it| it.parts[1].bytes = u64::MAX - 2 * MIB + 1),
        ];
        for (what, spoil) in wrong {
            let mut grant = grant();
            spoil(&mut grant);
            assert!(check(&grant, 2 * MIB).is_err(), "{what}");
        }
    }
}
