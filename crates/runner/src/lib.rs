//! Runs a list of operations ([`Op`]) with the library, on any device, and notes which are refused and at which line.
//!
//! | file | contents |
//! |---|---|
//! | `place`, `timing` | the device that a program runs on, and its speed |
//! | `threads` | runs each operation on its host thread |
//! | `given` | handles that a program gets from outside or gives away |
//! | `memory`, `graphs`, `kernels`, `several` | operations as calls of the library |
//! | `processes` | the same for programs of several processes |
//! | `verdicts` | maps the library's refusals to the checker's kinds |
#![deny(unsafe_code)]

mod given;
mod graphs;
mod kernels;
mod memory;
mod place;
mod processes;
mod several;
mod threads;
mod timing;
mod verdicts;

use std::cell::{Cell, OnceCell};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;

pub use millpond::config::{Schedule, Trace};
use millpond::error::Invalid;
use millpond::graph::{ExternalEvent, Graph, GraphExec, GraphNode, MemAllocNode};
use millpond::{Buffer, Device, DeviceConfig, Error, Event, Pool, PoolConfig, Stream, View};
use millpond_core::check::{Finding, Kind, Side};
use millpond_core::ids::{DeviceId, EventId, ExecId, GraphId, HostId, NodeId, PoolId, StreamId};
use millpond_core::op::{Access, Act, CaptureMode, EventKind, Memory, NodeOp, Op, What};

pub use kernels::{Kernel, Work};
pub use place::Place;
pub use timing::Timing;
pub use verdicts::kind_of;

use kernels::Accesses;
use verdicts::may_be_unmade;

// CUDA's errors of captures.
const ILLEGAL_STATE: u32 = 401;
const UNSUPPORTED: u32 = 900;
const MERGE: u32 = 902;
const IMPLICIT: u32 = 906;
const CAPTURED_EVENT: u32 = 907;
const WRONG_THREAD: u32 = 908;

/// The reason why a program is not run, or not to its end.
#[derive(Debug)]
pub enum Cannot {
    /// The library has no call for an operation, for this reason.
    Ask(String),
    /// An allocation failed for lack of memory.
    Memory(String),
    /// The device, or its driver, failed.
    Failed(Box<Error>),
}

impl fmt::Display for Cannot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cannot::Ask(why) | Cannot::Memory(why) => f.write_str(why),
            Cannot::Failed(error) => error.fmt(f),
        }
    }
}

/// The place where a run stopped, and the reason.
#[derive(Debug)]
pub struct Stopped {
    /// The line of the operation that is not done; 0 if there is none.
    pub line: u32,
    /// The reason.
    pub why: Cannot,
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)
    }
}

fn cannot<T>(why: &str) -> Result<T, Cannot> {
    Err(Cannot::Ask(why.to_owned()))
}

/// Memory in the library.
enum Held {
    Buffer(Buffer<u8>),
    /// Freed or given away: the address, and a view that may be stale.
    Gone {
        address: u64,
        view: View<u8>,
    },
    Node(MemAllocNode<u8>, GraphId),
    Void,
}

/// The devices of a program.
struct Devices {
    place: Place,
    trace: Option<Trace>,
    first: Device,
    /// All devices but the first.
    others: HashMap<DeviceId, Device>,
    /// A stream of the first device for immediate work; see [`own`](Self::own).
    opened: OnceCell<Stream>,
    /// With a trace: a buffer whose name is the line of the next operation.
    marker: Option<Buffer<u8>>,
}

impl Devices {
    /// Returns a stream of the first device for immediate work.
    fn own(&self) -> &Stream {
        self.opened.get_or_init(|| self.first.non_blocking_stream().expect("a stream"))
    }
}

#[derive(Default)]
struct Streams {
    all: HashMap<StreamId, Stream>,
    /// The device of each stream, including closed ones.
    devices: HashMap<StreamId, DeviceId>,
    /// The streams that are the legacy default stream.
    legacy: HashSet<StreamId>,
    per_thread: HashSet<StreamId>,
    /// The streams that wait for the legacy default stream.
    blocking: HashSet<StreamId>,
}

#[derive(Default)]
struct Events {
    recorded: HashMap<EventId, Event>,
    /// The events that nodes of graphs record or wait for.
    external: HashMap<EventId, ExternalEvent>,
}

/// Memory, by its name in the program.
#[derive(Default)]
struct Memories {
    /// The settings of pools that the program makes.
    pool_config: PoolConfig,
    pools: HashMap<PoolId, Pool>,
    held: HashMap<Memory, Held>,
    /// The stream that allocated each memory.
    allocated_on: HashMap<Memory, StreamId>,
    /// Host memory.
    pinned: HashSet<Memory>,
    /// For an alloc node's memory, the name of the life that the latest launch gave.
    latest: HashMap<Memory, Memory>,
    /// Outputs of launches of other instances, whose names now mean something else.
    displaced: Vec<Buffer<u8>>,
    /// Memory for which some graph has a free node.
    freed_by_nodes: HashSet<Memory>,
    /// Memory of removed alloc nodes.
    removed: HashSet<Memory>,
    /// The targets of the copies of nodes that only read.
    scratch: Vec<Buffer<u8>>,
}

#[derive(Default)]
struct Graphs {
    all: HashMap<GraphId, Graph>,
    /// The nodes of each graph; `None` for refused ones.
    nodes: HashMap<GraphId, Vec<Option<GraphNode>>>,
    /// The lines of the nodes that were not refused.
    lines: HashMap<GraphId, Vec<u32>>,
    /// The graph in each child node, by the parent graph and the node's number in it.
    children: HashMap<(GraphId, usize), GraphId>,
    /// The captures, by their origin stream.
    captures: HashMap<StreamId, Capture>,
    /// The origin stream of the capture that each stream is in.
    members: HashMap<StreamId, StreamId>,
    /// The graphs that were refused as a whole: a copy, or a capture at its end.
    refused: HashSet<GraphId>,
    /// The graph that the current line instantiates.
    instantiating: Option<GraphId>,
}

impl Graphs {
    /// Returns the capture that a stream is in.
    fn capture_of(&self, stream: StreamId) -> Option<&Capture> {
        self.captures.get(self.members.get(&stream)?)
    }
}

#[derive(Default)]
struct Instances {
    all: HashMap<ExecId, (GraphExec, GraphId)>,
    /// The number of nodes of the graph when the instance was made or updated.
    nodes: HashMap<ExecId, usize>,
    destroyed: HashSet<ExecId>,
    /// The instance whose launch gave an alloc node's memory its latest life, and its graph.
    launched: HashMap<Memory, (ExecId, GraphId)>,
    /// Memory of alloc nodes that does not exist, because the latest launch was refused.
    unmade: HashSet<Memory>,
    /// `true` if memory may not exist because an instance, its update, a copy or a child was refused.
    is_any_unmade: bool,
    /// The one instance of a graph that was launched. Nodes that copy have memory that instances would share.
    copying: HashMap<GraphId, ExecId>,
}

/// The state of a running program of one process. Memory is dropped before the streams that used it.
pub struct Run {
    memory: Memories,
    devices: Devices,
    streams: Streams,
    events: Events,
    graphs: Graphs,
    instances: Instances,
    found: Found,
    /// The line of the current operation.
    line: u32,
    /// The work of the current operation, in place of summing and filling.
    work: Cell<Option<Work>>,
}

/// The largest number of bytes that a node reads at once, in any program that is run on CUDA.
const BYTES_MAX: usize = 1 << 20;

struct Capture {
    graph: GraphId,
    allocated: Vec<Memory>,
    /// The events whose latest record is in it.
    recorded: HashSet<EventId>,
    mode: CaptureMode,
    host: HostId,
    /// `true` if it is invalid and this was reported.
    is_spoiled: bool,
}

impl Capture {
    /// Returns `true` if it forbids unsafe calls to a thread.
    fn forbids(&self, host: HostId) -> bool {
        match self.mode {
            CaptureMode::Global => true,
            CaptureMode::ThreadLocal => self.host == host,
            CaptureMode::Relaxed => false,
        }
    }
}

/// Runs a program and returns what was refused, with the lines. With a trace, a buffer has the name of the next line.
///
/// Each process has a trace of its own: `more` makes the traces of all processes but the first.
///
/// # Errors
/// The library has no call for an operation, so that a different program would run.
///
/// # Panics
/// The library breaks the driver's contract, or refuses an operation for a reason that is no verdict.
pub fn run(ops: &[Op], place: Place, trace: Option<Trace>, more: &dyn Fn() -> Option<Trace>) -> Result<Found, Stopped> {
    let nowhere = |why| Stopped { line: 0, why };
    if processes::has(ops) {
        return match place {
            Place::Host(_) => {
                let first = Cell::new(trace);
                processes::run(ops, &|| first.take().or_else(more))
            }
            Place::Checked(_) | Place::Fake | Place::Cuda => {
                cannot("processes are host devices of this one").map_err(nowhere)
            }
        };
    }
    if !matches!(place, Place::Host(_)) && threads::share_a_default_stream(ops) {
        return cannot("a thread's default stream cannot be named by another one on CUDA").map_err(nowhere);
    }
    let checked = match place {
        Place::Checked(schedule) => Some(place::checked(schedule)),
        Place::Host(_) | Place::Fake | Place::Cuda => None,
    };
    let device = match &checked {
        Some(driver) => Device::with_driver(driver.clone(), DeviceConfig::default().trace(trace.clone())),
        None => Ok(place.device(0, trace.clone()).map_err(nowhere)?),
    };
    let mut run = Run::new(device.expect("a device"), place, trace);
    run.prepare(ops);
    threads::run(&mut run, ops).map_err(|why| Stopped { line: run.line, why })?;
    let found = std::mem::take(&mut run.found);
    drop(run);
    if let Some(driver) = checked {
        assert_eq!(driver.violations(), [], "the driver's contract");
    }
    Ok(found)
}

/// The refusal of an operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Refusal {
    /// The line of the operation; 0 if it has none.
    pub line: u32,
    /// The rule that it breaks.
    pub kind: Kind,
}

/// The library's answers to a program.
#[derive(Debug, Default)]
pub struct Found {
    /// The refused operations.
    pub verdict: BTreeSet<Refusal>,
    /// The operation numbers of each violation.
    pub numbers: BTreeMap<Refusal, Numbers>,
    /// All refusals with their lines, including those that follow from earlier ones and are no verdict.
    pub refused: Vec<(u32, Error)>,
}

/// The numbers of the earlier operation, of the later one, and of the last known one.
pub type Numbers = [Option<u64>; 3];

/// Returns the operation numbers of a finding.
pub fn numbers(finding: &Finding) -> Numbers {
    let op = |side: &Option<Side>| side.as_ref().and_then(|side| side.op);
    [op(&finding.earlier), op(&finding.later), finding.known.as_ref().and_then(|known| known.op)]
}

/// The outcome of a library call: done or refused.
enum Said {
    Done,
    Refused(Error, Act),
}

impl Run {
    /// Starts a program on this device.
    ///
    /// # Panics
    /// The device opens no stream.
    pub fn new(device: Device, place: Place, trace: Option<Trace>) -> Self {
        let is_traced = trace.is_some();
        let (others, opened) = (HashMap::new(), OnceCell::new());
        let mut devices = Devices { place, trace, first: device, others, opened, marker: None };
        if is_traced {
            let marker = devices.own().alloc::<u8>(&devices.first.default_pool(), 1);
            devices.marker = Some(marker.expect("memory"));
        }
        Run {
            memory: Memories::default(),
            devices,
            streams: Streams::default(),
            events: Events::default(),
            graphs: Graphs::default(),
            instances: Instances::default(),
            found: Found::default(),
            line: 0,
            work: Cell::default(),
        }
    }

    /// Sets the configuration of the pools that the program makes.
    pub fn with_pools(mut self, config: PoolConfig) -> Self {
        self.memory.pool_config = config;
        self
    }

    /// Returns a pool that the program has made and not destroyed.
    pub fn pool(&self, pool: PoolId) -> Option<&Pool> {
        self.memory.pools.get(&pool)
    }

    /// Makes the events that nodes of graphs record or wait for, for the operations that are to be run.
    pub fn prepare(&mut self, ops: &[Op]) {
        for event in ops.iter().filter_map(graphs::outside_event) {
            self.events.external.entry(event).or_insert_with(|| self.devices.first.external_event());
        }
    }

    /// Returns what was refused so far.
    pub fn found(&self) -> &Found {
        &self.found
    }

    fn step_marked(&mut self, op: &Op) -> Result<(), Cannot> {
        std::thread::sleep(self.devices.place.pause());
        if let Some(marker) = &self.devices.marker {
            marker.set_name(&format!("line {}", op.place.line().unwrap_or(0)));
        }
        self.step(op)
    }

    /// Runs an operation. Refusals are in [`found`](Self::found).
    ///
    /// # Errors
    /// The library has no call for the operation. The run is then no longer that of the program.
    pub fn step(&mut self, op: &Op) -> Result<(), Cannot> {
        let done = self.perform(op);
        self.work.take();
        done
    }

    /// As [`step`](Self::step), for a launch or a kernel node that does this work in place of summing and filling.
    ///
    /// # Errors
    /// See [`step`](Self::step).
    pub fn step_with(&mut self, op: &Op, work: Work) -> Result<(), Cannot> {
        self.work.set(Some(work));
        self.step(op)
    }

    fn perform(&mut self, op: &Op) -> Result<(), Cannot> {
        (self.line, self.graphs.instantiating) = (op.place.line().unwrap_or(0), None);
        let is_spoiled = self.is_spoiled(op);
        let said = match &op.what {
            What::StreamCreate { stream, role, device } => self.create_stream(*stream, *role, *device)?,
            What::StreamName { .. } | What::SetName { .. } | What::HostStart { .. } => Said::Done,
            // A thread's default stream ends with the thread, when its handles are dropped.
            What::StreamDestroy { stream } if self.streams.per_thread.contains(stream) => {
                return cannot("the default stream of a thread is not destroyed");
            }
            What::StreamDestroy { stream } => {
                self.streams.all.remove(stream);
                Said::Done
            }
            What::StreamQuery { stream, is_idle } if self.streams.legacy.contains(stream) && !is_idle => {
                return cannot("to ask the legacy stream is an operation of it here, which orders work");
            }
            What::StreamSynchronize { stream } => said(self.stream(*stream)?.synchronize(), Act::Read),
            What::StreamQuery { stream, is_idle } => {
                let stream = self.stream(*stream)?;
                match stream.is_idle() {
                    Err(error) => Said::Refused(error, Act::Read),
                    Ok(_) if *is_idle => said(stream.synchronize(), Act::Read),
                    Ok(true) => return cannot("a query that says no cannot be had for certain"),
                    Ok(false) => Said::Done,
                }
            }
            What::SynchronizeDevice { device } => said(self.device_of(*device)?.synchronize(), Act::Read),
            What::DeviceSynchronize => {
                let others = self.devices.others.values().try_for_each(Device::synchronize);
                said(self.devices.first.synchronize().and(others), Act::Read)
            }
            What::PoolCreate { pool, exportable, device } => {
                match self
                    .device_of(device.unwrap_or_default())?
                    .pool(self.memory.pool_config.clone().shareable(*exportable))
                {
                    Ok(made) => {
                        self.memory.pools.insert(*pool, made);
                        Said::Done
                    }
                    Err(error @ (Error::Violation(_) | Error::Driver(_))) => Said::Refused(error, Act::Read),
                    Err(_) if *exportable => return cannot("the device shares no memory"),
                    Err(error) => Said::Refused(error, Act::Read),
                }
            }
            What::PoolAccess { pool, device, reach } => self.let_in(*pool, *device, *reach)?,
            What::PoolDestroy { pool } => {
                self.memory.pools.remove(pool);
                Said::Done
            }
            What::Alloc { memory, pool, stream, bytes, .. } => self.alloc(*memory, *pool, *stream, *bytes)?,
            What::AllocNow { memory, space, bytes, .. } => self.alloc_now(*memory, *space, *bytes)?,
            What::Free { memory, stream, .. } => self.free(*memory, Some(*stream))?,
            What::FreeNow { memory } => self.free(*memory, None)?,
            What::Drop { memory } => self.drop_memory(*memory)?,
            What::Launch { stream, accesses, .. } => self.launch(Some(*stream), accesses, Run::launch_on)?,
            What::Copy { stream, accesses } => self.launch(Some(*stream), accesses, Run::copy_on)?,
            What::HostAccess { .. } if self.is_capturing() => {
                return cannot("the host's accesses are a launch here, and a synchronisation that captures may forbid");
            }
            What::HostAccess { accesses } => self.launch(None, accesses, Run::launch_on)?,
            What::CaptureBegin { stream, graph, mode, symbolic: false } => {
                self.begin(*stream, *graph, *mode, op.host)?
            }
            other => self.event_step(other)?,
        };
        let is_unmade = matches!(said, Said::Refused(..));
        self.note(said, is_spoiled, op)?;
        match &op.what {
            What::Instantiate { graph, .. } | What::ExecUpdate { graph, .. } | What::GraphClone { graph, .. } => {
                self.instances.is_any_unmade |= is_unmade && !self.memory_of(*graph).is_empty();
            }
            What::GraphNode { node, .. } if is_unmade => {
                if let NodeOp::Child(child) = **node {
                    self.instances.is_any_unmade |= !self.memory_of(child).is_empty();
                }
            }
            What::GraphLaunch { exec, .. } if is_unmade => self.unmake(*exec),
            What::EventRecord { event, stream, external: false, .. } if !is_unmade => {
                let into = self.graphs.members.get(stream);
                for (origin, capture) in &mut self.graphs.captures {
                    if into == Some(origin) {
                        capture.recorded.insert(*event)
                    } else {
                        capture.recorded.remove(event)
                    };
                }
            }
            // The stream joins the capture, if it was in none.
            What::EventWait { event, stream, external: false } if !is_unmade => {
                let from = self.graphs.captures.iter().find(|(_, capture)| capture.recorded.contains(event));
                if let Some((origin, _)) = from {
                    self.graphs.members.insert(*stream, *origin);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Runs an operation on events, or else on graphs.
    fn event_step(&mut self, what: &What) -> Result<Said, Cannot> {
        Ok(match what {
            // The library's events have no device until they are recorded, and here they are of one process.
            What::EventCreate { device: DeviceId(0), .. } if self.devices.others.is_empty() => Said::Done,
            What::EventDestroy { event } if self.events.external.contains_key(event) => {
                return cannot("an event that nodes of a graph name is not destroyed");
            }
            What::EventDestroy { event } => {
                self.events.recorded.remove(event);
                self.graphs.captures.values_mut().for_each(|it| _ = it.recorded.remove(event));
                Said::Done
            }
            What::EventRecord { event, stream, external: false, kind: EventKind::Completion }
                if self.events.external.contains_key(event) =>
            {
                if !self.graphs.captures.is_empty() {
                    return cannot("an event is an edge of a capture and stands for a launch, too");
                }
                said(self.stream(*stream)?.record_external(&self.events.external[event]), Act::Read)
            }
            What::EventWait { event, stream, external: false } if self.events.external.contains_key(event) => {
                if !self.graphs.captures.is_empty() {
                    return cannot("an event is an edge of a capture and stands for a launch, too");
                }
                said(self.stream(*stream)?.wait_external(&self.events.external[event]), Act::Read)
            }
            What::EventSynchronize { event } | What::EventQuery { event, .. }
                if self.is_capturing()
                    && !self.events.recorded.contains_key(event)
                    && self.events.external.get(event).is_none_or(|event| event.last().is_none()) =>
            {
                return cannot("the library has no events that were never recorded");
            }
            What::EventSynchronize { event } | What::EventQuery { event, is_over: true }
                if self.events.external.contains_key(event) =>
            {
                said(self.events.external[event].last().map_or(Ok(()), |event| event.synchronize()), Act::Read)
            }
            What::EventRecord { event, stream, external: false, kind: EventKind::Completion } => {
                match self.stream(*stream)?.record() {
                    Ok(recorded) => {
                        self.events.recorded.insert(*event, recorded);
                        Said::Done
                    }
                    Err(error) => Said::Refused(error, Act::Read),
                }
            }
            What::EventWait { event, stream, external: false } => match self.events.recorded.get(event) {
                Some(recorded) => said(self.stream(*stream)?.wait(recorded), Act::Read),
                None if self.stream(*stream)?.is_capturing().unwrap_or(false) => {
                    return cannot("the library has no events that were never recorded");
                }
                None => said(self.stream(*stream)?.wait_external(&self.devices.first.external_event()), Act::Read),
            },
            What::EventSynchronize { event } | What::EventQuery { event, is_over: true } => {
                said(self.events.recorded.get(event).map_or(Ok(()), |event| event.synchronize()), Act::Read)
            }
            What::EventQuery { event, is_over: false } if !self.events.external.contains_key(event) => {
                match self.events.recorded.get(event).map_or(Ok(false), |event| event.is_over()) {
                    Err(error) => Said::Refused(error, Act::Read),
                    Ok(true) => return cannot("a query that says no cannot be had for certain"),
                    Ok(false) => Said::Done,
                }
            }
            other => self.graph_step(other)?,
        })
    }

    /// Returns `true` if there is an ongoing capture. It may forbid calls that are made here beside the program's own.
    fn is_capturing(&self) -> bool {
        !self.graphs.captures.is_empty()
            || self.streams.all.values().any(|stream| stream.is_capturing().unwrap_or(true))
    }

    fn stream(&self, stream: StreamId) -> Result<&Stream, Cannot> {
        self.streams.all.get(&stream).map_or_else(|| cannot("a stream that is gone cannot be named"), Ok)
    }

    /// Returns the memory that a name means: for an alloc node's memory, the life that the latest launch gave.
    fn current(&self, memory: Memory) -> Memory {
        self.memory.latest.get(&memory).copied().unwrap_or(memory)
    }

    /// Notes the line of an operation of a captured stream, which is the graph's next node.
    fn note_captured(&mut self, stream: StreamId) {
        if let Some(graph) = self.graphs.capture_of(stream).map(|capture| capture.graph) {
            self.graphs.lines.entry(graph).or_default().push(self.line);
        }
    }

    /// Launches work that sums what it reads and fills what it writes: on a stream, or by the host and done on return.
    fn launch(
        &mut self,
        stream: Option<StreamId>,
        accesses: &[Access],
        launch: impl Fn(&Run, &Stream, Accesses<'_>) -> Result<Result<(), Error>, Cannot>,
    ) -> Result<Said, Cannot> {
        let act = accesses.iter().map(|access| access.act).find(|act| *act == Act::Write).unwrap_or(Act::Read);
        let pause = self.devices.place.pause();
        // An operation of the legacy stream would be a barrier.
        let stream_to_delay = stream.filter(|stream| !self.streams.legacy.contains(stream));
        if let (Some(stream), false) = (stream_to_delay, pause.is_zero() || !self.graphs.captures.is_empty()) {
            // This delays the stream's next operation. It fails on a stream of an invalid capture, which does not
            // matter.
            let _ = self.stream(stream)?.launch((), move |()| std::thread::sleep(pause));
        }
        let captured = stream.and_then(|stream| self.graphs.capture_of(stream)).map(|capture| capture.graph);
        let graph = captured.map(|graph| (None, graph));
        let is_one = accesses.len() == 1;
        let Some(accesses) = self.accesses(accesses, graph)? else {
            return if self.is_capturing() || !is_one { cannot("memory that was refused") } else { Ok(Said::Done) };
        };
        let on = match stream {
            Some(stream) => self.stream(stream)?,
            None => self.devices.own(),
        };
        let said = said(launch(self, on, accesses)?, act);
        if let (None, Said::Refused(Error::Violation(violation), _)) = (stream, &said)
            && violation.kind == Kind::NoAccess
        {
            return cannot("the host's accesses are those of a stream of the first device");
        }
        if matches!(said, Said::Done) {
            match stream {
                None => self.devices.own().synchronize().expect("the stream runs"),
                Some(stream) => self.note_captured(stream),
            }
        }
        Ok(said)
    }

    /// Returns the line of a node. `origin` starts with the child nodes around it.
    fn line_of(&self, mut graph: GraphId, origin: &[NodeId]) -> Option<u32> {
        let (node, around) = origin.split_last()?;
        for child in around {
            graph = *self.graphs.children.get(&(graph, child.index()))?;
        }
        self.graphs.lines.get(&graph)?.get(node.index()).copied()
    }

    /// Notes a refusal, unless it follows from an earlier one.
    fn note(&mut self, said: Said, is_spoiled: bool, op: &Op) -> Result<(), Cannot> {
        let Said::Refused(error, act) = said else { return Ok(()) };
        match error {
            Error::OutOfMemory(report) => return Err(Cannot::Memory(report.to_string())),
            Error::InvalidArgument(invalid) if matches!(*invalid, Invalid::OtherDevice { .. }) => {
                return cannot("what is of several devices has no verdict");
            }
            Error::Driver(_) | Error::DeviceLost { .. } => return Err(Cannot::Failed(Box::new(error))),
            _ => {}
        }
        self.note_spoiled(&error, op);
        let noted = if is_spoiled { Ok(()) } else { self.note_kind(&error, act) };
        self.found.refused.push((self.line, error));
        noted
    }

    /// Returns `true` if an operation belongs to an invalid capture, so that its refusal says nothing new.
    fn is_spoiled(&self, op: &Op) -> bool {
        let stream = match &op.what {
            What::Launch { stream, .. }
            | What::Copy { stream, .. }
            | What::Alloc { stream, .. }
            | What::Free { stream, .. }
            | What::EventRecord { stream, .. }
            | What::EventWait { stream, .. }
            | What::StreamSynchronize { stream }
            | What::StreamQuery { stream, .. }
            | What::GraphLaunch { stream, .. }
            | What::GraphUpload { stream, .. } => stream,
            _ => return false,
        };
        let origin = self.graphs.members.get(stream);
        origin.and_then(|origin| self.graphs.captures.get(origin)).is_some_and(|capture| capture.is_spoiled)
    }

    /// Notes that a refusal makes captures invalid.
    fn note_spoiled(&mut self, error: &Error, op: &Op) {
        let is_rule = |kind: Kind| kind.is_about_captures() && kind != Kind::CaptureForeignFree;
        let Some(refused) = error.violation().filter(|it| is_rule(it.kind)) else { return };
        let Graphs { captures, members, .. } = &mut self.graphs;
        let blocking = &self.streams.blocking;
        let own = op.what.stream().and_then(|stream| members.get(&stream));
        for (origin, capture) in captures {
            let is_own = own == Some(origin);
            let is_of_event = match op.what {
                What::EventSynchronize { event } | What::EventQuery { event, .. } | What::EventWait { event, .. } => {
                    capture.recorded.contains(&event)
                }
                _ => false,
            };
            capture.is_spoiled |= match (refused.code.unwrap_or_default(), &op.what) {
                (ILLEGAL_STATE | WRONG_THREAD, _) => false,
                // The event of a capture that has ended does not affect other captures.
                (CAPTURED_EVENT, What::EventWait { .. }) | (UNSUPPORTED, What::CaptureBegin { .. }) => false,
                (CAPTURED_EVENT, _) => is_of_event,
                (MERGE, _) => is_own || is_of_event,
                (IMPLICIT, _) => members.iter().any(|(it, of)| of == origin && blocking.contains(it)),
                (UNSUPPORTED, What::DeviceSynchronize | What::SynchronizeDevice { .. }) => true,
                (UNSUPPORTED, _) if own.is_none() => capture.forbids(op.host),
                _ => is_own,
            };
        }
    }

    /// Returns an error for a refusal that may follow from a refused launch.
    fn check_unmade(&self, error: &Error, kind: Kind) -> Result<(), Cannot> {
        let Instances { is_any_unmade, unmade, launched, .. } = &self.instances;
        match (*is_any_unmade || !unmade.is_empty()) && may_be_unmade(error, kind, !launched.is_empty()) {
            true => cannot("a launch that was refused would have allocated it"),
            false => Ok(()),
        }
    }

    fn note_kind(&mut self, error: &Error, act: Act) -> Result<(), Cannot> {
        if let Some(first) = error.violation().filter(|it| it.graph.is_some()) {
            for fault in std::iter::once(first).chain(&first.also) {
                // A captured node is refused before it exists, so the refusal is at this line.
                let line =
                    self.graphs.instantiating.and_then(|graph| self.line_of(graph, &origin(fault.later.as_ref()?)?));
                let line = line.unwrap_or(self.line);
                self.found.verdict.insert(Refusal { line, kind: fault.kind });
            }
            return Ok(());
        }
        if let Some(kind) = kind_of(error, act) {
            self.check_unmade(error, kind)?;
            let expected = Refusal { line: self.line, kind };
            if let Error::Violation(violation) = error {
                self.found.numbers.insert(expected, numbers(violation));
            }
            self.found.verdict.insert(expected);
        }
        Ok(())
    }
}

fn said(result: Result<(), Error>, act: Act) -> Said {
    match result {
        Ok(()) => Said::Done,
        Err(error) => Said::Refused(error, act),
    }
}

/// Returns the path of a side's node, with the child nodes around it first.
fn origin(side: &Side) -> Option<Vec<NodeId>> {
    side.node.as_ref()?.split('.').map(|node| node.parse().ok().map(NodeId)).collect()
}
