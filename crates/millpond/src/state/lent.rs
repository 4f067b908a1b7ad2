//! Who holds a life beside its owner: the leases of other processes.
//!
//! Knows leases; of the processes only that they can be asked ([`Importer`]). What follows for the life is in
//! `listening.rs`.

use std::fmt;
use std::sync::Weak;

use millpond_core::check::{Act, Fault, Kind, Place, Site, Use};
use millpond_core::ids::{ChainIndex, Point, StreamId};
use millpond_core::share::{LeaseId, Phase};
use smallvec::SmallVec;

/// A process that holds leases, as the lives see it.
pub(crate) trait Importer: fmt::Debug + Send + Sync {
    /// Takes in what it has said so far. Called with no locks held.
    fn catch_up(&self);
}

/// Who holds a life beside its owner.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lent {
    pub(crate) holders: SmallVec<[Holder; 2]>,
    /// The owner has dropped it.
    pub(crate) is_dropped: bool,
    /// Others may reach it, lease or no lease.
    pub(crate) is_exposed: bool,
}

/// A lease of a life.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    pub(crate) lease: LeaseId,
    pub(crate) process: u32,
    pub(crate) connection: Weak<dyn Importer>,
    pub(crate) phase: Phase,
}

impl Lent {
    /// Why the owner may not free it now.
    pub(super) fn fault(&self) -> Option<Fault> {
        let process = self.holders.iter().find(|holder| holder.phase == Phase::Held)?.process;
        let site = Site { act: Act::Allocate, stream: StreamId::HOST, op: 0, place: Place::Process(process) };
        let point = Point { chain: ChainIndex(0), seq: 0 };
        Some(Fault::new(Kind::FreeWhileImported, Use { point, site }))
    }

    /// Whether no other process needs its memory.
    pub(crate) fn is_over(&self) -> bool {
        self.holders.iter().all(|holder| holder.phase == Phase::Completed)
    }
}
