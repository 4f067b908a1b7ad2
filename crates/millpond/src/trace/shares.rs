//! Sharing in a trace: tickets, imports by other processes, and processes that have ended.
//!
//! An importer is a host of another process. Its uses are in its own trace; here it imports memory and drops it, also
//! when it is gone. In a process's own trace, memory that it imported is an immediate allocation.

use std::sync::atomic::Ordering;

use millpond_core::ids::{AllocId, DeviceId, HostId, ProcessId, TicketId};
use millpond_core::op::{Op, Place, Space, What};
use millpond_core::share::LeaseId;
use millpond_driver::locks::lock;
use millpond_driver::process;

use crate::trace::tracer::{MAIN, Tracer};

impl Tracer {
    /// Traces an export.
    #[cold]
    pub(crate) fn exported(&self, id: AllocId, generation: u64, nonce: u128) {
        let ticket = TicketId(self.number(self.shares.next_ticket.fetch_add(1, Ordering::Relaxed)));
        lock(&self.shares.names).tickets.insert(nonce, ticket);
        self.push(Place::Unknown, What::Export { memory: self.memory(id, generation), ticket });
    }

    /// Traces a new importer, and returns the host that stands for it.
    #[cold]
    pub(crate) fn process(&self, process: u32) -> HostId {
        let host = self.new_host();
        self.push_by(host, What::HostStart { process: ProcessId(process) });
        host
    }

    /// Traces an import by an importer, which knows what this process did.
    #[cold]
    pub(crate) fn lent(&self, host: HostId, nonce: u128, lease: LeaseId) {
        let memory = self.new_memory();
        let mut names = lock(&self.shares.names);
        let Some(ticket) = names.tickets.remove(&nonce) else { return };
        names.leases.insert(lease, (host, memory));
        drop(names);
        self.push(Place::Unknown, What::Tell { to: host });
        self.push_by(host, What::Import { ticket, memory });
    }

    /// Traces the return of a lease, which this process knows of.
    #[cold]
    pub(crate) fn released(&self, lease: LeaseId) {
        let Some((_, memory)) = lock(&self.shares.names).leases.remove(&lease) else { return };
        self.push(Place::Unknown, What::Drop { memory });
    }

    /// Traces the end of an importer: what it held is returned.
    #[cold]
    pub(crate) fn process_ended(&self, host: HostId) {
        let mut held = Vec::new();
        lock(&self.shares.names).leases.retain(|_, (holder, memory)| {
            if *holder == host {
                held.push(*memory);
            }
            *holder != host
        });
        if process::is_forked() {
            return;
        }
        held.into_iter().for_each(|memory| self.push_by(MAIN, What::Drop { memory }));
    }

    /// Traces an import by this process.
    #[cold]
    pub(crate) fn imported(&self, id: AllocId, generation: u64, bytes: u64) {
        let (memory, space) = (self.memory(id, generation), Space::Device(DeviceId(self.device)));
        self.push(Place::Unknown, What::AllocNow { memory, space, bytes, name: None });
    }

    fn push_by(&self, host: HostId, what: What) {
        self.push_op(&Op { host, place: Place::Unknown, what });
    }
}
