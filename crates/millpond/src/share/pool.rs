//! Pools that are shared as a whole: the right to all their chunks, for later allocations.
//!
//! Each import still needs a ticket. A shared pool saves the files, which are fetched once and kept.

use std::fmt;
use std::sync::{Arc, Weak};

use bytemuck::Pod;
use millpond_core::share::{Reply, Ticket, TicketKind};
use millpond_driver::process;

use super::exporter::Target;
use super::import::check_kind;
use super::peer::Peer;
use crate::names::error::Result;
use crate::names::share_error::ShareError;
use crate::state::context::Context;
use crate::{Buffer, Pool};

/// A pool of another process (CUDA: a pool imported with `cudaMemPoolImportFromShareableHandle`). Allocations of the
/// exporter from it are imported with [`import`](Self::import). Nothing can be allocated from it here.
///
/// ```
/// use millpond::config::PoolConfig;
///
/// # fn main() -> millpond::Result<()> {
/// # let [device, here] = [(); 2].map(|()| millpond::Device::host(Default::default()).unwrap());
/// // In the process that owns the pool:
/// let pool = device.pool(PoolConfig::default().shareable(true))?;
/// let stream = device.stream()?;
/// let x = stream.upload(&pool, &[1, 2, 3])?;
/// stream.synchronize()?;
/// let tickets = (pool.export()?, x.export()?); // 64 bytes each, sent by any means
///
/// // In another one:
/// let shared = here.import_pool(&tickets.0)?;
/// // SAFETY: the exporter does not use `x` any more.
/// let y = unsafe { shared.import::<i32>(&tickets.1) }?;
/// let stream = here.stream()?;
/// assert_eq!(stream.copy_to_host(y.read())?, [1, 2, 3]);
/// # Ok(())
/// # }
/// ```
///
/// While this value lives, chunks of the pool that were fetched once are kept, so that later imports transfer no
/// files.
pub struct SharedPool {
    context: Arc<Context>,
    peer: Arc<Peer>,
    pool: u32,
}

impl fmt::Debug for SharedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedPool(pool {} of another process, imported by {})", self.pool, self.context.name())
    }
}

impl Pool {
    /// Makes a ticket for the whole pool, valid for one import by another process (CUDA:
    /// `cudaMemPoolExportToShareableHandle`).
    ///
    /// # Errors
    /// [`ShareError`] if the pool is not shareable or the system refused.
    pub fn export(&self) -> Result<Ticket> {
        let shared = &self.shared;
        if !shared.shareable {
            return Err(ShareError::NotShareable { what: shared.title().to_string() }.into());
        }
        let exporter = shared.context.exporter()?;
        let target: Weak<_> = Arc::downgrade(self.arc());
        let life = shared.context.share.ticket_life();
        exporter.issue(TicketKind::Pool, Target::Pool(target), 0, life)
    }
}

impl Context {
    pub(crate) fn import_pool(self: &Arc<Self>, ticket: &Ticket) -> Result<SharedPool> {
        process::refuse_forked()?;
        check_kind(ticket, TicketKind::Pool)?;
        let until = self.import_end();
        let (peer, (Reply::Pool(pool), _)) = self.ask_exporter(ticket, until, |peer| peer.claim(ticket, until))? else {
            return Err(ShareError::answer("it is for something else"));
        };
        peer.tell(self, false, |end| end.keep_pool(pool));
        Ok(SharedPool { context: Arc::clone(self), peer, pool })
    }
}

impl SharedPool {
    /// Imports an allocation of this pool, as [`Device::import`](crate::Device::import) does.
    ///
    /// # Errors
    /// As for [`Device::import`](crate::Device::import); also [`ShareError::OtherPool`] if the allocation is from
    /// another pool.
    ///
    /// # Safety
    /// As for [`Device::import`](crate::Device::import).
    #[allow(unsafe_code)] // Passes the caller's promise on and does nothing unsafe itself.
    pub unsafe fn import<T: Pod>(&self, ticket: &Ticket) -> Result<Buffer<T>> {
        if ticket.exporter != self.peer.name {
            return Err(ShareError::OtherPool.into());
        }
        self.context.import_typed(ticket, Some(self.pool))
    }

    /// Returns the number of the exporter's chunks of which this process has handles.
    pub fn chunks(&self) -> usize {
        self.peer.chunk_count()
    }
}

impl Drop for SharedPool {
    fn drop(&mut self) {
        self.peer.tell(&self.context, false, |end| end.let_pool_go(self.pool));
    }
}
