//! Traces: the operations of the program, written as they are decided.

pub(crate) mod away;
pub(crate) mod callers;
pub(crate) mod shares;
pub(crate) mod tracer;

use std::sync::atomic::AtomicU32;

use millpond_core::ids::{HostId, TicketId};
use millpond_core::op::Memory;
use millpond_core::share::LeaseId;
use millpond_driver::locks::{Leaf, Mutex};
use rustc_hash::FxHashMap;

/// The numbers of tickets and leases in a trace.
#[derive(Debug, Default)]
pub(crate) struct TracedShares {
    next_ticket: AtomicU32,
    names: Mutex<Leaf, Names>,
}

#[derive(Debug, Default)]
struct Names {
    tickets: FxHashMap<u128, TicketId>,
    leases: FxHashMap<LeaseId, (HostId, Memory)>,
}
