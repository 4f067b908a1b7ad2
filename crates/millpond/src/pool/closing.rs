//! The closing of streams, pools and the device, and the release of what they held. Also the wait for all work in
//! flight, of closed streams too, with the table of `in_flight.rs`.
//!
//! If the driver refuses to record the end of a stream, or to close it, the next query tries again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millpond_core::check::Place;
use millpond_core::ids::PoolId;
use millpond_core::order::{Base, Chain, Snapshot};
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
    /// Closes a stream, as far as the driver does it now. The result must be dropped after all locks are released.
    #[must_use]
    pub(crate) fn close_stream(&self, mut unclosed: Unclosed) -> Option<Unclosed> {
        if !unclosed.needs_record {
            // The stream never had work, so the host knows all of its snapshot. Later calls cannot learn this from a
            // closed stream.
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

    /// Closes the streams that the driver refused to close before. While the guard is held, no stream is added.
    ///
    /// # Errors
    /// The driver refuses again.
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

    /// Closes the streams that the driver refused to close before. Locks of streams may be held.
    ///
    /// # Errors
    /// The driver refuses again.
    pub(crate) fn close_rest(&self) -> millpond_driver::Result<()> {
        self.close_rest_locked().map(drop)
    }

    /// Drops the values that kept streams open which are closed now. No lock may be held.
    pub(crate) fn let_go(&self) {
        let gone = std::mem::take(&mut *lock(&self.in_flight.let_go));
        drop(gone);
    }

    /// Returns all work so far. No lock may be held.
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

    /// Returns the chain of a new stream, if the host knows no number that can be reused. If many streams are closed,
    /// it has the number of the one that was closed first, and the stream waits for that one's end.
    pub(crate) fn begin_chain(&self, raw: RawStream, base: Arc<Base>) -> (Chain, Option<Arc<Progress>>) {
        let first = self.in_flight.first_ended(&base);
        let first = first.filter(|(snapshot, ..)| self.chains.open().indices().open_after(snapshot.point()));
        if let Some((snapshot, progress, end)) = first {
            let last = snapshot.point();
            let mut ends = std::iter::once(Some(end)).chain(progress.side_work(last.seq));
            let waits = |end: Option<Arc<DeviceEvent>>| end.is_some_and(|end| self.driver.wait(raw, end.raw).is_ok());
            if ends.all(waits) {
                return (Chain::after(&snapshot, last.seq, base), Some(progress));
            }
            // It cannot wait: the program captures it, or the device refuses.
            self.chains.open().indices().close(last);
        }
        let (chain, seq) = self.chains.open().indices().open_fresh();
        (Chain::new(chain, seq, base), None)
    }

    /// Returns the end of a stream that was closed after the caller looked it up, or `None` if nothing runs any more.
    ///
    /// # Errors
    /// The driver refuses to record it.
    pub(crate) fn end_of(&self, stream: &StreamShared) -> millpond_driver::Result<Option<Arc<DeviceEvent>>> {
        self.close_rest()?;
        Ok(stream.progress.end())
    }

    /// Returns `true` if all work of all streams so far has completed, also of closed streams and of other devices'
    /// streams that used its memory.
    pub(crate) fn is_idle(&self) -> bool {
        let chains = self.in_flight.chains();
        self.chains.poll(&*self.driver).is_over_foreign() && chains.iter().all(|chain| chain.is_idle(&*self.driver))
    }

    /// Called after the host has waited until everything up to the snapshots has completed. The host learns this, and
    /// in addition pools may return memory to the system (CUDA: a synchronisation honours the release threshold, a
    /// query does not).
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

    /// Called when the device is dropped while other devices may know of its work. Waits for that work, as the drop of
    /// the driver does, and all later operations of the program come after it. So the numbers of its chains can be
    /// reused, and memory of other devices that it used can be freed. Inside a kernel it neither waits nor learns
    /// anything.
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

    /// Releases what nothing uses any more of dropped pools and graphs, and of imports.
    pub(crate) fn finish_closing(&self) {
        self.finish_pools();
        self.graphs.finish_closing(self);
        self.share.finish(self);
        self.finish_guests();
    }

    /// Drops the memory of devices that are gone if no work is left that may use it. Never waits.
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

    /// Returns the bytes of physical memory of dropped pools that is not released yet.
    pub(crate) fn closing_bytes(&self) -> u64 {
        lock(&self.closing).iter().map(|closing| closing.heap.pool.reserved()).sum()
    }

    /// Releases the memory of dropped pools that nothing uses any more. Never waits; the heap of a pool that still
    /// exists may be locked.
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
    /// Removes a pool; the memory that it leaves is released once nothing uses it.
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
            // All of it belongs to the parent. The driver is not dropped, because the drop would wait for threads that
            // do not exist.
            std::mem::forget(Arc::clone(&self.driver));
            return;
        }
        // Streams that the system refused to close are tried once more. If it refuses again, they are closed with the
        // device.
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
        // A chain's number can be reused if no other device has met this one, because then no device can name the
        // chain, or if the program has waited for the chain, because all later work then comes after it.
        let base = hosts::base();
        self.chains.open().indices().retire(|last| !has_met || base.covers(last));
    }
}
