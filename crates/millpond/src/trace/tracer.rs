//! Writes what the program does into a file, operation by operation, as it is decided.
//!
//! Each site of the library that decides something has one line that calls the [`Tracer`] of its device, where there is
//! one. What was refused because the program is wrong is written as what it asked for: whoever reads the trace refuses
//! it, too. What the device could not do did not happen and is not written. Streams, memory and graphs of several
//! devices share one trace: numbers of later devices begin higher. A capture is written as the nodes that it makes, so
//! that a graph looks the same however it was built. The file is in `names/trace_file.rs`. Locks: the output's is the
//! last of all.

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
use millpond_driver::locks::{Mutex, lock};
use millpond_driver::{PeerAccess, process};
use rustc_hash::FxHashMap;
use smallvec::smallvec;

use crate::names::error::{Error, Invalid, Result};
use crate::names::role::Ask;
use crate::names::shadow;
use crate::names::trace_file::{Shared, Trace};
use crate::sync::ranks;
use crate::trace::{TracedShares, callers};

/// Numbers of a device begin this much above those of the one before.
const DEVICE_SHIFT: u32 = 24;

/// Numbers of a device's memory end here in a trace; those of its graphs' memory are above.
const OWN_MEMORY_END: u32 = 1 << (DEVICE_SHIFT - 1);

/// Why a trace takes no other device.
const FULL: &str = "the trace has had 255 devices, and has no room for another: create one more";

/// Why a trace ends before its program.
const NO_NUMBERS: &str =
    "a device has had more streams, pools, graphs or memory of graphs than a trace has numbers for";

/// Writes what one device does.
#[derive(Debug)]
pub(crate) struct Tracer {
    pub(crate) shared: Arc<Shared>,
    /// The device's number in the process, and in the trace.
    pub(crate) context: u32,
    pub(crate) device: u32,
    pub(crate) nodes: Mutex<ranks::Traced, NodeNumbers>,
    /// For graphs that were refused nodes: how many nodes each of those came after.
    pub(crate) refused: Mutex<ranks::Traced, FxHashMap<GraphId, Vec<u32>>>,
    /// Counted down from the top, so that they never meet the device's own.
    next_node: AtomicU32,
    /// What the trace calls what is shared.
    pub(crate) shares: TracedShares,
}

/// An event, as a trace knows it; it ends with the last handle.
#[derive(Debug)]
pub(crate) struct TracedEvent {
    tracer: Arc<Tracer>,
    pub(crate) id: EventId,
}

impl TracedEvent {
    /// Whose it is.
    pub(crate) fn tracer(&self) -> &Tracer {
        &self.tracer
    }

    /// Whether this one writes its trace.
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

/// The name of a life of an allocation.
fn life(id: AllocId, generation: u64) -> Memory {
    Memory { id, generation }
}

/// Who stands for all threads, where it is all one which of them calls.
pub(crate) const MAIN: HostId = HostId(0);

/// The calling thread.
fn thread() -> HostId {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    thread_local!(static OWN: u32 = NEXT.fetch_add(1, Ordering::Relaxed));
    HostId(OWN.with(|own| *own))
}

/// What the trace calls memory of alloc nodes. Memory outlives its graph, and so do its names.
#[derive(Debug, Default)]
pub(crate) struct NodeNumbers {
    pub(crate) of: FxHashMap<GraphId, FxHashMap<GraphAllocId, AllocId>>,
    /// Graphs that are gone, the oldest first, and how many numbers those have.
    pub(crate) gone: VecDeque<GraphId>,
    pub(crate) gone_numbers: usize,
}

impl Tracer {
    /// For a new device: by its setting, or as the environment asks.
    ///
    /// # Errors
    /// The trace of the setting is full.
    pub(crate) fn of(context: u32, setting: Option<Trace>) -> Result<Option<Arc<Tracer>>> {
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
        // What cannot be written now cannot be later either, and that is said then.
        let _ = output.reopen();
        drop(output);
        let (nodes, refused, next_node, shares) = Default::default();
        let shared = trace.shared;
        Ok(Some(Arc::new(Tracer { shared, context, device, nodes, refused, next_node, shares })))
    }

    /// The device is gone.
    pub(crate) fn close(&self) {
        // The last device and the next one: whoever comes second finds what the first has written.
        let mut output = lock(&self.shared.output);
        if self.shared.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            // What cannot be written is lost, as in a crash.
            let _ = output.finish();
        }
    }

    /// Has an operation written down that was refused, if it is the program that is wrong.
    #[cold]
    pub(crate) fn refused<T: Deref<Target = Tracer>>(tracer: Option<&T>, error: &Error, write: impl FnOnce(&T)) {
        if let Some(tracer) = tracer.filter(|_| error.is_verdict()) {
            shadow::judged(Some(error), || write(tracer));
        }
    }

    /// Writes what there is.
    pub(crate) fn flush(&self) -> std::io::Result<()> {
        process::refuse_forked().map_err(std::io::Error::other)?;
        lock(&self.shared.output).write(Writer::seal)
    }

    /// What the trace calls what has this number on the device. Where there are too many, the trace ends.
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

    /// Writes down what a capture may forbid its own thread only: by which thread it is done.
    pub(crate) fn push_of_thread(&self, place: Place, what: What) {
        self.push_op(&Op { host: thread(), place, what });
    }

    #[inline]
    pub(crate) fn push(&self, place: Place, what: What) {
        let host = if what.unsafe_call().is_some() { thread() } else { MAIN };
        self.push_op(&Op { host, place, what });
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

    /// A host that is no thread of this process. Far above the numbers of threads.
    pub(crate) fn new_host(&self) -> HostId {
        HostId(u32::MAX - self.shared.hosts.fetch_add(1, Ordering::Relaxed))
    }

    /// A name for memory that is no allocation of the device.
    pub(crate) fn new_memory(&self) -> Memory {
        const TOP: u32 = (1 << DEVICE_SHIFT) - 1;
        let below_top = self.next_node.fetch_add(1, Ordering::Relaxed);
        // All that ever were end the trace where they meet the device's own.
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

    /// A new event. Those of a forked process have no name: nothing is written of them.
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

    /// A new event that stands for what another one stands for now.
    #[cold]
    pub(crate) fn event_like(self: &Arc<Self>, from: Option<&TracedEvent>) -> Arc<TracedEvent> {
        let event = self.event();
        if let Some(from) = from.filter(|from| self.is_beside(&from.tracer)) {
            self.push(Place::Unknown, What::EventCopy { event: event.id, from: from.id });
        }
        event
    }

    /// What a node does that records an event, or waits for it.
    pub(crate) fn event_node(event: &TracedEvent, records: bool) -> NodeOp {
        if records { NodeOp::EventRecord(event.id) } else { NodeOp::EventWait(event.id) }
    }

    #[cold]
    pub(crate) fn record(&self, stream: StreamId, event: &TracedEvent, place: Place) {
        self.record_as(stream, event, EventKind::Completion, place);
    }

    /// As [`record`](Self::record), of a host that asks how far the stream is.
    #[cold]
    pub(crate) fn record_to_ask(&self, stream: StreamId, event: &TracedEvent, place: Place) {
        self.record_as(stream, event, EventKind::Asked, place);
    }

    fn record_as(&self, stream: StreamId, event: &TracedEvent, kind: EventKind, place: Place) {
        let (event, stream) = (event.id, self.stream_id(stream));
        self.push(place, What::EventRecord { event, stream, external: false, kind });
    }

    /// The host waits for a stream, or asks whether it is idle and it is not.
    #[cold]
    pub(crate) fn asked(&self, stream: StreamId, ask: Ask, caller: Caller) {
        let stream = self.stream_id(stream);
        self.push(
            Place::Source(caller),
            match ask {
                Ask::Synchronize => What::StreamSynchronize { stream },
                Ask::Query => What::StreamQuery { stream, is_idle: false },
            },
        );
    }

    /// An event of another trace has no name here.
    #[cold]
    pub(crate) fn wait(&self, stream: StreamId, event: &TracedEvent, place: Place) {
        if !self.is_beside(&event.tracer) {
            return;
        }
        self.push(place, What::EventWait { event: event.id, stream: self.stream_id(stream), external: false });
    }

    /// A stream waits for another, as the library has it.
    #[cold]
    pub(crate) fn followed(&self, stream: StreamId, after: StreamId) {
        let [stream, after] = [stream, after].map(|stream| self.stream_id(stream));
        self.push(Place::Unknown, What::Follow { stream, after });
    }

    #[cold]
    pub(crate) fn synchronized_with(&self, event: &TracedEvent, caller: Caller) {
        self.push(Place::Source(caller), What::EventSynchronize { event: event.id });
    }

    #[cold]
    pub(crate) fn event_over(&self, event: &TracedEvent, caller: Caller) {
        self.push(Place::Source(caller), What::EventQuery { event: event.id, is_over: true });
    }

    /// The host waited for the whole device.
    #[cold]
    pub(crate) fn synchronized(&self, place: Place) {
        let is_alone = self.shared.devices.load(Ordering::Relaxed) == 1;
        let device = DeviceId(self.device);
        let what = if is_alone { What::DeviceSynchronize } else { What::SynchronizeDevice { device } };
        self.push_of_thread(place, what);
        let mut output = lock(&self.shared.output);
        if output.writer.pending() > 0 {
            output.flush_full();
        }
    }

    // Memory.

    #[cold]
    pub(crate) fn pool(&self, pool: PoolId, exportable: bool) {
        let (pool, device) = (PoolId(self.number(pool.0)), Some(DeviceId(self.device)));
        self.push(Place::Unknown, What::PoolCreate { pool, exportable, device });
    }

    /// A pool lets another device in, or not any more; a device of another trace has no name here.
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

    /// Memory of the host, which copies use.
    #[cold]
    pub(crate) fn pinned(&self, id: AllocId, generation: u64, bytes: u64, caller: Caller) {
        let memory = self.memory(id, generation);
        self.push(Place::Source(caller), What::AllocNow { memory, space: Space::Host, bytes, name: None });
    }

    /// The calling thread would use memory of the host, and may not yet.
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

    /// A free of memory by the name that the trace has for it.
    #[cold]
    pub(crate) fn free_of(&self, memory: Memory, stream: StreamId, caller: Caller) {
        self.push(Place::Source(caller), What::Free { memory, stream: self.stream_id(stream), trust: Trust::None });
    }

    /// Memory is freed at once, by the name that the trace has for it.
    #[cold]
    pub(crate) fn free_now_of(&self, memory: Memory, caller: Caller) {
        self.push(Place::Source(caller), What::FreeNow { memory });
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

    /// Whether the other writes the same trace.
    pub(crate) fn is_beside(&self, other: &Tracer) -> bool {
        Arc::ptr_eq(&other.shared, &self.shared)
    }

    /// What the trace calls what an alloc node allocates.
    pub(crate) fn alloc_node(&self, graph: GraphId, alloc: GraphAllocId) -> Memory {
        let fresh = || self.new_memory().id;
        Memory { id: *lock(&self.nodes).of.entry(graph).or_default().entry(alloc).or_insert_with(fresh), generation: 0 }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::{DEVICE_SHIFT, NO_NUMBERS, OWN_MEMORY_END};
    use crate::config::Trace;
    use crate::{Device, HostConfig};

    /// What comes after would be taken for what came before.
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
