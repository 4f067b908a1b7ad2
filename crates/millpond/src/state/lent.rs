//! The holders of a lifetime beside its owner: the leases of other processes.
//!
//! Depends on leases, and of the processes only on their being asked ([`Importer`]). The consequences for the lifetime
//! are in `listening.rs`.

use std::fmt;
use std::sync::Weak;

use millpond_core::check::{Act, Fault, Kind, Place, Site, Use};
use millpond_core::ids::{ChainIndex, Point, StreamId};
use millpond_core::share::{LeaseId, Phase};
use smallvec::SmallVec;

/// A process that holds leases, as the lifetimes see it.
pub(crate) trait Importer: fmt::Debug + Send + Sync {
    /// Receives the messages that it has sent so far. Called with no locks held.
    fn catch_up(&self);
}

/// The holders of a lifetime beside its owner.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lent {
    pub(crate) holders: SmallVec<[Holder; 2]>,
    /// `true` if the owner has dropped it.
    pub(crate) is_dropped: bool,
    /// `true` if other processes may reach it, with or without a lease.
    pub(crate) is_exposed: bool,
}

/// A lease of a lifetime.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    pub(crate) lease: LeaseId,
    pub(crate) process: u32,
    pub(crate) connection: Weak<dyn Importer>,
    pub(crate) phase: Phase,
}

impl Lent {
    /// Returns why the owner may not free it now, if it may not.
    pub(super) fn fault(&self) -> Option<Fault> {
        let process = self.holders.iter().find(|holder| holder.phase == Phase::Held)?.process;
        let site = Site { act: Act::Allocate, stream: StreamId::HOST, op: 0, place: Place::Process(process) };
        let point = Point { chain: ChainIndex(0), seq: 0 };
        Some(Fault::new(Kind::FreeWhileImported, Use { point, site }))
    }

    /// Returns `true` if no other process needs its memory.
    pub(crate) fn is_over(&self) -> bool {
        self.holders.iter().all(|holder| holder.phase == Phase::Completed)
    }
}
