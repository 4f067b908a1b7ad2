//! A stream: a queue of work on a device, and a chain of the order (CUDA: `cudaStream_t`).
//!
//! The handle, and what belongs to one stream behind its own lock: its chain, and its shelves of recently freed blocks.
//! What streams do with memory is in `serve.rs`, with work in `launch.rs` and `copy.rs`, with each other here.

use crate::names::role::Role;
use crate::names::role::StreamKind;
use std::any::Any;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use millpond_core::check::Place;
use millpond_core::graph::NodeId;
use millpond_core::ids::{Seq, Slot, StreamId};
use millpond_core::order::Chain;
use millpond_core::pool::Shelf;
use millpond_driver::{Driver, RawStream, process};
use smallvec::SmallVec;

use crate::clock::in_flight::{Seat, Unclosed};
use crate::clock::progress::Progress;
use crate::graph::Session;
use crate::names::error::{Invalid, Result};
use crate::names::role::Ask;
use crate::pool::heap::{Heap, PoolShared};
use crate::state::allocation::Allocation;
use crate::state::context::Context;
use crate::state::shelf_count::ShelfCount;
use crate::stream::event::{At, Event};
use crate::sync::garbage::Garbage;
use crate::sync::locks::{Biased, lock};
use crate::sync::ranks;

/// A stream of a device: work submitted to it runs in order, work of different streams at the same time.
///
/// Every stream-ordered act is a method here. Clones name the same stream; it is closed when the last one is dropped,
/// and work already in it still runs (CUDA: `cudaStreamDestroy`).
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

/// Something of the program, to be dropped when it is needed no more.
pub(crate) type Keep = Arc<dyn Any + Send + Sync>;

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.close(self.keep.clone());
    }
}

/// Who submits to a stream: this library alone, or the program as well, by the handle that it has of it.
///
/// Of a shared stream nothing is known but what is asked: each record is a point of its own (always-new,
/// [`StreamShared::end`]), so that no wait for it is taken for one that was done before.
#[derive(Debug, Default)]
pub(crate) struct Submitters {
    is_shared: AtomicBool,
    /// Whether the work of the operation under way is still to come, by the program. Changed under the stream's lock.
    is_declared: AtomicBool,
}

impl Submitters {
    /// Whether the program submits to it, too.
    #[inline]
    pub(crate) fn are_shared(&self) -> bool {
        self.is_shared.load(Ordering::Acquire)
    }

    /// The program submits the work of the operation under way itself, afterwards.
    pub(crate) fn declare(&self) {
        self.is_declared.store(self.are_shared(), Ordering::Relaxed);
    }

    /// Whether that was said of the operation under way.
    #[inline]
    pub(crate) fn take_declared(&self) -> bool {
        let is_declared = self.is_declared.load(Ordering::Relaxed);
        if is_declared {
            self.is_declared.store(false, Ordering::Relaxed);
        }
        is_declared
    }
}

/// A stream, as the rest of the crate knows it.
#[repr(align(128))] // No cache line is shared with another stream's.
pub(crate) struct StreamShared {
    pub(crate) id: StreamId,
    pub(crate) slot: Slot,
    pub(crate) raw: RawStream,
    /// Where it is among the device's work in flight.
    pub(crate) seat: Seat,
    pub(crate) role: Role,
    pub(crate) submitters: Submitters,
    pub(crate) context: Arc<Context>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) me: Weak<StreamShared>,
    pub(crate) state: Biased<{ ranks::STREAM }, State>,
}

/// What a stream's own lock guards.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) chain: Chain,
    /// Where the chain began: operations are counted from here.
    pub(crate) birth: Seq,
    /// The epoch up to which it has heard everything; 0 where it must always ask, and while it captures.
    pub(crate) epoch: u64,
    pub(crate) is_closed: bool,
    /// Whether the legacy stream will look at it.
    pub(crate) is_noted: bool,
    /// The capture that it takes part in.
    pub(crate) capture: Option<Arc<Session>>,
    /// The node of it that gets what now comes to the device's stream.
    pub(crate) window: Option<NodeId>,
    pub(crate) shelves: SmallVec<[PoolShelf; 1]>,
}

/// What becomes of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Mode {
    /// It goes to the device.
    Live,
    /// It becomes a node of the graph that is being captured.
    Capturing,
}

/// A stream's shelf for one pool.
#[derive(Debug)]
pub(crate) struct PoolShelf {
    owner: Weak<PoolShared>,
    pub(crate) shelf: Shelf<Shelved>,
    /// What fell off the shelf, on its way back to the heap with the next visit there.
    pub(crate) fallen: Vec<Shelved>,
    pub(crate) count: Arc<ShelfCount>,
}

/// A freed block on a shelf.
#[derive(Debug)]
pub(crate) struct Shelved {
    pub(crate) allocation: Arc<Allocation>,
    /// Where on this stream's chain it was freed.
    pub(crate) seq: Seq,
}

impl PoolShelf {
    /// Whether it is this pool's. Numbers do not tell: another device has pools of the same numbers.
    #[inline]
    pub(crate) fn is_for(&self, pool: &PoolShared) -> bool {
        std::ptr::eq(self.owner.as_ptr(), pool)
    }

    /// Takes everything off: first what fell off before.
    pub(crate) fn clear(&mut self) -> impl Iterator<Item = Shelved> + '_ {
        self.fallen.drain(..).chain(self.shelf.drain())
    }
}

impl State {
    pub(crate) fn new(chain: Chain) -> Self {
        Self {
            birth: chain.seq(),
            chain,
            epoch: 0,
            is_closed: false,
            is_noted: false,
            capture: None,
            window: None,
            shelves: SmallVec::new(),
        }
    }

    /// The number of the operation that was submitted last.
    #[inline]
    pub(crate) fn op(&self) -> u64 {
        self.chain.seq() - self.birth
    }

    /// The shelf for a pool, once there is one.
    #[inline]
    pub(crate) fn shelf(&mut self, pool: &PoolShared) -> Option<&mut PoolShelf> {
        self.shelves.iter_mut().find(|shelf| shelf.is_for(pool))
    }

    /// What fell off a pool's shelf returns to the heap, and what lies on it where `all` does.
    #[inline]
    pub(crate) fn return_to(&mut self, heap: &mut Heap, pool: &PoolShared, all: bool) {
        let Self { shelves, chain, .. } = self;
        let Some(shelf) = shelves.iter_mut().find(|shelf| shelf.is_for(pool)) else { return };
        match all {
            true => heap.take_back(chain, shelf.clear()),
            false => heap.take_back(chain, shelf.fallen.drain(..)),
        }
    }

    /// The shelf for a pool, made where there is none.
    #[inline]
    pub(crate) fn shelf_or_new(&mut self, stream: &StreamShared, pool: &Arc<PoolShared>) -> &mut PoolShelf {
        match self.shelves.iter().position(|shelf| shelf.is_for(pool)) {
            Some(at) => &mut self.shelves[at],
            None => self.add_shelf(stream, pool),
        }
    }

    /// Once for each stream and pool.
    #[cold]
    fn add_shelf(&mut self, stream: &StreamShared, pool: &Arc<PoolShared>) -> &mut PoolShelf {
        self.shelves.retain(|shelf| shelf.owner.strong_count() > 0);
        let count = pool.add_shelf(stream.me.clone());
        let owner = Arc::downgrade(pool);
        self.shelves.push(PoolShelf { owner, shelf: Shelf::new(), fallen: Vec::new(), count });
        self.shelves.last_mut().expect("pushed just now")
    }
}

impl StreamShared {
    /// What every operation does first: refuse a closed stream, and hear what there is to hear.
    #[inline]
    pub(crate) fn enter(&self, state: &mut State) -> Result<Mode> {
        if self.has_heard(state) { Ok(Mode::Live) } else { self.hear(state) }
    }

    /// Whether there is nothing to hear: the stream is open, and captures nothing.
    #[inline]
    pub(crate) fn has_heard(&self, state: &State) -> bool {
        state.epoch == self.context.hosts.epoch()
    }

    /// What every operation does last, once the driver has its work.
    #[inline]
    pub(crate) fn leave(&self, state: &mut State) {
        self.progress.publish(state.chain.seq());
        if self.role == Role::Legacy {
            self.publish_legacy(state);
        }
    }

    /// As [`leave`](Self::leave), where the program submits the work of the last point only now: before the stream's
    /// next operation nobody can say that it has completed.
    #[cold]
    pub(crate) fn leave_declared(&self, state: &mut State) {
        self.progress.publish(state.chain.seq() - 1);
        if self.role == Role::Legacy {
            self.publish_legacy(state);
        }
    }

    /// The program has the stream's handle from now on, and submits to it as well.
    pub(crate) fn share(&self) {
        self.submitters.is_shared.store(true, Ordering::Release);
        self.progress.share();
        if self.role == Role::Legacy {
            self.context.legacy.is_shared.store(true, Ordering::Release);
        }
    }

    /// Whether work that only the program knows may be in it: its own, or the legacy default stream's, which ties it.
    pub(crate) fn is_shared(&self) -> bool {
        let is_tied = self.role == Role::Ordinary(StreamKind::Blocking);
        self.submitters.are_shared() || (is_tied && self.context.legacy.is_shared.load(Ordering::Acquire))
    }

    /// The cold half of [`enter`](Self::enter): a new stream, a host that was told something, or a legacy operation.
    #[cold]
    fn hear(&self, state: &mut State) -> Result<Mode> {
        process::refuse_forked()?;
        if state.is_closed {
            return Err(Invalid::StreamClosed(self.id).into());
        }
        self.close_window(state)?;
        if let Some(capture) = &state.capture {
            if capture.is_open() {
                return Ok(Mode::Capturing);
            }
            state.capture = None;
        }
        let epoch = self.context.hosts.epoch();
        self.context.hosts.tell(&mut state.chain);
        match self.role {
            Role::Legacy => {
                self.refuse_implicit()?;
                self.gather_blocking(state)?;
            }
            Role::Ordinary(StreamKind::Blocking) => self.follow_legacy(state)?,
            Role::Ordinary(StreamKind::NonBlocking) => {}
        }
        if self.role != Role::Legacy && !self.context.hosts.are_separate() {
            state.epoch = epoch;
        }
        Ok(Mode::Live)
    }

    /// Closes the stream: its shelves go back to their pools, its number can be used again once its work is known to
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
            self.context.graphs.abandon(self.id, &mut state, &garbage);
        }
        let mut shelves = std::mem::take(&mut state.shelves);
        let closed = self.context.close_stream(Unclosed {
            seat: self.seat,
            raw: self.raw,
            progress: Arc::clone(&self.progress),
            snapshot: self.last_end(&mut state),
            is_noted: std::mem::take(&mut state.is_noted),
            // Marking the legacy stream ties the others to it: nothing of ours is in it before it is used.
            needs_mark: self.role != Role::Legacy || self.context.legacy.is_used.load(Ordering::Acquire),
            keep,
        });
        lock(&self.context.slots).close(state.chain.last());
        // A pool goes, if this was the last to know it, behind the locks.
        let pools: SmallVec<[_; 1]> = shelves.iter().filter_map(|shelf| shelf.owner.upgrade()).collect();
        for pool in &pools {
            for shelf in shelves.iter_mut().filter(|shelf| shelf.is_for(pool)) {
                pool.return_shelf(&state.chain, shelf);
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
            return Err(Invalid::StreamClosed(self.shared.id).into());
        }
        self.shared.close_window(&mut state)?;
        Ok(state.capture.as_ref().is_some_and(|capture| capture.is_open()))
    }

    /// Records an event: everything submitted to the stream so far (CUDA: `cudaEventRecord`).
    ///
    /// # Errors
    /// The stream belongs to a device that is lost, or the driver refused.
    #[track_caller]
    pub fn record(&self) -> Result<Event> {
        let (shared, caller) = (&self.shared, Location::caller());
        let mut state = shared.state.lock();
        let recorded = match shared.enter(&mut state) {
            Ok(Mode::Live) => return shared.record_event(&mut state, caller),
            Ok(Mode::Capturing) => shared.capture_record(&state, caller),
            Err(error) => Err(error),
        };
        drop(state);
        recorded.inspect_err(|error| {
            let place = Place::Source(caller);
            shared.note_refused(error, |tracer| tracer.record(shared.id, &tracer.event(), place));
        })
    }

    /// Makes all later work of this stream come after the event (CUDA: `cudaStreamWaitEvent`). Costs nothing where
    /// that is known already. The event may be of another device of the same kind.
    ///
    /// # Errors
    /// [`Invalid::NotPeers`] where the event's device is of another kind; the driver refused. A stream that captures
    /// takes events of its own device only.
    #[track_caller]
    pub fn wait(&self, event: &Event) -> Result<()> {
        let (shared, caller) = (&self.shared, Location::caller());
        let is_abroad = event.device() != shared.context.number;
        let mut state = shared.state.lock();
        let waited = match (shared.enter(&mut state), &event.at) {
            (Ok(Mode::Live), At::Live { snapshot, mark, context }) => {
                match is_abroad {
                    true => shared.wait_abroad(&mut state, snapshot, mark, context)?,
                    false => shared.wait_for(&mut state, snapshot, mark.raw)?,
                }
                if let (Some(tracer), Some(event)) = (&shared.context.tracer, &event.traced) {
                    tracer.wait(shared.id, event, Place::Source(caller));
                }
                shared.leave(&mut state);
                return Ok(());
            }
            (Ok(_), _) if is_abroad => {
                let (what, with) = ("an event".into(), shared.title());
                Err(Invalid::OtherDevice { what, with }.into())
            }
            (Ok(_), _) => shared.capture_wait(&mut state, event, caller),
            (Err(error), _) => Err(error),
        };
        drop(state);
        waited.inspect_err(|error| {
            if let Some(event) = &event.traced {
                shared.note_refused(error, |tracer| tracer.wait(shared.id, event, Place::Source(caller)));
            }
        })
    }

    /// Waits until all work submitted to the stream so far has completed (CUDA: `cudaStreamSynchronize`). Pools may
    /// then give idle memory back, see [`Pool::set_release_threshold`](crate::Pool::set_release_threshold).
    ///
    /// # Errors
    /// The device is lost.
    #[track_caller]
    pub fn synchronize(&self) -> Result<()> {
        self.shared.record_to_ask(Ask::Synchronize, Location::caller())?.synchronize()
    }

    /// Whether all work submitted so far has completed (CUDA: `cudaStreamQuery`). A yes orders what the host submits
    /// from then on after it.
    ///
    /// # Errors
    /// The device is lost; it is not asked again about what is known to have completed.
    #[track_caller]
    pub fn is_idle(&self) -> Result<bool> {
        self.shared.record_to_ask(Ask::Query, Location::caller())?.is_over()
    }
}
