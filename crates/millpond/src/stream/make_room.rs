//! The cold half of serving memory: the cache missed.
//!
//! The heap is asked in the order of what it costs: a block that fits as things are; the same after the caches are
//! drained and the device was asked what has completed; moved or new physical memory; and, before anything is refused,
//! idle memory of the device's other pools and graphs. Locks: the stream's is held, the heap's is taken after it; other
//! streams' caches are looked at only where their lock is free this moment.

use std::panic::Location;
use std::sync::Arc;

use millpond_core::check::Act;
use millpond_core::pool::{Exhausted, Freed, Grant};
use millpond_driver::{Access, DriverError};

use crate::clock::hosts;
use crate::graph::trim_graph_memory;
use crate::names::error::{Error, Invalid, OutOfMemory, Result};
use crate::pool::shell;
use crate::state::context::Context;
use crate::state::pool::{Heap, PoolShared};
use crate::state::stream::{State, StreamShared};
use crate::stream::hot::Served;
use crate::stream::supply::{Shortage, note_shortage};

/// How many of the largest allocations a report names.
const REPORTED: usize = 5;

impl StreamShared {
    /// Refuses a pool that is destroyed or another device's.
    pub(crate) fn check_pool(&self, pool: &PoolShared) -> Result<()> {
        pool.check_alive()?;
        self.context.alloc_numbers.check()?;
        match pool.context.number == self.context.number {
            true => Ok(()),
            false => Err(Invalid::OtherDevice { what: pool.titled(), with: self.titled() }.into()),
        }
    }

    /// The cache missed: to the heap.
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
        // The life begins under the heap's lock, so that whoever finds the block there finds whose it is.
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

    /// Makes the device side of a grant true: waits that the pool asked for, and a guarded block opened. Those waits
    /// place memory and prove nothing: they are no part of the program's order.
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
            // The block goes back as it came: free after what it was free after, and after what this stream did.
            let mut after = grant.after.clone();
            after.join(&state.chain.last().into());
            heap.pool.free(grant.block, Freed::after(after));
            Error::from(error)
        })
    }

    /// No block fits: the caches are drained, the device is asked what has completed, memory is moved or made.
    #[cold]
    fn make_room(&self, state: &mut State, pool: &PoolShared, bytes: u64) -> Result<Grant> {
        pool.drain_caches(Some((self, state)), 0);
        self.refuse_beyond(pool, bytes)?;
        let memory = self.context.properties.total_bytes;
        let (mut shortage, mut before) = (None, None);
        let mut heap = pool.lock();
        pool.destroy_exposed(&mut heap);
        // What the host knows to have completed may serve any stream, whatever the policy, also what lay in a cache
        // meanwhile.
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
                    // What rests in caches is held, too, until `insist` has fetched it.
                    Err(_) => match heap.pool.beyond(bytes, memory, true) {
                        Some(exhausted) => Err(exhausted),
                        None => heap.pool.grow(bytes, &state.chain, &poll, refusals),
                    },
                }
            };
            let grant = match grown {
                Ok(grant) => grant,
                Err(_) if shortage.is_none() => {
                    drop(heap);
                    shortage = Some(self.insist(state));
                    // What comes back from here on is news to who waits.
                    before = Some(self.context.supply());
                    heap = pool.lock();
                    refusals = refusals.min(1);
                    continue;
                }
                Err(_) => {
                    let lost = self.lost();
                    self.give_back_above(&mut heap, reserved);
                    before.into_iter().for_each(note_shortage);
                    // The figures are those without what the request itself had taken.
                    let exhausted = heap.pool.exhausted(bytes);
                    return Err(lost.unwrap_or_else(|| self.out_of_memory(pool, &heap, exhausted)));
                }
            };
            match shell::apply_steps(&self.context, &mut heap) {
                Ok(()) => return Ok(grant),
                Err(DriverError::OutOfMemory { .. }) => {
                    // The system has no more: what other pools keep idle may be all it takes.
                    drop(heap);
                    self.trim_others(state, pool);
                    heap = pool.lock();
                    refusals += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Refuses what no memory that comes back would be enough for: nothing is taken on the way.
    #[cold]
    fn refuse_beyond(&self, pool: &PoolShared, bytes: u64) -> Result<()> {
        let memory = self.context.properties.total_bytes;
        let is_beyond = pool.lock().pool.beyond(bytes, memory, false).is_some();
        if !is_beyond {
            return Ok(());
        }
        // The limit may be raised: from here on that is news to who waits. It may have been raised by now.
        let before = self.context.supply();
        let mut heap = pool.lock();
        let Some(exhausted) = heap.pool.beyond(bytes, memory, false) else { return Ok(()) };
        let error = self.out_of_memory(pool, &heap, exhausted);
        drop(heap);
        note_shortage(before);
        Err(error)
    }

    /// What the device's other pools and its graphs keep idle goes back to the system. No heap is locked.
    #[cold]
    fn trim_others(&self, state: &mut State, pool: &PoolShared) {
        self.context.finish_closing();
        self.context.pools().iter().filter(|other| other.id != pool.id).for_each(|other| {
            // This stream's own cache is behind the lock that it holds.
            other.drain_caches(Some((self, state)), 0);
            let _ = other.trim_to(0);
        });
        let _ = trim_graph_memory(&self.context);
    }

    /// The last thing before a request is refused: nothing new rests in a cache meanwhile, and what rests on those of
    /// busy streams is fetched, too.
    #[cold]
    fn insist(&self, state: &mut State) -> Shortage {
        let shortage = Shortage::of(self.context.pools());
        shortage.drain(Some((self, state)));
        shortage
    }

    /// A request that failed keeps nothing of what it got on its way: others may have use for it.
    #[cold]
    fn give_back_above(&self, heap: &mut Heap, reserved: u64) {
        if heap.pool.reserved() > reserved {
            let poll = self.context.chains.poll(&*self.context.driver);
            heap.pool.trim(reserved, &poll);
            drop(poll);
            // What the system refuses to take back stays in the pool.
            let _ = shell::apply_steps(&self.context, heap);
        }
    }

    /// Whether the device is lost: then nothing comes back.
    #[cold]
    fn lost(&self) -> Option<Error> {
        self.context.lost_for(self.raw)
    }

    /// Who holds what, when nothing is left.
    #[cold]
    fn out_of_memory(&self, pool: &PoolShared, heap: &Heap, exhausted: Exhausted) -> Error {
        let others = self.context.pools();
        let others = others.iter().filter(|other| other.id != pool.id);
        Error::OutOfMemory(Box::new(OutOfMemory {
            pool: pool.title(),
            exhausted,
            device_bytes: self.context.properties.total_bytes,
            address_bytes: pool.range.bytes,
            // Another thread may hold another pool: its figure is then left out rather than waited for.
            other_pools_bytes: others.filter_map(|other| Some(other.heap.try_lock()?.pool.reserved())).sum::<u64>()
                + self.context.closing_bytes(),
            largest: pool.largest(heap, REPORTED),
        }))
    }
}

impl Context {
    /// Whether memory was missing for something else than a pool, so that it is to be done again: for as long as pools
    /// give memory back, also dropped ones, and once in any case, because what graphs give back may be what the failed
    /// attempt itself had got. No lock is held: what rests on the calling thread's own caches is found, too.
    #[cold]
    pub(crate) fn makes_room(&self, error: &Error, was_retried: &mut bool) -> bool {
        if !matches!(error, Error::Driver(error) if matches!(**error, DriverError::OutOfMemory { .. })) {
            return false;
        }
        let pools = self.pools();
        let reserved = || pools.iter().map(|pool| pool.lock().pool.reserved()).sum::<u64>() + self.closing_bytes();
        let before = reserved();
        self.finish_closing();
        // What a pool cannot give back now it keeps.
        pools.iter().for_each(|pool| drop(pool.trim_to(0)));
        let is_more = reserved() < before;
        // Nor does what failed keep what it got on its way.
        let _ = trim_graph_memory(self);
        !std::mem::replace(was_retried, true) || is_more
    }
}
