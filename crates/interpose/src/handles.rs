//! Numbers for objects that the program knows by handles: contexts, streams, events, pools, graphs, nodes, instances.
//!
//! A handle whose creation was not seen (another library made it, or a call that is not wrapped) gets its number at its
//! first use. This module knows no order. Numbers of pools, graphs and instances are never reused, and may run out.
//! Numbers of events and streams are reused.

use millpond_core::ids::{EventId, ExecId, GraphId, NodeId, PoolId, RecycledNumbers, StreamId};
use millpond_core::op::{Memory, Place};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::abi::{Context, Event, Graph, GraphExec, GraphNode, Pool, Stream};
use crate::thread;

/// A default pool, which no call creates, has its device's number; other pools have numbers from here on.
const FIRST_POOL: u32 = 256;

/// The first number that counts as run out. The call that takes it is still noted, with the numbers above it; nothing
/// is noted after that call.
pub(crate) const USED_UP: u32 = u32::MAX - 1024;

/// With fewer per-thread default streams than this, the system is not asked whether their threads still exist.
const THREADS_FEW: usize = 64;

/// A graph, as far as it is known here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Made {
    /// Its nodes, by handle.
    pub(crate) nodes: FxHashMap<GraphNode, NodeId>,
    /// The number of nodes that it ever had.
    pub(crate) count: u32,
    /// `true` if it has nodes whose handles are not known: captured nodes, a clone's nodes, a child's nodes.
    pub(crate) has_others: bool,
    /// `true` if something was done to it that operations cannot describe: its launches are not judged.
    pub(crate) is_opaque: bool,
    pub(crate) outside: Outside,
}

/// The memory effects of a graph's launches, beside those that operations have for its nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outside {
    /// The memory of its alloc nodes that it does not free itself.
    pub(crate) left: Vec<Memory>,
    /// Memory of others whose addresses are in structures that may be filled only in part. Launches use it until it is
    /// freed.
    pub(crate) pointed_at: FxHashSet<Memory>,
}

impl Outside {
    /// Adds the effects of a graph that this one contains.
    pub(crate) fn extend(&mut self, other: &Self) {
        self.left.extend(&other.left);
        self.pointed_at.extend(&other.pointed_at);
    }
}

/// All handles of a process.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    /// The contexts by number, each with its device. `home_of` has the numbers of those that exist.
    homes: Vec<(Context, i32)>,
    home_of: FxHashMap<Context, u32>,
    has_devices: bool,
    /// Each stream with the number of its context.
    pub(crate) streams: FxHashMap<Stream, (StreamId, u32)>,
    /// The handle of each stream, and the place where it was created, as long as its number is not used again.
    pub(crate) stream_places: FxHashMap<StreamId, (Stream, Place)>,
    /// The stream that was looked up last, which is nearly always the next one, too.
    pub(crate) last_stream: Option<(Stream, StreamId)>,
    /// The legacy default stream of each device.
    pub(crate) legacy: FxHashMap<i32, StreamId>,
    /// The per-thread default streams, by thread and device, with the system's number of each thread.
    pub(crate) per_thread: FxHashMap<(u32, i32), (StreamId, i32)>,
    /// The number of them left when those of ended threads were last removed.
    per_thread_left: usize,
    stream_numbers: RecycledNumbers,
    pub(crate) events: FxHashMap<Event, EventId>,
    /// The events that other processes may know.
    pub(crate) shared_events: FxHashSet<EventId>,
    free_events: Vec<u32>,
    next_event: u32,
    pub(crate) pools: FxHashMap<Pool, PoolId>,
    /// The current pool of each device, if it is known.
    pub(crate) current_pools: FxHashMap<i32, PoolId>,
    next_pool: u32,
    /// The kind of object whose numbers have run out.
    pub(crate) used_up: Option<&'static str>,
    pub(crate) graphs: FxHashMap<Graph, GraphId>,
    pub(crate) made: FxHashMap<GraphId, Made>,
    /// The graph of each node.
    pub(crate) nodes: FxHashMap<GraphNode, GraphId>,
    next_graph: u32,
    pub(crate) execs: FxHashMap<GraphExec, ExecId>,
    pub(crate) opaque_execs: FxHashSet<ExecId>,
    /// The memory effects of instances.
    pub(crate) outside: FxHashMap<ExecId, Outside>,
    next_exec: u32,
    /// For each address of another process's memory, how often it was opened and not closed.
    opened: FxHashMap<u64, u32>,
    /// Peer access, as owner and device: the device may use memory that was allocated immediately on the owner.
    pub(crate) peers: FxHashSet<(i32, i32)>,
}

impl Handles {
    /// Returns what the program knows a stream as, and the place where it was created.
    pub(crate) fn described(&self, stream: StreamId) -> Option<(String, Place)> {
        if self.legacy.values().any(|id| *id == stream) {
            return Some(("the legacy default stream".to_owned(), Place::Unknown));
        }
        if self.per_thread.values().any(|(id, _)| *id == stream) {
            return Some(("the per-thread default stream".to_owned(), Place::Unknown));
        }
        self.stream_places
            .get(&stream)
            .map(|(handle, place)| (format!("the stream with the handle {:#x}", handle.0), *place))
    }

    /// Returns handles of which pools, graphs and instances are numbered from `first` on.
    pub(crate) fn numbered_from(first: u32) -> Self {
        Self { next_pool: first.max(FIRST_POOL), next_graph: first, next_exec: first, ..Self::default() }
    }

    /// Returns the number of a context, and gives it one at its first use. A context at the handle of one that is gone
    /// gets a number of its own.
    pub(crate) fn home(&mut self, context: Context, device: impl FnOnce() -> i32) -> u32 {
        *self.home_of.entry(context).or_insert_with(|| {
            self.homes.push((context, device()));
            self.has_devices |= self.homes.last().map(|it| it.1) != self.homes.first().map(|it| it.1);
            self.homes.len() as u32 - 1
        })
    }

    /// Notes that a context is gone, and returns its number if it has one.
    pub(crate) fn take_home(&mut self, context: Context) -> Option<u32> {
        self.home_of.remove(&context)
    }

    /// Puts a context back that was taken and still exists.
    pub(crate) fn put_home_back(&mut self, home: u32) {
        if let Some((context, _)) = self.homes.get(home as usize) {
            self.home_of.insert(*context, home);
        }
    }

    /// Returns `true` if contexts of several devices were seen.
    #[inline]
    pub(crate) fn has_devices(&self) -> bool {
        self.has_devices
    }

    /// Returns the device of a context.
    pub(crate) fn device_of(&self, home: u32) -> i32 {
        self.homes.get(home as usize).map_or(0, |it| it.1)
    }

    /// Returns a number for a new stream. The legacy default stream of device 0 has number 0.
    pub(crate) fn new_stream(&mut self) -> StreamId {
        // This many handles cannot exist at the same time.
        let (number, _) = self.stream_numbers.take(u32::MAX - 1).unwrap_or_default();
        StreamId(number + 1)
    }

    /// Frees the number of a stream that is gone.
    pub(crate) fn end_stream_number(&mut self, stream: StreamId) {
        if let Some(number) = stream.0.checked_sub(1) {
            self.stream_numbers.give_back(number, ());
        }
    }

    /// Returns, now and then, the default streams of threads that have ended. No more work can be submitted to them.
    pub(crate) fn take_streams_of_ended_threads(&mut self) -> Vec<StreamId> {
        if self.per_thread.len() < THREADS_FEW.max(2 * self.per_thread_left) {
            return Vec::new();
        }
        let ended = self.per_thread.extract_if(|_, (_, thread)| !thread::is_there(*thread));
        let mut streams: Vec<_> = ended.map(|(_, (stream, _))| stream).collect();
        streams.sort_unstable();
        self.per_thread_left = self.per_thread.len();
        streams
    }

    /// Returns a number for a new event.
    pub(crate) fn new_event(&mut self, event: Event) -> EventId {
        let id = self.new_unnamed_event();
        self.events.insert(event, id);
        id
    }

    /// Returns a number for an event that the program has no handle of.
    pub(crate) fn new_unnamed_event(&mut self) -> EventId {
        EventId(self.free_events.pop().unwrap_or_else(|| {
            self.next_event += 1;
            self.next_event - 1
        }))
    }

    /// Frees the number of an event from [`new_unnamed_event`](Self::new_unnamed_event).
    pub(crate) fn end_unnamed_event(&mut self, event: EventId) {
        self.free_events.push(event.0);
    }

    /// Notes that an event is gone, and returns its number.
    pub(crate) fn end_event(&mut self, event: Event) -> Option<EventId> {
        let id = self.events.remove(&event)?;
        self.shared_events.remove(&id);
        self.free_events.push(id.0);
        Some(id)
    }

    /// Returns a number for a new pool.
    pub(crate) fn new_pool(&mut self, pool: Pool) -> PoolId {
        let id = self.unused_pool();
        self.pools.insert(pool, id);
        id
    }

    /// Returns a number for a pool without a handle.
    pub(crate) fn unused_pool(&mut self) -> PoolId {
        PoolId(take(&mut self.next_pool, "pools", &mut self.used_up))
    }

    /// Returns a number for a graph that is about to be made.
    pub(crate) fn new_graph(&mut self) -> GraphId {
        GraphId(take(&mut self.next_graph, "graphs", &mut self.used_up))
    }

    /// Gives a graph its handle.
    pub(crate) fn name_graph(&mut self, graph: Graph, id: GraphId, made: Made) {
        self.graphs.insert(graph, id);
        self.made.insert(id, made);
    }

    /// Notes that a graph is gone, and returns what was known of it.
    pub(crate) fn end_graph(&mut self, graph: Graph) -> Option<(GraphId, Made)> {
        let id = self.graphs.remove(&graph)?;
        let made = self.made.remove(&id).unwrap_or_default();
        for node in made.nodes.keys() {
            // Another node may have the handle by now.
            if self.nodes.get(node) == Some(&id) {
                self.nodes.remove(node);
            }
        }
        Some((id, made))
    }

    /// Returns a graph that is known and can be judged.
    pub(crate) fn graph(&self, graph: Graph) -> Option<GraphId> {
        let id = *self.graphs.get(&graph)?;
        (!self.made.get(&id)?.is_opaque).then_some(id)
    }

    /// Marks a graph as opaque: operations cannot describe it from now on.
    pub(crate) fn obscure(&mut self, graph: Graph) {
        if let Some(made) = self.graphs.get(&graph).and_then(|id| self.made.get_mut(id)) {
            made.is_opaque = true;
        }
    }

    /// Makes every graph opaque that has nodes with unknown handles: one of those nodes, or a child graph, was changed.
    pub(crate) fn obscure_others(&mut self) {
        self.made.values_mut().filter(|made| made.has_others).for_each(|made| made.is_opaque = true);
    }

    /// Makes all existing graphs and instances opaque.
    pub(crate) fn obscure_all(&mut self) {
        self.made.values_mut().for_each(|made| made.is_opaque = true);
        self.opaque_execs.extend(self.execs.values().copied());
    }

    /// Returns `true` if a graph is known, also if it is opaque.
    pub(crate) fn is_known(&self, graph: Graph) -> bool {
        self.graphs.contains_key(&graph)
    }

    /// Adds a node to a graph; `is_child` is `true` if it is a child graph.
    pub(crate) fn add_node(&mut self, graph: GraphId, node: GraphNode, is_child: bool) {
        if let Some(made) = self.made.get_mut(&graph) {
            made.nodes.insert(node, NodeId(made.count));
            made.count += 1;
            made.has_others |= is_child;
            self.nodes.insert(node, graph);
        }
    }

    /// Takes a node's handle away. Returns its graph, and its number there.
    pub(crate) fn take_node(&mut self, node: GraphNode) -> Option<(GraphId, NodeId)> {
        let graph = self.nodes.remove(&node)?;
        Some((graph, self.made.get_mut(&graph)?.nodes.remove(&node)?))
    }

    /// Puts a node back that was taken and still exists.
    pub(crate) fn put_node_back(&mut self, node: GraphNode, graph: GraphId, number: NodeId) {
        if let Some(made) = self.made.get_mut(&graph) {
            made.nodes.insert(node, number);
            self.nodes.insert(node, graph);
        }
    }

    /// Adds a node to an opaque graph.
    pub(crate) fn add_to_opaque(&mut self, graph: Graph, node: GraphNode) {
        if let Some(id) = self.graphs.get(&graph).copied() {
            // In an opaque graph it does not matter whether the node is a child.
            self.add_node(id, node, false);
        }
    }

    /// Returns a number for a new instance.
    pub(crate) fn new_exec(&mut self, exec: GraphExec) -> ExecId {
        let id = self.unused_exec();
        self.execs.insert(exec, id);
        id
    }

    /// Returns a number for an instance without a handle.
    pub(crate) fn unused_exec(&mut self) -> ExecId {
        ExecId(take(&mut self.next_exec, "instances", &mut self.used_up))
    }

    /// Notes that another process's memory is opened once more.
    pub(crate) fn open_memory(&mut self, start: u64) {
        *self.opened.entry(start).or_default() += 1;
    }

    /// Notes that it is closed once. Returns how often it is still open; `None` if it was never seen opened.
    pub(crate) fn close_memory(&mut self, start: u64) -> Option<u32> {
        let left = self.opened.get(&start)? - 1;
        match left {
            0 => self.opened.remove(&start),
            _ => self.opened.insert(start, left),
        };
        Some(left)
    }

    /// Returns an instance that is known and can be judged.
    pub(crate) fn exec(&self, exec: GraphExec) -> Option<ExecId> {
        let id = *self.execs.get(&exec)?;
        (!self.opaque_execs.contains(&id)).then_some(id)
    }
}

/// Returns the next number of a kind of object.
fn take(next: &mut u32, what: &'static str, used_up: &mut Option<&'static str>) -> u32 {
    let number = *next;
    *next = number.saturating_add(1);
    if number >= USED_UP {
        *used_up = Some(what);
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With numbers above these, a stream would be taken for another device's.
    #[test]
    fn streams_that_come_and_go_have_few_numbers() {
        let mut handles = Handles::default();
        for _ in 0..5000 {
            let stream = handles.new_stream();
            assert!((1..=1025).contains(&stream.0), "{stream}");
            handles.end_stream_number(stream);
        }
        handles.end_stream_number(StreamId::LEGACY);
        assert_ne!(handles.new_stream(), StreamId::LEGACY);
    }
}
