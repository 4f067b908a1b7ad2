//! How a stream serves memory: from its own shelf at once, from the pool's heap when that misses.
//!
//! Here is what does so whatever is in the way: something to learn, a capture, memory of graphs and of other
//! processes, what is lent, and what is to be refused. Where nothing is, `hot.rs` has done it already. What misses goes
//! to the heap (`relieve.rs`).
//!
//! Invariant **ordered-reuse**: a shelf holds blocks freed on its own stream, so that whatever takes one comes after
//! that free; the heap hands a block to a stream only by the pool's rule LEGAL.

use std::panic::Location;
use std::sync::Arc;

use millpond_core::check::{Act, Fault, Kind, Place, Site, Subject, Use};
use millpond_core::ids::Seq;
use millpond_core::order::{Knows, op_at};
use millpond_core::pool::{Freed, Frontier};
use millpond_core::units::Range;
use millpond_driver::{Access, process};

use crate::names::error::{CaptureError, Error, Result};
use crate::pool::shell;
use crate::state::allocation::{site, violation};
use crate::state::device::{Allocation, Life, Origin, Owned, PoolShared, Session, Shelved, State, StreamShared};
use crate::state::ends::{drop_import, drop_in_graph, free_import, free_in_graph};
use crate::state::listening::{Listening, check_free, own_points, park};
use crate::state::stream::Mode;
use crate::stream::hot::Served;
use crate::sync::locks::BiasedGuard;
use crate::sync::ranks;

/// A free that is refused hands back what was to be freed, with the reason.
pub(crate) type FreeResult = std::result::Result<(), (Error, Owned)>;

impl StreamShared {
    /// Everything else: the shelf has none; or something was to be learned, and the shelf was not asked.
    #[cold]
    #[inline(never)]
    pub(crate) fn alloc_in_full(
        &self,
        pool: &Arc<PoolShared>,
        bytes: u64,
        caller: &'static Location<'static>,
    ) -> std::result::Result<Served, Box<Error>> {
        self.alloc_or_capture(pool, bytes, caller).map_err(|error| {
            self.note_refused(&error, |tracer| tracer.captured_alloc(None, pool.id, self.id, bytes, caller));
            error.into()
        })
    }

    fn alloc_or_capture(
        &self,
        pool: &Arc<PoolShared>,
        bytes: u64,
        caller: &'static Location<'static>,
    ) -> Result<Served> {
        let mut state = self.state.lock();
        if !self.is_current(&state) {
            if self.enter(&mut state)? == Mode::Capturing {
                let captured = self.capture_alloc(&state, pool, bytes, caller);
                return state.counted(captured);
            }
            if let Some(served) = self.take_from_shelf(&mut state, pool, bytes, caller) {
                return Ok(served);
            }
        }
        self.alloc_slow(&mut state, pool, bytes, caller)
    }

    /// Frees an allocation at this point of the stream, if that comes after its allocation and every use. `Holder` is
    /// what has it while the program's reporter is called.
    pub(crate) fn free<Holder>(&self, owned: Owned, caller: &'static Location<'static>) -> FreeResult
    where
        Holder: From<Owned> + Into<Owned>,
    {
        let mut held = Some(owned);
        self.free_to_shelf::<false>(&mut held, caller);
        held.map_or(Ok(()), |owned| self.free_in_full::<Holder>(owned, caller))
    }

    /// As [`free`](Self::free), whatever is in the way of the hot path.
    #[cold]
    #[inline(never)]
    pub(crate) fn free_in_full<Holder>(&self, owned: Owned, caller: &'static Location<'static>) -> FreeResult
    where
        Holder: From<Owned> + Into<Owned>,
    {
        self.try_free::<false>(owned, caller).or_else(|refused| self.free_again::<Holder>(refused, caller))
    }

    /// As [`free_in_full`](Self::free_in_full), if all that is known of the allocation is this stream's.
    #[cold]
    #[inline(never)]
    pub(crate) fn free_own_in_full(&self, owned: Owned, caller: &'static Location<'static>) -> FreeResult {
        self.try_free::<true>(owned, caller)
    }

    /// As [`free`](Self::free), of a program that is trusted as CUDA trusts it: whatever it did with the memory, on any
    /// stream, comes before this point, though nothing of that is known here.
    #[inline]
    pub(crate) fn free_trusted(&self, owned: Owned, caller: &'static Location<'static>) -> FreeResult {
        let mut state = self.state.lock();
        let Owned { allocation, generation, address } = owned;
        match self.enter(&mut state).and_then(|mode| self.check_device(&allocation).map(|()| mode)) {
            Ok(Mode::Live) => {}
            stopped => {
                return self.free_elsewhere(&mut state, stopped, Owned { allocation, generation, address }, caller);
            }
        }
        let life = allocation.life();
        if !life.is_plainly_live(&allocation, generation) {
            drop(life);
            return self.free_not_plain(state, Owned { allocation, generation, address }, caller);
        }
        let (rounded, bytes, seq) = self.end_life(&mut state, life, (&allocation, generation), caller);
        self.shelve(&mut state, Shelved { allocation, seq }, rounded, bytes);
        self.leave(&mut state);
        Ok(())
    }

    /// A free that is refused is tried again once what other processes said is received, and for as long as what it
    /// misses can be put in.
    #[cold]
    fn free_again<Holder>(&self, refused: (Error, Owned), caller: &'static Location<'static>) -> FreeResult
    where
        Holder: From<Owned> + Into<Owned>,
    {
        let (mut error, mut held) = (refused.0, Holder::from(refused.1));
        let (mut is_settled, mut known) = (false, false);
        loop {
            if error.is_abroad() && !is_settled {
                let owned = held.into();
                Listening::of(&owned.allocation);
                held = owned.into();
                is_settled = true;
            } else if !self.add_missing_waits(&mut error, &mut known) {
                let owned = held.into();
                self.note_refused(&error, |tracer| tracer.free_owned(&owned, Some(self.id), caller));
                return Err((error, owned));
            }
            match self.try_free::<false>(held.into(), caller) {
                Ok(()) => return Ok(()),
                Err(again) => (error, held) = (again.0, again.1.into()),
            }
        }
    }

    #[inline(never)]
    fn try_free<const OWN: bool>(&self, owned: Owned, caller: &'static Location<'static>) -> FreeResult {
        let Owned { allocation, generation, address } = owned;
        let mut state = self.state.lock();
        match self.enter(&mut state).and_then(|mode| self.check_device(&allocation).map(|()| mode)) {
            Ok(Mode::Live) => {}
            stopped => {
                return self.free_elsewhere(&mut state, stopped, Owned { allocation, generation, address }, caller);
            }
        }
        let life = allocation.life();
        let is_plainly_freed = life.is_plainly_freed(&allocation, generation, &state.chain);
        if OWN && is_plainly_freed && !life.history.all_points(|point| point.slot == self.slot) {
            let earlier = life.history.born();
            let fault = Fault::new(Kind::FreeBeforeAlloc, earlier);
            let later = site(Act::Free, self.id, state.op() + 1, caller);
            let error = self.refuse(&state, &allocation, allocation.subject(&life), fault, later);
            drop(life);
            return Err((error, Owned { allocation, generation, address }));
        }
        if !is_plainly_freed {
            drop(life);
            return self.free_not_plain(state, Owned { allocation, generation, address }, caller);
        }
        let (rounded, bytes, seq) = self.end_life(&mut state, life, (&allocation, generation), caller);
        self.shelve(&mut state, Shelved { allocation, seq }, rounded, bytes);
        self.leave(&mut state);
        Ok(())
    }

    /// Not at this point of the stream: it captures, it is closed, or the memory is another device's.
    #[cold]
    #[inline(never)]
    fn free_elsewhere(
        &self,
        state: &mut State,
        stopped: Result<Mode>,
        owned: Owned,
        caller: &'static Location<'static>,
    ) -> FreeResult {
        match stopped.and_then(|_| state.counted(self.capture_free(&owned, caller))) {
            Ok(()) => Ok(()),
            Err(error) => Err((error, owned)),
        }
    }

    /// What is not plain: memory of graphs, captures and other processes; what is lent; and what is to be refused.
    #[cold]
    #[inline(never)]
    fn free_not_plain(
        &self,
        mut guard: BiasedGuard<'_, { ranks::STREAM }, State>,
        owned: Owned,
        caller: &'static Location<'static>,
    ) -> FreeResult {
        let state = &mut *guard;
        if let Origin::Captured(_) = owned.allocation.origin {
            return Err((not_launched(&owned.allocation), owned));
        }
        let mut life = owned.allocation.life();
        if life.generation != owned.generation {
            let later = site(Act::Free, self.id, state.op() + 1, caller);
            let error = owned.allocation.overtaken(&life, owned.generation, later).into();
            drop(life);
            return Err((error, owned));
        }
        let mut checked = match life.freed.now() {
            Some(free) => Err(Fault::after_free(free, Act::Free)),
            None => check_free(&owned.allocation, &life, &state.chain),
        };
        if checked.is_err() && life.freed.is_none() && self.learn_abroad(state) {
            checked = check_free(&owned.allocation, &life, &state.chain);
        }
        if let Err(fault) = checked {
            let later = site(Act::Free, self.id, state.op() + 1, caller);
            let error = self.refuse(state, &owned.allocation, owned.allocation.subject(&life), fault, later);
            drop(life);
            return Err((error, owned));
        }
        if let Origin::Pool(_) = owned.allocation.origin {
            let was_lent = life.lent.is_some();
            let (rounded, bytes, seq) = self.end_life(state, life, (&owned.allocation, owned.generation), caller);
            let Owned { allocation, .. } = owned;
            match was_lent {
                // Others may reach it still: that is the heap's to see to.
                true => self.free_to_heap(state, Shelved { allocation, seq }, rounded, bytes),
                false => self.shelve(state, Shelved { allocation, seq }, rounded, bytes),
            }
            self.leave(state);
            return Ok(());
        }
        let free = self.next_use(state, Act::Free, caller);
        life.freed.end(free);
        if let Some(tracer) = &self.context.tracer {
            tracer.free(owned.allocation.id, owned.generation, self.id, caller);
        }
        if !owned.allocation.is_import() {
            free_in_graph(&owned.allocation, life, free.point.into());
            self.leave(state);
            return Ok(());
        }
        self.leave(state);
        // Behind the lock: its exporter may have to make room for the message.
        drop(guard);
        free_import(&owned.allocation, life, Some(free));
        Ok(())
    }

    /// The life of a pool's memory ends at this stream's next point: the block's bytes, the life's, and that point.
    #[inline(always)] // What it takes and gives stays in registers.
    pub(crate) fn end_life(
        &self,
        state: &mut State,
        mut life: BiasedGuard<'_, { ranks::LIFE }, Life>,
        (allocation, generation): (&Allocation, u64),
        caller: &'static Location<'static>,
    ) -> (u64, u64, Seq) {
        let free = self.next_use(state, Act::Free, caller);
        life.freed.end(free);
        if let Some(tracer) = &self.context.tracer {
            tracer.free(allocation.id, generation, self.id, caller);
        }
        (life.range.bytes, life.bytes, free.point.seq)
    }

    /// Takes the next point, for an operation that was found right.
    #[inline]
    pub(crate) fn next_use(&self, state: &mut State, act: Act, caller: &'static Location<'static>) -> Use {
        state.chain.submit();
        self.last_use(state, act, caller)
    }

    /// What was done at the last point.
    #[inline(always)]
    pub(crate) fn last_use(&self, state: &State, act: Act, caller: &'static Location<'static>) -> Use {
        Use { point: state.chain.last(), site: site(act, self.id, state.op(), caller) }
    }

    #[inline]
    fn check_device(&self, allocation: &Allocation) -> Result<()> {
        match allocation.device == self.context.number {
            true => Ok(()),
            false => Err(allocation.elsewhere(format!("{} of {}", self.id, self.context.name()))),
        }
    }

    /// The capture that the stream is in, for a free by address.
    pub(crate) fn enter_to_free(&self) -> Result<Option<Arc<Session>>> {
        let mut state = self.state.lock();
        let _ = self.enter(&mut state)?;
        Ok(state.capture.clone())
    }

    /// A fault as an error, with how far this stream comes after the other side's.
    #[cold]
    pub(crate) fn refuse(
        &self,
        state: &State,
        allocation: &Allocation,
        subject: Subject,
        mut fault: Fault,
        mut later: Site,
    ) -> Error {
        let Use { point, site } = fault.earlier;
        if allocation.device != self.context.number || site.stream.device().is_some() {
            // Streams of several devices: both sides say which.
            for side in std::iter::once(&mut fault.earlier).chain(&mut fault.ends) {
                side.site.stream = side.site.stream.of_device(allocation.device);
            }
            later.stream = later.stream.of_device(self.context.number);
        }
        let is_node = self.context.chains.find(point.slot).is_some_and(|progress| progress.is_of_launches());
        let known = (!is_node && !state.chain.covers(point)).then(|| {
            let origin = op_at(point.seq).saturating_sub(site.op);
            op_at(state.chain.seen(point.slot)).saturating_sub(origin)
        });
        violation(self.context.number, subject, fault, later, known).into()
    }

    /// Puts a freed block on the stream's shelf; what falls off waits for the next visit to the heap.
    #[inline(always)] // As for `end_life`.
    pub(crate) fn shelve(&self, state: &mut State, freed: Shelved, rounded: u64, bytes: u64) {
        let Shelved { allocation, seq } = freed;
        let pool = allocation.pool();
        if pool.bypasses_shelves() {
            return self.free_to_heap(state, Shelved { allocation, seq }, rounded, bytes);
        }
        let many_fell = state.shelf_or_new(self, pool).put(Shelved { allocation, seq }, rounded, bytes);
        if let Some(pool) = many_fell {
            self.return_fallen(state, &pool);
        }
    }

    /// What fell off the shelf returns to the heap.
    #[cold]
    #[inline(never)]
    pub(crate) fn return_fallen(&self, state: &mut State, pool: &PoolShared) {
        state.return_to(&mut pool.lock(), pool, false);
    }

    /// A block goes to the heap without resting on a shelf.
    #[cold]
    fn free_to_heap(&self, state: &State, freed: Shelved, rounded: u64, bytes: u64) {
        let pool = Arc::clone(freed.allocation.pool());
        if pool.guard {
            let range = Range::new(freed.allocation.address(), rounded);
            // Where the device refuses, the bytes stay readable: the guard is a help, not a promise.
            let _ = shell::submit_protect(&self.context, self.raw, range, Access::None);
        }
        let mut heap = pool.lock();
        heap.give_back(freed.allocation, Freed::at(&state.chain, freed.seq));
        heap.count_used(-(bytes as i64));
        pool.destroy_exposed(&mut heap);
        drop(heap);
        pool.trim_if_destroyed();
    }
}

/// Memory of an alloc node has no life before its graph is launched.
#[cold]
pub(crate) fn not_launched(allocation: &Allocation) -> Error {
    CaptureError::NotLaunched { allocation: allocation.id.to_string() }.into()
}

impl PoolShared {
    /// Frees an allocation whose buffer was dropped: after everything declared so far. Never fails, adds no order, and
    /// waits for nothing but room to tell an import's exporter of it.
    pub(crate) fn drop_allocation(owned: Owned) {
        Self::end_allocation(owned, true);
    }

    /// As [`drop_allocation`](Self::drop_allocation), and whether it goes into a trace: not where it has the free that
    /// the program asked for.
    pub(crate) fn end_allocation(owned: Owned, is_traced: bool) {
        let Owned { allocation, generation, .. } = owned;
        if allocation.is_import() {
            return drop_import(&allocation, generation);
        }
        if !matches!(allocation.origin, Origin::Pool(_)) {
            return drop_in_graph(&allocation, generation);
        }
        let home = allocation.life().home.upgrade();
        let mut state = home.as_ref().and_then(|home| Some((home, home.state.try_lock()?)));
        // In a forked process nothing is free, as it is the parent's.
        if state.is_none() && process::is_forked() {
            return;
        }
        let mut life = allocation.life();
        if life.freed.is_some() || life.generation != generation {
            return;
        }
        if let Some(tracer) = allocation.pool().context.tracer.as_ref().filter(|_| is_traced) {
            tracer.dropped(allocation.id, generation);
        }
        let (rounded, bytes) = (life.range.bytes, life.bytes);
        let waits = park(&mut life);
        if let Some((home, state)) = &mut state
            && life.lent.is_none()
            && !state.is_closed
            && life.history.all_points(|point| state.chain.covers(point))
        {
            // A drop is no operation, and may as well not have come here: no stream comes after it.
            let free = state.chain.pass();
            let site = Site { act: Act::Free, stream: home.id, op: 0, place: Place::Unknown };
            life.freed.end(Use { point: free, site });
            drop(life);
            home.shelve(state, Shelved { allocation, seq: free.seq }, rounded, bytes);
            return home.progress.publish(free.seq);
        }
        let after = Frontier::of(own_points(&life));
        let last = life.history.uses().last().copied().unwrap_or(life.history.born());
        life.freed.end(Use { point: last.point, site: Site { act: Act::Free, place: Place::Unknown, ..last.site } });
        drop(life);
        drop(state);
        if waits {
            // Its memory goes back with the last importer.
            return;
        }
        let pool = Arc::clone(allocation.pool());
        let mut heap = pool.lock();
        heap.give_back(allocation, Freed::after(after));
        heap.count_used(-(bytes as i64));
        pool.destroy_exposed(&mut heap);
        drop(heap);
        pool.trim_if_destroyed();
    }
}
