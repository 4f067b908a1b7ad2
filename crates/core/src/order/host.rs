//! What a host thread has synchronised with: the third party of the order, beside streams and events.
//!
//! Knows chains by their points only. A synchronisation that returned, or a query that said yes, tells the host that
//! everything before a point has completed; whatever it submits afterwards, on any stream, comes after that. This is
//! part of *ordered*: the program was informed, so that every run of it that gets the same answers gets the same
//! verdicts.
//!
//! All threads of a process are one [`Host`], joined in the order of their calls, because locks, channels and joins
//! between threads are not seen. [`Host::learn_base`] states an edge between two processes.

use std::sync::Arc;

use super::clock::Clock;
use super::knowledge::{Base, Knowledge, Snapshot};
use crate::ids::ChainIndex;

/// All host threads of a process.
#[derive(Debug)]
pub struct Host {
    /// Its base, as chains have it that waited for nothing beyond.
    pub(super) knowledge: Arc<Knowledge>,
}

impl Host {
    /// A host that knows nothing. `number` tells the hosts of one order apart.
    pub fn new(number: u64) -> Self {
        Self {
            knowledge: Knowledge::of(Arc::new(Base { host: number, version: 0, news: None, clock: Clock::default() })),
        }
    }

    /// All it knows now, for the chains that it submits to.
    #[inline]
    pub fn base(&self) -> &Arc<Base> {
        &self.knowledge.base
    }

    /// It learned that everything up to the snapshot has completed (CUDA: `cudaEventSynchronize`,
    /// `cudaStreamSynchronize`, or a query that returned success). Whether that was news.
    pub fn learn(&mut self, snapshot: &Snapshot) -> bool {
        if snapshot.is_known(|point| self.base().covers(point)) {
            return false;
        }
        self.join(&snapshot.to_clock(), Some(snapshot.point().chain));
        true
    }

    /// It learned of all these at once (CUDA: `cudaDeviceSynchronize`). Whether that was news.
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

    /// It learned from another host, by means that are not seen here (a message between processes).
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
