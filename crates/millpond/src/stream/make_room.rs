//! The cold half of an allocation: the cache missed.
//!
//! The heap tries the cheapest way first: a block that fits as things are; the same after the caches are drained and
//! the device was asked what has completed; physical memory that is moved or made; and, before anything is refused,
//! idle memory of the device's other pools and graphs. Locks: the stream's is held, and the heap's is taken after it.
//! Other streams' caches are looked at only if their locks are free at that moment.

use std::panic::Location;
use std::sync::Arc;

use millpond_core::check::Act;
use millpond_core::pool::{DeviceRoom, Exhausted, Freed, Grant};
use millpond_driver::{Access, Driver, DriverError};

use crate::clock::hosts;
use crate::graph::trim_graph_memory;
use crate::names::error::{Error, Invalid, OutOfMemory, Result};
use crate::pool::shell;
use crate::state::context::Context;
use crate::state::pool::{Heap, PoolShared};
use crate::state::stream::{State, StreamShared};
use crate::stream::hot::Served;
use crate::stream::supply::{Shortage, note_shortage};

/// The number of largest allocations that a report names.
const REPORTED: usize = 5;

impl StreamShared {
    /// Refuses a pool that is destroyed or of another device.
    pub(crate) fn check_pool(&self, pool: &PoolShared) -> Result<()> {
        pool.check_alive()?;
        self.context.alloc_numbers.check()?;
        match pool.context.number == self.context.number {
            true => Ok(()),
            false => Err(Invalid::OtherDevice { what: pool.titled(), with: self.titled() }.into()),
        }
    }

    /// Allocates from the heap, after the cache missed.
    #[cold]
    #[inline(never)]
    pub(crate) fn alloc_slow(
        &self,
        state: &mut State,
        pool: &Arc<PoolShared>,
        bytes: u64,
        caller: &'static Location<'static>,
    ) -> Result<Served> {
        self.check_pool(pool)?;
        let mut heap = pool.lock();
        heap.expect_enlist();
        state.return_to(&mut heap, pool, true);
        let grant = match heap.pool.fit(bytes, &state.chain) {
            Ok(grant) => grant,
            Err(_) => {
                drop(heap);
                let grant = self.make_room(state, pool, bytes)?;
                heap = pool.lock();
                grant
            }
        };
        if pool.guard || !grant.after.is_empty() {
            self.settle_grant(state, pool, &mut heap, &grant)?;
        }
        let allocation = heap.enlist(grant.block, |index| pool.new_entry(index));
        allocation.set_block(grant.block, grant.range.start);
        heap.count_used(bytes as i64);
        let born = self.next_use(state, Act::Allocate, caller);
        // The lifetime begins under the heap's lock, so that a thread that finds the block in the heap also finds its
        // allocation.
        let mut life = allocation.life();
        life.begin(bytes, born);
        life.range = grant.range;
        if !std::ptr::eq(life.home.as_ptr(), self) {
            life.home = self.me.clone();
        }
        let generation = life.generation;
        drop(life);
        drop(heap);
        if let Some(tracer) = &self.context.tracer {
            tracer.alloc((allocation.id, generation), pool.id, self.id, bytes, caller);
        }
        self.leave(state);
        Ok((allocation, generation))
    }

    /// Does the device's side of a grant: the waits that the pool asked for, and access to a guarded block. These waits
    /// only let memory be reused. They are no part of the program's order.
    #[cold]
    fn settle_grant(&self, state: &State, pool: &PoolShared, heap: &mut Heap, grant: &Grant) -> Result<()> {
        let driver = &*self.context.driver;
        let settle = || -> millpond_driver::Result<()> {
            self.context.chains.each(&grant.after, |chain| chain.wait(driver, self.raw))?;
            match pool.guard {
                true => shell::submit_protect(&self.context, self.raw, grant.range, Access::ReadWrite),
                false => Ok(()),
            }
        };
        settle().map_err(|error| {
            // The block goes back, free after the points that it was free after, and after this stream's last point.
            let mut after = grant.after.clone();
            after.join(&state.chain.last().into());
            heap.pool.free(grant.block, Freed::after(after));
            Error::from(error)
        })
    }

    /// Makes room if no block fits: drains the caches, asks the device what has completed, and moves or makes physical
    /// memory.
    #[cold]
    fn make_room(&self, state: &mut State, pool: &PoolShared, bytes: u64) -> Result<Grant> {
        pool.drain_caches(Some((self, state)), 0);
        self.refuse_beyond(pool, bytes)?;
        let memory = self.context.properties.total_bytes;
        let (mut shortage, mut before) = (None, None);
        let mut heap = pool.lock();
        pool.destroy_exposed(&mut heap);
        // Blocks whose frees the host knows to have completed may serve any stream, whatever the policy. So may blocks
        // that were in a cache until now.
        heap.pool.retire(&*hosts::base());
        let reserved = heap.pool.reserved();
        let mut refusals = 0;
        loop {
            let grown = {
                let poll = self.context.chains.poll(&*self.context.driver);
                if heap.pool.config().reuse.allow_opportunistic {
                    heap.pool.retire(&poll);
                }
                match heap.pool.fit(bytes, &state.chain) {
                    Ok(grant) => return Ok(grant),
                    // Blocks in caches count as held, too, until `insist` has fetched them.
                    Err(_) => match heap.pool.beyond(bytes, memory, true) {
                        Some(exhausted) => Err(exhausted),
                        None => {
                            if heap.pool.asks_room() {
                                heap.pool.see_room(self.room());
                            }
                            heap.pool.grow(bytes, &state.chain, &poll, refusals)
                        }
                    },
                }
            };
            let grant = match grown {
                Ok(grant) => grant,
                Err(_) if shortage.is_none() => {
                    drop(heap);
                    shortage = Some(self.insist(state));
                    // Memory that comes back from here on counts for a later wait.
                    before = Some(self.context.supply());
                    heap = pool.lock();
                    refusals = refusals.min(1);
                    continue;
                }
                Err(_) => {
                    let lost = self.lost();
                    self.give_back_above(&mut heap, reserved);
                    before.into_iter().for_each(note_shortage);
                    // The figures leave out what the request itself had taken.
                    let exhausted = heap.pool.exhausted(bytes);
                    return Err(lost.unwrap_or_else(|| self.out_of_memory(pool, &heap, exhausted)));
                }
            };
            match shell::apply_steps(&self.context, &mut heap) {
                Ok(()) => return Ok(grant),
                Err(DriverError::OutOfMemory { .. }) => {
                    // The system has no more memory. Idle memory of other pools may be enough.
                    drop(heap);
                    self.trim_others(state, pool);
                    heap = pool.lock();
                    refusals += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Asks the driver how full the device is.
    fn room(&self) -> Option<DeviceRoom> {
        self.context.driver.memory_info().map(|info| DeviceRoom { free: info.free_bytes, total: info.total_bytes })
    }

    /// Refuses a request that no returned memory would be enough for, before anything is taken.
    #[cold]
    fn refuse_beyond(&self, pool: &PoolShared, bytes: u64) -> Result<()> {
        let memory = self.context.properties.total_bytes;
        let is_beyond = pool.lock().pool.beyond(bytes, memory, false).is_some();
        if !is_beyond {
            return Ok(());
        }
        // The limit may be raised, and from here on that counts for a later wait. It may have been raised by now.
        let before = self.context.supply();
        let mut heap = pool.lock();
        let Some(exhausted) = heap.pool.beyond(bytes, memory, false) else { return Ok(()) };
        let error = self.out_of_memory(pool, &heap, exhausted);
        drop(heap);
        note_shortage(before);
        Err(error)
    }

    /// Gives idle memory of the device's other pools and of its graphs back to the system. No heap is locked.
    #[cold]
    fn trim_others(&self, state: &mut State, pool: &PoolShared) {
        self.context.finish_closing();
        self.context.pools().iter().filter(|other| other.id != pool.id).for_each(|other| {
            // This stream's own cache is behind the lock that the stream holds.
            other.drain_caches(Some((self, state)), 0);
            let _ = other.trim_to(0);
        });
        let _ = trim_graph_memory(&self.context);
    }

    /// The last step before a request is refused: from here on no freed block goes into a cache, and the blocks in the
    /// caches of busy streams are fetched, too.
    #[cold]
    fn insist(&self, state: &mut State) -> Shortage {
        let shortage = Shortage::of(self.context.pools());
        shortage.drain(Some((self, state)));
        shortage
    }

    /// Gives back what a failed request had taken, because others may need it.
    #[cold]
    fn give_back_above(&self, heap: &mut Heap, reserved: u64) {
        if heap.pool.reserved() > reserved {
            let poll = self.context.chains.poll(&*self.context.driver);
            heap.pool.trim(reserved, &poll);
            drop(poll);
            // Memory that the system refuses to take back stays in the pool.
            let _ = shell::apply_steps(&self.context, heap);
        }
    }

    /// Returns the error if the device is lost, because no memory comes back then.
    #[cold]
    fn lost(&self) -> Option<Error> {
        self.context.lost_for(self.raw)
    }

    /// Returns the error for a request that cannot be served, with the memory in use.
    #[cold]
    fn out_of_memory(&self, pool: &PoolShared, heap: &Heap, exhausted: Exhausted) -> Error {
        let others = self.context.pools();
        let others = others.iter().filter(|other| other.id != pool.id);
        Error::OutOfMemory(Box::new(OutOfMemory {
            pool: pool.title(),
            exhausted,
            device_bytes: self.context.properties.total_bytes,
            address_bytes: pool.range.bytes,
            // Another thread may hold the lock of another pool. That pool's figure is then left out rather than waited
            // for.
            other_pools_bytes: others.filter_map(|other| Some(other.heap.try_lock()?.pool.reserved())).sum::<u64>()
                + self.context.closing_bytes(),
            largest: pool.largest(heap, REPORTED),
        }))
    }
}

impl Context {
    /// Gives back idle memory if an operation other than an allocation from a pool ran out of memory. Returns `true` if
    /// the operation is to be tried again: as long as pools give memory back, also dropped ones, and once in any case,
    /// because the memory that graphs give back may be what the failed attempt itself had taken. No lock is held, so
    /// that blocks in the caches of the calling thread's streams are found, too.
    #[cold]
    pub(crate) fn makes_room(&self, error: &Error, was_retried: &mut bool) -> bool {
        if !matches!(error, Error::Driver(error) if matches!(**error, DriverError::OutOfMemory { .. })) {
            return false;
        }
        let pools = self.pools();
        let reserved = || pools.iter().map(|pool| pool.lock().pool.reserved()).sum::<u64>() + self.closing_bytes();
        let before = reserved();
        self.finish_closing();
        // A pool keeps the memory that it cannot give back now.
        pools.iter().for_each(|pool| drop(pool.trim_to(0)));
        let is_more = reserved() < before;
        // The failed attempt does not keep what it had taken, either.
        let _ = trim_graph_memory(self);
        !std::mem::replace(was_retried, true) || is_more
    }
}
