//! The messages between processes that share memory, and the state that an exporter keeps of them.
//!
//! Pure: tickets and messages as bytes, and both ends of a connection as state machines without I/O ([`ExporterEnd`],
//! [`ImporterEnd`]); no socket, no memory, no thread. Nothing from the other side is trusted: every decoder takes any
//! bytes and returns a value or an error, allocates no more than the given bytes can fill, and never panics.
//!
//! A chain of another process is named by the random number of its device and its index there: a [`ForeignPoint`].
//! The process that receives one gives that chain an index of its own, and from then on there is one order.

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

/// The number of a lease. Numbers are counted up and never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LeaseId(pub u64);

/// A point of a chain, with the device that the chain is of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ForeignPoint {
    /// The random number of the device.
    pub device: u128,
    /// The chain's index there.
    pub chain: u32,
    /// The position in the chain.
    pub seq: Seq,
}

/// A point that an event comes after.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForeignEnd {
    /// The point in the order.
    pub point: ForeignPoint,
    /// The process of that device, as the sender knows it; 0 for the sender itself, or if it is not known.
    pub process: u32,
}

/// A use of an allocation, as one process tells another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ForeignUse {
    /// The point in the order.
    pub point: ForeignPoint,
    /// The access.
    pub act: Act,
    /// The stream of that device.
    pub stream: u32,
    /// The number of the operation in that stream; at most [`op_at`](crate::order::op_at) of `point.seq`.
    pub op: u64,
    /// The process that made the use, as the sender knows it; 0 for the sender itself.
    pub process: u32,
}
