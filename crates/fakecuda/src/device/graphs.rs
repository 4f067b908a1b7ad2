//! Graphs: built, captured, instantiated, launched.
//!
//! Knows nodes and edges, and the host device that runs them. A launch distributes its nodes over a few streams of the
//! host, which only the edges order, so that a missing edge shows. Launches of one instance follow each other.
//!
//! Stricter than the real one: a node that comes after a node of another graph is refused. If a capturing stream
//! records an event of the host device or waits for one, its capture becomes invalid. Memory must exist when a node
//! that uses it is added; if it does not exist when the graph is launched, the device is lost.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use millpond_driver::cuda::abi::graph::{CAPTURE_RELAXED, Graph as GraphHandle, GraphExec, GraphNode, UserObject};
use millpond_driver::cuda::abi::{Code, Event, Stream};
use millpond_driver::{CopyKind, Driver, RawEvent, RawStream, StreamFlags, Work};

use super::{Device, HostFunction, State, answer, as_callback, delay_task, end_handle, fresh_handle, sides_of};
use crate::forks::{Forks, Key};
use crate::lock;
use crate::memory::Side;

/// The number of host streams that run a launch.
const LANES: usize = 4;

/// The action of a node.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Empty,
    Fill {
        at: u64,
        bytes: u64,
        value: u8,
    },
    Copy {
        to: u64,
        from: u64,
        bytes: u64,
        kind: CopyKind,
    },
    Host {
        function: HostFunction,
        data: usize,
    },
    /// The kernel that only takes this many nanoseconds.
    Delay(u64),
    Child(Vec<Item>),
}

/// A node, and the positions of the nodes that it comes after.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    action: Action,
    after: Vec<usize>,
}

/// An object of the program that a graph keeps; destroyed with its last holder.
#[derive(Debug)]
struct Object {
    destroy: HostFunction,
    data: usize,
}

impl Drop for Object {
    fn drop(&mut self) {
        let data = std::ptr::with_exposed_provenance_mut::<c_void>(self.data);
        // SAFETY: the caller's promise of `cuUserObjectCreate`: the function may be called once with this data, on any
        // thread.
        as_callback(|| unsafe { (self.destroy)(data) });
    }
}

#[derive(Clone, Debug, Default)]
struct Graph {
    nodes: Vec<GraphNode>,
    items: Vec<Item>,
    objects: Vec<Arc<Object>>,
}

/// An instance: its nodes, with the nodes of its children among them.
#[derive(Debug, Default)]
struct Exec {
    items: Vec<Item>,
    /// Held until the last launch has completed.
    _objects: Vec<Arc<Object>>,
    /// The end of the last launch.
    last: Mutex<Option<RawEvent>>,
}

/// Returns the key of a stream: the default streams of threads have the same handle.
fn key(stream: Stream) -> Key {
    (stream.0, (stream == Stream::PER_THREAD).then(|| std::thread::current().id()))
}

/// The capture of a stream.
#[derive(Debug)]
struct Capture {
    /// `None` if a call has invalidated the capture.
    graph: Option<Graph>,
    mode: c_int,
    thread: ThreadId,
    number: u64,
    /// Memory of its alloc nodes, which is freed if the capture makes no graph.
    memory: Vec<u64>,
}

/// `CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE`
const UPDATE_FAILURE: Code = Code(910);
/// `CUDA_ERROR_STREAM_CAPTURE_UNMATCHED`
const UNMATCHED: Code = Code(903);
const GLOBAL: c_int = 0;

thread_local! {
    /// The calls that this thread allows captures to forbid to it.
    static MODE: Cell<c_int> = const { Cell::new(GLOBAL) };
}

/// Sets the thread's mode, and returns the former one.
pub(crate) fn exchange_mode(mode: c_int) -> Result<c_int, Code> {
    if (GLOBAL..=CAPTURE_RELAXED).contains(&mode) { Ok(MODE.replace(mode)) } else { Err(Code::INVALID_VALUE) }
}

/// The graphs of one device.
#[derive(Debug, Default)]
pub(crate) struct Graphs {
    graphs: HashMap<usize, Graph>,
    execs: HashMap<usize, Arc<Exec>>,
    objects: HashMap<usize, Arc<Object>>,
    /// The captures in progress.
    captures: HashMap<Key, Capture>,
    /// The number of captures that were begun.
    begun: u64,
    pub(crate) forks: Forks,
    lanes: Vec<RawStream>,
}

impl Graph {
    fn push(&mut self, action: Action, after: &[GraphNode]) -> Result<GraphNode, Code> {
        let place = |node: &GraphNode| self.nodes.iter().position(|it| it == node).ok_or(Code::INVALID_VALUE);
        let after = after.iter().map(place).collect::<Result<_, _>>()?;
        let node = GraphNode(fresh_handle());
        self.nodes.push(node);
        self.items.push(Item { action, after });
        Ok(node)
    }
}

impl Exec {
    /// Adds items after others. Returns the positions of their last nodes.
    fn add(&mut self, items: &[Item], before: &[usize]) -> Vec<usize> {
        let mut ends: Vec<Vec<usize>> = Vec::new();
        for item in items {
            let mut after: Vec<usize> = item.after.iter().flat_map(|place| ends[*place].iter().copied()).collect();
            if item.after.is_empty() {
                after.extend(before);
            }
            let end = match &item.action {
                Action::Child(items) => self.add(items, &after),
                action => {
                    self.items.push(Item { action: action.clone(), after });
                    vec![self.items.len() - 1]
                }
            };
            ends.push(end);
        }
        let all: Vec<usize> = ends.into_iter().flatten().collect();
        if all.is_empty() { before.to_vec() } else { all }
    }
}

impl Graphs {
    /// Returns `true` if there is no graph, no instance and no capture.
    pub(crate) fn has_none(&self) -> bool {
        self.graphs.is_empty() && self.execs.is_empty() && self.captures.is_empty()
    }

    fn graph(&mut self, graph: GraphHandle) -> Result<&mut Graph, Code> {
        self.graphs.get_mut(&graph.0).ok_or(Code::INVALID_VALUE)
    }

    /// Adds work of a capturing stream to its graph. Returns `true` if the stream captures.
    pub(crate) fn capture(&mut self, stream: Stream, action: Action) -> Result<bool, Code> {
        let Some(capture) = self.captures.get_mut(&self.forks.origin(key(stream))) else { return Ok(false) };
        let graph = capture.graph.as_mut().ok_or(Code::CAPTURE_INVALIDATED)?;
        let after: Vec<GraphNode> = graph.nodes.last().copied().into_iter().collect();
        graph.push(action, &after)?;
        Ok(true)
    }

    /// Invalidates the capture of a stream, because of a call that cannot be captured. Returns `code` if there is one.
    pub(crate) fn spoil(&mut self, stream: Stream, code: Code) -> Result<(), Code> {
        match self.captures.get_mut(&self.forks.origin(key(stream))) {
            None => Ok(()),
            Some(capture) => {
                capture.graph = None;
                Err(code)
            }
        }
    }

    /// Returns `true` if one of these streams captures; default streams of threads count too.
    pub(crate) fn captures_any(&self, is_one: impl Fn(Stream) -> bool) -> bool {
        self.captures.keys().any(|(stream, _)| is_one(Stream(*stream)))
    }

    /// Records an event on a stream. Returns `true` if this belongs to a capture.
    pub(crate) fn record(&mut self, event: Event, stream: Stream) -> bool {
        let origin = self.forks.origin(key(stream));
        self.forks.record(event, self.captures.contains_key(&origin).then_some(origin))
    }

    /// Makes a stream wait for an event. Returns `true` if this belongs to a capture.
    pub(crate) fn wait(&mut self, event: Event, stream: Stream) -> bool {
        self.forks.wait(event, key(stream))
    }

    /// Removes a stream. Returns the memory of its capture.
    pub(crate) fn forget_stream(&mut self, stream: Stream) -> Vec<u64> {
        let gone = self.captures.remove(&key(stream));
        if gone.is_some() {
            self.forks.end(key(stream));
        }
        self.forks.leave(key(stream));
        gone.map(|capture| capture.memory).unwrap_or_default()
    }

    /// Records that a capturing stream has memory of an alloc node.
    pub(crate) fn note_memory(&mut self, stream: Stream, at: u64) {
        if let Some(capture) = self.captures.get_mut(&self.forks.origin(key(stream))) {
            capture.memory.push(at);
        }
    }
}

impl Device {
    pub(crate) fn open_graph(&self) -> Result<GraphHandle, Code> {
        let handle = fresh_handle();
        self.state()?.graphs.graphs.insert(handle, Graph::default());
        Ok(GraphHandle(handle))
    }

    pub(crate) fn close_graph(&self, graph: GraphHandle) -> Result<(), Code> {
        // Dropped after the lock is released, because its objects belong to the program.
        let gone = self.state()?.graphs.graphs.remove(&graph.0);
        let gone = gone.ok_or(Code::INVALID_VALUE)?;
        gone.nodes.iter().for_each(|node| end_handle(node.0));
        end_handle(graph.0);
        Ok(())
    }

    pub(crate) fn nodes(&self, graph: GraphHandle) -> Result<Vec<GraphNode>, Code> {
        Ok(self.state()?.graphs.graph(graph)?.nodes.clone())
    }

    pub(crate) fn copy_graph(&self, graph: GraphHandle) -> Result<GraphHandle, Code> {
        let mut state = self.state()?;
        let mut copy = state.graphs.graph(graph)?.clone();
        copy.nodes.iter_mut().for_each(|node| *node = GraphNode(fresh_handle()));
        let handle = fresh_handle();
        state.graphs.graphs.insert(handle, copy);
        Ok(GraphHandle(handle))
    }

    /// Changes the action of a node, or removes the node for `None`. A node that others come after is not removed.
    pub(crate) fn change_node(&self, node: GraphNode, action: Option<Action>) -> Result<(), Code> {
        let mut state = self.state()?;
        let place = |graph: &Graph| graph.nodes.iter().position(|it| *it == node);
        let mut found = state.graphs.graphs.values_mut().filter_map(|graph| Some((place(graph)?, graph)));
        let (at, graph) = found.next().ok_or(Code::INVALID_VALUE)?;
        if let Some(action) = action {
            graph.items[at].action = action;
            return Ok(());
        }
        if graph.items.iter().any(|item| item.after.contains(&at)) {
            return Err(Code::NOT_SUPPORTED);
        }
        graph.nodes.remove(at);
        graph.items.remove(at);
        end_handle(node.0);
        let later = graph.items.iter_mut().flat_map(|item| &mut item.after).filter(|place| **place > at);
        later.for_each(|place| *place -= 1);
        Ok(())
    }

    /// Updates an instance to the present state of a graph, which has as many nodes.
    pub(crate) fn update_exec(&self, exec: GraphExec, graph: GraphHandle) -> Result<(), Code> {
        let mut state = self.state()?;
        let Graph { items, objects, .. } = state.graphs.graph(graph)?.clone();
        let old = state.graphs.execs.get_mut(&exec.0).ok_or(Code::INVALID_VALUE)?;
        let last = Mutex::new(lock(&old.last).take());
        let mut new = Exec { _objects: objects, last, ..Exec::default() };
        new.add(&items, &[]);
        if new.items.len() != old.items.len() {
            return Err(UPDATE_FAILURE);
        }
        *old = Arc::new(new);
        Ok(())
    }

    pub(crate) fn add_node(&self, graph: GraphHandle, after: &[GraphNode], action: Action) -> Result<GraphNode, Code> {
        let mut state = self.state()?;
        // The real one may check the memory, too.
        for side in sides_in(&action) {
            state.memory.check_use(self.ordinal, side)?;
        }
        state.graphs.graph(graph)?.push(action, after)
    }

    pub(crate) fn add_child(
        &self,
        graph: GraphHandle,
        after: &[GraphNode],
        child: GraphHandle,
    ) -> Result<GraphNode, Code> {
        let mut state = self.state()?;
        let Graph { items, objects, .. } = state.graphs.graph(child)?.clone();
        let parent = state.graphs.graph(graph)?;
        parent.objects.extend(objects);
        parent.push(Action::Child(items), after)
    }

    pub(crate) fn open_object(&self, destroy: HostFunction, data: *mut c_void) -> Result<UserObject, Code> {
        let (handle, data) = (fresh_handle(), data.expose_provenance());
        self.state()?.graphs.objects.insert(handle, Arc::new(Object { destroy, data }));
        Ok(UserObject(handle))
    }

    pub(crate) fn close_object(&self, object: UserObject) -> Result<(), Code> {
        let gone = self.state()?.graphs.objects.remove(&object.0);
        gone.map(drop).ok_or(Code::INVALID_VALUE)
    }

    /// Moves the program's one reference to the graph.
    pub(crate) fn keep_object(&self, graph: GraphHandle, object: UserObject) -> Result<(), Code> {
        let mut state = self.state()?;
        state.graphs.graph(graph)?;
        let object = state.graphs.objects.remove(&object.0).ok_or(Code::INVALID_VALUE)?;
        state.graphs.graph(graph)?.objects.push(object);
        Ok(())
    }

    pub(crate) fn instantiate(&self, graph: GraphHandle) -> Result<GraphExec, Code> {
        self.check_unsafe()?;
        let mut state = self.state()?;
        let Graph { items, objects, .. } = state.graphs.graph(graph)?.clone();
        let mut exec = Exec { _objects: objects, ..Exec::default() };
        exec.add(&items, &[]);
        let handle = fresh_handle();
        state.graphs.execs.insert(handle, Arc::new(exec));
        Ok(GraphExec(handle))
    }

    pub(crate) fn close_exec(&self, exec: GraphExec) -> Result<(), Code> {
        let gone = self.state()?.graphs.execs.remove(&exec.0);
        gone.map(|_| end_handle(exec.0)).ok_or(Code::INVALID_VALUE)
    }

    pub(crate) fn upload(&self, exec: GraphExec, stream: Stream) -> Result<(), Code> {
        let mut state = self.state()?;
        state.graphs.execs.get(&exec.0).ok_or(Code::INVALID_VALUE)?;
        self.begin(&mut state, stream).map(drop)
    }

    pub(crate) fn begin_capture(&self, stream: Stream, mode: c_int) -> Result<(), Code> {
        let mut state = self.state()?;
        if matches!(stream, Stream(0) | Stream::LEGACY) {
            return Err(Code::CAPTURE_UNSUPPORTED);
        }
        self.begin(&mut state, stream)?;
        if state.graphs.captures.contains_key(&key(stream)) {
            return Err(Code::ILLEGAL_STATE);
        }
        let (graph, thread) = (Some(Graph::default()), std::thread::current().id());
        state.graphs.begun += 1;
        let (number, memory) = (state.graphs.begun, Vec::new());
        state.graphs.captures.insert(key(stream), Capture { graph, mode, thread, number, memory });
        Ok(())
    }

    /// Checks a call that captures may forbid, because they cannot record it. It invalidates the captures that forbid
    /// it to this thread.
    pub(crate) fn check_unsafe(&self) -> Result<(), Code> {
        let (mode, thread) = (MODE.get(), std::thread::current().id());
        let forbids = |capture: &&mut Capture| match (mode, capture.mode) {
            (CAPTURE_RELAXED, _) | (_, CAPTURE_RELAXED) => false,
            (GLOBAL, GLOBAL) => true,
            _ => capture.thread == thread,
        };
        let mut is_forbidden = false;
        for capture in self.state()?.graphs.captures.values_mut().filter(forbids) {
            capture.graph = None;
            is_forbidden = true;
        }
        if is_forbidden { Err(Code::CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }

    /// Returns whether the stream captures: 1, or 2 if the capture is invalid. The legacy stream cannot be queried
    /// while a stream that synchronises with it captures.
    pub(crate) fn capture_status(&self, stream: Stream) -> Result<c_int, Code> {
        let state = self.state()?;
        if matches!(stream, Stream(0) | Stream::LEGACY) && state.is_tie_captured() {
            return Err(Code::CAPTURE_IMPLICIT);
        }
        state.check_open(stream)?;
        Ok(match state.graphs.captures.get(&state.graphs.forks.origin(key(stream))) {
            None => 0,
            Some(Capture { graph: Some(_), .. }) => 1,
            Some(Capture { graph: None, .. }) => 2,
        })
    }

    /// Returns the number of the capture that a stream takes part in; 0 for none.
    pub(crate) fn capture_number(&self, stream: Stream) -> Result<u64, Code> {
        let state = self.state()?;
        Ok(state.graphs.captures.get(&state.graphs.forks.origin(key(stream))).map_or(0, |capture| capture.number))
    }

    /// Invalidates all captures, because of a call for all work. Returns an error if there are any.
    pub(crate) fn spoil_all(&self) -> Result<(), Code> {
        let captures = &mut self.state()?.graphs.captures;
        captures.values_mut().for_each(|capture| capture.graph = None);
        if captures.is_empty() { Ok(()) } else { Err(Code::CAPTURE_UNSUPPORTED) }
    }

    pub(crate) fn end_capture(&self, stream: Stream) -> Result<GraphHandle, Code> {
        let mut state = self.state()?;
        if state.graphs.forks.is_guest(key(stream)) {
            return state.graphs.spoil(stream, UNMATCHED).and(Err(UNMATCHED));
        }
        let captured = state.graphs.captures.remove(&key(stream)).ok_or(Code::ILLEGAL_STATE)?;
        state.graphs.forks.end(key(stream));
        let Some(graph) = captured.graph else {
            state.allocations.drop_nodes(&captured.memory);
            return Err(Code::CAPTURE_INVALIDATED);
        };
        let handle = fresh_handle();
        state.graphs.graphs.insert(handle, graph);
        Ok(GraphHandle(handle))
    }

    pub(crate) fn launch(&self, exec: GraphExec, stream: Stream) -> Result<(), Code> {
        let mut state = self.state()?;
        let exec = state.graphs.execs.get(&exec.0).cloned().ok_or(Code::INVALID_VALUE)?;
        state.graphs.spoil(stream, Code::CAPTURE_UNSUPPORTED)?;
        let sides: Vec<_> = exec.items.iter().flat_map(|item| sides_in(&item.action)).collect();
        if sides.iter().any(|side| state.memory.check_use(self.ordinal, *side).is_err()) {
            state.fault = Some(Code::ILLEGAL_ADDRESS);
            return Err(Code::ILLEGAL_ADDRESS);
        }
        let raw = self.begin(&mut state, stream)?;
        let mut last = lock(&exec.last);
        if let Some(before) = *last {
            answer(self.host.wait(raw, before))?;
        }
        self.replay(&mut state, &exec, raw)?;
        // The program's objects are needed until here.
        let (keeps, host) = (exec.clone(), &self.host);
        let task = Box::new(move || drop(keeps));
        // SAFETY: the work touches no device memory.
        answer(unsafe { host.submit(raw, &mut Some(Work::Run(task))) })?;
        let over = answer(host.record(raw))?;
        *last = Some(over);
        let over = answer(host.fence(over))?;
        sides.into_iter().for_each(|side| state.memory.note_use(self.ordinal, over.clone(), side));
        Ok(())
    }

    /// Submits the nodes to the lanes, after `raw`'s present work and before its later work.
    fn replay(&self, state: &mut State, exec: &Exec, raw: RawStream) -> Result<(), Code> {
        while state.graphs.lanes.len() < LANES {
            state.graphs.lanes.push(answer(self.host.open_stream(StreamFlags::default()))?);
        }
        let lanes = &state.graphs.lanes;
        let start = answer(self.host.record(raw))?;
        lanes.iter().try_for_each(|lane| answer(self.host.wait(*lane, start)))?;
        let mut recorded: Vec<RawEvent> = Vec::with_capacity(exec.items.len());
        for (place, item) in exec.items.iter().enumerate() {
            let lane = lanes[place % LANES];
            item.after.iter().try_for_each(|before| answer(self.host.wait(lane, recorded[*before])))?;
            let mut work = match item.action {
                Action::Empty | Action::Child(_) => None,
                Action::Fill { at, bytes, value } => Some(Work::Fill { at, bytes, value }),
                Action::Copy { to, from, bytes, kind } => Some(Work::Copy { to, from, bytes, kind }),
                Action::Host { function, data } => Some(Work::Run(self.host_task(function, data))),
                Action::Delay(nanoseconds) => Some(Work::Run(delay_task(nanoseconds))),
            };
            // SAFETY: device memory was checked before, and its use is recorded until the launch has completed; host
            // memory is kept by the instance, or valid by the caller's promise.
            answer(unsafe { self.host.submit(lane, &mut work) })?;
            recorded.push(answer(self.host.record(lane))?);
        }
        recorded.into_iter().try_for_each(|event| answer(self.host.wait(raw, event)))
    }
}

/// Returns the device memory that a node uses.
fn sides_in(action: &Action) -> impl Iterator<Item = Side> {
    let sides = match *action {
        Action::Fill { at, bytes, .. } => [Some(Side { at, bytes, is_written: true }), None],
        Action::Copy { to, from, bytes, kind } => sides_of(to, from, bytes, kind),
        Action::Empty | Action::Host { .. } | Action::Delay(_) | Action::Child(_) => [None, None],
    };
    sides.into_iter().flatten()
}
