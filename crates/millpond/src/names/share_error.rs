//! Why sharing between processes refuses. Plain data.

use millpond_core::share::{Refusal, TicketError, TicketKind};

/// Why something was not shared with another process.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShareError {
    /// The memory is not from a pool for other processes.
    #[error("{what} cannot be exported: its pool is not for other processes; make it with `PoolConfig::shareable`")]
    NotShareable {
        /// The allocation or pool.
        what: String,
    },
    /// It was imported: only its exporter gives tickets for it.
    #[error("{what} cannot be exported: it is imported itself; let its exporter give a ticket")]
    Imported {
        /// The allocation.
        what: String,
    },
    /// The memory is a graph's or was freed, or the event is a capture's: nothing that a ticket could stand for.
    #[error("{what} cannot be exported: {why}")]
    NotExportable {
        /// What was to be exported.
        what: String,
        /// Why it cannot.
        why: &'static str,
    },
    /// It was imported to be read only.
    #[error("{what} was exported to be read only, and is to be written to; let its exporter use `Buffer::export`")]
    ReadOnly {
        /// The allocation.
        what: String,
    },
    /// A graph cannot use it.
    #[error("{what} is imported, and graphs cannot use memory of other processes: launch on a stream")]
    NotInGraphs {
        /// The allocation.
        what: String,
    },
    /// Bytes that are no ticket.
    #[error("{0}")]
    Ticket(TicketError),
    /// The ticket is for something else.
    #[error("the ticket stands for {found}, not for {wanted}")]
    Kind {
        /// What was to be imported.
        wanted: TicketKind,
        /// What the ticket stands for.
        found: TicketKind,
    },
    /// The exporter said no.
    #[error("the exporter refused a ticket for {what}: {why}")]
    Refused {
        /// What the ticket stands for.
        what: TicketKind,
        /// Why.
        why: Refusal,
    },
    /// The exporter is not there.
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
    /// The exporter's answer does not make sense: nothing of it is used.
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
    /// The allocation is of another pool than was imported.
    #[error("the ticket is for memory of another pool than the imported one")]
    OtherPool,
    /// Too much is out.
    #[error("{0}")]
    Full(String),
    /// The system refused.
    #[error("{call}: {reason}")]
    System {
        /// What was tried.
        call: &'static str,
        /// Its reason.
        reason: String,
    },
}
