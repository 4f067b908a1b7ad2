//! What a device's streams and pools share, and nothing else.
//!
//! Held by every stream, pool and buffer; it refers to them weakly. Nothing here is touched where memory is served from
//! a stream's shelf, but the epoch, which is read.

use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use millpond_core::order::{Completed, Slots, Snapshot};
use millpond_driver::{Counting, Driver, Properties};

use crate::ended::{End, Ended};
use crate::graph::{Graphs, trim_graph_memory};
use crate::hosts::Hosts;
use crate::peers;
use crate::pool::PoolShared;
use crate::progress::{Chains, Progress};
use crate::report::Violations;
use crate::share::Sharing;
use crate::shell::Closing;
use crate::stream::{Staged, StreamShared, release_staging};
use crate::tracing::Tracer;

/// A device's driver, and how often each of its calls was made.
pub(crate) type CountedDriver = Counting<Arc<dyn Driver>>;

/// The shared part of a device.
#[derive(Debug)]
pub(crate) struct Context {
    /// Tells the devices of a process apart.
    pub(crate) number: u32,
    pub(crate) driver: Arc<CountedDriver>,
    pub(crate) properties: Properties,
    pub(crate) hosts: Hosts,
    /// Whether its order and another device's may know points of each other.
    pub(crate) has_met: AtomicBool,
    pub(crate) chains: Chains,
    pub(crate) slots: Mutex<Slots>,
    pub(crate) streams: Mutex<Vec<Weak<StreamShared>>>,
    pub(crate) pools: RwLock<Vec<Weak<PoolShared>>>,
    pub(crate) legacy: Legacy,
    pub(crate) ended: Ended,
    /// Host memory that copies of closed streams read.
    pub(crate) staging: Mutex<Vec<Staged>>,
    /// Heaps of dropped pools with work in flight on their freed memory.
    pub(crate) closing: Mutex<Vec<Closing>>,
    /// What the device's graphs share.
    pub(crate) graphs: Graphs,
    /// What is shared with other processes.
    pub(crate) share: Sharing,
    /// Who writes down what is done, where somebody does.
    pub(crate) tracer: Option<Arc<Tracer>>,
    /// What becomes of a violation.
    pub(crate) violations: Violations,
    pub(crate) next_stream: AtomicU32,
    pub(crate) next_pool: AtomicU32,
    pub(crate) next_alloc: AtomicU32,
}

/// What ties the blocking streams to the legacy default stream.
#[derive(Debug, Default)]
pub(crate) struct Legacy {
    /// Whether the legacy stream was ever used: before that nobody has to look.
    pub(crate) is_used: AtomicBool,
    /// Its last operation, for blocking streams to wait for, and its chain.
    pub(crate) last: Mutex<Option<(Snapshot, Arc<Progress>)>>,
    /// Blocking streams that may have work since.
    pub(crate) blocking: Mutex<Vec<Weak<StreamShared>>>,
    /// The last work of closed blocking streams.
    pub(crate) ended: Mutex<Vec<End>>,
}

/// Locks and, where another thread panicked under the lock, goes on: what these locks hold is whole at every moment.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Context {
    /// The pools that live.
    pub(crate) fn pools(&self) -> Vec<Arc<PoolShared>> {
        self.pools.read().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect()
    }

    /// The streams that live.
    pub(crate) fn streams(&self) -> Vec<Arc<StreamShared>> {
        lock(&self.streams).iter().filter_map(Weak::upgrade).collect()
    }

    /// The host was told that everything up to the snapshots is over: streams hear of it with their next operation.
    pub(crate) fn told<'a>(&self, snapshots: impl IntoIterator<Item = &'a Snapshot> + Clone) {
        for snapshot in snapshots.clone() {
            if let Some(progress) = self.chains.find(snapshot.point().slot) {
                progress.complete(snapshot.point().seq);
            }
        }
        self.hosts.learn(snapshots);
        self.tell_exporters();
        release_staging(&mut lock(&self.staging), &*self.driver);
    }

    /// The host has waited until everything up to the snapshots was over: beyond being told, pools may give memory back
    /// (CUDA: a synchronisation honours the release threshold, a query does not).
    pub(crate) fn synchronized<'a>(&self, snapshots: impl IntoIterator<Item = &'a Snapshot> + Clone) {
        self.told(snapshots);
        self.hear_abroad();
        for pool in self.pools() {
            pool.synchronized();
        }
        self.finish_closing();
    }

    /// Whether all work of all streams, closed ones too, is over, also of other devices' streams that used its memory.
    pub(crate) fn is_idle(&self) -> bool {
        let poll = self.chains.poll(&*self.driver);
        let last = |stream: &Arc<StreamShared>| stream.progress.last(stream.slot);
        self.ended.is_over(&poll)
            && poll.is_over_abroad()
            && self.streams().iter().all(|stream| poll.is_over(last(stream)))
    }

    /// Gives the memory of dropped pools back, where nothing uses it any more.
    pub(crate) fn finish_closing(&self) {
        let closing = std::mem::take(&mut *lock(&self.closing));
        for mut heap in closing {
            if !heap.finish(self) {
                lock(&self.closing).push(heap);
            }
        }
        self.graphs.finish_closing(self);
        self.finish_imports();
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // Once more: what the system refused so far. What it refuses now goes with the device.
        let _ = self.close_rest();
        self.finish_closing();
        self.stop_sharing();
        let _ = trim_graph_memory(self);
        let staging = self.staging.get_mut().unwrap_or_else(PoisonError::into_inner);
        release_staging(staging, &*self.driver);
        for Staged { bytes, .. } in staging.drain(..) {
            // The copy may still run, and nobody is left who would wait for it: the bytes are left to it.
            Box::leak(bytes);
        }
        if let Some(tracer) = &self.tracer {
            tracer.close();
        }
        peers::leave(self.number);
        if !*self.has_met.get_mut() {
            self.slots.get_mut().unwrap_or_else(PoisonError::into_inner).retire();
        }
    }
}
