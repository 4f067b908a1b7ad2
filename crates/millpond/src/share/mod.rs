//! Memory and events between processes.
//!
//! A *ticket* is the right to import one thing once, as 64 bytes that may be passed by any means. The *exporter*
//! serves importers over a socket. An *importer* gets files of the chunks under an allocation, maps them at addresses
//! of its own, and has a buffer like any other. Holders are counted: memory goes back to the exporter's pool when the
//! owner and all importers have released it and their uses have completed. The core has the rules for messages, and
//! their effects, as state machines without I/O (`millpond_core::share`). This folder adds sockets, memory, the order
//! of the device, and one thread. docs/sharing.md is for users.

// | file | contents |
// |---|---|
// | `socket` | packets with files, and the identity of the other end |
// | `thread` | the one thread: it waits for sockets, times and devices |
// | `foreign` | chains of other processes in this order |
// | `exporter` | tickets; the thread's work (`serving`), importers (`connection`), their leases (`lease`) |
// | `announced`, `event` | events, at the exporter and at the importer |
// | `peer` | an exporter as an importer sees it |
// | `import`, `mapping` | memory of another process: its lifetime, and its mapping |
// | `pool` | whole pools |
// | `files` | memory for programs that do not know Millpond |

mod announced;
mod event;
mod exporter;
mod files;
mod foreign;
mod import;
mod mapping;
mod peer;
mod pool;
mod socket;
mod thread;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use bytemuck::Pod;
use millpond_core::ids::{AllocId, Point};
pub use millpond_core::share::{Refusal, TICKET_BYTES, Ticket, TicketError, TicketKind};
use millpond_core::units::Range;
use millpond_driver::locks::{Mutex, lock};
use millpond_driver::{Driver, process};
use rustc_hash::FxHashMap;

pub use files::MemoryFile;
pub use pool::SharedPool;

use crate::Buffer;
use crate::clock::hosts;
use crate::names::error::{Error, Result};
use crate::names::share_error::ShareError;
use crate::state::allocation::{Allocation, Owned};
use crate::state::context::Context;
use crate::state::origin::Origin;
use crate::state::pool::PoolShared;
use crate::sync::ranks;
use exporter::{Exporter, Offer, Target};
use foreign::ForeignChains;
use import::Import;
use mapping::{Returning, Window};
use peer::Peer;
use thread::Watch;

/// The users whose processes a device shares with, in both directions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Peers {
    /// This process's own user.
    #[default]
    SameUser,
    /// These users, by number.
    Users(Vec<u32>),
    /// Any user.
    Anyone,
}

impl Peers {
    fn allow(&self, own: Option<u32>, user: u32) -> bool {
        match self {
            Peers::SameUser => own == Some(user),
            Peers::Users(users) => users.contains(&user),
            Peers::Anyone => true,
        }
    }
}

/// Figures of a device's sharing with other processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SharingStatistics {
    /// Tickets issued so far.
    pub tickets: u64,
    /// Tickets that are valid and unused.
    pub unused_tickets: usize,
    /// Tickets that expired, were revoked, or were displaced by others.
    pub expired: u64,
    /// Requests of importers that were refused.
    pub refused: u64,
    /// Allocations that importers hold now.
    pub leases: usize,
    /// Allocations lent so far.
    pub lent: u64,
    /// Of those lent, the ones that their importers returned.
    pub released: u64,
    /// Of those lent, the ones taken back because their importer was gone.
    pub reclaimed: u64,
    /// Importers that were gone while they held something.
    pub lost: u64,
    /// Importers that are connected.
    pub importers: usize,
    /// Connections of importers, including those that have claimed nothing and those whose process has not ended yet.
    pub connections: usize,
    /// Exporters that this device is connected to.
    pub exporters: usize,
    /// Chains of other processes that this device's order knows.
    pub foreign_chains: usize,
    /// Allocations that this device has imported and not freed.
    pub imports: usize,
    /// Imports that were freed and are still mapped, because their last uses may still run.
    pub returning: usize,
    /// Chunks of exporters of which this device has handles.
    pub imported_chunks: usize,
}

/// The sharing side of a device.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    /// The device's random number, by which its peers know it.
    number: OnceLock<u128>,
    next_key: AtomicU64,
    /// `true` once an exporter was opened.
    has_exporter: AtomicBool,
    /// `true` if the host may still have to learn something that an exporter waits for.
    has_unknown: AtomicBool,
    foreign: ForeignChains,
    shared: Mutex<ranks::Table, Shared>,
}

/// The state of sharing in both directions, and its settings.
#[derive(Debug)]
struct Shared {
    exporter: Option<Arc<Exporter>>,
    peers: FxHashMap<u128, Arc<Peer>>,
    allowed: Peers,
    /// The time for which a new ticket is valid.
    ticket_life: Duration,
    /// The longest time that an import waits for its exporter.
    patience: Duration,
    imports: FxHashMap<AllocId, Import>,
    /// Imports being returned: the thread that waits for them, their number there, and their uses.
    returning: FxHashMap<u64, (Arc<Watch>, Vec<Point>)>,
    /// Imports for which no thread could be started.
    stranded: Vec<Returning>,
    /// Mappings that the driver refused to unmap.
    unclosed: Vec<Window>,
    /// Kept alive by the entries that wait.
    watch: Weak<Watch>,
}

impl Default for Shared {
    fn default() -> Self {
        let (exporter, peers, allowed, imports, returning) = Default::default();
        let (stranded, unclosed, watch) = Default::default();
        let (ticket_life, patience) = (Duration::from_secs(600), Duration::from_secs(30));
        Self { exporter, peers, allowed, ticket_life, patience, imports, returning, stranded, unclosed, watch }
    }
}

impl Sharing {
    /// Receives what importers that hold something have sent so far.
    #[inline]
    pub(crate) fn settle(&self) {
        if self.has_exporter.load(Ordering::Acquire) {
            self.settle_with_importers();
        }
    }

    /// Returns the import with a number.
    pub(crate) fn find_import(&self, id: AllocId) -> Option<Arc<Allocation>> {
        lock(&self.shared).imports.get(&id).map(|import| Arc::clone(&import.allocation))
    }

    /// Tries again to unmap and destroy what the driver refused before.
    pub(crate) fn finish(&self, context: &Context) {
        self.close_rest(context);
        self.peers().iter().for_each(|peer| peer.destroy_unused(context));
    }

    /// Ends all sharing when the device is gone.
    pub(crate) fn stop(&self, context: &Context) {
        self.return_rest(context);
        self.finish(context);
        let exporter = lock(&self.shared).exporter.take();
        if let Some(exporter) = exporter {
            exporter.stop();
        }
        context.close_foreign();
    }

    pub(crate) fn allow(&self, peers: Peers) {
        lock(&self.shared).allowed = peers;
    }

    pub(crate) fn set_ticket_life(&self, life: Duration) {
        lock(&self.shared).ticket_life = life;
    }

    pub(crate) fn set_patience(&self, patience: Duration) {
        lock(&self.shared).patience = patience;
    }

    fn ticket_life(&self) -> Duration {
        lock(&self.shared).ticket_life
    }

    /// Revokes a ticket. Returns `true` if it was valid.
    pub(crate) fn revoke(&self, ticket: &Ticket) -> bool {
        let exporter = lock(&self.shared).exporter.clone();
        exporter.is_some_and(|exporter| exporter.revoke(ticket))
    }

    fn peers(&self) -> Vec<Arc<Peer>> {
        lock(&self.shared).peers.values().cloned().collect()
    }

    fn number(&self) -> Result<u128> {
        match self.number.get() {
            Some(number) => Ok(*number),
            None => {
                let number = socket::random().map_err(ShareError::system("make a random number"))?;
                Ok(*self.number.get_or_init(|| number))
            }
        }
    }

    /// Returns the device's watch, made if there is none.
    fn watch(&self) -> Result<Arc<Watch>> {
        let mut shared = lock(&self.shared);
        if let Some(watch) = shared.watch.upgrade() {
            return Ok(watch);
        }
        let watch = Watch::new().map_err(ShareError::system("wait for other processes"))?;
        shared.watch = Arc::downgrade(&watch);
        Ok(watch)
    }

    fn allows(&self, user: u32) -> bool {
        lock(&self.shared).allowed.allow(socket::own_user(), user)
    }

    /// Returns a key for a process that the system does not identify.
    fn next_key(&self) -> u64 {
        // The keys of importers' connections count up from below.
        u64::MAX - self.next_key.fetch_add(1, Ordering::Relaxed)
    }

    #[cold]
    fn settle_with_importers(&self) {
        let exporter = lock(&self.shared).exporter.clone();
        if let Some(exporter) = exporter {
            exporter.settle(|connection| connection.end(|end| end.has_leases()));
        }
    }

    /// Drops the exporters that are gone and of which nothing is in use.
    fn drop_gone_peers(&self) {
        let gone: Vec<_> = {
            let mut shared = lock(&self.shared);
            shared.peers.extract_if(|_, peer| Arc::strong_count(peer) == 1 && peer.has_left()).collect()
        };
        // Dropped outside the lock, because this closes files.
        drop(gone);
    }
}

impl Context {
    /// Returns the exporting side, which the first export opens.
    fn exporter(self: &Arc<Self>) -> Result<Arc<Exporter>> {
        process::refuse_forked()?;
        let share = &self.share;
        if let Some(exporter) = &lock(&share.shared).exporter {
            return Ok(Arc::clone(exporter));
        }
        let opened = Exporter::open(self)?;
        let mut shared = lock(&share.shared);
        if let Some(exporter) = shared.exporter.clone() {
            drop(shared);
            // Another thread was first.
            opened.stop();
            return Ok(exporter);
        }
        share.has_exporter.store(true, Ordering::Release);
        Ok(Arc::clone(shared.exporter.insert(opened)))
    }

    /// Returns the time by which an import that begins now must be done.
    fn import_end(&self) -> Instant {
        let now = Instant::now();
        now.checked_add(lock(&self.share.shared).patience).unwrap_or(now + Duration::from_secs(1 << 30))
    }

    /// Asks an exporter over the existing connection, or else a new one. Returns the peer that answered, and its
    /// answer. An exporter closes a connection after some refusals; the next question on it connects again.
    fn ask_exporter<R>(
        &self,
        ticket: &Ticket,
        until: Instant,
        ask: impl Fn(&Arc<Peer>) -> Result<R>,
    ) -> Result<(Arc<Peer>, R)> {
        let name = ticket.exporter;
        let known = lock(&self.share.shared).peers.get(&name).cloned();
        if let Some(peer) = known.filter(|peer| !peer.is_gone()) {
            match ask(&peer) {
                Err(Error::Share(error)) if *error == ShareError::ExporterGone && peer.is_gone() => {}
                answer => return answer.map(|answer| (peer, answer)),
            }
        }
        self.share.drop_gone_peers();
        let peer = Arc::new(Peer::connect(self, name, until)?);
        let former = lock(&self.share.shared).peers.insert(name, Arc::clone(&peer));
        drop(former);
        let answer = ask(&peer)?;
        Ok((peer, answer))
    }
}

impl<T: Pod> Buffer<T> {
    /// Makes a ticket for this allocation, valid for one import by another process: 64 bytes that may be passed by
    /// any means. The buffer does not change: dropping it frees the memory once all importers are done with it.
    /// Importers need not wait for what the host knows to have completed by now.
    ///
    /// The importer can read and write the memory for as long as its process lives, whatever messages it sends, and
    /// can reach no other memory: see [`PoolConfig::shareable`](crate::PoolConfig::shareable), and
    /// [`Device::pool_sharing_chunks`](crate::Device::pool_sharing_chunks) for the alternative with fewer resources.
    /// The ticket is the right to import: anyone who reads it can use it, so do not put it on a command line, which
    /// all users can read.
    ///
    /// # Errors
    /// [`ShareError`] if the pool is not [shareable](crate::PoolConfig::shareable), the buffer is imported itself, is
    /// empty or belongs to a graph, or the system refused.
    pub fn export(&self) -> Result<Ticket> {
        self.export_as(true)
    }

    /// As [`export`](Self::export), for importers that only read: their mappings cannot be written to, and launches
    /// there that declare writes are refused. A malicious process of the same user can get around that, as around
    /// much else (docs/sharing.md has the table).
    ///
    /// # Errors
    /// As for [`export`](Self::export); also if the device does not support it (CUDA).
    pub fn export_read_only(&self) -> Result<Ticket> {
        let (owned, pool, bytes) = self.shareable()?;
        let heap = pool.lock();
        let (parts, _) = heap.parts(pool.id.0, Range::new(owned.address, bytes)).unwrap_or_default();
        for chunk in parts.iter().take(1).filter_map(|part| heap.chunk_of(part.chunk.serial)) {
            pool.context.driver.export_to_read(chunk)?;
        }
        drop(heap);
        self.export_as(false)
    }

    fn export_as(&self, can_write: bool) -> Result<Ticket> {
        let (owned, pool, bytes) = self.shareable()?;
        let (allocation, context) = (&owned.allocation, &pool.context);
        let exporter = context.exporter()?;
        let (generation, base) = (owned.generation, hosts::base());
        let offer = Offer { allocation: Arc::downgrade(allocation), generation, base, can_write };
        let ticket = exporter.issue(TicketKind::Memory, Target::Memory(offer), bytes, context.share.ticket_life())?;
        if let Some(tracer) = &context.tracer {
            tracer.exported(allocation.id, generation, ticket.nonce);
        }
        Ok(ticket)
    }

    /// Returns the allocation, its pool and its size in bytes, if other processes may have it.
    fn shareable(&self) -> Result<(&Owned, &Arc<PoolShared>, u64)> {
        process::refuse_forked()?;
        let not = |what: String, why| ShareError::NotExportable { what, why };
        let Some(owned) = self.owned() else { return Err(not("the buffer".into(), "it is empty").into()) };
        let allocation = &owned.allocation;
        let pool = match &allocation.origin {
            Origin::Pool(pool) => pool,
            Origin::Imported(_) => return Err(ShareError::Imported { what: allocation.id.to_string() }.into()),
            Origin::Graph(_) | Origin::Captured(_) | Origin::Pinned(_) => {
                return Err(not(allocation.id.to_string(), "it is memory of a graph").into());
            }
        };
        let (bytes, what) = {
            let life = allocation.life();
            if life.freed.is_some() || life.generation != owned.generation {
                return Err(not(allocation.describe(&life), "it is freed").into());
            }
            (life.bytes, allocation.describe(&life))
        };
        match pool.shareable {
            true => Ok((owned, pool, bytes)),
            false => Err(ShareError::NotShareable { what }.into()),
        }
    }
}

impl Context {
    /// Returns the figures of sharing, including the messages that other processes have sent by now.
    pub(crate) fn sharing(&self) -> SharingStatistics {
        let share = &self.share;
        let (exporter, watch) = {
            let shared = lock(&share.shared);
            (shared.exporter.clone(), shared.watch.upgrade())
        };
        if let Some(exporter) = &exporter {
            exporter.settle(|_| true);
        }
        if let Some(watch) = watch {
            watch.round();
        }
        let counts = exporter.map(|exporter| exporter.counts()).unwrap_or_default();
        share.drop_gone_peers();
        let imported_chunks = share.peers().iter().map(|peer| peer.chunk_count()).sum();
        let foreign_chains = self.foreign_chains();
        let shared = lock(&share.shared);
        SharingStatistics {
            exporters: shared.peers.len(),
            foreign_chains,
            imports: shared.imports.len(),
            returning: shared.returning.len() + shared.stranded.len() + shared.unclosed.len(),
            imported_chunks,
            ..counts
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Peers;

    #[test]
    fn only_the_own_user_is_allowed_by_default() {
        let own = Some(7);
        assert!(Peers::default().allow(own, 7) && !Peers::default().allow(own, 8) && !Peers::default().allow(own, 0));
        assert!(Peers::Users(vec![8]).allow(own, 8) && !Peers::Users(vec![8]).allow(own, 7));
        assert!(Peers::Anyone.allow(own, 8));
        // If the system cannot distinguish users, no user counts as this process's own.
        assert!(!Peers::default().allow(None, 65534));
    }
}
