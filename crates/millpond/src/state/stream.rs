//! The state of one stream behind its own lock: its chain, and its caches of recently freed blocks.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use millpond_core::graph::NodeId;
use millpond_core::ids::{ChainIndex, StreamId};
use millpond_core::op::StreamRole;
use millpond_core::order::{Chain, op_at};
use millpond_driver::RawStream;
use millpond_driver::locks::Biased;

use crate::clock::progress::Progress;
use crate::names::stream_names;
use crate::state::caches::{PoolCache, StreamCaches};
use crate::state::context::Context;
use crate::state::in_flight::StreamIndex;
use crate::state::numbers::StreamNumber;
use crate::state::pool::{Heap, PoolShared};
use crate::state::session::Session;
use crate::sync::ranks;

/// The submitters of a stream: this library alone, or the program as well, by the stream's handle.
///
/// Of a shared stream only what is asked is known: each record is a point of its own (always-new,
/// [`StreamShared::end`]), so that no wait for it is taken for one that was done before.
#[derive(Debug, Default)]
pub(crate) struct Submitters {
    pub(crate) is_shared: AtomicBool,
    /// `true` if the program is still to submit the work of the present operation. Changed under the stream's lock.
    is_declared: AtomicBool,
}

impl Submitters {
    /// Returns `true` if the program submits to it, too.
    #[inline]
    pub(crate) fn are_shared(&self) -> bool {
        self.is_shared.load(Ordering::Acquire)
    }

    /// Records that the program itself submits the work of the present operation, afterwards.
    pub(crate) fn declare(&self) {
        self.is_declared.store(self.are_shared(), Ordering::Relaxed);
    }

    /// Returns `true` if that was recorded for the present operation, and clears it.
    #[inline]
    pub(crate) fn take_declared(&self) -> bool {
        let is_declared = self.is_declared.load(Ordering::Relaxed);
        if is_declared {
            self.is_declared.store(false, Ordering::Relaxed);
        }
        is_declared
    }
}

/// A stream, as the rest of the crate sees it.
#[repr(align(128))] // No cache line is shared with another stream's.
pub(crate) struct StreamShared {
    pub(crate) id: StreamId,
    /// Given back with the last reference to this stream. Another stream may have the number then.
    pub(crate) _number: StreamNumber,
    pub(crate) chain: ChainIndex,
    pub(crate) raw: RawStream,
    /// Its index among the device's work in flight.
    pub(crate) stream_index: StreamIndex,
    pub(crate) role: StreamRole,
    pub(crate) submitters: Submitters,
    pub(crate) context: Arc<Context>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) me: Weak<StreamShared>,
    pub(crate) state: StateLock,
}

/// The lock of a stream's state. A thread that takes it twice waits for ever.
pub(crate) type StateLock = Biased<ranks::Stream, State>;

impl fmt::Debug for StreamShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.id)
    }
}

impl StreamShared {
    /// Returns the name that messages use.
    #[cold]
    pub(crate) fn title(&self) -> String {
        stream_names::title(self.context.number, self.id)
    }

    /// Returns the name that messages about several devices use.
    #[cold]
    pub(crate) fn titled(&self) -> String {
        format!("{} of {}", self.title(), self.context.name())
    }

    /// Records that the stream is closed.
    pub(crate) fn close_name(&self) {
        stream_names::close(self.context.number, self.id);
    }
}

/// The state that a stream's own lock guards.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) chain: Chain,
    /// The operation at which the chain began. Operations are counted from here.
    pub(crate) birth: u64,
    /// The epoch up to which it knows everything. 0 if it must always ask, and while it captures.
    pub(crate) epoch: u64,
    pub(crate) is_closed: bool,
    /// `true` if the legacy default stream will look at it.
    pub(crate) is_noted: bool,
    /// The capture that it takes part in.
    pub(crate) capture: Option<Arc<Session>>,
    /// The node of that capture whose work is what is now submitted to the driver's stream.
    pub(crate) window: Option<NodeId>,
    pub(crate) caches: StreamCaches,
}

/// The target of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(crate) enum Mode {
    /// The operation goes to the device.
    Live,
    /// The operation becomes a node of the graph that is being captured.
    Capturing,
}

impl State {
    pub(crate) fn new(chain: Chain) -> Self {
        Self {
            birth: op_at(chain.seq()),
            chain,
            epoch: 0,
            is_closed: false,
            is_noted: false,
            capture: None,
            window: None,
            caches: StreamCaches::default(),
        }
    }

    /// Returns the number of the operation that was submitted last.
    #[inline]
    pub(crate) fn op(&self) -> u64 {
        op_at(self.chain.seq()) - self.birth
    }

    /// Counts an operation that was captured as an operation of the stream, too.
    #[cold]
    pub(crate) fn counted<R, E>(&mut self, captured: Result<R, E>) -> Result<R, E> {
        if captured.is_ok() {
            self.chain.submit();
        }
        captured
    }

    /// Returns the blocks that fell out of a pool's cache to the heap, and with `all` also the blocks that are in it.
    #[inline]
    pub(crate) fn return_to(&mut self, heap: &mut Heap, pool: &PoolShared, all: bool) {
        let Self { caches, chain, .. } = self;
        let Some(cache) = caches.find(pool) else { return };
        match all {
            true => heap.take_back(chain, cache.clear()),
            false => heap.take_back(chain, cache.clear_fallen()),
        }
    }

    /// Returns the cache for a pool, and makes it if there is none.
    #[inline(always)]
    pub(crate) fn cache_or_new(&mut self, stream: &StreamShared, pool: &Arc<PoolShared>) -> &mut PoolCache {
        self.caches.find_or_add(pool, || pool.add_cache(stream.me.clone()))
    }
}
