//! The messages of a share, each one packet: the requests of an importer and the replies of an exporter.
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
//! A release names no uses if the importer's host knows that all have completed; no message about the lease follows
//! then. Only one question is open at a time: an importer that asks again before it has read the reply breaks the
//! rules.
//!
//! Depends on the wire format only. Files travel beside the packet.

use super::ticket::TicketKind;
use super::wire::{Malformed, Reader, Writer};
use super::{ForeignEnd, ForeignPoint, ForeignUse, LeaseId};
use crate::check::Act;
use crate::order::op_at;

/// The most bytes of a packet.
pub const MESSAGE_BYTES_MAX: usize = 160 * 1024;
/// The most chunks that one packet lists.
pub const PARTS_MAX: usize = 1024;
/// The most chunks that are fetched at once; the system sends at most 253 files with a packet.
pub const FETCH_CHUNKS_MAX: usize = 64;
/// The most uses of an allocation that are sent to its importer.
pub const USES_MAX: usize = 1024;
/// The most chains that an event of another process can be ordered after.
pub const POINTS_MAX: usize = 4096;

/// The length of a device's name of an event, in bytes.
pub const EVENT_NAME_BYTES: usize = 64;

/// A physical chunk of an exporter. The name is never used again for another chunk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ChunkName {
    /// The number of its pool.
    pub pool: u32,
    /// Its number in the pool, counted up.
    pub serial: u64,
}

/// A chunk that holds a part of an allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// The chunk.
    pub chunk: ChunkName,
    /// The size of the whole chunk in bytes.
    pub bytes: u64,
}

/// An allocation that is lent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryGrant {
    /// The lease, to be released.
    pub lease: LeaseId,
    /// The allocation's size in bytes.
    pub bytes: u64,
    /// The offset of its first byte in its first chunk.
    pub offset: u64,
    /// The number of chunks that it lies on.
    pub part_count: u32,
    /// The first of these chunks.
    pub parts: Vec<Part>,
    /// Chunks that the importer had fetched and that do not exist any more.
    pub gone: Vec<ChunkName>,
    /// The allocation's point.
    pub born: ForeignUse,
    /// The uses so far that something later may have to come after.
    pub uses: Vec<ForeignUse>,
    /// The exporter's device, which names its own chains.
    pub device: u128,
    /// `true` if the importer may write to it.
    pub can_write: bool,
}

/// An event. A socket comes with it. One byte from the exporter means that the event has completed, and the end of
/// the stream means that the exporter is gone. One byte from the importer means that it does not use the name any
/// more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventGrant {
    /// The point at which it was recorded.
    pub end: ForeignEnd,
    /// The points on other chains that came before it.
    pub known: Vec<ForeignEnd>,
    /// A name by which the importer's device can wait for it, if the exporter's device has such names.
    pub name: Option<[u8; EVENT_NAME_BYTES]>,
    /// The exporter's device, which names its own chains.
    pub device: u128,
}

/// A request of an importer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// Asks for what a ticket stands for.
    Claim {
        /// The kind that the ticket gives.
        kind: TicketKind,
        /// The random number of the ticket.
        nonce: u128,
    },
    /// Asks for the chunks of an allocation, from an index on.
    Parts {
        /// The lease.
        lease: LeaseId,
        /// The index of the first chunk.
        from: u32,
    },
    /// Asks for the files of chunks.
    Fetch(Vec<ChunkName>),
    /// Ends a lease.
    Release {
        /// The lease.
        lease: LeaseId,
        /// The importer's uses that its host does not know to have completed, the free last. All are on chains of one
        /// device, its own.
        uses: Vec<ForeignUse>,
    },
    /// The uses that a release listed have completed.
    Over(LeaseId),
    /// The importer's host knows that the uses have completed: everything that it sends from now on comes after them.
    Known(LeaseId),
}

/// A reply of an exporter.
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
    /// This number of files comes with the packet.
    Chunks(u32),
    /// The request is refused.
    Refused(Refusal),
}

/// The reason for a refusal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The exporter never issued such a ticket, or too long ago.
    #[error("the exporter knows no such ticket")]
    Unknown,
    /// The ticket was used before.
    #[error("the ticket was used before; each is good for one import")]
    Used,
    /// The thing was freed before it was imported.
    #[error("what the ticket stands for was freed before it was imported")]
    Stale,
    /// The ticket stands for something of another kind.
    #[error("the ticket stands for something else than it says")]
    OtherKind,
    /// The lease or the chunk does not belong to this importer.
    #[error("what was asked for is not lent to this process")]
    NotLent,
    /// The bytes are not a request.
    #[error("the request cannot be read")]
    Malformed,
    /// The exporter's user does not allow it.
    #[error("the exporter serves its own user only")]
    OtherUser,
    /// The exporter's device or system refused.
    #[error("the exporter's system refused to share it")]
    System,
    /// The ticket has expired, or its exporter revoked it.
    #[error("the ticket is no longer good: it was not used in time, or was revoked; ask for a new one")]
    Expired,
    /// The exporter has no room: the limit on open files or on leases is reached.
    #[error(
        "the exporter has too many files open, or too much lent; try again later, or raise its limit on open files"
    )]
    Full,
    /// More unordered work uses the memory than a reply can list: [`USES_MAX`].
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
    /// Returns the request as a packet.
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

    /// Reads a request from its packet.
    ///
    /// # Errors
    /// If the bytes are not a request.
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
    /// Returns the reply as a packet.
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

    /// Reads a reply from its packet.
    ///
    /// # Errors
    /// If the bytes are not a reply.
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
        // Operations are counted from the creation of a chain, because messages to the user subtract one from the
        // other.
        if op > op_at(point.seq) {
            return Err(Malformed::Unknown("the operation"));
        }
        Ok(ForeignUse { point, act, stream, op, process: self.u32()? })
    }
}

#[cfg(test)]
mod tests;
