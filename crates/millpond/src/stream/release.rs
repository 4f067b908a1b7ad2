//! The way of freed memory: into its stream's cache, or to the heap. And the error of a refused free.
//!
//! A free by the program ends the lifetime at the stream's next point. A drop is no operation of a stream: the memory
//! is free after everything declared so far.
//!
//! Invariant **ordered-reuse**: a cache holds blocks freed on its own stream, so that an operation that takes one comes
//! after that free. The heap hands a block to a stream only by the pool's rule LEGAL.

use std::panic::Location;
use std::sync::Arc;

use millpond_core::check::{Act, Fault, Finding, Site, Use};
use millpond_core::order::{Knows, op_at};
use millpond_core::pool::{Freed, Frontier};
use millpond_core::units::Range;
use millpond_driver::{Access, process};

use crate::names::error::{Error, Invalid, Result};
use crate::names::stream_names::{dropped, side};
use crate::pool::shell;
use crate::state::allocation::{Allocation, Life, Owned, site, violation};
use crate::state::caches::Cached;
use crate::state::ends::drop_unpooled;
use crate::state::listening::{own_points, park};
use crate::state::origin::Origin;
use crate::state::pool::PoolShared;
use crate::state::stream::{State, StreamShared};

impl StreamShared {
    /// Takes the next point, for an operation that was found right.
    #[inline]
    pub(crate) fn next_use(&self, state: &mut State, act: Act, caller: &'static Location<'static>) -> Use {
        let point = state.chain.submit();
        Use { point, site: site(act, self.id, state.op(), caller) }
    }

    #[inline]
    pub(crate) fn check_device(&self, allocation: &Allocation) -> Result<()> {
        match allocation.device == self.context.number {
            true => Ok(()),
            false => Err(allocation.elsewhere(self.titled())),
        }
    }

    /// Returns the error of a fault. It says up to which operation of the other side's stream this stream is ordered.
    #[cold]
    pub(crate) fn refuse(
        &self,
        state: &State,
        allocation: &Allocation,
        life: &Life,
        mut fault: Fault,
        mut later: Site,
    ) -> Error {
        let Use { point, site } = fault.earlier;
        if allocation.device != self.context.number || site.stream.device().is_some() {
            // The streams are of several devices, so both sides name theirs.
            for side in std::iter::once(&mut fault.earlier).chain(&mut fault.ends) {
                side.site.stream = side.site.stream.of_device(allocation.device);
            }
            later.stream = later.stream.of_device(self.context.number);
        }
        let is_node = self.context.chains.find(point.chain).is_some_and(|progress| progress.is_of_launches());
        let known = (!is_node && !state.chain.covers(point)).then(|| {
            let origin = op_at(point.seq).saturating_sub(site.op);
            op_at(state.chain.seen(point.chain)).saturating_sub(origin)
        });
        violation(self.context.number, (allocation, life), fault, later, known).into()
    }

    /// Puts a freed block into the stream's cache. A block that falls out waits for the next visit to the heap.
    #[inline(always)] // Its arguments and results stay in registers.
    pub(crate) fn put_in_cache(&self, state: &mut State, freed: Cached, rounded: u64, bytes: u64) {
        let Cached { allocation, seq } = freed;
        let pool = allocation.pool();
        if pool.bypasses_caches() {
            return self.free_to_heap(state, Cached { allocation, seq }, rounded, bytes);
        }
        let many_fell = state.cache_or_new(self, pool).put(Cached { allocation, seq }, rounded, bytes);
        if let Some(pool) = many_fell {
            self.return_fallen(state, &pool);
        }
    }

    /// Returns the blocks that fell out of the cache to the heap.
    #[cold]
    #[inline(never)]
    pub(crate) fn return_fallen(&self, state: &mut State, pool: &PoolShared) {
        state.return_to(&mut pool.lock(), pool, false);
    }

    /// Returns a block to the heap directly, not through a cache.
    #[cold]
    pub(crate) fn free_to_heap(&self, state: &State, freed: Cached, rounded: u64, bytes: u64) {
        let pool = Arc::clone(freed.allocation.pool());
        if pool.guard {
            let range = Range::new(freed.allocation.address(), rounded);
            // If the device refuses, the bytes stay accessible: the guard is a help, not a promise.
            let _ = shell::submit_protect(&self.context, self.raw, range, Access::None);
        }
        pool.take_back(freed.allocation, Freed::at(&state.chain, freed.seq), bytes);
    }
}

/// Returns the error for memory of an alloc node, which has no lifetime before its graph is launched. If its capture
/// goes on, the memory can be used inside.
#[cold]
pub(crate) fn not_launched(allocation: &Allocation, later: Site) -> Error {
    match &allocation.origin {
        Origin::Captured(session) if session.is_open() => {
            let at = side(allocation.device, later);
            let node = format!("{}, memory of a capture,", allocation.id);
            let mut finding = Finding::not_launched(&node, later.act, &at.by(), false).at(at);
            let inside = "to use it in the capture, make the stream wait for an event that is recorded there";
            finding.notes.push(inside.to_owned());
            finding.into()
        }
        _ => Invalid::NotLaunched { allocation: allocation.id.to_string() }.into(),
    }
}

impl PoolShared {
    /// Frees an allocation whose buffer was dropped, after everything declared so far. Never fails, and adds no order.
    /// Waits for nothing, except for room for the message to an import's exporter.
    pub(crate) fn drop_allocation(owned: Owned) {
        let Owned { allocation, generation, .. } = owned;
        if !matches!(allocation.origin, Origin::Pool(_)) {
            return drop_unpooled(&allocation, generation);
        }
        let home = allocation.life().home.upgrade();
        let mut state = home.as_ref().and_then(|home| Some((home, home.state.try_lock()?)));
        // In a forked child process nothing is freed, because the memory is the parent's.
        if state.is_none() && process::is_forked() {
            return;
        }
        let mut life = allocation.life();
        if !life.is_live(generation) {
            return;
        }
        if let Some(tracer) = &allocation.pool().context.tracer {
            tracer.dropped(allocation.id, generation);
        }
        let (rounded, bytes) = (life.range.bytes, life.bytes);
        let waits = park(&mut life);
        if let Some((home, state)) = &mut state
            && life.lent.is_none()
            && !state.is_closed
            && life.history.all_points(|point| state.chain.covers(point))
        {
            // A drop is not an operation, and if the stream were busy it would not come here. So no stream comes after
            // it.
            let free = state.chain.pass();
            life.freed.end(Use { point: free, site: dropped(home.id) });
            drop(life);
            home.put_in_cache(state, Cached { allocation, seq: free.seq }, rounded, bytes);
            return home.progress.publish(free.seq);
        }
        let after = Frontier::of(own_points(&life));
        life.end_dropped();
        drop(life);
        drop(state);
        if waits {
            // The memory goes back when the last importer has released it.
            return;
        }
        let pool = Arc::clone(allocation.pool());
        pool.take_back(allocation, Freed::after(after), bytes);
    }
}
