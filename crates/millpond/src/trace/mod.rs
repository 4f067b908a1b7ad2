//! Traces: the operations of the program, written as they are decided.

pub(crate) mod away;
pub(crate) mod callers;
pub(crate) mod shares;
pub(crate) mod tracer;

use millpond_core::ids::{HostId, TicketId};
use millpond_core::op::Memory;
use millpond_core::share::LeaseId;
use millpond_driver::locks::Mutex;
use rustc_hash::FxHashMap;

use crate::sync::ranks;

/// The numbers of tickets and leases in a trace.
#[derive(Debug, Default)]
pub(crate) struct TracedShares(Mutex<ranks::Traced, Names>);

#[derive(Debug, Default)]
struct Names {
    next_ticket: u32,
    tickets: FxHashMap<u128, TicketId>,
    leases: FxHashMap<LeaseId, (HostId, Memory)>,
}
