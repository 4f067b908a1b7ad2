//! The importer's end of a connection, as a state machine without I/O: its questions, its messages, and the
//! exporter's chunks that it has.
//!
//! Inputs: received replies, local calls, the time that callers have waited, completed uses, and the host's
//! knowledge. Outputs: the next question of a [`Claim`], packets to send, handles to destroy. Depends on no socket,
//! thread, lock, clock or memory.
//!
//! Only one question is open at a time. The file of a chunk is fetched once, and its handle `H` is kept while an
//! import lies on the chunk, or while its pool is imported as a whole. Nothing from the exporter is trusted: sizes
//! are checked against each other here, and against the files by the code that imports those.

use std::collections::VecDeque;
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};

use super::message::{ChunkName, FETCH_CHUNKS_MAX, MemoryGrant, Part, Refusal, Reply, Request};
use super::{ForeignUse, LeaseId, Ticket};
use crate::ids::Point;

/// The number of releases to remember until the host knows that their uses have completed. The oldest are forgotten.
const UNKNOWN_MAX: usize = 4096;
/// The total time that callers wait for room in the socket. An exporter that reads makes room at once.
const ROOM_WAIT: Duration = Duration::from_secs(1);
/// The time added to it for each packet that the exporter takes: it reads, on a busy machine.
const ROOM_CREDIT: Duration = Duration::from_millis(1);

/// A chunk, and whether it can be written to through this handle.
pub type Handle = (ChunkName, bool);

/// The limits of this device for an import.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The sizes of chunks are multiples of this many bytes.
    pub granularity: u64,
    /// An allocation begins at a multiple of this many bytes in its first chunk.
    pub alignment: u64,
    /// The device's memory, in bytes.
    pub total_bytes: u64,
}

/// The reason why a reply of the exporter cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// The exporter refuses.
    Refused(Refusal),
    /// The reply makes no sense.
    Answer(String),
}

impl Wrong {
    fn answer(why: impl Into<String>) -> Self {
        Self::Answer(why.into())
    }
}

/// The next step of a claim.
#[derive(PartialEq, Eq, Debug)]
pub enum Next {
    /// Ask this.
    Ask(Request),
    /// Import the files that came with the reply. They belong to these chunks, in this order. Call
    /// [`ImporterEnd::imported`] for each, then [`ImporterEnd::proceed`] for the next step.
    Import(Vec<Part>),
    /// All chunks have handles.
    Done,
}

/// An allocation that is being claimed, from its ticket until all its chunks have handles or the claim is given up.
#[derive(Clone, Debug, Default)]
pub struct Claim {
    grant: Option<MemoryGrant>,
    is_checked: bool,
    /// The number of its parts that were looked up or asked for.
    asked: usize,
    /// The parts asked for with the last question.
    missing: Vec<Part>,
    /// The chunks that count it as a user.
    held: Vec<Handle>,
}

impl Claim {
    /// Returns the first question.
    pub fn question(ticket: &Ticket) -> Request {
        Request::Claim { kind: ticket.kind, nonce: ticket.nonce }
    }

    /// Returns the grant, if there is one.
    pub fn grant(&self) -> Option<&MemoryGrant> {
        self.grant.as_ref()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Question {
    #[default]
    None,
    Asked,
    /// The reply did not come in time. It is still awaited, and no question is asked before it comes.
    Late,
}

/// A chunk of the exporter of which this process has a handle.
#[derive(Clone, Debug)]
struct Chunk<H> {
    handle: H,
    bytes: u64,
    /// The number of mappings by imports.
    users: u32,
    /// `true` if the chunk does not exist at the exporter any more.
    is_gone: bool,
}

/// The importer's end of a connection. See the module.
#[derive(Clone, Debug)]
pub struct ImporterEnd<H> {
    question: Question,
    /// The device that the exporter says it is.
    device: Option<u128>,
    /// The packets to send, in order.
    unsent: VecDeque<Vec<u8>>,
    /// The time that callers have waited for room so far, less the credit for packets taken.
    waited: Duration,
    /// The returned leases whose uses the host does not know to have completed.
    unknown: VecDeque<(LeaseId, Vec<Point>)>,
    chunks: FxHashMap<Handle, Chunk<H>>,
    /// The pools that are imported as a whole, with the number of times.
    pools: FxHashMap<u32, u32>,
    /// The handles that are not needed any more.
    unused: Vec<H>,
}

impl<H> Default for ImporterEnd<H> {
    fn default() -> Self {
        let (question, device, unsent, waited) = Default::default();
        let (unknown, chunks, pools, unused) = Default::default();
        Self { question, device, unsent, waited, unknown, chunks, pools, unused }
    }
}

/// Questions.
impl<H> ImporterEnd<H> {
    /// Begins a question, if no other is open. It lasts until [`end_question`](Self::end_question).
    pub fn begin_question(&mut self) -> bool {
        let is_free = self.question == Question::None;
        if is_free {
            self.question = Question::Asked;
        }
        is_free
    }

    /// Ends the question. Others may ask now.
    pub fn end_question(&mut self) {
        self.question = Question::None;
    }

    /// Records that the reply did not come in time. [`late_answer`](Self::late_answer) ends the question.
    pub fn is_late(&mut self) {
        self.question = Question::Late;
    }

    /// Takes a late reply, or the end of the connection. Memory that it grants is returned.
    pub fn late_answer(&mut self, reply: Option<Reply>) {
        if let Some(Reply::Memory(grant)) = reply {
            self.say(&Request::Release { lease: grant.lease, uses: Vec::new() });
        }
        self.question = Question::None;
    }

    /// Records the device that the exporter says it is. Returns `false` if it said another one before.
    pub fn is_device(&mut self, device: u128) -> bool {
        *self.device.get_or_insert(device) == device
    }
}

/// Messages without a reply.
impl<H> ImporterEnd<H> {
    fn say(&mut self, request: &Request) {
        self.unsent.push_back(request.to_bytes());
    }

    /// Returns the packet to send next.
    pub fn unsent(&self) -> Option<&[u8]> {
        self.unsent.front().map(Vec::as_slice)
    }

    /// Records that the exporter took that packet, or is gone.
    pub fn sent(&mut self) {
        self.unsent.pop_front();
        self.waited = self.waited.saturating_sub(ROOM_CREDIT);
    }

    /// Returns `true` if a caller may wait until the exporter has room for its packet. Otherwise the packet is sent
    /// later.
    pub fn may_wait(&self) -> bool {
        self.waited < ROOM_WAIT
    }

    /// Records that a caller has waited for room.
    pub fn waited(&mut self, time: Duration) {
        self.waited += time;
    }

    /// Ends a lease in the order of the program, after `uses`. `points` are the points of these in this process's own
    /// order.
    pub fn release(&mut self, lease: LeaseId, uses: Vec<ForeignUse>, points: &[Point]) {
        self.say(&Request::Release { lease, uses });
        if points.is_empty() {
            return;
        }
        if self.unknown.len() == UNKNOWN_MAX {
            self.unknown.pop_front();
        }
        self.unknown.push_back((lease, points.to_vec()));
    }

    /// Records that the uses listed at the return of a lease have completed.
    pub fn completed(&mut self, lease: LeaseId) {
        self.say(&Request::Over(lease));
    }

    /// Records that the host has learned something. Returns `true` if there is something to tell the exporter.
    pub fn host_knows(&mut self, covers: impl Fn(Point) -> bool) -> bool {
        let mut known = Vec::new();
        self.unknown.retain(|(lease, points)| {
            let is_known = points.iter().all(|point| covers(*point));
            known.extend(is_known.then_some(*lease));
            !is_known
        });
        known.iter().for_each(|lease| self.say(&Request::Known(*lease)));
        !known.is_empty()
    }

    /// Returns `true` if there are uses that the host does not know to have completed.
    pub fn has_unknown(&self) -> bool {
        !self.unknown.is_empty()
    }
}

/// Claims of memory.
impl<H: Copy> ImporterEnd<H> {
    /// Takes a reply and the number of files that came with it.
    ///
    /// # Errors
    /// If it is a refusal, or makes no sense. The claim must then be given up.
    pub fn answered(&mut self, claim: &mut Claim, reply: Reply, files: usize, limits: Limits) -> Result<Next, Wrong> {
        match (&mut claim.grant, reply) {
            (None, Reply::Memory(grant)) => {
                let count = u64::from(grant.part_count);
                claim.grant = Some(grant);
                if count > limits.total_bytes / limits.granularity {
                    return Err(Wrong::answer("it has more chunks than fit this device"));
                }
            }
            (None, Reply::Refused(why)) => return Err(Wrong::Refused(why)),
            (None, _) => return Err(Wrong::answer("it is for something else")),
            (Some(grant), reply) if !claim.is_checked => match reply {
                Reply::Parts(more) if !more.is_empty() => grant.parts.extend(more),
                _ => return Err(Wrong::answer("chunks are missing")),
            },
            (Some(_), Reply::Chunks(count))
                if count as usize == claim.missing.len() && files == claim.missing.len() =>
            {
                return Ok(Next::Import(std::mem::take(&mut claim.missing)));
            }
            (Some(_), Reply::Refused(why)) => return Err(Wrong::Refused(why)),
            (Some(_), _) => return Err(Wrong::answer("files are missing")),
        }
        self.proceed(claim, limits)
    }

    /// Returns the next step: asks for the chunks that are not known yet.
    ///
    /// # Errors
    /// If the exporter's data of the memory is inconsistent. The claim must then be given up.
    pub fn proceed(&mut self, claim: &mut Claim, limits: Limits) -> Result<Next, Wrong> {
        let Some(grant) = &mut claim.grant else { return Err(Wrong::answer("it is for something else")) };
        if !claim.is_checked {
            if grant.parts.len() < grant.part_count as usize {
                return Ok(Next::Ask(Request::Parts { lease: grant.lease, from: grant.parts.len() as u32 }));
            }
            check(grant, limits)?;
            claim.is_checked = true;
            self.drop_gone(&grant.gone);
        }
        while claim.asked < grant.parts.len() {
            let until = grant.parts.len().min(claim.asked + FETCH_CHUNKS_MAX);
            for part in &grant.parts[std::mem::replace(&mut claim.asked, until)..until] {
                let handle = (part.chunk, grant.can_write);
                match self.chunks.get_mut(&handle) {
                    Some(known) if known.bytes == part.bytes => {
                        known.users += 1;
                        claim.held.push(handle);
                    }
                    Some(_) => return Err(Wrong::answer("a chunk has two sizes")),
                    None => claim.missing.push(*part),
                }
            }
            if !claim.missing.is_empty() {
                return Ok(Next::Ask(Request::Fetch(claim.missing.iter().map(|part| part.chunk).collect())));
            }
        }
        Ok(Next::Done)
    }

    /// Records that the file of a chunk was imported.
    pub fn imported(&mut self, claim: &mut Claim, part: &Part, handle: H) {
        let name = (part.chunk, claim.grant.as_ref().is_none_or(|grant| grant.can_write));
        self.chunks.insert(name, Chunk { handle, bytes: part.bytes, users: 1, is_gone: false });
        claim.held.push(name);
    }

    /// Returns the chunks of a finished claim, in order, with their handles.
    pub fn handles(&self, claim: &Claim) -> Vec<(Part, H)> {
        let Some(grant) = &claim.grant else { return Vec::new() };
        let known = |part: &Part| Some((*part, self.chunks.get(&(part.chunk, grant.can_write))?.handle));
        grant.parts.iter().filter_map(known).collect()
    }

    /// Gives up a claim: its memory is not mapped, and is returned.
    pub fn give_up(&mut self, claim: Claim) {
        self.unuse(claim.held);
        if let Some(grant) = claim.grant {
            self.release(grant.lease, Vec::new(), &[]);
        }
    }
}

/// Chunks.
impl<H> ImporterEnd<H> {
    /// Adds a mapping of a chunk that is in use.
    pub fn use_again(&mut self, name: Handle) {
        if let Some(known) = self.chunks.get_mut(&name) {
            known.users += 1;
        }
    }

    /// Removes an import from these chunks.
    pub fn unuse(&mut self, names: impl IntoIterator<Item = Handle>) {
        for name in names {
            let Some(known) = self.chunks.get_mut(&name) else { continue };
            known.users = known.users.saturating_sub(1);
            if known.users == 0 && (known.is_gone || !self.pools.contains_key(&name.0.pool)) {
                self.unused.extend(self.chunks.remove(&name).map(|known| known.handle));
            }
        }
    }

    /// Takes the handles that are not needed any more, to be destroyed. Those that cannot be destroyed now come back
    /// with [`refused`](Self::refused).
    pub fn take_unused(&mut self) -> Vec<H> {
        std::mem::take(&mut self.unused)
    }

    /// Puts back handles that the device refused to destroy.
    pub fn refused(&mut self, handles: Vec<H>) {
        self.unused.extend(handles);
    }

    /// Adds an import of a pool as a whole.
    pub fn keep_pool(&mut self, pool: u32) {
        *self.pools.entry(pool).or_default() += 1;
    }

    /// Removes an import of a pool as a whole.
    pub fn let_pool_go(&mut self, pool: u32) {
        if let Some(count) = self.pools.get_mut(&pool) {
            *count -= 1;
            if *count == 0 {
                self.pools.remove(&pool);
            }
        }
        self.drop_unused();
    }

    /// Returns the number of handles, including those that are still to be destroyed.
    pub fn chunk_count(&self) -> usize {
        self.chunks.len() + self.unused.len()
    }

    /// Marks chunks that do not exist any more at the exporter. Those that are still mapped here go with their last
    /// mapping.
    fn drop_gone(&mut self, gone: &[ChunkName]) {
        for name in gone.iter().flat_map(|name| [(*name, true), (*name, false)]) {
            if let Some(known) = self.chunks.get_mut(&name) {
                known.is_gone = true;
            }
        }
        if !gone.is_empty() {
            self.drop_unused();
        }
    }

    fn drop_unused(&mut self) {
        let Self { chunks, pools, unused, .. } = self;
        let is_kept = |name: &ChunkName, known: &Chunk<H>| !known.is_gone && pools.contains_key(&name.pool);
        let gone = chunks.extract_if(|(name, _), known| known.users == 0 && !is_kept(name, known));
        unused.extend(gone.map(|(_, known)| known.handle));
    }
}

/// Checks that the exporter's data of the memory is consistent, whether it is wrong by mistake or on purpose.
fn check(grant: &MemoryGrant, limits: Limits) -> Result<(), Wrong> {
    let Limits { granularity, alignment, .. } = limits;
    let whole = |part: &Part| part.bytes > 0 && part.bytes.is_multiple_of(granularity);
    if grant.parts.len() != grant.part_count as usize || !grant.parts.iter().all(whole) {
        return Err(Wrong::answer(format!("its chunks are no multiples of {granularity} B, as this device's are")));
    }
    let mut names = FxHashSet::default();
    if !grant.parts.iter().all(|part| names.insert(part.chunk)) {
        return Err(Wrong::answer("it lies on one chunk twice"));
    }
    let sum = grant.parts.iter().try_fold(0u64, |sum, part| sum.checked_add(part.bytes));
    let end = grant.offset.checked_add(grant.bytes);
    let begins_in_first = grant.parts.first().is_some_and(|first| grant.offset < first.bytes);
    if grant.bytes == 0 || !begins_in_first || !grant.offset.is_multiple_of(alignment) || end.is_none() || end > sum {
        return Err(Wrong::answer("it does not lie on its chunks"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Act;
    use crate::share::ForeignPoint;

    const MIB: u64 = 1 << 20;
    const LIMITS: Limits = Limits { granularity: 2 * MIB, alignment: 512, total_bytes: 1 << 40 };

    fn grant() -> MemoryGrant {
        let part = |serial| Part { chunk: ChunkName { pool: 0, serial }, bytes: 2 * MIB };
        let point = ForeignPoint { device: 1, chain: 0, seq: 1 };
        let born = ForeignUse { point, act: Act::Allocate, stream: 0, op: 1, process: 0 };
        let (gone, uses) = Default::default();
        let parts = vec![part(1), part(2)];
        let (lease, part_count) = (LeaseId(1), 2);
        MemoryGrant {
            lease,
            bytes: 3 * MIB,
            offset: 512,
            part_count,
            parts,
            gone,
            born,
            uses,
            device: 1,
            can_write: true,
        }
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        check(&grant(), LIMITS).expect("it fits");
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
            assert!(check(&grant, LIMITS).is_err(), "{what}");
        }
    }
}
