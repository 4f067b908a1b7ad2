//! What a trace says of sharing: tickets, imports by other processes, and processes that went.
//!
//! An importer is a host of a process of its own. Its uses are its own trace's; here it takes memory and lets go of it,
//! also where it is gone. What it imported from others a process's trace has as memory that was there at once.

use millpond_core::ids::{AllocId, DeviceId, HostId, ProcessId, TicketId};
use millpond_core::op::{Op, Place, Space, What};
use millpond_core::share::LeaseId;
use millpond_driver::locks::lock;
use millpond_driver::process;

use crate::trace::tracer::{MAIN, Tracer};

impl Tracer {
    /// Memory is offered.
    #[cold]
    pub(crate) fn exported(&self, id: AllocId, generation: u64, nonce: u128) {
        let mut names = lock(&self.shares.0);
        let ticket = TicketId(self.number(names.next_ticket));
        names.next_ticket = names.next_ticket.wrapping_add(1);
        names.tickets.insert(nonce, ticket);
        drop(names);
        self.push(Place::Unknown, What::Export { memory: self.memory(id, generation), ticket });
    }

    /// An importer is there: who stands for it.
    #[cold]
    pub(crate) fn process(&self, process: u32) -> HostId {
        let host = self.new_host();
        self.push_by(host, What::HostStart { process: ProcessId(process) });
        host
    }

    /// An importer got memory; it knows what this process did.
    #[cold]
    pub(crate) fn lent(&self, host: HostId, nonce: u128, lease: LeaseId) {
        let memory = self.new_memory();
        let mut names = lock(&self.shares.0);
        let Some(ticket) = names.tickets.remove(&nonce) else { return };
        names.leases.insert(lease, (host, memory));
        drop(names);
        self.push(Place::Unknown, What::Tell { to: host });
        self.push_by(host, What::Import { ticket, memory });
    }

    /// An importer let go, and this process knows.
    #[cold]
    pub(crate) fn released(&self, lease: LeaseId) {
        let Some((_, memory)) = lock(&self.shares.0).leases.remove(&lease) else { return };
        self.push(Place::Unknown, What::Drop { memory });
    }

    /// An importer is gone: what it held is given back.
    #[cold]
    pub(crate) fn process_ended(&self, host: HostId) {
        let mut held = Vec::new();
        lock(&self.shares.0).leases.retain(|_, (holder, memory)| {
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

    /// Memory of another process is there.
    #[cold]
    pub(crate) fn imported(&self, id: AllocId, generation: u64, bytes: u64) {
        let (memory, space) = (self.memory(id, generation), Space::Device(DeviceId(self.device)));
        self.push(Place::Unknown, What::AllocNow { memory, space, bytes, name: None });
    }

    fn push_by(&self, host: HostId, what: What) {
        self.push_op(&Op { host, place: Place::Unknown, what });
    }
}
