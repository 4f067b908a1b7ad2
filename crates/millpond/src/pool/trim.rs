//! Memory that a pool returns to the system: on request, at a synchronisation, and when the pool is destroyed.
//!
//! The caches of streams whose lock is free are emptied first. Knows pools and the caches of streams, but no requests.

use std::sync::Arc;

use millpond_core::pool::Freed;
use millpond_driver::process;

use crate::clock::hosts;
use crate::names::error::Result;
use crate::pool::shell;
use crate::state::allocation::Allocation;
use crate::state::pool::{Heap, PoolShared};
use crate::state::stream::{State, StreamShared};

impl PoolShared {
    /// Moves all blocks of the streams' caches to the heap. `own` is the stream whose lock the caller holds. Other
    /// streams that are still busy after `patience` retries keep their blocks.
    pub(crate) fn drain_caches(&self, own: Option<(&StreamShared, &mut State)>, patience: u32) {
        // Under the stream's lock, so that other threads always find a block in the cache or in the heap.
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

    /// Returns unused memory to the system until `keep_bytes` are left.
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

    /// Destroys unused memory that other processes may still access.
    pub(crate) fn destroy_exposed(&self, heap: &mut Heap) {
        if heap.exposed.is_condemned() {
            heap.destroy_exposed(&self.context);
        }
    }

    /// Takes back the block of a lifetime of `bytes` bytes that was freed outside a cache.
    pub(crate) fn take_back(&self, allocation: Arc<Allocation>, freed: Freed<'_>, bytes: u64) {
        let mut heap = self.lock();
        heap.give_back(allocation, freed);
        heap.count_used(-(bytes as i64));
        self.destroy_exposed(&mut heap);
        drop(heap);
        self.trim_if_destroyed();
    }

    /// Returns a destroyed pool's memory to the system when allocations in it are freed.
    #[inline]
    pub(crate) fn trim_if_destroyed(&self) {
        if self.is_destroyed() {
            // A lost device cannot release memory; the system takes it when the process ends.
            let _ = self.trim_to(0);
            let mut heap = self.lock();
            let table = if heap.is_empty() { heap.take_table() } else { Vec::new() };
            drop(heap);
            drop(table);
        }
    }

    /// Called after a synchronisation of the host. Memory whose completion the host now knows may serve any stream,
    /// idle memory beyond the release threshold is returned to the system, and memory that moves have fragmented is
    /// defragmented. A destroyed pool is trimmed as well, because streams that were busy earlier may have kept blocks
    /// of it.
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
            // Memory that the system refuses to take back or to move stays where it is.
            let mut applied = shell::apply_steps(&self.context, &mut heap);
            while applied.is_ok() && heap.pool.is_fragmented() && heap.pool.defragment() {
                applied = shell::apply_steps(&self.context, &mut heap);
            }
        }
        drop(heap);
        self.trim_if_destroyed();
    }
}
