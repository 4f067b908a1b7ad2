//! Numbers for what the program knows by handles: contexts, streams, events, pools, graphs, nodes, instances.
//!
//! A handle that was never seen made (another library made it, or a call that is not wrapped) gets its number at its
//! first use. Knows no order. Numbers of pools, graphs and instances are never given out again, and may be used up;
//! those of events and streams are.

use millpond_core::ids::{EventId, ExecId, GraphId, NodeId, PoolId, RecycledNumbers, StreamId};
use millpond_core::op::Memory;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::abi::{Context, Event, Graph, GraphExec, GraphNode, Pool, Stream};
use crate::thread;

/// Default pools, which no call makes, have their device's number; others follow.
const FIRST_POOL: u32 = 256;

/// Numbers from here on are for what the call that has got the first of them still makes: nothing is noted after it.
pub(crate) const USED_UP: u32 = u32::MAX - 1024;

/// With fewer default streams of threads the system is not asked whether those threads are there.
const THREADS_FEW: usize = 64;

/// A graph as far as it is known here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Made {
    /// Its nodes, by handle.
    pub(crate) nodes: FxHashMap<GraphNode, NodeId>,
    /// How many nodes it ever had.
    pub(crate) count: u32,
    /// Whether it has nodes whose handles are not known: captured ones, those of a copy, those of a child.
    pub(crate) has_others: bool,
    /// Whether something was done to it that operations cannot say: its launches are not judged.
    pub(crate) is_opaque: bool,
    pub(crate) outside: Outside,
}

/// What the launches of a graph have to do with memory, beside what operations say of its nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outside {
    /// Memory of its alloc nodes that it does not free itself.
    pub(crate) left: Vec<Memory>,
    /// Memory of others whose addresses are in structures that may be filled in part. It is used by the launches before
    /// its free.
    pub(crate) pointed_at: FxHashSet<Memory>,
}

impl Outside {
    /// What a graph has to do with memory that contains another one.
    pub(crate) fn extend(&mut self, other: &Self) {
        self.left.extend(&other.left);
        self.pointed_at.extend(&other.pointed_at);
    }
}

/// All handles of a process.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    /// Contexts by number, with their devices, and the numbers of those that are there.
    homes: Vec<(Context, i32)>,
    home_of: FxHashMap<Context, u32>,
    has_devices: bool,
    /// With the numbers of their contexts.
    pub(crate) streams: FxHashMap<Stream, (StreamId, u32)>,
    /// The stream that was asked for last: nearly always the one that is asked for next.
    pub(crate) last_stream: Option<(Stream, StreamId)>,
    /// Legacy default streams, by device.
    pub(crate) legacy: FxHashMap<i32, StreamId>,
    /// Default streams of threads, by thread and device, with the system's numbers of the threads.
    pub(crate) per_thread: FxHashMap<(u32, i32), (StreamId, i32)>,
    /// How many there were when those of threads that had ended were taken out.
    per_thread_left: usize,
    stream_numbers: RecycledNumbers,
    pub(crate) events: FxHashMap<Event, EventId>,
    /// Those that other processes may know.
    pub(crate) shared_events: FxHashSet<EventId>,
    free_events: Vec<u32>,
    next_event: u32,
    pub(crate) pools: FxHashMap<Pool, PoolId>,
    /// The pool of each device that allocations without a pool come from, where it was set.
    pub(crate) current_pools: FxHashMap<i32, PoolId>,
    next_pool: u32,
    /// What there are no numbers left for.
    pub(crate) used_up: Option<&'static str>,
    pub(crate) graphs: FxHashMap<Graph, GraphId>,
    pub(crate) made: FxHashMap<GraphId, Made>,
    /// The graph of each node.
    pub(crate) nodes: FxHashMap<GraphNode, GraphId>,
    next_graph: u32,
    pub(crate) execs: FxHashMap<GraphExec, ExecId>,
    pub(crate) opaque_execs: FxHashSet<ExecId>,
    /// Of instances.
    pub(crate) outside: FxHashMap<ExecId, Outside>,
    next_exec: u32,
    /// How often memory of other processes was opened and not closed, by its address.
    opened: FxHashMap<u64, u32>,
    /// Which devices may use what exists at once on another: that one, and the one that may.
    pub(crate) peers: FxHashSet<(i32, i32)>,
}

impl Handles {
    /// Handles of which pools, graphs and instances have numbers from `first` on.
    pub(crate) fn numbered_from(first: u32) -> Self {
        Self { next_pool: first.max(FIRST_POOL), next_graph: first, next_exec: first, ..Self::default() }
    }

    /// The number of a context. One that is made where another was has its own.
    pub(crate) fn home(&mut self, context: Context, device: impl FnOnce() -> i32) -> u32 {
        *self.home_of.entry(context).or_insert_with(|| {
            self.homes.push((context, device()));
            self.has_devices |= self.homes.last().map(|it| it.1) != self.homes.first().map(|it| it.1);
            self.homes.len() as u32 - 1
        })
    }

    /// A context is gone: the number that it had, if it was met.
    pub(crate) fn take_home(&mut self, context: Context) -> Option<u32> {
        self.home_of.remove(&context)
    }

    /// A context that was taken is there still.
    pub(crate) fn put_home_back(&mut self, home: u32) {
        if let Some((context, _)) = self.homes.get(home as usize) {
            self.home_of.insert(*context, home);
        }
    }

    /// Whether contexts of several devices were met.
    #[inline]
    pub(crate) fn has_devices(&self) -> bool {
        self.has_devices
    }

    /// The device of a context.
    pub(crate) fn device_of(&self, home: u32) -> i32 {
        self.homes.get(home as usize).map_or(0, |it| it.1)
    }

    /// A number for a new stream; the legacy default stream of device 0 has number 0.
    pub(crate) fn new_stream(&mut self) -> StreamId {
        // There is room for none of so many handles.
        let (number, _) = self.stream_numbers.take(u32::MAX - 1).unwrap_or_default();
        StreamId(number + 1)
    }

    /// A stream is gone.
    pub(crate) fn end_stream_number(&mut self, stream: StreamId) {
        if let Some(number) = stream.0.checked_sub(1) {
            self.stream_numbers.give_back(number, ());
        }
    }

    /// Default streams of threads that have ended, now and then: nothing can be submitted to them any more.
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

    /// A number for a new event.
    pub(crate) fn new_event(&mut self, event: Event) -> EventId {
        let id = self.new_unnamed_event();
        self.events.insert(event, id);
        id
    }

    /// A number for an event that the program has no handle of.
    pub(crate) fn new_unnamed_event(&mut self) -> EventId {
        EventId(self.free_events.pop().unwrap_or_else(|| {
            self.next_event += 1;
            self.next_event - 1
        }))
    }

    /// An event of [`new_unnamed_event`](Self::new_unnamed_event) is gone.
    pub(crate) fn end_unnamed_event(&mut self, event: EventId) {
        self.free_events.push(event.0);
    }

    /// An event is gone.
    pub(crate) fn end_event(&mut self, event: Event) -> Option<EventId> {
        let id = self.events.remove(&event)?;
        self.shared_events.remove(&id);
        self.free_events.push(id.0);
        Some(id)
    }

    /// A number for a new pool.
    pub(crate) fn new_pool(&mut self, pool: Pool) -> PoolId {
        let id = self.unused_pool();
        self.pools.insert(pool, id);
        id
    }

    /// A number for a pool without a handle.
    pub(crate) fn unused_pool(&mut self) -> PoolId {
        PoolId(take(&mut self.next_pool, "pools", &mut self.used_up))
    }

    /// A number for a graph that is to come.
    pub(crate) fn new_graph(&mut self) -> GraphId {
        GraphId(take(&mut self.next_graph, "graphs", &mut self.used_up))
    }

    /// A graph has a handle from now on.
    pub(crate) fn name_graph(&mut self, graph: Graph, id: GraphId, made: Made) {
        self.graphs.insert(graph, id);
        self.made.insert(id, made);
    }

    /// A graph is gone.
    pub(crate) fn end_graph(&mut self, graph: Graph) -> Option<(GraphId, Made)> {
        let id = self.graphs.remove(&graph)?;
        let made = self.made.remove(&id).unwrap_or_default();
        for node in made.nodes.keys() {
            // The handle may be another node's by now.
            if self.nodes.get(node) == Some(&id) {
                self.nodes.remove(node);
            }
        }
        Some((id, made))
    }

    /// A graph that is known and can be judged.
    pub(crate) fn graph(&self, graph: Graph) -> Option<GraphId> {
        let id = *self.graphs.get(&graph)?;
        (!self.made.get(&id)?.is_opaque).then_some(id)
    }

    /// Operations cannot say what a graph is from now on.
    pub(crate) fn obscure(&mut self, graph: Graph) {
        if let Some(made) = self.graphs.get(&graph).and_then(|id| self.made.get_mut(id)) {
            made.is_opaque = true;
        }
    }

    /// Something was done to a node or a child graph whose handle is not known: operations cannot say what any graph is
    /// from now on that has such.
    pub(crate) fn obscure_others(&mut self) {
        self.made.values_mut().filter(|made| made.has_others).for_each(|made| made.is_opaque = true);
    }

    /// Operations cannot say what any graph or instance is that there is now.
    pub(crate) fn obscure_all(&mut self) {
        self.made.values_mut().for_each(|made| made.is_opaque = true);
        self.opaque_execs.extend(self.execs.values().copied());
    }

    /// Whether a graph is known, be it that operations cannot say what it is.
    pub(crate) fn is_known(&self, graph: Graph) -> bool {
        self.graphs.contains_key(&graph)
    }

    /// A node was added to a graph; whether it is a child.
    pub(crate) fn add_node(&mut self, graph: GraphId, node: GraphNode, is_child: bool) {
        if let Some(made) = self.made.get_mut(&graph) {
            made.nodes.insert(node, NodeId(made.count));
            made.count += 1;
            made.has_others |= is_child;
            self.nodes.insert(node, graph);
        }
    }

    /// A node's handle is its own no more: its graph, and its number there.
    pub(crate) fn take_node(&mut self, node: GraphNode) -> Option<(GraphId, NodeId)> {
        let graph = self.nodes.remove(&node)?;
        Some((graph, self.made.get_mut(&graph)?.nodes.remove(&node)?))
    }

    /// A node that was taken is there still.
    pub(crate) fn put_node_back(&mut self, node: GraphNode, graph: GraphId, number: NodeId) {
        if let Some(made) = self.made.get_mut(&graph) {
            made.nodes.insert(node, number);
            self.nodes.insert(node, graph);
        }
    }

    /// A node was added to a graph of which operations cannot say what it is.
    pub(crate) fn add_to_opaque(&mut self, graph: Graph, node: GraphNode) {
        if let Some(id) = self.graphs.get(&graph).copied() {
            // Whether it is a child does not matter any more.
            self.add_node(id, node, false);
        }
    }

    /// A number for a new instance.
    pub(crate) fn new_exec(&mut self, exec: GraphExec) -> ExecId {
        let id = self.unused_exec();
        self.execs.insert(exec, id);
        id
    }

    /// A number for an instance without a handle.
    pub(crate) fn unused_exec(&mut self) -> ExecId {
        ExecId(take(&mut self.next_exec, "instances", &mut self.used_up))
    }

    /// Memory of another process is opened once more.
    pub(crate) fn open_memory(&mut self, start: u64) {
        *self.opened.entry(start).or_default() += 1;
    }

    /// It is closed once: how often it is open still. None where it was never seen opened.
    pub(crate) fn close_memory(&mut self, start: u64) -> Option<u32> {
        let left = self.opened.get(&start)? - 1;
        match left {
            0 => self.opened.remove(&start),
            _ => self.opened.insert(start, left),
        };
        Some(left)
    }

    /// An instance that is known and can be judged.
    pub(crate) fn exec(&self, exec: GraphExec) -> Option<ExecId> {
        let id = *self.execs.get(&exec)?;
        (!self.opaque_execs.contains(&id)).then_some(id)
    }
}

/// The next number, of what.
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

    /// Above those numbers a stream would be called another device's.
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
