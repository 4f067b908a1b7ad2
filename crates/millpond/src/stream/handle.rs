//! A stream: a queue of work on a device, and a chain of the order (CUDA: `cudaStream_t`).
//!
//! The handle, and what every operation does first and last. The operations themselves are on a floor of their own;
//! what belongs to one stream behind its own lock is in `state/stream.rs`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millpond_core::ids::StreamId;
use millpond_core::order::default_streams::{Standing, after, before};
use millpond_driver::locks::lock;
use millpond_driver::{Driver, process};
use smallvec::SmallVec;

use crate::clock::hosts;
use crate::names::error::{Invalid, Result};
use crate::state::in_flight::Keep;
use crate::state::in_flight::Unclosed;
use crate::state::stream::{Mode, State, StreamShared};
use crate::sync::garbage::Garbage;

/// A stream of a device: work submitted to it runs in order, work of different streams at the same time.
///
/// Every stream-ordered act is a method here. Clones name the same stream; it is closed when the last one is dropped,
/// and work already in it still runs (CUDA: `cudaStreamDestroy`).
///
/// ```
/// # use millpond::{Device, HostConfig};
/// # fn main() -> millpond::Result<()> {
/// let device = Device::host(HostConfig::default())?;
/// let (left, right) = (device.stream()?, device.stream()?);
/// let x = left.alloc::<u32>(&device.default_pool(), 4)?;
/// left.launch(x.write(), |x| x.fill(1))?;
/// right.wait(&left.record()?)?; // `right` goes on after that
/// right.launch(x.write(), |x| x.iter_mut().for_each(|x| *x += 1))?;
/// assert_eq!(right.copy_to_host(x.read())?, [2; 4]);
/// right.free(x)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Stream {
    pub(crate) shared: Arc<StreamShared>,
    _owner: Arc<Owner>,
}

/// Closes the stream when the last handle goes.
#[derive(Debug)]
struct Owner {
    shared: Arc<StreamShared>,
    /// What keeps a foreign stream open.
    keep: Option<Keep>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.close(self.keep.clone());
    }
}

impl StreamShared {
    /// What every operation does first: refuse a closed stream, and learn what there is to learn.
    #[inline]
    pub(crate) fn enter(&self, state: &mut State) -> Result<Mode> {
        if self.is_current(state) { Ok(Mode::Live) } else { self.learn(state) }
    }

    /// Whether there is nothing to learn: the stream is open, and captures nothing.
    #[inline]
    pub(crate) fn is_current(&self, state: &State) -> bool {
        state.epoch == self.context.epoch.now()
    }

    /// What every operation does last, once the driver has its work.
    #[inline]
    pub(crate) fn leave(&self, state: &mut State) {
        self.progress.publish(state.chain.seq());
        after(self.role.standing(), &mut self.ties(state));
    }

    /// As [`leave`](Self::leave), where the program submits the work of the last point only now: before the stream's
    /// next operation it is not known to have completed.
    #[cold]
    pub(crate) fn leave_declared(&self, state: &mut State) {
        self.progress.publish(state.chain.seq() - 1);
        after(self.role.standing(), &mut self.ties(state));
    }

    /// The program has the stream's handle from now on, and submits to it as well.
    pub(crate) fn share(&self) {
        self.submitters.is_shared.store(true, Ordering::Release);
        self.progress.share();
        if self.role.standing() == Standing::Barrier {
            self.context.legacy.is_shared.store(true, Ordering::Release);
        }
    }

    /// Whether work that only the program knows may be in it: its own, or the legacy default stream's, which ties it.
    pub(crate) fn is_shared(&self) -> bool {
        let is_tied = self.role.standing() == Standing::Tied;
        self.submitters.are_shared() || (is_tied && self.context.legacy.is_shared.load(Ordering::Acquire))
    }

    /// The cold half of [`enter`](Self::enter): a new stream, a host that has synchronised, or a legacy operation.
    #[cold]
    fn learn(&self, state: &mut State) -> Result<Mode> {
        let epoch = self.context.epoch.now();
        let mode = self.look(state)?;
        if mode == Mode::Live && self.role.standing() != Standing::Barrier {
            state.epoch = epoch;
        }
        Ok(mode)
    }

    /// What a call finds that is no operation of the stream and comes after nothing: a capture begins.
    pub(crate) fn enter_to_begin(&self, state: &mut State) -> Result<Mode> {
        let mode = self.find(state)?;
        if mode == Mode::Live && self.role.standing() == Standing::Barrier {
            self.context.graphs.refuse_legacy_use(&self.context)?;
        }
        Ok(mode)
    }

    /// What an operation finds: unless it is captured, the stream learns what the host knows.
    fn look(&self, state: &mut State) -> Result<Mode> {
        if self.find(state)? == Mode::Capturing {
            return Ok(Mode::Capturing);
        }
        hosts::tell(&mut state.chain);
        before(self.role.standing(), &mut self.ties(state))?;
        Ok(Mode::Live)
    }

    /// Whether the stream is there, and captures.
    fn find(&self, state: &mut State) -> Result<Mode> {
        process::refuse_forked()?;
        if state.is_closed {
            return Err(Invalid::StreamClosed(self.title()).into());
        }
        self.close_window(state)?;
        if let Some(capture) = &state.capture {
            if capture.is_open() {
                return Ok(Mode::Capturing);
            }
            state.capture = None;
        }
        Ok(Mode::Live)
    }

    /// Closes the stream: its caches go back to their pools, its number can be used again once its work is known to
    /// have completed.
    fn close(&self, keep: Option<Keep>) {
        if process::is_forked() {
            return;
        }
        let garbage = Garbage::default();
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.is_closed, true) {
            return;
        }
        if let Some(tracer) = &self.context.tracer {
            tracer.stream_closed(self.id);
        }
        self.close_name();
        state.epoch = 0;
        // What came to it meanwhile has no end any more.
        let _ = self.close_window(&mut state);
        if state.capture.take().is_some() {
            self.context.graphs.end_with_stream(self.id, &mut state, &garbage);
        }
        let mut caches = std::mem::take(&mut state.caches);
        let closed = self.context.close_stream(Unclosed {
            stream_index: self.stream_index,
            raw: self.raw,
            progress: Arc::clone(&self.progress),
            snapshot: self.last_end(&mut state),
            is_noted: std::mem::take(&mut state.is_noted),
            // Recording an event in the legacy default stream ties the others to it: nothing of ours is in it before it
            // is used.
            needs_record: self.role.standing() != Standing::Barrier
                || self.context.legacy.is_used.load(Ordering::Acquire),
            keep,
        });
        lock(&self.context.chain_indices).close(state.chain.last());
        // A pool goes, if this was the last to know it, behind the locks.
        let pools: SmallVec<[_; 1]> = caches.iter_mut().filter_map(|cache| cache.owner.upgrade()).collect();
        for pool in &pools {
            if let Some(cache) = caches.find(pool) {
                let count = Arc::clone(&cache.count);
                pool.return_cache(&state.chain, cache.clear(), &count);
            }
        }
        drop(state);
        // What the program gave goes behind the locks.
        drop(closed);
        self.context.let_go();
        pools.iter().for_each(|pool| pool.trim_if_destroyed());
        self.context.driver.settle();
    }
}

impl Stream {
    pub(crate) fn new(shared: Arc<StreamShared>, keep: Option<Keep>) -> Self {
        Self { shared: Arc::clone(&shared), _owner: Arc::new(Owner { shared, keep }) }
    }

    /// Its number on its device.
    pub fn id(&self) -> StreamId {
        self.shared.id
    }

    /// Whether what is done on it becomes nodes of a graph (CUDA: `cudaStreamIsCapturing`). No operation: it orders
    /// nothing; the legacy default stream answers no while others are captured, and their captures go on.
    ///
    /// # Errors
    /// The stream is closed.
    pub fn is_capturing(&self) -> Result<bool> {
        process::refuse_forked()?;
        let mut state = self.shared.state.lock();
        if state.is_closed {
            return Err(Invalid::StreamClosed(self.shared.title()).into());
        }
        self.shared.close_window(&mut state)?;
        Ok(state.capture.as_ref().is_some_and(|capture| capture.is_open()))
    }
}
