//! The host threads' knowledge from synchronisations: the third party of the order, beside streams and events.
//!
//! Depends on points of chains only. A synchronisation that returns, or a query that returns success, tells the host
//! that everything before a point has completed. Whatever the host submits afterwards, on any stream, comes after
//! that. This is part of **ordered**: the program was informed, so every run that gets the same answers gets the same
//! verdicts.
//!
//! All threads of a process are one [`Host`], joined in the order of their calls, because locks, channels and joins
//! between threads are not visible. [`Host::learn_base`] adds an edge between two processes.

use std::sync::Arc;

use super::clock::Clock;
use super::knowledge::{Base, Knowledge, Snapshot};
use crate::ids::ChainIndex;

/// All host threads of a process.
#[derive(Debug)]
pub struct Host {
    /// The base, in the form that chains share that waited for nothing more.
    pub(super) knowledge: Arc<Knowledge>,
}

impl Host {
    /// Makes a host that knows nothing. `number` tells the hosts of one order apart.
    pub fn new(number: u64) -> Self {
        Self {
            knowledge: Knowledge::of(Arc::new(Base { host: number, version: 0, news: None, clock: Clock::default() })),
        }
    }

    /// Returns all that the host knows now, for the chains that it submits to.
    #[inline]
    pub fn base(&self) -> &Arc<Base> {
        &self.knowledge.base
    }

    /// Records that everything up to the snapshot has completed (CUDA: `cudaEventSynchronize`,
    /// `cudaStreamSynchronize`, or a query that returned success). Returns `true` if that was new.
    pub fn learn(&mut self, snapshot: &Snapshot) -> bool {
        if snapshot.is_known(|point| self.base().covers(point)) {
            return false;
        }
        self.join(&snapshot.to_clock(), Some(snapshot.point().chain));
        true
    }

    /// Records that all these snapshots have completed at once (CUDA: `cudaDeviceSynchronize`). Returns `true` if
    /// anything was new.
    pub fn learn_all<'a>(&mut self, snapshots: impl IntoIterator<Item = &'a Snapshot>) -> bool {
        let (mut news, mut from) = (Clock::default(), None);
        for (at, snapshot) in snapshots.into_iter().enumerate() {
            from = (at == 0).then(|| snapshot.point().chain);
            if !snapshot.is_known(|point| self.base().covers(point) || news.covers(point)) {
                news.join(&snapshot.to_clock());
            }
        }
        let learned = !news.is_empty();
        if learned {
            self.join(&news, from);
        }
        learned
    }

    /// Learns what another host knows, by means that are not visible here (a message between processes). Returns
    /// `true` if that was new.
    pub fn learn_base(&mut self, other: &Base) -> bool {
        let news = !self.base().includes(other);
        if news {
            self.join(&other.clock, None);
        }
        news
    }

    fn join(&mut self, clock: &Clock, news: Option<ChainIndex>) {
        let mut base = Base::clone(self.base());
        base.version += 1;
        base.news = news;
        base.clock.join(clock);
        self.knowledge = Knowledge::of(Arc::new(base));
    }
}
