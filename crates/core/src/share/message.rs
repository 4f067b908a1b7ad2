//! The messages of a share, each one packet: what an importer asks and what an exporter answers.
//!
//! ```text
//! importer                         exporter
//! Claim (kind, nonce)      ->
//!                          <-      Memory (lease, bytes, uses, parts) | Event (points) + socket | Pool | Refused
//! Parts (lease, from)      ->                            only where one packet does not hold them all
//!                          <-      Parts
//! Fetch (chunks)           ->                            those it has no file of yet
//!                          <-      Chunks + files
//! Release (lease, uses)    ->      no answer: the hold ends in the order of the program
//! Over (lease)             ->      no answer: the uses have completed, the memory can serve again
//! Known (lease)            ->      no answer: the importer's host knows it
//! ```
//!
//! A release whose uses the importer's host knows to have completed names none, and nothing follows it. One question is
//! on its way at a time: whoever asks again before the answer is read breaks the rules.
//!
//! Knows the wire, and nothing of files: those travel beside the packet.

use super::ticket::TicketKind;
use super::wire::{Malformed, Reader, Writer};
use super::{ForeignEnd, ForeignPoint, ForeignUse, LeaseId};
use crate::check::Act;
use crate::order::op_at;

/// No packet is larger, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 160 * 1024;
/// The most chunks that one packet lists.
pub const PARTS_MAX: usize = 1024;
/// The most chunks that are fetched at once: the system sends at most 253 files with a packet.
pub const FETCH_CHUNKS_MAX: usize = 64;
/// The most uses of an allocation that its importer is sent.
pub const USES_MAX: usize = 1024;
/// The most chains that an event of another process can be ordered after.
pub const POINTS_MAX: usize = 4096;

/// How long a device's name of an event is, in bytes.
pub const EVENT_NAME_BYTES: usize = 64;

/// A physical chunk of an exporter: never used again for another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ChunkName {
    /// The pool that it is of.
    pub pool: u32,
    /// Its number there, counted up.
    pub serial: u64,
}

/// A chunk that a part of an allocation lies on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Which.
    pub chunk: ChunkName,
    /// The whole chunk's size.
    pub bytes: u64,
}

/// An allocation, lent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryGrant {
    /// What to release.
    pub lease: LeaseId,
    /// The allocation's size.
    pub bytes: u64,
    /// Where it begins in the first of its chunks, in bytes.
    pub offset: u64,
    /// How many chunks it lies on.
    pub part_count: u32,
    /// The first of them.
    pub parts: Vec<Part>,
    /// Chunks that were fetched and exist no more.
    pub gone: Vec<ChunkName>,
    /// Its allocation.
    pub born: ForeignUse,
    /// The uses so far that something later may have to come after.
    pub uses: Vec<ForeignUse>,
    /// The exporter's device: whose own chains are named so.
    pub device: u128,
    /// Whether it may be written to.
    pub can_write: bool,
}

/// An event. A socket comes with it: one byte from the exporter says that the event has completed, its end that the
/// exporter is gone; one byte from the importer that it has let go of what the name stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventGrant {
    /// Where it was recorded.
    pub end: ForeignEnd,
    /// What came before that on other chains.
    pub known: Vec<ForeignEnd>,
    /// By which the importer's device can wait for it, where the exporter's has such names.
    pub name: Option<[u8; EVENT_NAME_BYTES]>,
    /// The exporter's device: whose own chains are named so.
    pub device: u128,
}

/// What an importer asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// What a ticket stands for.
    Claim {
        /// What it says it is.
        kind: TicketKind,
        /// Its right.
        nonce: u128,
    },
    /// The chunks of an allocation from this one on.
    Parts {
        /// Which.
        lease: LeaseId,
        /// The index of the first.
        from: u32,
    },
    /// Files of chunks.
    Fetch(Vec<ChunkName>),
    /// A hold on an allocation ends.
    Release {
        /// Which.
        lease: LeaseId,
        /// What the importer did that its host does not know to have completed, the free last: all on chains of one
        /// device, its own.
        uses: Vec<ForeignUse>,
    },
    /// The uses that a release named have completed.
    Over(LeaseId),
    /// The importer's host knows that the uses have completed: whatever it says from now on comes after them.
    Known(LeaseId),
}

/// What an exporter answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// An allocation.
    Memory(MemoryGrant),
    /// An event, with its socket.
    Event(EventGrant),
    /// A pool, by its number.
    Pool(u32),
    /// More chunks.
    Parts(Vec<Part>),
    /// So many files come with this packet.
    Chunks(u32),
    /// No.
    Refused(Refusal),
}

/// Why an exporter refuses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It never gave out such a ticket, or too long ago.
    #[error("the exporter knows no such ticket")]
    Unknown,
    /// The ticket was used before.
    #[error("the ticket was used before; each is good for one import")]
    Used,
    /// What it stood for was freed before it was imported.
    #[error("what the ticket stands for was freed before it was imported")]
    Stale,
    /// It stands for something else than it says.
    #[error("the ticket stands for something else than it says")]
    OtherKind,
    /// The lease or the chunk is not this importer's.
    #[error("what was asked for is not lent to this process")]
    NotLent,
    /// Bytes that are no request.
    #[error("the request cannot be read")]
    Malformed,
    /// The exporter's user does not allow it.
    #[error("the exporter serves its own user only")]
    OtherUser,
    /// The exporter's device or system refused.
    #[error("the exporter's system refused to share it")]
    System,
    /// The ticket's life had ended, or its exporter revoked it.
    #[error("the ticket is no longer good: it was not used in time, or was revoked; ask for a new one")]
    Expired,
    /// The exporter has no room for it: as many files are open as may be, or as much is lent as may be.
    #[error(
        "the exporter has too many files open, or too much lent; try again later, or raise its limit on open files"
    )]
    Full,
    /// More unordered work uses the memory than an answer can name: [`USES_MAX`].
    #[error(
        "work of more than {USES_MAX} streams may still use it; let the exporter's host wait for those (synchronise), \
         and export it again"
    )]
    Uses,
}

const REFUSALS: [Refusal; 11] = [
    Refusal::Unknown,
    Refusal::Used,
    Refusal::Stale,
    Refusal::OtherKind,
    Refusal::NotLent,
    Refusal::Malformed,
    Refusal::OtherUser,
    Refusal::System,
    Refusal::Expired,
    Refusal::Full,
    Refusal::Uses,
];

const ACTS: [Act; 4] = [Act::Allocate, Act::Read, Act::Write, Act::Free];

impl Request {
    /// The request as a packet.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        match self {
            Request::Claim { kind, nonce } => writer.u8(1).u16(kind.code()).u128(*nonce),
            Request::Parts { lease, from } => writer.u8(2).u64(lease.0).u32(*from),
            Request::Fetch(chunks) => writer.u8(3).list(chunks, Writer::chunk),
            Request::Release { lease, uses } => writer.u8(4).u64(lease.0).list(uses, Writer::one_use),
            Request::Over(lease) => writer.u8(5).u64(lease.0),
            Request::Known(lease) => writer.u8(6).u64(lease.0),
        };
        writer.0
    }

    /// A request from its packet.
    ///
    /// # Errors
    /// The bytes are none.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(bytes);
        let request = match reader.u8()? {
            1 => Request::Claim { kind: TicketKind::of(reader.u16()?)?, nonce: reader.u128()? },
            2 => Request::Parts { lease: LeaseId(reader.u64()?), from: reader.u32()? },
            3 => Request::Fetch(reader.list(FETCH_CHUNKS_MAX, Reader::chunk)?),
            4 => Request::Release { lease: LeaseId(reader.u64()?), uses: reader.list(USES_MAX, Reader::one_use)? },
            5 => Request::Over(LeaseId(reader.u64()?)),
            6 => Request::Known(LeaseId(reader.u64()?)),
            _ => return Err(Malformed::Unknown("the kind of request")),
        };
        reader.end()?;
        Ok(request)
    }
}

impl Reply {
    /// The reply as a packet.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        match self {
            Reply::Memory(grant) => {
                writer.u8(1).u64(grant.lease.0).u64(grant.bytes).u64(grant.offset).u32(grant.part_count);
                writer.list(&grant.parts, Writer::part).list(&grant.gone, Writer::chunk);
                writer.one_use(&grant.born);
                writer.list(&grant.uses, Writer::one_use).u128(grant.device).u8(u8::from(grant.can_write))
            }
            Reply::Event(grant) => {
                writer.u8(2).foreign_end(&grant.end);
                writer.list(&grant.known, Writer::foreign_end).name(grant.name.as_ref()).u128(grant.device)
            }
            Reply::Pool(pool) => writer.u8(3).u32(*pool),
            Reply::Parts(parts) => writer.u8(4).list(parts, Writer::part),
            Reply::Chunks(count) => writer.u8(5).u32(*count),
            Reply::Refused(why) => {
                let code = REFUSALS.iter().position(|known| known == why).expect("every refusal is listed");
                writer.u8(6).u8(code as u8)
            }
        };
        writer.0
    }

    /// A reply from its packet.
    ///
    /// # Errors
    /// The bytes are none.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(bytes);
        let reply = match reader.u8()? {
            1 => Reply::Memory(MemoryGrant {
                lease: LeaseId(reader.u64()?),
                bytes: reader.u64()?,
                offset: reader.u64()?,
                part_count: reader.u32()?,
                parts: reader.list(PARTS_MAX, Reader::part)?,
                gone: reader.list(PARTS_MAX, Reader::chunk)?,
                born: reader.one_use()?,
                uses: reader.list(USES_MAX, Reader::one_use)?,
                device: reader.u128()?,
                can_write: reader.flag()?,
            }),
            2 => Reply::Event(EventGrant {
                end: reader.foreign_end()?,
                known: reader.list(POINTS_MAX, Reader::foreign_end)?,
                name: reader.name()?,
                device: reader.u128()?,
            }),
            3 => Reply::Pool(reader.u32()?),
            4 => Reply::Parts(reader.list(PARTS_MAX, Reader::part)?),
            5 => Reply::Chunks(reader.u32()?),
            6 => {
                let code = usize::from(reader.u8()?);
                Reply::Refused(*REFUSALS.get(code).ok_or(Malformed::Unknown("the refusal"))?)
            }
            _ => return Err(Malformed::Unknown("the kind of reply")),
        };
        reader.end()?;
        Ok(reply)
    }
}

impl Writer {
    fn chunk(&mut self, name: &ChunkName) {
        self.u32(name.pool).u64(name.serial);
    }

    fn part(&mut self, part: &Part) {
        self.chunk(&part.chunk);
        self.u64(part.bytes);
    }

    fn name(&mut self, name: Option<&[u8; EVENT_NAME_BYTES]>) -> &mut Self {
        self.u8(u8::from(name.is_some()));
        self.0.extend(name.into_iter().flatten());
        self
    }

    fn point(&mut self, point: &ForeignPoint) {
        self.u128(point.device).u32(point.chain).u64(point.seq);
    }

    fn foreign_end(&mut self, end: &ForeignEnd) {
        self.point(&end.point);
        self.u32(end.process);
    }

    fn one_use(&mut self, known: &ForeignUse) {
        self.point(&known.point);
        let act = ACTS.iter().position(|act| *act == known.act).expect("every act is listed");
        self.u8(act as u8).u32(known.stream).u64(known.op).u32(known.process);
    }
}

impl Reader<'_> {
    fn chunk(&mut self) -> Result<ChunkName, Malformed> {
        Ok(ChunkName { pool: self.u32()?, serial: self.u64()? })
    }

    fn part(&mut self) -> Result<Part, Malformed> {
        Ok(Part { chunk: self.chunk()?, bytes: self.u64()? })
    }

    fn flag(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::Unknown("the flag")),
        }
    }

    fn name(&mut self) -> Result<Option<[u8; EVENT_NAME_BYTES]>, Malformed> {
        if !self.flag()? {
            return Ok(None);
        }
        let mut name = [0; EVENT_NAME_BYTES];
        for byte in &mut name {
            *byte = self.u8()?;
        }
        Ok(Some(name))
    }

    fn point(&mut self) -> Result<ForeignPoint, Malformed> {
        Ok(ForeignPoint { device: self.u128()?, chain: self.u32()?, seq: self.u64()? })
    }

    fn foreign_end(&mut self) -> Result<ForeignEnd, Malformed> {
        Ok(ForeignEnd { point: self.point()?, process: self.u32()? })
    }

    fn one_use(&mut self) -> Result<ForeignUse, Malformed> {
        let point = self.point()?;
        let act = *ACTS.get(usize::from(self.u8()?)).ok_or(Malformed::Unknown("the act"))?;
        let (stream, op) = (self.u32()?, self.u64()?);
        // Operations are counted from a chain's birth: messages subtract one from the other.
        if op > op_at(point.seq) {
            return Err(Malformed::Unknown("the operation"));
        }
        Ok(ForeignUse { point, act, stream, op, process: self.u32()? })
    }
}

#[cfg(test)]
mod tests;
