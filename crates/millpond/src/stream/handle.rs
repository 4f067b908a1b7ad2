//! A stream: a queue of work on a device, and a chain of the order (CUDA: `cudaStream_t`).
//!
//! The handle, and the first and last step of every operation. The operations themselves are in `operations`. The state
//! of a stream behind its own lock is in `state/stream.rs`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millpond_core::ids::StreamId;
use millpond_core::order::default_streams::{Standing, after, before};
use millpond_driver::{Driver, process};
use smallvec::SmallVec;

use crate::clock::hosts;
use crate::names::error::{Invalid, Result};
use crate::state::in_flight::Keep;
use crate::state::in_flight::Unclosed;
use crate::state::stream::{Mode, State, StreamShared};
use crate::sync::garbage::Garbage;

/// A stream of a device. Work submitted to one stream runs in order; work of different streams can run at the same
/// time.
///
/// Every stream-ordered operation is a method here. Clones name the same stream. It is closed when the last clone is
/// dropped, and work already submitted to it still runs (CUDA: `cudaStreamDestroy`).
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

/// Closes the stream when the last handle is dropped.
#[derive(Debug)]
struct Owner {
    shared: Arc<StreamShared>,
    /// The program's object that keeps a foreign stream open.
    keep: Option<Keep>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.close(self.keep.clone());
    }
}

impl StreamShared {
    /// Begins an operation: refuses a closed stream, and learns what is new.
    #[inline]
    pub(crate) fn enter(&self, state: &mut State) -> Result<Mode> {
        if self.is_current(state) { Ok(Mode::Live) } else { self.learn(state) }
    }

    /// Returns `true` if there is nothing to learn: the stream is open, and does not capture.
    #[inline]
    pub(crate) fn is_current(&self, state: &State) -> bool {
        state.epoch == self.context.epoch.now()
    }

    /// Ends an operation, once the driver has its work.
    #[inline]
    pub(crate) fn leave(&self, state: &mut State) {
        self.progress.publish(state.chain.seq());
        after(self.role.standing(), &mut self.ties(state));
    }

    /// As [`leave`](Self::leave), if the program submits the work of the last point only now. That work is not known to
    /// have completed before the stream's next operation.
    #[cold]
    pub(crate) fn leave_declared(&self, state: &mut State) {
        self.progress.publish(state.chain.seq() - 1);
        after(self.role.standing(), &mut self.ties(state));
    }

    /// Marks the stream as shared: the program has its handle from now on, and submits to it as well.
    pub(crate) fn share(&self) {
        self.submitters.is_shared.store(true, Ordering::Release);
        self.progress.share();
        if self.role.standing() == Standing::Barrier {
            self.context.legacy.is_shared.store(true, Ordering::Release);
        }
    }

    /// Returns `true` if the stream may have work that only the program knows: its own, or the legacy default stream's,
    /// which the stream is ordered with.
    pub(crate) fn is_shared(&self) -> bool {
        let is_tied = self.role.standing() == Standing::Tied;
        self.submitters.are_shared() || (is_tied && self.context.legacy.is_shared.load(Ordering::Acquire))
    }

    /// The cold half of [`enter`](Self::enter): for a new stream, after a synchronisation of the host, or after a
    /// legacy operation.
    #[cold]
    fn learn(&self, state: &mut State) -> Result<Mode> {
        let epoch = self.context.epoch.now();
        let mode = self.look(state)?;
        if mode == Mode::Live && self.role.standing() != Standing::Barrier {
            state.epoch = epoch;
        }
        Ok(mode)
    }

    /// Begins a call that is no operation of the stream and comes after nothing: a capture begins, or the stream waits
    /// for an event that was never recorded.
    pub(crate) fn enter_to_begin(&self, state: &mut State) -> Result<Mode> {
        let mode = self.find(state)?;
        if mode == Mode::Live && self.role.standing() == Standing::Barrier {
            self.context.graphs.refuse_legacy_use(&self.context)?;
        }
        Ok(mode)
    }

    /// Returns the mode of an operation. Unless it is captured, the stream learns what the host knows.
    fn look(&self, state: &mut State) -> Result<Mode> {
        if self.find(state)? == Mode::Capturing {
            return Ok(Mode::Capturing);
        }
        hosts::tell(&mut state.chain);
        before(self.role.standing(), &mut self.ties(state))?;
        Ok(Mode::Live)
    }

    /// Refuses a closed stream, and returns whether it captures.
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

    /// Closes the stream. Its caches go back to their pools, and its chain index can be used again once its work is
    /// known to have completed.
    fn close(&self, keep: Option<Keep>) {
        if process::is_forked() {
            return;
        }
        let garbage = Garbage::default();
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.is_closed, true) {
            return;
        }
        self.close_name();
        state.epoch = 0;
        // No later call of the stream can return the error.
        let _ = self.close_window(&mut state);
        let trace = || self.context.tracer.iter().for_each(|tracer| tracer.stream_closed(self.id));
        match state.capture.take() {
            Some(_) => self.context.graphs.end_with_stream(self.id, &mut state, &garbage, trace),
            None => trace(),
        }
        let mut caches = std::mem::take(&mut state.caches);
        let closed = self.context.close_stream(Unclosed {
            stream_index: self.stream_index,
            raw: self.raw,
            progress: Arc::clone(&self.progress),
            snapshot: self.last_end(&mut state),
            is_noted: std::mem::take(&mut state.is_noted),
            // Recording an event in the legacy default stream orders the other streams with it. Before it is used it
            // has no work of ours, so that no record is needed.
            needs_record: self.role.standing() != Standing::Barrier
                || self.context.legacy.is_used.load(Ordering::Acquire),
            keep,
        });
        self.context.chains.open().indices().close(state.chain.last());
        // If this is the last reference to a pool, it is dropped after the locks are released.
        let pools: SmallVec<[_; 1]> = caches.iter_mut().filter_map(|cache| cache.owner.upgrade()).collect();
        for pool in &pools {
            if let Some(cache) = caches.find(pool) {
                let count = Arc::clone(&cache.count);
                pool.return_cache(&state.chain, cache.clear(), &count);
            }
        }
        drop(state);
        // The program's object is dropped after the locks are released.
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

    /// Returns the number of the stream on its device.
    pub fn id(&self) -> StreamId {
        self.shared.id
    }

    /// Returns `true` if the stream is capturing, so that its operations become nodes of a graph (CUDA:
    /// `cudaStreamIsCapturing`). This is not an operation and orders nothing. For the legacy default stream it returns
    /// `false` while others are captured, and their captures go on.
    ///
    /// # Errors
    /// Returns an error if the stream is closed.
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
