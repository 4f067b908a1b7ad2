//! What closes, and what is given back then: streams, pools, and the device itself. And waiting for all that is in
//! flight, closed or not: what is done with the table of `in_flight.rs`.
//!
//! Where the driver refuses to record the end of a stream, or to close it, that is tried again with the next question.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millpond_core::check::Place;
use millpond_core::ids::{Point, PoolId};
use millpond_core::order::{Base, Chain, ChainIndices, Snapshot};
use millpond_driver::locks::{Guard, lock};
use millpond_driver::{Driver, DriverError, RawStream, is_in_item, process};

use crate::clock::device_event::DeviceEvent;
use crate::clock::hosts;
use crate::clock::progress::Progress;
use crate::clock::progress::closed;
use crate::graph::trim_graph_memory;
use crate::state::context::Context;
use crate::state::in_flight::{End, Everything, Unclosed};
use crate::state::peers;
use crate::state::pool::Closing;
use crate::state::stream::StreamShared;
use crate::trace::tracer::Tracer;

impl Context {
    /// Closes a stream, or as much of that as the driver does now. What is returned is to be dropped behind all locks.
    #[must_use]
    pub(crate) fn close_stream(&self, mut unclosed: Unclosed) -> Option<Unclosed> {
        if !unclosed.needs_record {
            // No other call learns that from a stream that is closed. Nothing was in it that a host would not know of.
            unclosed.progress.complete(unclosed.snapshot.point().seq);
            unclosed.progress.close(Err(closed()));
            hosts::learn([&unclosed.snapshot], || ());
            self.in_flight.leave(unclosed.stream_index);
        }
        if unclosed.close(self).is_ok() {
            return Some(unclosed);
        }
        let mut list = lock(&self.in_flight.unclosed);
        if unclosed.needs_record {
            self.in_flight.close(&unclosed, None);
        }
        list.push(unclosed);
        None
    }

    /// Closes what the driver refused to close before; nothing new is refused while the answer is held.
    ///
    /// # Errors
    /// It refuses once more.
    fn close_rest_locked(&self) -> millpond_driver::Result<Guard<'_, Vec<Unclosed>>> {
        loop {
            let mut list = lock(&self.in_flight.unclosed);
            let Some(mut unclosed) = list.pop() else { return Ok(list) };
            if let Err(error) = unclosed.close(self) {
                list.push(unclosed);
                return Err(error);
            }
            lock(&self.in_flight.let_go).extend(unclosed.keep);
        }
    }

    /// Closes what the driver refused to close before. Locks of streams may be held.
    ///
    /// # Errors
    /// It refuses once more.
    pub(crate) fn close_rest(&self) -> millpond_driver::Result<()> {
        self.close_rest_locked().map(drop)
    }

    /// Drops what kept streams open that are closed by now. No lock may be held.
    pub(crate) fn let_go(&self) {
        let gone = std::mem::take(&mut *lock(&self.in_flight.let_go));
        drop(gone);
    }

    /// All work up to now. No lock may be held.
    ///
    /// # Errors
    /// The driver refuses to record the end of a closed stream.
    pub(crate) fn everything(&self) -> millpond_driver::Result<Everything> {
        self.close_rest()?;
        self.let_go();
        let unclosed = self.close_rest_locked()?;
        let everything = self.in_flight.everything();
        drop(unclosed);
        Ok(everything)
    }

    /// The chain of a new stream, where no host knows of a number that serves again. With many streams closed it has
    /// the number of the one closed first, and the stream is put after its end.
    pub(crate) fn begin_chain(
        &self,
        raw: RawStream,
        chain_indices: &mut ChainIndices,
        base: Arc<Base>,
    ) -> (Chain, Option<Arc<Progress>>) {
        if let Some((snapshot, progress, end)) = self.in_flight.first_ended()
            && let chain = snapshot.point().chain
            && let Some(seq) = chain_indices.open_after(chain)
        {
            let mut ends = std::iter::once(Some(end)).chain(progress.side_work(seq));
            let waits = |end: Option<Arc<DeviceEvent>>| end.is_some_and(|end| self.driver.wait(raw, end.raw).is_ok());
            if ends.all(waits) {
                return (Chain::after(&snapshot, seq, base), Some(progress));
            }
            // It cannot wait: the program captures it, or the device refuses.
            chain_indices.close(Point { chain, seq });
        }
        let (chain, seq) = chain_indices.open_fresh();
        (Chain::new(chain, seq, base), None)
    }

    /// The end of a stream that was closed since it was asked for; none where nothing runs any more.
    ///
    /// # Errors
    /// The driver refuses to record it.
    pub(crate) fn end_of(&self, stream: &StreamShared) -> millpond_driver::Result<Option<Arc<DeviceEvent>>> {
        self.close_rest()?;
        Ok(stream.progress.end())
    }

    /// Whether all work of all streams up to now has completed, closed ones too, also of other devices' streams that
    /// used its memory.
    pub(crate) fn is_idle(&self) -> bool {
        let chains = self.in_flight.chains();
        self.chains.poll(&*self.driver).is_over_foreign() && chains.iter().all(|chain| chain.is_idle(&*self.driver))
    }

    /// The host has waited until everything up to the snapshots had completed: beyond knowing it, pools may give memory
    /// back (CUDA: a synchronisation honours the release threshold, a query does not).
    pub(crate) fn synchronized<'a>(
        &self,
        snapshots: impl IntoIterator<Item = &'a Snapshot> + Clone,
        write: impl FnOnce(&Tracer),
    ) {
        self.host_learned(snapshots, write);
        for pool in self.pools() {
            pool.synchronized();
        }
        self.finish_closing();
    }

    /// The device goes, and others may know of its work: that is waited for, as it is where the driver goes, and all
    /// that the program does afterwards comes after it. So the numbers of its chains serve again, and memory of others
    /// that it used can be freed. Within a kernel nothing is waited for, nor known.
    fn wait_for_end(&self) {
        let ends = self.in_flight.ended();
        let is_over = |(snapshot, event): &End| {
            self.driver.block_on(event.raw).is_ok() && self.block_on_side_work(snapshot).is_ok()
        };
        if is_in_item() || ends.is_empty() || !ends.iter().all(is_over) {
            return;
        }
        hosts::learn(ends.iter().map(|(snapshot, _)| snapshot), || {
            if let Some(tracer) = &self.tracer {
                tracer.synchronized(Place::Unknown);
            }
        });
    }

    /// Gives back what nothing uses any more of dropped pools and graphs, and of what was imported.
    pub(crate) fn finish_closing(&self) {
        self.finish_pools();
        self.graphs.finish_closing(self);
        self.share.finish(self);
        self.finish_guests();
    }

    /// Lets memory of devices that are gone go, where no work is left that may use it. Never waits.
    pub(crate) fn finish_guests(&self) {
        if lock(&self.guests).is_empty() {
            return;
        }
        let open = peers::open();
        let mut guests = lock(&self.guests);
        let poll = self.chains.poll(&*self.driver);
        let over = guests.take_over(|device| open.contains(&device), || poll.unfinished(), &poll);
        drop(poll);
        drop(guests);
        over.iter().for_each(|memory| self.driver.let_go(memory));
    }

    /// Physical memory of dropped pools that is not given back yet, in bytes.
    pub(crate) fn closing_bytes(&self) -> u64 {
        lock(&self.closing).iter().map(|closing| closing.heap.pool.reserved()).sum()
    }

    /// Gives the memory of dropped pools back, where nothing uses it any more. Never waits; the heap of a pool that is
    /// still there may be locked.
    pub(crate) fn finish_pools(&self) {
        let closing = std::mem::take(&mut *lock(&self.closing));
        for mut heap in closing {
            match heap.finish(self) {
                true => self.memory_came_back(),
                false => lock(&self.closing).push(heap),
            }
        }
    }
}

impl Context {
    /// A pool is gone; what it leaves is given back once nothing uses it.
    pub(crate) fn end_pool(&self, pool: PoolId, left: Closing) {
        lock(&self.pools).remove(&pool);
        self.returned.fetch_add(left.heap.returned(), Ordering::AcqRel);
        lock(&self.closing).push(left);
        self.finish_pools();
        self.memory_came_back();
    }
}

impl Unclosed {
    fn close(&mut self, context: &Context) -> millpond_driver::Result<()> {
        if self.needs_record {
            match context.driver.record(self.raw) {
                Ok(raw) => self.end(context, Arc::new(DeviceEvent::new(raw, &context.driver))),
                // Nothing runs any more that could be waited for.
                Err(lost @ DriverError::Lost { .. }) => {
                    self.progress.close(Err(lost));
                    context.in_flight.leave(self.stream_index);
                }
                Err(other) => return Err(other),
            }
            self.needs_record = false;
        }
        match context.driver.close_stream(self.raw) {
            Err(DriverError::Lost { .. }) => Ok(()),
            other => other,
        }
    }

    fn end(&self, context: &Context, end: Arc<DeviceEvent>) {
        self.progress.close(Ok(Arc::clone(&end)));
        let base = hosts::base();
        if self.is_noted {
            context.legacy.note_end((self.snapshot.clone(), Arc::clone(&end)), &base);
        }
        if context.in_flight.close(self, Some(end)) {
            context.in_flight.sweep(&hosts::base());
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if process::is_forked() {
            // All of it is the parent's. The driver is not dropped: it would wait for threads that are not there.
            std::mem::forget(Arc::clone(&self.driver));
            return;
        }
        // Once more: what the system refused so far. What it refuses now goes with the device.
        let _ = self.close_rest();
        let has_met = self.has_met.load(Ordering::Acquire);
        if has_met {
            self.wait_for_end();
        }
        self.finish_closing();
        self.free_retired();
        self.share.stop(self);
        let _ = trim_graph_memory(self);
        if let Some(tracer) = &self.tracer {
            tracer.close();
        }
        peers::leave(self);
        // What no other device has met, none can name; and what the program waited for, all later work comes after.
        let base = hosts::base();
        let chain_indices = self.chain_indices.get_mut();
        chain_indices.retire(|last| !has_met || base.covers(last));
    }
}
