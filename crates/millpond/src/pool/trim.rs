//! Memory that a pool gives back to the system: on request, at a synchronisation, and when the pool is destroyed.
//!
//! Caches are emptied first, of streams whose lock is free. Knows pools and the caches of streams; no requests.

use millpond_driver::process;

use crate::clock::hosts;
use crate::names::error::Result;
use crate::pool::shell;
use crate::state::pool::{Heap, PoolShared};
use crate::state::stream::{State, StreamShared};

impl PoolShared {
    /// Takes everything out of the streams' caches, back to the heap. `own` is the stream whose lock the caller holds;
    /// other streams that stay busy for so many looks keep theirs.
    pub(crate) fn drain_caches(&self, own: Option<(&StreamShared, &mut State)>, patience: u32) {
        // To the heap under the stream's lock: a block is always in the cache or in the heap, for whoever looks.
        let clear = |state: &mut State| {
            let State { chain, caches, .. } = state;
            if let Some(cache) = caches.find(self) {
                let served = cache.blocks.count_served();
                let mut heap = self.lock();
                heap.pool.count_served(served);
                heap.take_back(chain, cache.clear());
            }
        };
        let own = own.map(|(stream, state)| {
            clear(state);
            stream.id
        });
        for stream in self.streams().iter().filter(|stream| Some(stream.id) != own) {
            for look in 0..=patience {
                if let Some(mut state) = stream.state.try_lock() {
                    clear(&mut state);
                    break;
                }
                if look < patience {
                    std::thread::yield_now();
                }
            }
        }
    }

    /// Gives memory back to the system until `keep_bytes` are left, as far as nothing uses it.
    pub(crate) fn trim_to(&self, keep_bytes: u64) -> Result<()> {
        process::refuse_forked()?;
        self.drain_caches(None, 0);
        let mut heap = self.lock();
        self.destroy_exposed(&mut heap);
        let poll = self.context.chains.poll(&*self.context.driver);
        heap.pool.trim(keep_bytes, &poll);
        drop(poll);
        Ok(shell::apply_steps(&self.context, &mut heap)?)
    }

    /// Unused memory that other processes may still reach is destroyed.
    pub(crate) fn destroy_exposed(&self, heap: &mut Heap) {
        if heap.exposed.is_condemned() {
            heap.destroy_exposed(&self.context);
        }
    }

    /// A destroyed pool's memory goes back to the system with the free of what lies on it.
    #[inline]
    pub(crate) fn trim_if_destroyed(&self) {
        if self.is_destroyed() {
            // A device that is lost cannot give memory back; the system takes it with the process.
            let _ = self.trim_to(0);
            let mut heap = self.lock();
            let table = if heap.is_empty() { heap.take_table() } else { Vec::new() };
            drop(heap);
            drop(table);
        }
    }

    /// The host has synchronised: what it knows to have completed may serve any stream, idle memory beyond the release
    /// threshold goes back, and what moving left in pieces is put together. A destroyed pool goes, which streams that
    /// were busy then kept blocks of.
    pub(crate) fn synchronized(&self) {
        let mut heap = self.lock();
        let base = hosts::base();
        self.destroy_exposed(&mut heap);
        heap.pool.retire(&*base);
        if heap.pool.reserved() > heap.pool.kept_bytes() || heap.pool.is_fragmented() {
            drop(heap);
            self.drain_caches(None, 0);
            heap = self.lock();
            heap.pool.synchronized(&*base);
            // What the system refuses to take back or to move stays where it is.
            let mut applied = shell::apply_steps(&self.context, &mut heap);
            while applied.is_ok() && heap.pool.is_fragmented() && heap.pool.defragment() {
                applied = shell::apply_steps(&self.context, &mut heap);
            }
        }
        drop(heap);
        self.trim_if_destroyed();
    }
}
