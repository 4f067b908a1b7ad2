//! The importer's end of a connection, as a state machine without I/O: what it asks, what it says, and the chunks that
//! it has of its exporter.
//!
//! Inputs: answers received, local calls, time that callers have waited, uses that have completed, what the host knows.
//! Outputs: the next question of a [`Claim`], packets to send, handles to destroy. Knows no socket, thread, lock, clock
//! or memory.
//!
//! One question is on its way at a time. A file is fetched once for each chunk, and its handle `H` is kept while an
//! import lies on it, or while its pool is imported as a whole. Nothing that the exporter says is trusted: sizes are
//! checked against each other here, and against the files by whoever imports those.

use std::collections::VecDeque;
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};

use super::message::{ChunkName, FETCH_CHUNKS_MAX, MemoryGrant, Part, Refusal, Reply, Request};
use super::{ForeignUse, LeaseId, Ticket};
use crate::ids::Point;

/// Releases remembered until the host knows that their uses have completed; the oldest are forgotten.
const UNKNOWN_MAX: usize = 4096;
/// So long callers wait for room all in all: an exporter that listens makes it in no time.
const ROOM_WAIT: Duration = Duration::from_secs(1);
/// And so much longer for each packet that it takes: it listens, on a busy machine.
const ROOM_CREDIT: Duration = Duration::from_millis(1);

/// A chunk, and whether it can be written to here.
pub type Handle = (ChunkName, bool);

/// What this device allows an import to be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Chunks are multiples of this many bytes.
    pub granularity: u64,
    /// Allocations begin at multiples of this many bytes in their first chunk.
    pub alignment: u64,
    /// The device has no more memory than this, in bytes.
    pub total_bytes: u64,
}

/// Why an exporter's answer is of no use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wrong {
    /// It refuses.
    Refused(Refusal),
    /// It makes no sense.
    Answer(String),
}

impl Wrong {
    fn answer(why: impl Into<String>) -> Self {
        Self::Answer(why.into())
    }
}

/// What comes next in a claim.
#[derive(PartialEq, Eq, Debug)]
pub enum Next {
    /// This is asked.
    Ask(Request),
    /// The files that came with the answer are of these chunks, in this order. Each is imported
    /// ([`ImporterEnd::imported`]), and [`ImporterEnd::proceed`] says what comes next.
    Import(Vec<Part>),
    /// All its chunks have handles.
    Done,
}

/// An allocation that is being claimed: from its ticket until all its chunks have handles, or it is given up.
#[derive(Clone, Debug, Default)]
pub struct Claim {
    grant: Option<MemoryGrant>,
    is_checked: bool,
    /// How many of its parts were looked up, or asked for.
    asked: usize,
    /// Those that were asked for with the last question.
    missing: Vec<Part>,
    /// Chunks that are counted as used by it.
    held: Vec<Handle>,
}

impl Claim {
    /// The first question.
    pub fn question(ticket: &Ticket) -> Request {
        Request::Claim { kind: ticket.kind, nonce: ticket.nonce }
    }

    /// What was granted, if it was.
    pub fn grant(&self) -> Option<&MemoryGrant> {
        self.grant.as_ref()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Question {
    #[default]
    None,
    Asked,
    /// The answer did not come in time. It is waited for all the same, and none asks before it comes.
    Late,
}

/// A chunk of the exporter that this process has a handle of.
#[derive(Clone, Debug)]
struct Chunk<H> {
    handle: H,
    bytes: u64,
    /// Mappings of imports.
    users: u32,
    /// The exporter has it no more.
    is_gone: bool,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct ImporterEnd<H> {
    question: Question,
    /// What the exporter says it is.
    device: Option<u128>,
    /// What is to be sent, in order.
    unsent: VecDeque<Vec<u8>>,
    /// How long callers have waited for room so far, less what was made.
    waited: Duration,
    /// What was given back, with uses that the host does not know to have completed.
    unknown: VecDeque<(LeaseId, Vec<Point>)>,
    chunks: FxHashMap<Handle, Chunk<H>>,
    /// Pools that are imported as a whole, and how often.
    pools: FxHashMap<u32, u32>,
    /// Handles that nothing needs.
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
    /// Whether the caller may ask now; it does until [`end_question`](Self::end_question).
    pub fn begin_question(&mut self) -> bool {
        let is_free = self.question == Question::None;
        if is_free {
            self.question = Question::Asked;
        }
        is_free
    }

    /// Others may ask.
    pub fn end_question(&mut self) {
        self.question = Question::None;
    }

    /// The answer did not come in time: [`late_answer`](Self::late_answer) ends the question.
    pub fn is_late(&mut self) {
        self.question = Question::Late;
    }

    /// A late answer came, or the end of the talk. What it grants is given back.
    pub fn late_answer(&mut self, reply: Option<Reply>) {
        if let Some(Reply::Memory(grant)) = reply {
            self.say(&Request::Release { lease: grant.lease, uses: Vec::new() });
        }
        self.question = Question::None;
    }

    /// The exporter says which device it is: whether it said the same before.
    pub fn is_device(&mut self, device: u128) -> bool {
        *self.device.get_or_insert(device) == device
    }
}

/// What has no answer.
impl<H> ImporterEnd<H> {
    fn say(&mut self, request: &Request) {
        self.unsent.push_back(request.to_bytes());
    }

    /// The packet that is sent next.
    pub fn unsent(&self) -> Option<&[u8]> {
        self.unsent.front().map(Vec::as_slice)
    }

    /// The exporter took that packet, or is gone.
    pub fn sent(&mut self) {
        self.unsent.pop_front();
        self.waited = self.waited.saturating_sub(ROOM_CREDIT);
    }

    /// Whether a caller waits until the exporter has room for its packet. Where it may not, the packet is sent later.
    pub fn may_wait(&self) -> bool {
        self.waited < ROOM_WAIT
    }

    /// A caller has waited for room.
    pub fn waited(&mut self, time: Duration) {
        self.waited += time;
    }

    /// A hold ends in the order of the program, after `uses`; `points` are those in this process's own order.
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

    /// The uses that a lease was given back with have completed.
    pub fn completed(&mut self, lease: LeaseId) {
        self.say(&Request::Over(lease));
    }

    /// The host has learned something: whether the exporter has to learn of it.
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

    /// Whether the host has still to learn of uses.
    pub fn has_unknown(&self) -> bool {
        !self.unknown.is_empty()
    }
}

/// Claims of memory.
impl<H: Copy> ImporterEnd<H> {
    /// An answer came, with so many files.
    ///
    /// # Errors
    /// It is a refusal, or makes no sense. The claim is to be given up.
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

    /// What comes next: chunks that are not known yet are asked for.
    ///
    /// # Errors
    /// What the exporter says of the memory does not fit together. The claim is to be given up.
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

    /// The file of a chunk was imported.
    pub fn imported(&mut self, claim: &mut Claim, part: &Part, handle: H) {
        let name = (part.chunk, claim.grant.as_ref().is_none_or(|grant| grant.can_write));
        self.chunks.insert(name, Chunk { handle, bytes: part.bytes, users: 1, is_gone: false });
        claim.held.push(name);
    }

    /// The chunks of a claim that is done, in their order, with their handles.
    pub fn handles(&self, claim: &Claim) -> Vec<(Part, H)> {
        let Some(grant) = &claim.grant else { return Vec::new() };
        let known = |part: &Part| Some((*part, self.chunks.get(&(part.chunk, grant.can_write))?.handle));
        grant.parts.iter().filter_map(known).collect()
    }

    /// What was claimed is not mapped: it is given back.
    pub fn give_up(&mut self, claim: Claim) {
        self.unuse(claim.held);
        if let Some(grant) = claim.grant {
            self.release(grant.lease, Vec::new(), &[]);
        }
    }
}

/// Chunks.
impl<H> ImporterEnd<H> {
    /// One more mapping of a chunk that is in use.
    pub fn use_again(&mut self, name: Handle) {
        if let Some(known) = self.chunks.get_mut(&name) {
            known.users += 1;
        }
    }

    /// An import lies on these chunks no more.
    pub fn unuse(&mut self, names: impl IntoIterator<Item = Handle>) {
        for name in names {
            let Some(known) = self.chunks.get_mut(&name) else { continue };
            known.users = known.users.saturating_sub(1);
            if known.users == 0 && (known.is_gone || !self.pools.contains_key(&name.0.pool)) {
                self.unused.extend(self.chunks.remove(&name).map(|known| known.handle));
            }
        }
    }

    /// Handles that nothing needs, to be destroyed. What cannot be destroyed now comes back
    /// ([`refused`](Self::refused)).
    pub fn take_unused(&mut self) -> Vec<H> {
        std::mem::take(&mut self.unused)
    }

    /// The device refused to destroy these.
    pub fn refused(&mut self, handles: Vec<H>) {
        self.unused.extend(handles);
    }

    /// A pool is imported as a whole, once more.
    pub fn keep_pool(&mut self, pool: u32) {
        *self.pools.entry(pool).or_default() += 1;
    }

    /// A pool is imported as a whole once less.
    pub fn let_pool_go(&mut self, pool: u32) {
        if let Some(count) = self.pools.get_mut(&pool) {
            *count -= 1;
            if *count == 0 {
                self.pools.remove(&pool);
            }
        }
        self.drop_unused();
    }

    /// How many handles there are, those included that are still to be destroyed.
    pub fn chunk_count(&self) -> usize {
        self.chunks.len() + self.unused.len()
    }

    /// Chunks exist no more at the exporter. Those that are still mapped here go with the last of that.
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

/// What an exporter says of memory must fit together, whatever its intent.
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
