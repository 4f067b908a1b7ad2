//! How a stream serves memory: from its own shelf at once, from the pool's heap when that misses.
//!
//! The hot path takes the stream's lock, looks on the shelf, checks and goes; no lock is shared with another stream and
//! no driver call is made. The cold half asks the heap, in the order of what it costs: a block that fits as things are;
//! the same after the shelves are drained and the device was asked what is over; moved or new physical memory; and,
//! before anything is refused, idle memory of the device's other pools.
//!
//! Invariant **ordered-reuse**: a shelf holds blocks freed on its own stream, so that whatever takes one comes after
//! that free; the heap hands a block to a stream only by the pool's rule LEGAL.

use std::panic::Location;
use std::sync::Arc;

use millpond_core::check::{Act, Place, Site, Use};
use millpond_core::ids::Point;
use millpond_core::order::Knows;
use millpond_core::pool::{Exhausted, Frontier, Grant};
use millpond_core::units::round_up;
use millpond_driver::{Access, Driver, DriverError};

use crate::allocation::{Allocation, Fixed, freed_fault, site, violation};
use crate::error::{Error, OutOfMemory, Result};
use crate::pool::{Heap, PoolShared, next_alloc_id};
use crate::progress::Told;
use crate::shell;
use crate::stream::{State, StreamShared};

/// A freed block that cannot be freed is handed back with the reason.
pub(crate) type FreeResult = std::result::Result<(), (Error, Arc<Allocation>)>;

impl StreamShared {
    /// Allocates `bytes`, not 0, from this point of the stream on; the allocation and the generation of its life.
    #[inline]
    pub(crate) fn alloc(
        &self,
        pool: &Arc<PoolShared>,
        bytes: u64,
        caller: &'static Location<'static>,
    ) -> Result<(Arc<Allocation>, u32)> {
        let mut state = self.state.lock();
        self.enter(&mut state)?;
        let taken = round_up(bytes, pool.grain).and_then(|rounded| {
            let shelf = state.shelf(pool.id)?;
            let taken = shelf.shelf.take(rounded)?;
            shelf.count.take(bytes);
            Some(taken)
        });
        let Some(allocation) = taken else { return self.alloc_slow(&mut state, pool, bytes, caller) };
        let born = self.next_use(&mut state, Act::Allocate, caller);
        let generation = allocation.begin(bytes, born);
        self.leave(&mut state);
        Ok((allocation, generation))
    }

    /// Frees an allocation at this point of the stream, if that comes after its allocation and every use.
    #[inline]
    pub(crate) fn free(
        &self,
        allocation: Arc<Allocation>,
        generation: u32,
        caller: &'static Location<'static>,
    ) -> FreeResult {
        let mut state = self.state.lock();
        if let Err(error) = self.enter(&mut state) {
            return Err((error, allocation));
        }
        let mut life = allocation.life();
        let checked = match life.freed {
            Some(free) => Err(freed_fault(free, Act::Free)),
            None if life.generation != generation => Err(freed_fault(life.history.born(), Act::Free)),
            None => life.history.check_free(&state.chain),
        };
        if let Err(fault) = checked {
            let later = site(Act::Free, self.id, state.op() + 1, caller);
            let error = self.refuse(&state, allocation.subject(&life), fault, later);
            drop(life);
            return Err((error, allocation));
        }
        let free = self.next_use(&mut state, Act::Free, caller);
        life.freed = Some(free);
        let bytes = life.bytes;
        drop(life);
        self.shelve(&mut state, allocation, bytes, free.point);
        self.leave(&mut state);
        Ok(())
    }

    /// Takes the next point, for an operation that was found right.
    #[inline]
    pub(crate) fn next_use(&self, state: &mut State, act: Act, caller: &'static Location<'static>) -> Use {
        let point = state.chain.submit();
        Use { point, site: site(act, self.id, state.op(), caller) }
    }

    /// A fault as an error, with how far this stream comes after the other side's.
    #[cold]
    pub(crate) fn refuse(
        &self,
        state: &State,
        subject: millpond_core::check::Subject,
        fault: millpond_core::check::Fault,
        later: Site,
    ) -> Error {
        let Use { point, site } = fault.earlier;
        let known = (!state.chain.covers(point)).then(|| {
            let origin = point.seq - site.op;
            state.chain.seen(point.slot).saturating_sub(origin)
        });
        violation(subject, fault, later, known).into()
    }

    /// Puts a freed block on the stream's shelf; what falls off goes back to its heap.
    #[inline]
    fn shelve(&self, state: &mut State, allocation: Arc<Allocation>, bytes: u64, free: Point) {
        if allocation.pool.guard || allocation.pool.is_destroyed() {
            return self.free_to_heap(state, &allocation, bytes, free);
        }
        let rounded = allocation.range.bytes;
        if state.shelf(allocation.pool.id).is_none() {
            let pool = Arc::clone(&allocation.pool);
            state.add_shelf(self, &pool);
        }
        let Some(shelf) = state.shelf(allocation.pool.id) else { return };
        shelf.count.put(bytes);
        if let Err(fallen) = shelf.shelf.put(rounded, allocation) {
            self.return_fallen(state, &fallen);
        }
    }

    /// A block that fell off the shelf returns to the heap.
    #[cold]
    fn return_fallen(&self, state: &State, fallen: &Allocation) {
        let free = fallen.life().freed.map(|free| free.point);
        fallen.pool.lock().give_back(fallen, Frontier::of(free), Some(&state.chain));
    }

    /// A block goes to the heap without resting on a shelf: its pool is destroyed, or guards freed addresses.
    #[cold]
    fn free_to_heap(&self, state: &State, allocation: &Allocation, bytes: u64, free: Point) {
        let pool = &allocation.pool;
        if pool.guard {
            // Where the device refuses, the bytes stay readable: the guard is a help, not a promise.
            let _ = shell::submit_protect(&self.context, self.raw, allocation.range, Access::None);
        }
        let mut heap = pool.lock();
        heap.give_back(allocation, free.into(), Some(&state.chain));
        pool.count_used(&mut heap, -(bytes as i64));
        drop(heap);
        if pool.is_destroyed() {
            // A device that is lost cannot give memory back; the system takes it with the process.
            let _ = pool.trim_idle();
        }
    }

    /// The shelf missed.
    #[cold]
    fn alloc_slow(
        &self,
        state: &mut State,
        pool: &Arc<PoolShared>,
        bytes: u64,
        caller: &'static Location<'static>,
    ) -> Result<(Arc<Allocation>, u32)> {
        pool.check_alive()?;
        if pool.context.number != self.context.number {
            let (what, with) = (pool.id.to_string(), self.id.to_string());
            return Err(crate::Invalid::OtherDevice { what, with }.into());
        }
        let fitting = pool.lock().pool.fit(bytes, &state.chain);
        let grant = match fitting {
            Ok(grant) => grant,
            Err(_) => self.relieve(state, pool, bytes)?,
        };
        self.settle_grant(state, pool, &grant)?;
        let born = self.next_use(state, Act::Allocate, caller);
        let mut heap = pool.lock();
        let mut first = 0;
        let allocation = heap.enlist(grant.block, |index, generation| {
            first = generation;
            let fixed = Fixed {
                id: next_alloc_id(&self.context),
                index,
                block: grant.block,
                range: grant.range,
                pool: Arc::clone(pool),
                home: self.me.clone(),
            };
            Arc::new(Allocation::new(fixed, generation, bytes, born))
        });
        pool.count_used(&mut heap, bytes as i64);
        drop(heap);
        self.leave(state);
        Ok((allocation, first))
    }

    /// Makes the device side of a grant true: waits that the pool asked for, and a guarded block opened. Those waits
    /// place memory and prove nothing: the order of the program does not hear of them.
    fn settle_grant(&self, state: &State, pool: &PoolShared, grant: &Grant) -> Result<()> {
        let open = || -> millpond_driver::Result<()> {
            for point in grant.after.points() {
                let Some(progress) = self.context.chains.find(point.slot) else { continue };
                let mark = progress.mark(&*self.context.driver)?;
                self.context.driver.wait(self.raw, mark)?;
            }
            if pool.guard {
                shell::submit_protect(&self.context, self.raw, grant.range, Access::ReadWrite)?;
            }
            Ok(())
        };
        open().map_err(|error| {
            // The block goes back as it came: free after what it was free after, and after what this stream did.
            let mut after = grant.after.clone();
            after.join(&state.chain.last().into());
            pool.lock().pool.free(grant.block, after, None::<&millpond_core::order::Chain>);
            Error::from(error)
        })
    }

    /// No block fits: the shelves are drained, the device is asked what is over, memory is moved or made.
    #[cold]
    fn relieve(&self, state: &mut State, pool: &PoolShared, bytes: u64) -> Result<Grant> {
        pool.drain_shelves(Some((self, state)));
        let mut heap = pool.lock();
        let mut refusals = 0;
        loop {
            let grown = {
                let poll = self.context.chains.poll(&*self.context.driver);
                if heap.pool.config().reuse.allow_opportunistic {
                    heap.pool.retire(&poll);
                }
                match heap.pool.fit(bytes, &state.chain) {
                    Ok(grant) => return Ok(grant),
                    Err(_) => heap.pool.grow(bytes, &state.chain, &poll, refusals),
                }
            };
            let grant = match grown {
                Ok(grant) => grant,
                Err(exhausted) => return Err(self.out_of_memory(pool, &heap, exhausted)),
            };
            match shell::apply_steps(&self.context, &mut heap) {
                Ok(()) => return Ok(grant),
                Err(DriverError::OutOfMemory { .. }) => {
                    // The system has no more: what other pools keep idle may be all it takes.
                    drop(heap);
                    self.context.pools().iter().filter(|other| other.id != pool.id).for_each(|other| {
                        let _ = other.trim_idle();
                    });
                    heap = pool.lock();
                    refusals += 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Who holds what, when nothing is left.
    #[cold]
    fn out_of_memory(&self, pool: &PoolShared, heap: &Heap, exhausted: Exhausted) -> Error {
        const SHOWN: usize = 5;
        let largest = pool.largest(heap, SHOWN);
        let others = self.context.pools();
        let others = others.iter().filter(|other| other.id != pool.id);
        Error::OutOfMemory(Box::new(OutOfMemory {
            pool: pool.id,
            exhausted,
            device_bytes: self.context.properties.total_bytes,
            // Another thread may hold another pool: its figure is then left out rather than waited for.
            other_pools_bytes: others.filter_map(|other| Some(other.heap.try_lock().ok()?.pool.reserved())).sum(),
            largest,
        }))
    }
}

impl PoolShared {
    /// Takes everything off the streams' shelves, back to the heap. `own` is the stream whose lock the caller holds;
    /// other streams that are busy this moment keep theirs.
    pub(crate) fn drain_shelves(&self, own: Option<(&StreamShared, &mut State)>) {
        let mut freed = Vec::new();
        let mut served = 0;
        let own_id = own.map(|(stream, state)| {
            if let Some(shelf) = state.shelf(self.id) {
                served += shelf.shelf.count_served();
                freed.extend(shelf.shelf.drain());
            }
            stream.id
        });
        for stream in self.streams().iter().filter(|stream| Some(stream.id) != own_id) {
            let Some(mut state) = stream.state.try_lock() else { continue };
            if let Some(shelf) = state.shelf(self.id) {
                served += shelf.shelf.count_served();
                freed.extend(shelf.shelf.drain());
            }
        }
        self.lock().pool.count_served(served);
        self.take_back(freed);
    }

    /// Freed blocks return to the heap.
    pub(crate) fn take_back(&self, freed: impl IntoIterator<Item = Arc<Allocation>>) {
        let mut heap = self.lock();
        for allocation in freed {
            let free = allocation.life().freed.map(|free| free.point);
            heap.give_back(&allocation, Frontier::of(free), None::<&millpond_core::order::Chain>);
        }
    }

    /// Gives idle memory back to the system.
    pub(crate) fn trim_idle(&self) -> Result<()> {
        self.trim_to(0)
    }

    /// The host has synchronised: what it was told is over may serve anybody, and idle memory beyond the release
    /// threshold goes back.
    pub(crate) fn synchronized(&self) {
        let mut heap = self.lock();
        let base = self.context.hosts.base();
        heap.pool.retire(&Told(&base));
        if heap.pool.reserved() > heap.pool.config().release_threshold {
            drop(heap);
            self.drain_shelves(None);
            heap = self.lock();
            heap.pool.synchronized(&Told(&base));
            // What the system refuses to take back stays in the pool.
            let _ = shell::apply_steps(&self.context, &mut heap);
        }
    }

    /// Frees an allocation whose buffer was dropped: after everything declared so far. Never waits, never fails, adds
    /// no order.
    pub(crate) fn drop_allocation(allocation: Arc<Allocation>, generation: u32) {
        let home = allocation.home.upgrade();
        let mut state = home.as_ref().and_then(|home| Some((home, home.state.try_lock()?)));
        let mut life = allocation.life();
        if life.freed.is_some() || life.generation != generation {
            return;
        }
        let born = life.history.born().site;
        if let Some((home, state)) = &mut state
            && !state.is_closed
            && life.history.points().all(|point| state.chain.covers(point))
        {
            let point = state.chain.submit();
            let site = Site { act: Act::Free, stream: home.id, op: state.op(), place: Place::Unknown };
            life.freed = Some(Use { point, site });
            let bytes = life.bytes;
            drop(life);
            home.shelve(state, allocation, bytes, point);
            return home.leave(state);
        }
        let points = Frontier::of(life.history.points());
        let last = life.history.uses().last().copied().unwrap_or(life.history.born());
        let site = Site { act: Act::Free, place: Place::Unknown, ..last.site };
        debug_assert!(born.op <= last.site.op || born.stream != last.site.stream);
        life.freed = Some(Use { point: last.point, site });
        let bytes = life.bytes;
        drop(life);
        drop(state);
        let pool = Arc::clone(&allocation.pool);
        let mut heap = pool.lock();
        heap.give_back(&allocation, points, None::<&millpond_core::order::Chain>);
        pool.count_used(&mut heap, -(bytes as i64));
        drop(heap);
        if pool.is_destroyed() {
            // As in `free_to_heap`.
            let _ = pool.trim_idle();
        }
    }

    /// The live allocation that starts at `pointer`, of any pool of the device.
    pub(crate) fn find_on(context: &crate::context::Context, pointer: u64) -> Result<(Arc<Allocation>, u32)> {
        let nearest = match context.pools().iter().find(|pool| pool.contains(pointer)) {
            Some(pool) => match pool.find(pointer) {
                Ok(allocation) => {
                    let generation = allocation.life().generation;
                    return Ok((allocation, generation));
                }
                Err(nearest) => nearest,
            },
            None => crate::Nearest::Outside,
        };
        Err(crate::Invalid::Pointer { pointer, nearest }.into())
    }
}
