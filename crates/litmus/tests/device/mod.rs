//! Does what a litmus program says on a device, and notes what is refused and at which line.

mod graphs;
mod kernels;
mod place;
mod processes;
mod several;
mod timing;
mod verdicts;

use std::collections::{BTreeSet, HashMap, HashSet};

use millpond::{
    Buffer, Device, Error, Event, ExternalEvent, Graph, GraphExec, GraphNode, MemAllocNode, Pool, Stream, View,
};
use millpond_core::check::Kind;
use millpond_core::ids::{DeviceId, EventId, ExecId, GraphId, HostId, PoolId, StreamId};
use millpond_core::op::{Access, Act, Mark, Memory, Op, Space, Start, StreamRole, What};
use millpond_litmus::{Expected, Program};

pub(crate) use place::Place;
pub(crate) use timing::Timing;

use kernels::Accesses;
use verdicts::kind_of;

/// Why a program is not run.
#[derive(Debug)]
pub(crate) struct Cannot(pub(crate) String);

fn cannot<T>(why: &str) -> Result<T, Cannot> {
    Err(Cannot(why.to_owned()))
}

/// Memory as the library knows it.
enum Held {
    Buffer(Buffer<u8>),
    /// Freed or given away: the address, and a name that may be stale.
    Gone {
        address: u64,
        view: View<u8>,
    },
    Node(MemAllocNode<u8>, GraphId),
    Void,
}

struct Run {
    device: Device,
    /// All but the first.
    others: HashMap<DeviceId, Device>,
    /// The device of each stream.
    homes: HashMap<StreamId, DeviceId>,
    /// For what acts at once.
    own: Stream,
    streams: HashMap<StreamId, Stream>,
    events: HashMap<EventId, Event>,
    pools: HashMap<PoolId, Pool>,
    memory: HashMap<Memory, Held>,
    /// Events that nodes of graphs record or wait for.
    externals: HashMap<EventId, ExternalEvent>,
    /// For an alloc node's memory the name of what the latest launch gave.
    names: HashMap<Memory, Memory>,
    graphs: HashMap<GraphId, Graph>,
    /// The graph that each copy is of.
    copies: HashMap<GraphId, GraphId>,
    nodes: HashMap<GraphId, Vec<GraphNode>>,
    /// Where each node of a graph was made.
    lines: HashMap<GraphId, Vec<u32>>,
    execs: HashMap<ExecId, (GraphExec, GraphId)>,
    /// Instances that were destroyed.
    gone: HashSet<ExecId>,
    /// By the stream where a capture began: its graph, and what was allocated in it.
    captures: HashMap<StreamId, Capture>,
    /// The graph that is being instantiated.
    instantiating: GraphId,
    /// Where nodes copy to that only read.
    scratch: Vec<Buffer<u8>>,
    found: BTreeSet<Expected>,
    line: u32,
    place: Place,
}

/// No litmus program that is run on CUDA reads more at once in a node.
const BYTES_MAX: usize = 1 << 20;

struct Capture {
    graph: GraphId,
    allocated: Vec<Memory>,
}

/// Runs a program; what was refused, and where.
pub(crate) fn run(program: &Program, place: Place) -> Result<BTreeSet<Expected>, Cannot> {
    let settings = program.settings();
    if settings.threads_apart || !settings.races {
        return cannot("settings of its own");
    }
    if processes::has(program) {
        return match place {
            Place::Host(_) => processes::run(program),
            Place::Fake | Place::Cuda => cannot("processes are host devices of this one"),
        };
    }
    let device = place.device(0)?;
    let own = device.non_blocking_stream().expect("a stream");
    let mut run = Run {
        device,
        others: HashMap::new(),
        homes: HashMap::new(),
        own,
        streams: HashMap::new(),
        events: HashMap::new(),
        pools: HashMap::new(),
        memory: HashMap::new(),
        externals: HashMap::new(),
        names: HashMap::new(),
        graphs: HashMap::new(),
        copies: HashMap::new(),
        nodes: HashMap::new(),
        lines: HashMap::new(),
        execs: HashMap::new(),
        gone: HashSet::new(),
        captures: HashMap::new(),
        instantiating: GraphId(0),
        scratch: Vec::new(),
        found: BTreeSet::new(),
        line: 0,
        place,
    };
    for event in program.ops().iter().filter_map(graphs::outside_event) {
        run.externals.entry(event).or_insert(run.device.external_event());
    }
    for op in program.ops() {
        std::thread::sleep(run.place.pause());
        run.step(op)?;
    }
    Ok(run.found)
}

/// What a library call came to: done, refused, or not to be said again.
enum Said {
    Done,
    Refused(Error, Act),
}

impl Run {
    fn step(&mut self, op: &Op) -> Result<(), Cannot> {
        self.line = op.place.line().unwrap_or(0);
        if op.host != HostId(0) {
            return cannot("several threads or processes");
        }
        let said = match &op.what {
            What::StreamCreate { stream, role, device } => self.create_stream(*stream, *role, *device)?,
            What::StreamName { .. } | What::SetName { .. } => Said::Done,
            What::StreamDestroy { stream } => {
                self.streams.remove(stream);
                Said::Done
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
            What::DeviceSynchronize => {
                let others = self.others.values().try_for_each(Device::synchronize);
                said(self.device.synchronize().and(others), Act::Read)
            }
            // The library's are of no device until they are recorded.
            What::EventCreate { device: DeviceId(0), shared: false, .. } if self.others.is_empty() => Said::Done,
            What::EventDestroy { event } => {
                self.events.remove(event);
                Said::Done
            }
            What::EventRecord { event, stream, external: false, mark: Mark::Completion }
                if self.externals.contains_key(event) =>
            {
                if !self.captures.is_empty() {
                    return cannot("an event is an edge of a capture and stands for a launch, too");
                }
                said(self.stream(*stream)?.record_external(&self.externals[event]), Act::Read)
            }
            What::EventWait { event, stream, external: false } if self.externals.contains_key(event) => {
                said(self.stream(*stream)?.wait_external(&self.externals[event]), Act::Read)
            }
            What::EventSynchronize { event } if self.externals.contains_key(event) => {
                said(self.externals[event].last().map_or(Ok(()), |event| event.synchronize()), Act::Read)
            }
            What::EventRecord { event, stream, external: false, mark: Mark::Completion } => {
                match self.stream(*stream)?.record() {
                    Ok(recorded) => {
                        self.events.insert(*event, recorded);
                        Said::Done
                    }
                    Err(error) => Said::Refused(error, Act::Read),
                }
            }
            What::EventWait { event, stream, external: false } => match self.events.get(event) {
                Some(recorded) => said(self.stream(*stream)?.wait(recorded), Act::Read),
                None => Said::Done,
            },
            What::EventSynchronize { event } | What::EventQuery { event, is_over: true } => {
                said(self.events.get(event).map_or(Ok(()), Event::synchronize), Act::Read)
            }
            What::PoolCreate { pool, exportable: false } => {
                let made = self.device.pool(Default::default()).expect("a pool");
                self.pools.insert(*pool, made);
                Said::Done
            }
            What::PoolAccess { pool, device, reach } => self.let_in(*pool, *device, *reach)?,
            What::PoolDestroy { pool } => {
                self.pools.remove(pool);
                Said::Done
            }
            What::Alloc { memory, pool, stream, bytes, .. } => self.alloc(*memory, *pool, *stream, *bytes)?,
            What::AllocNow { memory, space, bytes, .. } => self.alloc_now(*memory, *space, *bytes)?,
            What::Free { memory, stream } => self.free(*memory, Some(*stream))?,
            What::FreeNow { memory } => self.free(*memory, None)?,
            What::Drop { memory } => self.drop_memory(*memory)?,
            What::Launch { stream, accesses, start: Start::Ordered, .. } => self.launch(Some(*stream), accesses)?,
            What::HostAccess { accesses } => self.launch(None, accesses)?,
            other => self.graph_step(other)?,
        };
        self.note(said);
        Ok(())
    }

    fn create_stream(&mut self, stream: StreamId, role: StreamRole, device: DeviceId) -> Result<Said, Cannot> {
        self.homes.insert(stream, device);
        let device = self.device_of(device)?;
        let made = match role {
            StreamRole::Blocking => device.stream(),
            StreamRole::NonBlocking => device.non_blocking_stream(),
            StreamRole::PerThread => device.per_thread_stream(),
            StreamRole::Legacy => Ok(device.legacy_stream()),
        };
        self.streams.insert(stream, made.expect("a stream"));
        Ok(Said::Done)
    }

    fn stream(&self, stream: StreamId) -> Result<&Stream, Cannot> {
        self.streams.get(&stream).map_or_else(|| cannot("a stream that is gone cannot be named"), Ok)
    }

    fn alloc(&mut self, memory: Memory, pool: PoolId, stream: StreamId, bytes: u64) -> Result<Said, Cannot> {
        let default = self.default_pool(stream)?;
        let pool = match self.pools.get(&pool) {
            Some(pool) => pool,
            None if pool == PoolId(0) => &default,
            None => return cannot("a pool that is gone cannot be named"),
        };
        let made = self.stream(stream)?.alloc::<u8>(pool, bytes as usize);
        Ok(match made {
            Ok(buffer) => {
                if self.note_captured()
                    && let Some(capture) = self.captures.values_mut().next()
                {
                    capture.allocated.push(memory);
                }
                self.memory.insert(memory, Held::Buffer(buffer));
                Said::Done
            }
            Err(error) => {
                self.memory.insert(memory, Held::Void);
                Said::Refused(error, Act::Allocate)
            }
        })
    }

    fn alloc_now(&mut self, memory: Memory, _: Space, bytes: u64) -> Result<Said, Cannot> {
        if !self.captures.is_empty() {
            return cannot("the library has no immediate allocation for a capture to refuse");
        }
        let buffer = self.own.alloc::<u8>(&self.device.default_pool(), bytes as usize).expect("memory");
        self.own.synchronize().expect("the stream runs");
        self.memory.insert(memory, Held::Buffer(buffer));
        Ok(Said::Done)
    }

    /// The memory that a name leads to: what the latest launch gave, for an alloc node's.
    fn current(&self, memory: Memory) -> Memory {
        self.names.get(&memory).copied().unwrap_or(memory)
    }

    fn free(&mut self, memory: Memory, stream: Option<StreamId>) -> Result<Said, Cannot> {
        let memory = self.current(memory);
        let is_stale = self.memory.keys().any(|it| it.id == memory.id && it.generation > memory.generation);
        if is_stale {
            return cannot("a stale name cannot be freed: only buffers are");
        }
        let stream = stream.map(|stream| self.stream(stream).cloned()).transpose()?;
        let address = match self.memory.remove(&memory) {
            Some(Held::Buffer(buffer)) => {
                let (address, view) = (buffer.address(), buffer.view());
                let freed = match &stream {
                    Some(stream) => stream.free(buffer),
                    None => self.device.free(buffer),
                };
                return Ok(match freed {
                    Ok(()) => {
                        self.note_captured();
                        self.memory.insert(memory, Held::Gone { address, view });
                        Said::Done
                    }
                    Err(refused) => {
                        self.memory.insert(memory, Held::Buffer(refused.buffer));
                        Said::Refused(refused.error, Act::Free)
                    }
                });
            }
            Some(Held::Gone { address, view }) => {
                self.memory.insert(memory, Held::Gone { address, view });
                address
            }
            Some(Held::Node(node, graph)) => {
                // No launch gave it a life: whatever the library says of the address, it is too early.
                self.memory.insert(memory, Held::Node(node, graph));
                let freed = match &stream {
                    Some(stream) => stream.free_address(node.address()),
                    None => self.device.free_address(node.address()),
                };
                if freed.is_err() {
                    self.found.insert(Expected { line: self.line, kind: Kind::FreeBeforeAlloc });
                }
                return Ok(Said::Done);
            }
            Some(Held::Void) => {
                self.memory.insert(memory, Held::Void);
                return Ok(Said::Done);
            }
            None => return cannot("memory that was never allocated cannot be named"),
        };
        let freed = match &stream {
            Some(stream) => stream.free_address(address),
            None => self.device.free_address(address),
        };
        Ok(said(freed, Act::Free))
    }

    fn drop_memory(&mut self, memory: Memory) -> Result<Said, Cannot> {
        let memory = self.current(memory);
        match self.memory.remove(&memory) {
            Some(Held::Buffer(buffer)) => {
                let (address, view) = (buffer.address(), buffer.view());
                drop(buffer);
                self.memory.insert(memory, Held::Gone { address, view });
                Ok(Said::Done)
            }
            _ => cannot("only a buffer can be dropped"),
        }
    }

    /// While something is captured (one stream's work at a time, and what joins it), each operation is the next node.
    fn note_captured(&mut self) -> bool {
        let Some(capture) = self.captures.values().next() else { return false };
        self.lines.entry(capture.graph).or_default().push(self.line);
        true
    }

    /// Work that sums what it reads and fills what it writes: on a stream, or by the host and over when this returns.
    fn launch(&mut self, stream: Option<StreamId>, accesses: &[Access]) -> Result<Said, Cannot> {
        let act = accesses.iter().map(|access| access.act).find(|act| *act == Act::Write).unwrap_or(Act::Read);
        let pause = self.place.pause();
        if let (Some(stream), false) = (stream, pause.is_zero() || !self.captures.is_empty()) {
            // What the stream does next comes late.
            self.stream(stream)?.launch((), move |()| std::thread::sleep(pause)).expect("the stream runs");
        }
        let Some(accesses) = self.accesses(accesses)? else { return Ok(Said::Done) };
        let on = stream.map_or(Ok(&self.own), |stream| self.stream(stream))?;
        let said = said(self.launch_on(on, accesses)?, act);
        if matches!(said, Said::Done) {
            match stream {
                None => self.own.synchronize().expect("the stream runs"),
                Some(_) => drop(self.note_captured()),
            }
        }
        Ok(said)
    }

    /// The accesses as the library takes them; none where something is not there because of an earlier refusal.
    fn accesses(&self, accesses: &[Access]) -> Result<Option<Accesses<'_>>, Cannot> {
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for access in accesses {
            let (read, write) = match self.memory.get(&self.current(access.memory)) {
                Some(Held::Buffer(buffer)) => (buffer.read(), buffer.write()),
                Some(Held::Gone { view, .. }) => (view.read(), view.write()),
                Some(Held::Node(node, _)) => (node.read(), node.write()),
                Some(Held::Void) => return Ok(None),
                None => return cannot("memory that was never allocated cannot be named"),
            };
            match access.act {
                Act::Read => reads.push(read),
                _ => writes.push(write),
            }
        }
        Ok(Some((reads, writes)))
    }

    /// Notes a refusal, unless it follows from an earlier one.
    fn note(&mut self, said: Said) {
        let Said::Refused(error, act) = said else { return };
        if let Error::Graph(graph) = &error
            && let millpond::GraphError::Faults(faults) = &**graph
        {
            for fault in faults {
                let at = fault.later.origin.first().map_or(0, |node| node.index());
                // A captured node is refused before it is there: at this line.
                let graph = self.captures.values().next().map_or(self.instantiating, |capture| capture.graph);
                let line = self.lines.get(&graph).and_then(|lines| lines.get(at)).copied().unwrap_or(self.line);
                self.found.insert(Expected { line, kind: fault.kind.into() });
            }
            return;
        }
        if let Some(kind) = kind_of(&error, act) {
            self.found.insert(Expected { line: self.line, kind });
        }
    }
}

fn said(result: Result<(), Error>, act: Act) -> Said {
    match result {
        Ok(()) => Said::Done,
        Err(error) => Said::Refused(error, act),
    }
}
