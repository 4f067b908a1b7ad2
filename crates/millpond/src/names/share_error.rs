//! The errors of sharing between processes. Plain data.

use millpond_core::share::{Refusal, TicketError, TicketKind};

/// The reason why something was not shared with another process.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShareError {
    /// The memory is not from a shareable pool.
    #[error("{what} cannot be exported: its pool is not for other processes; make it with `PoolConfig::shareable`")]
    NotShareable {
        /// The allocation or pool.
        what: String,
    },
    /// The memory was imported: only its exporter can issue tickets for it.
    #[error("{what} cannot be exported: it is imported itself; let its exporter give a ticket")]
    Imported {
        /// The allocation.
        what: String,
    },
    /// The memory belongs to a graph or was freed, or the event belongs to a capture: a ticket cannot stand for it.
    #[error("{what} cannot be exported: {why}")]
    NotExportable {
        /// The thing to be exported.
        what: String,
        /// The reason.
        why: &'static str,
    },
    /// The memory was imported for reading only.
    #[error("{what} was exported to be read only, and is to be written to; let its exporter use `Buffer::export`")]
    ReadOnly {
        /// The allocation.
        what: String,
    },
    /// A graph cannot use imported memory.
    #[error("{what} is imported, and graphs cannot use memory of other processes: launch on a stream")]
    NotInGraphs {
        /// The allocation.
        what: String,
    },
    /// The bytes are not a ticket.
    #[error("{0}")]
    Ticket(TicketError),
    /// The ticket stands for something of another kind.
    #[error("the ticket stands for {found}, not for {wanted}")]
    Kind {
        /// The kind to be imported.
        wanted: TicketKind,
        /// The kind that the ticket stands for.
        found: TicketKind,
    },
    /// The exporter refused.
    #[error("the exporter refused a ticket for {what}: {why}")]
    Refused {
        /// The kind that the ticket stands for.
        what: TicketKind,
        /// The reason.
        why: Refusal,
    },
    /// The exporter does not exist any more.
    #[error(
        "the exporter of this ticket is gone: its process has ended or its device was dropped; what was imported \
         from it before stays valid (a ticket of another machine or network namespace is good only there)"
    )]
    ExporterGone,
    /// The exporter runs as another user.
    #[error("the exporter runs as user {user}, which is not allowed; see `Device::set_peers`")]
    OtherUser {
        /// Its user number.
        user: u32,
    },
    /// The exporter's reply makes no sense. Nothing of it is used.
    #[error("the exporter's answer is refused: {0}")]
    Answer(String),
    /// The allocation's size is not a whole number of elements.
    #[error("an allocation of {bytes} B is not a whole number of elements of {element} B")]
    Length {
        /// Its size in bytes.
        bytes: u64,
        /// The size of one element in bytes.
        element: u64,
    },
    /// The allocation is from another pool than the imported one.
    #[error("the ticket is for memory of another pool than the imported one")]
    OtherPool,
    /// A limit of sharing is reached.
    #[error("{0}")]
    Full(String),
    /// The system refused.
    #[error("{call}: {reason}")]
    System {
        /// The action that failed.
        call: &'static str,
        /// The system's reason.
        reason: String,
    },
}
