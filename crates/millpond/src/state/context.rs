//! The part of a device that its streams, pools and graphs share.
//!
//! Every stream, pool and buffer holds it; it refers to them weakly. If memory is served from a stream's cache, nothing
//! here is touched except the epoch, which is read.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use millpond_core::ids::{Point, PoolId};
use millpond_core::order::Snapshot;
use millpond_driver::locks::{Mutex, Rank, lock, may_wait};
use millpond_driver::{Driver, Properties};
use smallvec::SmallVec;

use crate::clock::chains::Chains;
use crate::clock::device_event::{CountedDriver, DeviceEvent};
use crate::clock::hosts::{self, Epoch};
use crate::clock::progress::{EndThen, no_end};
use crate::graph::Graphs;
use crate::names::error::{Invalid, Result};
use crate::names::violations::Violations;
use crate::share::Sharing;
use crate::state::guests::Guests;
use crate::state::in_flight::InFlight;
use crate::state::numbers::{AllocNumbers, StreamNumbers};
use crate::state::pool::{Closing, PoolShared};
use crate::state::retired::Laid;
use crate::state::stream::StreamShared;
use crate::stream::default_streams::Legacy;
use crate::sync::ranks;
use crate::trace::tracer::Tracer;

/// The shared part of a device.
pub(crate) struct Context {
    /// Identifies the device in its process.
    pub(crate) number: u32,
    pub(crate) driver: Arc<CountedDriver>,
    pub(crate) properties: Properties,
    pub(crate) epoch: Epoch,
    /// `true` if this device and another may know points of each other.
    pub(crate) has_met: AtomicBool,
    pub(crate) chains: Chains,
    pub(crate) in_flight: InFlight,
    /// The live pools, in the order of their creation. Each is removed when it is dropped.
    pub(crate) pools: Mutex<ranks::Table, BTreeMap<PoolId, Weak<PoolShared>>>,
    pub(crate) legacy: Legacy,
    /// Heaps of dropped pools with work in flight on their freed memory.
    pub(crate) closing: Mutex<ranks::Table, Vec<Closing>>,
    /// The number of times that memory came back which no live pool counts: the counts of dropped pools, their ends,
    /// frees of graphs' memory. It never falls.
    pub(crate) returned: AtomicU64,
    /// Memory of other devices that the driver keeps for this device's work.
    pub(crate) guests: Mutex<ranks::Pending, Guests>,
    /// Pinned memory of dropped buffers.
    pub(crate) retired: Mutex<ranks::Pending, Laid<EndThen>>,
    /// The part that the device's graphs share.
    pub(crate) graphs: Graphs,
    /// The state of sharing with other processes.
    pub(crate) share: Sharing,
    /// The tracer of the device's operations, if they are traced.
    pub(crate) tracer: Option<Arc<Tracer>>,
    /// The handling of violations.
    pub(crate) violations: Violations,
    pub(crate) stream_numbers: Arc<StreamNumbers>,
    pub(crate) next_pool: AtomicU32,
    pub(crate) alloc_numbers: Arc<AllocNumbers>,
}

/// A device that was looked up. If this is its last reference, dropping it waits for threads and takes all locks, so
/// that no lock may be held.
pub(crate) type FoundContext = MaybeLast<ranks::Trusted, Context>;
/// A pool that was looked up. If this is its last reference, dropping it gives the pool's memory back at once.
pub(crate) type FoundPool = MaybeLast<ranks::Life, PoolShared>;

impl Context {
    /// Returns the next number for a pool or a device.
    pub(crate) fn next_number(next: &AtomicU32, what: &'static str) -> Result<u32> {
        let taken = next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |made| made.checked_add(1));
        taken.map_err(|made| Invalid::NoNumbers { what, made }.into())
    }

    /// Returns the live pools.
    pub(crate) fn pools(&self) -> Vec<FoundPool> {
        let pools = lock(&self.pools);
        pools.values().filter_map(FoundPool::upgrade).collect()
    }

    /// Records that memory came back, or may come back once its uses have completed, that no live pool counts. A thread
    /// that waits for memory then asks again. Called after the memory is given back.
    pub(crate) fn memory_came_back(&self) {
        self.returned.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the live streams.
    pub(crate) fn streams(&self) -> Vec<Arc<StreamShared>> {
        self.in_flight.live()
    }

    /// Returns `true` if the work of a position that its events do not cover has completed as well.
    pub(crate) fn is_side_work_over(&self, snapshot: &Snapshot) -> Result<bool> {
        let side_work = self.side_work(snapshot).into_iter();
        let over = side_work.map(|end| end.map_or_else(|| Err(no_end()), |end| self.driver.is_over(end.raw)));
        Ok(over.collect::<millpond_driver::Result<Vec<bool>>>()?.into_iter().all(|it| it))
    }

    /// Waits for the work of a position that its events do not cover.
    pub(crate) fn block_on_side_work(&self, snapshot: &Snapshot) -> millpond_driver::Result<()> {
        let mut side_work = self.side_work(snapshot).into_iter();
        side_work.try_for_each(|end| end.map_or_else(|| Err(no_end()), |end| self.driver.block_on(end.raw)))
    }

    fn side_work(&self, snapshot: &Snapshot) -> SmallVec<[Option<Arc<DeviceEvent>>; 1]> {
        let Point { chain, seq } = snapshot.point();
        self.chains.find(chain).map_or_else(SmallVec::new, |chain| chain.side_work(seq))
    }

    /// Records that the host knows everything up to the snapshots to have completed, and traces it by `write`. Streams
    /// learn of it at their next operation.
    pub(crate) fn host_learned<'a>(
        &self,
        snapshots: impl IntoIterator<Item = &'a Snapshot> + Clone,
        write: impl FnOnce(&Tracer),
    ) {
        for snapshot in snapshots.clone() {
            if let Some(progress) = self.chains.find(snapshot.point().chain) {
                progress.complete(snapshot.point().seq);
            }
        }
        hosts::learn(snapshots, || {
            self.tracer.as_deref().map(write);
        });
        self.share.host_learned(self);
    }
}

/// A handle that was looked up. Upgrading a `Weak` may leave us with the last `Arc`, whose value is then destroyed
/// where this is dropped. So drop it only where the thread may wait for locks from `FIRST` on. Builds with debug
/// assertions check each drop.
#[derive(Debug)]
pub(crate) struct MaybeLast<FIRST: Rank, T>(Arc<T>, PhantomData<fn() -> FIRST>);

impl<FIRST: Rank, T> MaybeLast<FIRST, T> {
    /// Returns a handle, while the value exists.
    pub(crate) fn upgrade(weak: &Weak<T>) -> Option<Self> {
        weak.upgrade().map(|found| Self(found, PhantomData))
    }

    pub(crate) fn handle(&self) -> &Arc<T> {
        &self.0
    }
}

impl<FIRST: Rank, T> Deref for MaybeLast<FIRST, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<FIRST: Rank, T> Drop for MaybeLast<FIRST, T> {
    fn drop(&mut self) {
        may_wait::<FIRST>();
    }
}
