//! What a device shares with other processes: imports, and its settings for that.

use std::time::Duration;

use bytemuck::Pod;

use crate::api::device::Device;
use crate::names::error::Result;
use crate::share::{Peers, SharedPool, SharingStatistics, Ticket};
use crate::stream::buffer::Buffer;
use crate::stream::event::Event;

impl Device {
    /// Imports an allocation of another process: a buffer of its own, to be used and freed like any other. Its memory
    /// goes back to the exporter when all holders have let go; where the exporter goes first, it stays valid.
    ///
    /// Nothing is waited for: a use must come after what the exporter did before the import, by an event that it
    /// exports ([`Event::export`]), or is refused. Graphs cannot use imported memory.
    ///
    /// # Errors
    /// [`ShareError`](crate::error::ShareError):
    /// the ticket was used before, is a forgery, or stands for memory that is freed; the exporter is
    /// gone; the size is not a whole number of elements. What the driver refuses. A ticket that reached the exporter is
    /// used up all the same.
    ///
    /// # Safety
    /// While the import lives, no process writes bytes of it that another uses at the same time: what each process does
    /// is checked against what it has learned of the others, and not against what they do meanwhile.
    #[allow(unsafe_code)] // It hands the caller's promise on and does nothing unsafe itself.
    pub unsafe fn import<T: Pod>(&self, ticket: &Ticket) -> Result<Buffer<T>> {
        self.context().import_typed(ticket, None)
    }

    /// Imports an event of another process: streams can wait for it, and the host (CUDA: `cudaIpcOpenEventHandle`).
    /// Where the exporter goes before it has completed, waiting ends: its work ends with it. Nothing is waited for
    /// here; but a CUDA device whose driver does not let the event pass between the processes makes this call wait
    /// until it has completed.
    ///
    /// # Errors
    /// As of [`import`](Self::import).
    pub fn import_event(&self, ticket: &Ticket) -> Result<Event> {
        self.context().import_event(ticket)
    }

    /// Imports a whole pool of another process, for its allocations to come (CUDA:
    /// `cudaMemPoolImportFromShareableHandle`).
    ///
    /// # Errors
    /// As of [`import`](Self::import).
    pub fn import_pool(&self, ticket: &Ticket) -> Result<SharedPool> {
        self.context().import_pool(ticket)
    }

    /// Which users' processes may import from this device, and which it imports from; for connections to come.
    pub fn set_peers(&self, peers: Peers) {
        self.context().share.allow(peers);
    }

    /// What is shared with other processes; what they have said by now is in it.
    pub fn sharing(&self) -> SharingStatistics {
        self.context().sharing()
    }

    /// How long tickets are good that are given out from now on; 10 minutes unless set. A ticket that is not used in
    /// time is refused, and so is one that had to make room: no more than 65 536 are out at a time.
    pub fn set_ticket_life(&self, life: Duration) {
        self.context().share.set_ticket_life(life);
    }

    /// How long an import may wait for its exporter, from now on; 30 s unless set. What the exporter answers later is
    /// given back.
    pub fn set_import_patience(&self, patience: Duration) {
        self.context().share.set_patience(patience);
    }

    /// Makes a ticket of this device good no more; whether it was good. What was imported by it stays imported.
    pub fn revoke(&self, ticket: &Ticket) -> bool {
        self.context().share.revoke(ticket)
    }
}
