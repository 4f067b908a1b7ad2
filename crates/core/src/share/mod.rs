//! What processes that share memory say to each other, and what an exporter remembers of it.
//!
//! Pure: tickets and messages as bytes, and both ends of a connection as state machines without I/O ([`ExporterEnd`],
//! [`ImporterEnd`]); no socket, no memory, no thread. Nothing that comes from the other side is trusted: every decoder
//! takes any bytes and returns a value or a reason, allocates no more than the bytes at hand can fill, and never
//! panics.
//!
//! Chains of another process are named by the random number of the device they are of and their index there: a
//! [`ForeignPoint`]. Whoever receives one gives that chain an index of its own, and from then on the order is one.

mod admission;
mod exporter;
mod importer;
mod message;
#[cfg(test)]
mod tests;
mod ticket;
mod tickets;
mod wire;

pub use admission::Admission;
pub use exporter::{Broken, Effect, Effects, ExporterEnd, Left, Phase, Stage};
pub use importer::{Claim, Handle, ImporterEnd, Limits, Next, Wrong};
pub use message::{ChunkName, EventGrant, MemoryGrant, Part, Refusal, Reply, Request};
pub use message::{EVENT_NAME_BYTES, FETCH_CHUNKS_MAX, MESSAGE_BYTES_MAX, PARTS_MAX, POINTS_MAX, USES_MAX};
pub use ticket::{TICKET_BYTES, Ticket, TicketError, TicketKind};
pub use tickets::{TICKETS_MAX, Tickets};
pub use wire::Malformed;

use crate::check::Act;
use crate::ids::Seq;

/// Something lent. Counted up, never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LeaseId(pub u64);

/// A point of a chain, with the device that the chain is of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ForeignPoint {
    /// The random number of the device.
    pub device: u128,
    /// The chain's index there.
    pub chain: u32,
    /// The position in it.
    pub seq: Seq,
}

/// A point that an event comes after.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForeignEnd {
    /// Where in the order.
    pub point: ForeignPoint,
    /// The process whose device it is, as the one that tells it knows that; 0 for itself, or where that is not known.
    pub process: u32,
}

/// A use of an allocation, as one process tells another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForeignUse {
    /// Where in the order.
    pub point: ForeignPoint,
    /// What it did.
    pub act: Act,
    /// On which stream of that device.
    pub stream: u32,
    /// The how many-th operation of that stream; at most [`op_at`](crate::order::op_at) of `point.seq`.
    pub op: u64,
    /// The process that did it, as the one that tells it knows that; 0 for itself.
    pub process: u32,
}
