//! Memory of another process, as this process sees it: mapped at addresses of its own, with a history of its own.
//!
//! The lifetime of an import begins with what the exporter did before. What the exporter does later, the importer
//! learns from events. When the lifetime ends, a message goes to the exporter, with the uses that may not have
//! completed; the memory is unmapped when they have (`mapping.rs`). Depends on peers; on no sockets.

use std::sync::Arc;

use bytemuck::Pod;
use millpond_core::check::Use;
use millpond_core::ids::{AllocId, Point};
use millpond_core::share::{ForeignUse, LeaseId, Ticket, TicketKind, USES_MAX};
use millpond_core::units::Range;
use millpond_driver::locks::{BiasedGuard, lock};
use millpond_driver::process;

use super::Sharing;
use super::foreign::{Hold, Names};
use super::mapping::{Returning, Window};
use super::peer::Peer;
use crate::Buffer;
use crate::clock::hosts;
use crate::names::count::Count;
use crate::names::error::{Nearest, Result};
use crate::names::share_error::ShareError;
use crate::state::allocation::{Allocation, Life, Owned};
use crate::state::context::Context;
use crate::state::ends::drop_unpooled;
use crate::state::listening::is_foreign;
use crate::state::origin::{Imported, Origin};
use crate::state::pool::PoolShared;

/// An import that is live.
#[derive(Debug)]
pub(super) struct Import {
    pub(super) allocation: Arc<Allocation>,
    peer: Arc<Peer>,
    lease: LeaseId,
    window: Window,
    /// The speakers whose uses are in its history.
    _used: Hold,
}

impl Context {
    /// Imports what a ticket stands for. With `pool`, it must be memory of that pool.
    pub(super) fn import(self: &Arc<Self>, ticket: &Ticket, pool: Option<u32>) -> Result<(Owned, u64)> {
        check_kind(ticket, TicketKind::Memory)?;
        self.alloc_numbers.check()?;
        let number = self.share.number()?;
        let until = self.import_end();
        let (peer, claimed) = self.ask_exporter(ticket, until, |peer| peer.claim_memory(self, ticket, until))?;
        let grant = claimed.grant()?;
        if pool.is_some_and(|pool| grant.parts.iter().any(|part| part.chunk.pool != pool)) {
            return Err(ShareError::OtherPool.into());
        }
        let speaker = peer.speaker(self, grant.device)?;
        let uses = [&[grant.born], &grant.uses[..]].concat();
        let Some((uses, _used)) = self.local_uses(number, speaker, peer.process, &uses) else {
            return Err(ShareError::answer("its order cannot be true"));
        };
        let window = Window::open(self, &peer, &claimed)?;
        let (lease, bytes, can_write) = (grant.lease, grant.bytes, grant.can_write);
        let range = Range::new(window.range.start + grant.offset, bytes);
        claimed.take();
        let numbered = self.alloc_numbers.take();
        let origin = Origin::Imported(Arc::new(Imported { context: Arc::clone(self), can_write }));
        let allocation = Arc::new(Allocation::new(numbered, 0, self.number, origin));
        let mut life = allocation.life();
        life.begin(bytes, uses[0]);
        uses[1..].iter().for_each(|known| life.history.add_apart(*known));
        life.range = range;
        let generation = life.generation;
        drop(life);
        let (id, import) = (numbered.id, Import { allocation: Arc::clone(&allocation), peer, lease, window, _used });
        lock(&self.share.shared).imports.insert(id, import);
        if let Some(tracer) = &self.tracer {
            tracer.imported(id, generation, bytes);
        }
        Ok((Owned { allocation, generation, address: range.start }, bytes))
    }

    /// Returns the import that starts at an address, or what is there instead.
    pub(crate) fn find_import_at(&self, pointer: u64) -> std::result::Result<Owned, Nearest> {
        for allocation in self.imports(|_| true) {
            let life = allocation.life();
            if !life.range.contains(pointer) {
                continue;
            }
            if pointer == life.range.start {
                let generation = life.generation;
                drop(life);
                return Ok(Owned { allocation, generation, address: pointer });
            }
            let offset = pointer - life.range.start;
            return Err(Nearest::Inside { allocation: allocation.describe(&life), offset });
        }
        Err(Nearest::Outside { nearest: None })
    }

    /// Returns the imports that the program cannot name any more, when the device's last handle is gone.
    pub(crate) fn forget_imports(&self) {
        for allocation in self.imports(|allocation| Arc::strong_count(allocation) == 1) {
            let generation = allocation.life().generation;
            drop_unpooled(&allocation, generation);
        }
    }

    fn imports(&self, is_wanted: impl Fn(&Arc<Allocation>) -> bool) -> Vec<Arc<Allocation>> {
        let shared = lock(&self.share.shared);
        let all = shared.imports.values().map(|import| &import.allocation);
        all.filter(|allocation| is_wanted(allocation)).cloned().collect()
    }
}

impl Sharing {
    /// Ends the lifetime of an import with this free, and tells the exporter.
    pub(crate) fn end_import(
        &self,
        context: &Arc<Context>,
        id: AllocId,
        life: BiasedGuard<'_, Life>,
        free: Option<Use>,
    ) {
        let base = hosts::base();
        let latest = life.history.latest();
        let own = latest.iter().filter(|known| !is_foreign(known)).chain(&free);
        let open: Vec<Use> = own.filter(|known| !base.covers(known.point)).copied().collect();
        drop(life);
        let Some(import) = lock(&self.shared).imports.remove(&id) else { return };
        let names = Names::of_own(context, self.number().unwrap_or_default());
        // A free comes after all other uses. If there are too many, it stands for them.
        let beyond = open.len().saturating_sub(USES_MAX);
        let uses: Vec<ForeignUse> = open.iter().skip(beyond).filter_map(|known| names.foreign_use(known)).collect();
        let points: Vec<Point> = open.iter().map(|known| known.point).collect();
        let Import { peer, lease, window, .. } = import;
        let returning = Returning::new(context, &peer, lease, window, points.clone());
        peer.tell(context, true, |end| end.release(lease, uses, &points));
        match points.is_empty() {
            true => self.close(context, returning.into_window()),
            false => self.return_later(context, returning),
        }
    }
}

pub(super) fn check_kind(ticket: &Ticket, wanted: TicketKind) -> Result<()> {
    match ticket.kind == wanted {
        true => Ok(()),
        false => Err(ShareError::Kind { wanted, found: ticket.kind }.into()),
    }
}

impl Context {
    /// As [`import`](Self::import), with a type of elements.
    pub(crate) fn import_typed<T: Pod>(self: &Arc<Self>, ticket: &Ticket, pool: Option<u32>) -> Result<Buffer<T>> {
        process::refuse_forked()?;
        let refused = |bytes: u64| ShareError::Length { bytes, element: size_of::<T>() as u64 };
        // Checked before the ticket is used up.
        Count::<T>::of_bytes(ticket.bytes).ok_or_else(|| refused(ticket.bytes))?;
        let (owned, bytes) = self.import(ticket, pool)?;
        match Count::of_bytes(bytes) {
            Some(count) => Ok(Buffer::new(Some(owned), count)),
            None => {
                // Return the memory.
                PoolShared::drop_allocation(owned);
                Err(refused(bytes).into())
            }
        }
    }
}
