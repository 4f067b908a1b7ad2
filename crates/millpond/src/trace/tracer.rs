//! Writes the program's operations to a file, as they are decided.
//!
//! Each place in the library that decides something has one line that calls the [`Tracer`] of its device, if there is
//! one. An operation that was refused because the program is wrong is written as it was requested: a reader of the
//! trace refuses it, too. An operation that the device could not do did not happen and is not written. Streams,
//! memory and graphs of several devices share one trace: the numbers of later devices begin higher. A capture is
//! written as the nodes that it makes, so that a graph looks the same however it was built. The file itself is in
//! `names/trace_file.rs`. Locks: leaves.

use std::collections::VecDeque;
use std::ops::Deref;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use millpond_core::graph::GraphAllocId;
use millpond_core::ids::{AllocId, DeviceId, EventId, GraphId, HostId, PoolId, StreamId};
use millpond_core::op::{
    Access, Act, EventKind, Memory, Name, NodeOp, Op, Part, Place, Reach, Space, StreamRole, Trust, What,
};
use millpond_core::trace::ops::Writer;
use millpond_driver::locks::{Leaf, Mutex, lock};
use millpond_driver::{PeerAccess, process};
use rustc_hash::FxHashMap;
use smallvec::smallvec;

use crate::names::error::{Error, Invalid, Result};
use crate::names::role::Ask;
use crate::names::shadow;
use crate::names::trace_file::{Shared, Trace};
use crate::trace::{TracedShares, callers};

/// The number of bits by which a device's number is shifted: the numbers of its things begin there.
const DEVICE_SHIFT: u32 = 24;

/// The end of the numbers of a device's memory in a trace. Memory of its graphs has numbers above this.
const OWN_MEMORY_END: u32 = 1 << (DEVICE_SHIFT - 1);

/// The reason why a trace takes no further device.
const FULL: &str = "the trace has had 254 devices, and has no room for another: create one more";

/// The reason why a trace ends before its program.
const NO_NUMBERS: &str =
    "a device has had more streams, pools, graphs or memory of graphs than a trace has numbers for";

/// Writes the operations of one device.
#[derive(Debug)]
pub(crate) struct Tracer {
    pub(crate) shared: Arc<Shared>,
    /// The device's number in the process, and in the trace.
    pub(crate) context: u32,
    pub(crate) device: u32,
    /// The number in the trace of the driver that the device's threads call. Captures of a driver forbid the unsafe
    /// calls of that driver.
    driver: u8,
    pub(crate) nodes: Mutex<Leaf, NodeNumbers>,
    /// For graphs that were refused nodes: for each refused node, the number of nodes that the graph had before it.
    pub(crate) refused: Mutex<Leaf, FxHashMap<GraphId, Vec<u32>>>,
    /// Counted down from the top, so that these numbers never meet the device's own.
    next_node: AtomicU32,
    /// The numbers of shared things in the trace.
    pub(crate) shares: TracedShares,
}

/// An event in a trace. It is destroyed with the last handle.
#[derive(Debug)]
pub(crate) struct TracedEvent {
    tracer: Arc<Tracer>,
    pub(crate) id: EventId,
}

impl TracedEvent {
    /// Returns the tracer of its device.
    pub(crate) fn tracer(&self) -> &Tracer {
        &self.tracer
    }

    /// Returns `true` if `tracer` writes the event's trace.
    pub(crate) fn is_of(&self, tracer: &Tracer) -> bool {
        tracer.is_beside(&self.tracer)
    }
}

impl Drop for TracedEvent {
    fn drop(&mut self) {
        if process::is_forked() {
            return;
        }
        self.tracer.push(Place::Unknown, What::EventDestroy { event: self.id });
        lock(&self.tracer.shared.output).free_events.push(self.id.0);
    }
}

pub(crate) type Caller = &'static Location<'static>;

/// Returns the name of an allocation.
fn life(id: AllocId, generation: u64) -> Memory {
    Memory { id, generation }
}

/// Stands for all threads where it does not matter which one calls.
pub(crate) const MAIN: HostId = HostId(0);

/// Returns a number for the calling thread.
fn thread() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    thread_local!(static OWN: u32 = NEXT.fetch_add(1, Ordering::Relaxed));
    OWN.with(|own| *own)
}

/// The names of alloc nodes' memory in the trace. Memory outlives its graph, and so do its names.
#[derive(Debug, Default)]
pub(crate) struct NodeNumbers {
    pub(crate) of: FxHashMap<GraphId, FxHashMap<GraphAllocId, AllocId>>,
    /// The graphs that are gone, the oldest first, and the count of their numbers.
    pub(crate) gone: VecDeque<GraphId>,
    pub(crate) gone_numbers: usize,
}

impl Tracer {
    /// Makes the tracer of a new device: by its setting, or by the environment. `is_alone` is `true` if captures of
    /// other devices do not forbid its calls, nor its captures theirs.
    ///
    /// # Errors
    /// If the trace of the setting is full.
    pub(crate) fn of(context: u32, is_alone: bool, setting: Option<Trace>) -> Result<Option<Arc<Tracer>>> {
        let found = match setting {
            Some(trace) => match trace.add_device() {
                Some(device) => Some((trace, device)),
                None => return Err(Invalid::Setting { setting: "trace", reason: FULL.into() }.into()),
            },
            None => Trace::of_environment().or_else(Trace::judged),
        };
        let Some((trace, device)) = found else { return Ok(None) };
        let mut output = lock(&trace.shared.output);
        trace.shared.open.fetch_add(1, Ordering::Relaxed);
        // A write error now is reported at the next write.
        let _ = output.reopen();
        drop(output);
        let (nodes, refused, next_node, shares) = Default::default();
        let shared = trace.shared;
        // The devices of a trace have numbers below 254.
        let driver = if is_alone { device as u8 + 1 } else { 0 };
        Ok(Some(Arc::new(Tracer { shared, context, device, driver, nodes, refused, next_node, shares })))
    }

    /// Closes the tracer when the device is gone.
    pub(crate) fn close(&self) {
        // The lock orders the last device and a new one: the second one finds what the first has written.
        let mut output = lock(&self.shared.output);
        if self.shared.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            // Bytes that cannot be written are lost, as in a crash.
            let _ = output.finish();
        }
    }

    /// Traces an operation that was refused, if the program is wrong.
    #[cold]
    pub(crate) fn refused<T: Deref<Target = Tracer>>(tracer: Option<&T>, error: &Error, write: impl FnOnce(&T)) {
        if let Some(tracer) = tracer.filter(|_| error.is_verdict()) {
            shadow::judged(Some(error), || write(tracer));
        }
    }

    /// Writes all pending operations.
    pub(crate) fn flush(&self) -> std::io::Result<()> {
        process::refuse_forked().map_err(std::io::Error::other)?;
        lock(&self.shared.output).write(Writer::seal)
    }

    /// Returns the number in the trace of something with this number on the device. If there are too many, the trace
    /// ends.
    pub(crate) fn number(&self, of_device: u32) -> u32 {
        self.number_below(1 << DEVICE_SHIFT, of_device)
    }

    fn number_below(&self, end: u32, of_device: u32) -> u32 {
        if of_device >= end {
            lock(&self.shared.output).end(NO_NUMBERS);
        }
        of_device.wrapping_add(self.device << DEVICE_SHIFT)
    }

    pub(crate) fn memory(&self, id: AllocId, generation: u64) -> Memory {
        life(AllocId(self.number_below(OWN_MEMORY_END, id.0)), generation)
    }

    pub(crate) fn stream_id(&self, stream: StreamId) -> StreamId {
        StreamId(self.number(stream.0))
    }

    pub(crate) fn graph_id(&self, graph: GraphId) -> GraphId {
        GraphId(self.number(graph.0))
    }

    /// Returns the calling thread, as a caller of the device's driver.
    fn thread(&self) -> HostId {
        HostId::calling(self.driver, thread())
    }

    /// Traces an operation of the calling thread: a begin or an end of a capture, or an unsafe call that was refused.
    pub(crate) fn push_of_thread(&self, place: Place, what: What) {
        self.push_op(&Op { host: self.thread(), place, what });
    }

    /// Traces an operation. An unsafe call has returned: captures have allowed it.
    #[inline]
    pub(crate) fn push(&self, place: Place, what: What) {
        let host = if what.unsafe_call().is_some() { self.thread().returned() } else { MAIN };
        self.push_op(&Op { host, place, what });
    }

    /// Traces an unsafe call that was refused, or that has returned.
    pub(crate) fn push_unsafe(&self, place: Place, what: What, is_refused: bool) {
        match is_refused {
            true => self.push_of_thread(place, what),
            false => self.push(place, what),
        }
    }

    #[inline]
    pub(crate) fn push_op(&self, op: &Op) {
        if process::is_forked() {
            return;
        }
        let of_call = matches!(op.place, Place::Source(_)).then(callers::of_call).flatten();
        let mut output = lock(&self.shared.output);
        let Some(caller) = of_call else { return output.push(op) };
        let place = caller.map_or(Place::Unknown, |caller| Place::File {
            file: output.names.intern(&caller.file),
            line: caller.line,
        });
        output.push(&Op { place, ..op.clone() });
    }

    /// Traces the return of a call that captures allowed when it was made.
    #[cold]
    pub(crate) fn returned(&self, place: Place, what: What) {
        self.push_op(&Op { host: self.thread().returned(), place, what });
    }

    /// Returns a new host that is not a thread of this process. Its number is far above those of threads.
    pub(crate) fn new_host(&self) -> HostId {
        HostId::calling(0, u32::MAX - self.shared.hosts.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns a new name for memory that is not an allocation of the device.
    pub(crate) fn new_memory(&self) -> Memory {
        const TOP: u32 = (1 << DEVICE_SHIFT) - 1;
        let below_top = self.next_node.fetch_add(1, Ordering::Relaxed);
        // The trace ends when all names ever given out would meet the device's own.
        let of_device = if below_top > TOP - OWN_MEMORY_END { u32::MAX } else { TOP - below_top };
        life(AllocId(self.number(of_device)), 0)
    }

    fn push_named(&self, text: &str, what: impl FnOnce(Name) -> What) {
        if process::is_forked() {
            return;
        }
        let mut output = lock(&self.shared.output);
        let name = output.names.intern(text);
        let op = Op { host: MAIN, place: Place::Unknown, what: what(name) };
        output.push(&op);
    }

    // Streams and events.

    #[cold]
    pub(crate) fn stream(&self, stream: StreamId, role: StreamRole) {
        let (stream, device) = (self.stream_id(stream), DeviceId(self.device));
        self.push(Place::Unknown, What::StreamCreate { stream, role, device });
    }

    #[cold]
    pub(crate) fn stream_name(&self, stream: StreamId, text: &str) {
        let stream = self.stream_id(stream);
        self.push_named(text, |name| What::StreamName { stream, name });
    }

    #[cold]
    pub(crate) fn stream_closed(&self, stream: StreamId) {
        self.push(Place::Unknown, What::StreamDestroy { stream: self.stream_id(stream) });
    }

    /// Makes a new event. Events of a forked process have no name, and nothing is written about them.
    #[cold]
    pub(crate) fn event(self: &Arc<Self>) -> Arc<TracedEvent> {
        if process::is_forked() {
            return Arc::new(TracedEvent { tracer: Arc::clone(self), id: EventId(u32::MAX) });
        }
        let mut output = lock(&self.shared.output);
        let id = output.free_events.pop().unwrap_or_else(|| {
            output.next_event += 1;
            output.next_event - 1
        });
        drop(output);
        let event = EventId(id);
        self.push(Place::Unknown, What::EventCreate { event, device: DeviceId(self.device), shared: false });
        Arc::new(TracedEvent { tracer: Arc::clone(self), id: event })
    }

    /// Makes a new event that takes over the present record of another one.
    #[cold]
    pub(crate) fn event_like(self: &Arc<Self>, from: Option<&TracedEvent>) -> Arc<TracedEvent> {
        let event = self.event();
        if let Some(from) = from.filter(|from| self.is_beside(&from.tracer)) {
            self.push(Place::Unknown, What::EventCopy { event: event.id, from: from.id });
        }
        event
    }

    /// Returns a node that records an event or waits for it.
    pub(crate) fn event_node(event: &TracedEvent, records: bool) -> NodeOp {
        if records { NodeOp::EventRecord(event.id) } else { NodeOp::EventWait(event.id) }
    }

    #[cold]
    pub(crate) fn record(&self, stream: StreamId, event: &TracedEvent, place: Place) {
        self.record_as(stream, event, EventKind::Completion, place);
    }

    /// As [`record`](Self::record), for a host that queries the progress of the stream.
    #[cold]
    pub(crate) fn record_to_ask(&self, stream: StreamId, event: &TracedEvent, place: Place) {
        self.record_as(stream, event, EventKind::Asked, place);
    }

    fn record_as(&self, stream: StreamId, event: &TracedEvent, kind: EventKind, place: Place) {
        let (event, stream) = (event.id, self.stream_id(stream));
        self.push(place, What::EventRecord { event, stream, external: false, kind });
    }

    /// Traces a wait of the host for a stream, or a query of it, which was refused.
    #[cold]
    pub(crate) fn asked(&self, stream: StreamId, ask: Ask, caller: Caller) {
        let stream = self.stream_id(stream);
        self.push_of_thread(
            Place::Source(caller),
            match ask {
                Ask::Synchronize => What::StreamSynchronize { stream },
                Ask::Query => What::StreamQuery { stream, is_idle: false },
            },
        );
    }

    /// Traces a wait. An event of another trace has no name here.
    #[cold]
    pub(crate) fn wait(&self, stream: StreamId, event: &TracedEvent, place: Place) {
        if !self.is_beside(&event.tracer) {
            return;
        }
        self.push(place, What::EventWait { event: event.id, stream: self.stream_id(stream), external: false });
    }

    /// Traces that the library makes a stream wait for another.
    #[cold]
    pub(crate) fn followed(&self, stream: StreamId, after: StreamId) {
        let [stream, after] = [stream, after].map(|stream| self.stream_id(stream));
        self.push(Place::Unknown, What::Follow { stream, after });
    }

    /// Traces a wait of the host for an event, which was refused.
    #[cold]
    pub(crate) fn synchronized_with(&self, event: &TracedEvent, caller: Caller) {
        self.push_of_thread(Place::Source(caller), What::EventSynchronize { event: event.id });
    }

    /// Traces a query of an event, which was refused.
    #[cold]
    pub(crate) fn event_over(&self, event: &TracedEvent, caller: Caller) {
        self.push_of_thread(Place::Source(caller), What::EventQuery { event: event.id, is_over: true });
    }

    /// Traces a synchronisation with the whole device that a capture forbids.
    #[cold]
    pub(crate) fn synchronize_refused(&self, place: Place) {
        self.push_of_thread(place, self.synchronize());
    }

    fn synchronize(&self) -> What {
        let is_alone = self.shared.devices.load(Ordering::Relaxed) == 1;
        let device = DeviceId(self.device);
        if is_alone { What::DeviceSynchronize } else { What::SynchronizeDevice { device } }
    }

    /// Traces that the host has waited for the whole device.
    #[cold]
    pub(crate) fn synchronized(&self, place: Place) {
        self.returned(place, self.synchronize());
        let mut output = lock(&self.shared.output);
        if output.writer.pending() > 0 {
            output.flush_full();
        }
    }

    // Memory.

    /// Traces a new pool, or one that was refused.
    #[cold]
    pub(crate) fn pool(&self, pool: PoolId, exportable: bool, is_refused: bool) {
        let (pool, device) = (PoolId(self.number(pool.0)), Some(DeviceId(self.device)));
        self.push_unsafe(Place::Unknown, What::PoolCreate { pool, exportable, device }, is_refused);
    }

    /// Traces that a pool grants or revokes a device's access. A device of another trace has no name here.
    #[cold]
    pub(crate) fn pool_access(&self, pool: PoolId, device: &Tracer, access: PeerAccess) {
        if !self.is_beside(device) {
            return;
        }
        let reach = match access {
            PeerAccess::None => Reach::None,
            PeerAccess::Read => Reach::Read,
            PeerAccess::ReadWrite => Reach::ReadWrite,
        };
        let (pool, device) = (PoolId(self.number(pool.0)), DeviceId(device.device));
        self.push(Place::Unknown, What::PoolAccess { pool, device, reach });
    }

    #[cold]
    pub(crate) fn pool_closed(&self, pool: PoolId) {
        self.push(Place::Unknown, What::PoolDestroy { pool: PoolId(self.number(pool.0)) });
    }

    #[cold]
    pub(crate) fn alloc(&self, who: (AllocId, u64), pool: PoolId, stream: StreamId, bytes: u64, caller: Caller) {
        let (memory, pool) = (self.memory(who.0, who.1), PoolId(self.number(pool.0)));
        let stream = self.stream_id(stream);
        self.push(Place::Source(caller), What::Alloc { memory, pool, stream, bytes, name: None });
    }

    /// Traces an allocation of pinned host memory, or one that was refused.
    #[cold]
    pub(crate) fn pinned(&self, who: (AllocId, u64), bytes: u64, caller: Caller, is_refused: bool) {
        let what = What::AllocNow { memory: self.memory(who.0, who.1), space: Space::Host, bytes, name: None };
        self.push_unsafe(Place::Source(caller), what, is_refused);
    }

    /// Traces a refused access to host memory by the calling thread.
    #[cold]
    pub(crate) fn host_access(&self, id: AllocId, generation: u64, act: Act, caller: Caller) {
        let accesses = smallvec![Access { memory: self.memory(id, generation), act, part: Part::WHOLE }];
        self.push(Place::Source(caller), What::HostAccess { accesses });
    }

    #[cold]
    pub(crate) fn free(&self, who: (AllocId, u64), stream: StreamId, trust: Trust, caller: Caller) {
        let (memory, stream) = (self.memory(who.0, who.1), self.stream_id(stream));
        self.push(Place::Source(caller), What::Free { memory, stream, trust });
    }

    /// Traces a free of memory by its name in the trace.
    #[cold]
    pub(crate) fn free_of(&self, memory: Memory, stream: StreamId, caller: Caller) {
        self.push(Place::Source(caller), What::Free { memory, stream: self.stream_id(stream), trust: Trust::None });
    }

    /// Traces an immediate free that was refused, by the memory's name in the trace.
    #[cold]
    pub(crate) fn free_now_of(&self, memory: Memory, caller: Caller) {
        self.push_of_thread(Place::Source(caller), What::FreeNow { memory });
    }

    #[cold]
    pub(crate) fn free_now(&self, id: AllocId, generation: u64, caller: Caller) {
        self.push(Place::Source(caller), What::FreeNow { memory: self.memory(id, generation) });
    }

    #[cold]
    pub(crate) fn dropped(&self, id: AllocId, generation: u64) {
        self.push(Place::Unknown, What::Drop { memory: self.memory(id, generation) });
    }

    #[cold]
    pub(crate) fn named(&self, id: AllocId, generation: u64, text: &str) {
        let memory = self.memory(id, generation);
        self.push_named(text, |name| What::SetName { memory, name });
    }

    /// Returns `true` if the other tracer writes the same trace.
    pub(crate) fn is_beside(&self, other: &Tracer) -> bool {
        Arc::ptr_eq(&other.shared, &self.shared)
    }

    /// Returns the name in the trace of an alloc node's memory.
    pub(crate) fn alloc_node(&self, graph: GraphId, alloc: GraphAllocId) -> Memory {
        let known = lock(&self.nodes).of.get(&graph).and_then(|numbers| numbers.get(&alloc).copied());
        let id = known.unwrap_or_else(|| {
            let fresh = self.new_memory().id;
            // Another thread may have been first.
            *lock(&self.nodes).of.entry(graph).or_default().entry(alloc).or_insert(fresh)
        });
        Memory { id, generation: 0 }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::{DEVICE_SHIFT, NO_NUMBERS, OWN_MEMORY_END};
    use crate::config::Trace;
    use crate::{Device, HostConfig};

    /// Otherwise later operations would be mistaken for earlier ones.
    #[test]
    fn a_trace_whose_numbers_run_out_ends() {
        let path = std::env::temp_dir().join(format!("numbers-{}.trace", std::process::id()));
        let trace = Trace::create(&path).unwrap();
        let device = Device::host(HostConfig::default().trace(trace.clone())).unwrap();
        let tracer = device.context().tracer.clone().unwrap();
        tracer.next_node.store((1 << DEVICE_SHIFT) - 1 - OWN_MEMORY_END, Ordering::Relaxed);
        let mut graph = device.graph().unwrap();
        let _last = graph.add_alloc::<u8>(&[], 64).unwrap();
        trace.flush().unwrap();
        let written = std::fs::metadata(&path).unwrap().len();
        let _beyond = graph.add_alloc::<u8>(&[], 64).unwrap();
        assert_eq!(trace.flush().unwrap_err().to_string(), NO_NUMBERS);
        drop((graph, device));
        assert_eq!(std::fs::metadata(&path).unwrap().len(), written);
        std::fs::remove_file(path).unwrap();
    }
}
