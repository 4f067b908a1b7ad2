//! Memory of another process, as this one has it: mapped at addresses of its own, with a history of its own.
//!
//! An import's life begins with what the exporter did before; what it does after that the importer learns from events.
//! When the life ends, a message goes to the exporter, with the uses that may not have completed; the mapping goes when
//! they have (`returns.rs`). Knows peers and the shell; no sockets.

use std::sync::Arc;

use bytemuck::Pod;
use millpond_core::check::Use;
use millpond_core::ids::{AllocId, Point};
use millpond_core::share::{ForeignUse, LeaseId, Request, Ticket, TicketKind, USES_MAX};
use millpond_core::units::Range;
use millpond_driver::locks::{BiasedGuard, Mutex, lock};
use millpond_driver::process;

use super::abroad::{Hold, Namers};
use super::peer::Peer;
use super::returns::Returning;
use super::window::Window;
use crate::Buffer;
use crate::names::count::Count;
use crate::names::error::{Nearest, Result};
use crate::names::share_error::ShareError;
use crate::state::context::Context;
use crate::state::device::{Allocation, Imported, Life, Origin, Owned, PoolShared};
use crate::state::ends::drop_import;
use crate::state::imported::ImportEnd;
use crate::state::listening::is_abroad;
use crate::sync::ranks;

/// An import, as the process that holds it knows it.
#[derive(Debug)]
struct Import {
    peer: Arc<Peer>,
    lease: LeaseId,
    /// Taken when the life ends.
    window: Mutex<ranks::Window, Option<Window>>,
    /// Those whose uses are in its history.
    _used: Hold,
}

impl Context {
    /// Imports what a ticket stands for; `pool` where it must be memory of that pool.
    pub(super) fn import(self: &Arc<Self>, ticket: &Ticket, pool: Option<u32>) -> Result<(Owned, u64)> {
        check_kind(ticket, TicketKind::Memory)?;
        self.alloc_numbers.check()?;
        let number = self.share().number()?;
        let until = self.import_end();
        let (peer, claimed) = self.ask_exporter(ticket, until, |peer| peer.claim_memory(self, ticket, until))?;
        if pool.is_some_and(|pool| claimed.grant.parts.iter().any(|part| part.chunk.pool != pool)) {
            return Err(ShareError::OtherPool.into());
        }
        let speaker = peer.speaker(self, claimed.grant.device)?;
        let uses = [&[claimed.grant.born], &claimed.grant.uses[..]].concat();
        let Some((uses, used)) = self.local_uses(number, speaker, peer.process, &uses) else {
            return Err(ShareError::answer("its order cannot be true"));
        };
        let window = Window::open(self, &peer, &claimed)?;
        let (bytes, range) =
            (claimed.grant.bytes, Range::new(window.range.start + claimed.grant.offset, claimed.grant.bytes));
        let can_write = claimed.grant.can_write;
        let (lease, _) = claimed.take();
        let numbered = self.alloc_numbers.take();
        let (window, _used) = (Mutex::new(Some(window)), used);
        let imported = Imported::new(self, can_write, Box::new(Import { peer, lease, window, _used }));
        let allocation = Arc::new(Allocation::new(numbered, 0, self.number, Origin::Imported(Arc::new(imported))));
        let mut life = allocation.life();
        life.begin(bytes, uses[0]);
        uses[1..].iter().for_each(|known| life.history.add_apart(*known));
        life.range = range;
        let generation = life.generation;
        drop(life);
        let id = numbered.id;
        lock(&self.share().imports).insert(id, Arc::clone(&allocation));
        if let Some(tracer) = &self.tracer {
            tracer.imported(id, generation, bytes);
        }
        Ok((Owned { allocation, generation, address: range.start }, bytes))
    }

    /// The import that starts at an address, or what is there instead.
    pub(crate) fn find_import_at(&self, pointer: u64) -> std::result::Result<Owned, Nearest> {
        let all: Vec<_> = lock(&self.share().imports).values().cloned().collect();
        for allocation in all {
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

    /// The device's last handle is gone: imports that the program cannot name any more are given back.
    pub(crate) fn forget_imports(&self) {
        let all: Vec<_> = {
            let imports = lock(&self.share().imports);
            imports.values().filter(|allocation| Arc::strong_count(allocation) == 1).cloned().collect()
        };
        for allocation in all {
            let generation = allocation.life().generation;
            drop_import(&allocation, generation);
        }
    }
}

impl ImportEnd<Context> for Import {
    fn freed(&self, context: &Arc<Context>, id: AllocId, life: BiasedGuard<'_, Life>, free: Option<Use>) {
        let base = context.hosts.base();
        let latest = life.history.latest();
        let own = latest.iter().filter(|known| !is_abroad(known)).chain(&free);
        let open: Vec<Use> = own.filter(|known| !base.covers(known.point)).copied().collect();
        drop(life);
        lock(&context.share().imports).remove(&id);
        let Some(window) = lock(&self.window).take() else { return };
        let namers = Namers::of_own(context, context.share().number().unwrap_or_default());
        // A free comes after all other uses: where there are too many, it stands for them.
        let beyond = open.len().saturating_sub(USES_MAX);
        let uses: Vec<ForeignUse> = open.iter().skip(beyond).filter_map(|known| namers.use_abroad(known)).collect();
        let points: Vec<Point> = open.iter().map(|known| known.point).collect();
        // Before anything can follow from the release that these streams wait for.
        let ends = Returning::ends_now(context, &points);
        self.peer.tell(&Request::Release { lease: self.lease, uses });
        match points.is_empty() {
            true => context.share().returns.close(context, window),
            false => {
                let (peer, lease) = (Arc::clone(&self.peer), self.lease);
                Returning::begin(context, Returning { peer, lease, points, window: Some(window), ends });
            }
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
    /// As [`import`](Self::import), as elements.
    pub(crate) fn import_typed<T: Pod>(self: &Arc<Self>, ticket: &Ticket, pool: Option<u32>) -> Result<Buffer<T>> {
        process::refuse_forked()?;
        let refused = |bytes: u64| ShareError::Length { bytes, element: size_of::<T>() as u64 };
        // Before it is used up.
        Count::<T>::of_bytes(ticket.bytes).ok_or_else(|| refused(ticket.bytes))?;
        let (owned, bytes) = self.import(ticket, pool)?;
        match Count::of_bytes(bytes) {
            Some(count) => Ok(Buffer::new(Some(owned), count)),
            None => {
                // Given back.
                PoolShared::drop_allocation(owned);
                Err(refused(bytes).into())
            }
        }
    }
}
