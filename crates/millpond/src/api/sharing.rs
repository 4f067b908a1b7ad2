//! Sharing with other processes: imports, and the device's settings for them.

use std::time::Duration;

use bytemuck::Pod;

use crate::api::device::Device;
use crate::names::error::Result;
use crate::share::{Peers, SharedPool, SharingStatistics, Ticket};
use crate::stream::buffer::Buffer;
use crate::stream::event::Event;

impl Device {
    /// Imports an allocation of another process. Returns a buffer of this process, to be used and freed like any other.
    /// Its memory goes back to the exporter when all holders have released it. If the exporter ends first, the memory
    /// stays valid.
    ///
    /// The import does not wait. A use must come after what the exporter did before the import, by an event that it
    /// exports ([`Event::export`]), or it is refused. Graphs cannot use imported memory.
    ///
    /// # Errors
    /// Returns a [`ShareError`](crate::error::ShareError) if the ticket was used before, is a forgery, or stands for
    /// memory that was freed; if the exporter is gone; or if the size is not a whole number of elements. Returns an
    /// error if the driver refuses. A ticket that reached the exporter is used up all the same.
    ///
    /// # Safety
    /// While the import lives, no process writes bytes of it that another process uses at the same time. The uses of
    /// each process are checked against what it has learned of the others, and not against what they do meanwhile.
    #[allow(unsafe_code)] // It passes the caller's promise on and does nothing unsafe itself.
    pub unsafe fn import<T: Pod>(&self, ticket: &Ticket) -> Result<Buffer<T>> {
        self.context().import_typed(ticket, None)
    }

    /// Imports an event of another process, for streams and the host to wait for (CUDA: `cudaIpcOpenEventHandle`). If
    /// the exporter ends before the event has completed, the wait ends, because its work ends with it. The import does
    /// not wait, with one exception: on a CUDA device whose driver does not let the event pass between the processes,
    /// this call waits until the event has completed.
    ///
    /// # Errors
    /// As for [`import`](Self::import).
    pub fn import_event(&self, ticket: &Ticket) -> Result<Event> {
        self.context().import_event(ticket)
    }

    /// Imports a whole pool of another process, for its later allocations (CUDA:
    /// `cudaMemPoolImportFromShareableHandle`).
    ///
    /// # Errors
    /// As for [`import`](Self::import).
    pub fn import_pool(&self, ticket: &Ticket) -> Result<SharedPool> {
        self.context().import_pool(ticket)
    }

    /// Sets the users whose processes may import from this device, and those from whose processes it imports. This
    /// applies to later connections.
    pub fn set_peers(&self, peers: Peers) {
        self.context().share.allow(peers);
    }

    /// Returns the statistics of what is shared with other processes. They include everything that these processes have
    /// sent by now.
    pub fn sharing(&self) -> SharingStatistics {
        self.context().sharing()
    }

    /// Sets how long tickets are valid that are issued from now on. The default is 10 minutes. A ticket that is not
    /// used in time is refused, and so is one that had to make room: at most 65 536 tickets are out at a time.
    pub fn set_ticket_life(&self, life: Duration) {
        self.context().share.set_ticket_life(life);
    }

    /// Sets how long an import may wait for its exporter, from now on. The default is 30 s. What the exporter sends
    /// later is given back.
    pub fn set_import_patience(&self, patience: Duration) {
        self.context().share.set_patience(patience);
    }

    /// Revokes a ticket of this device. Returns `true` if it was valid. Imports that were made by it stay imported.
    pub fn revoke(&self, ticket: &Ticket) -> bool {
        self.context().share.revoke(ticket)
    }
}
