//! Random programs of streams, events, host threads, memory and graph launches. Many of their operations are wrong.

use std::iter::once;

use fastrand::Rng;
use millpond_core::ids::{AllocId, DeviceId, EventId, ExecId, GraphId, HostId, NodeId, PoolId, StreamId};
use millpond_core::op::{
    Access, Act, CaptureMode, EventKind, Memory, NodeOp, Op, Part, Place, StreamRole, Trust, What,
};

/// The numbers of allocations and of events.
const MEMORY: u32 = 4;
const EVENTS: u32 = 4;
/// The number of the allocation that a graph makes.
const OUTPUT: u32 = MEMORY;
/// The number of graphs. The wait nodes of graphs wait for the first events. A graph has a kernel, and perhaps a wait
/// node.
pub(crate) const GRAPHS: u32 = 2;

/// The operations that a random program may contain.
#[derive(Clone, Copy)]
pub(crate) struct Kinds {
    /// Graph launches and captures.
    pub(crate) graphs: bool,
    /// Graphs that allocate, use and free memory.
    pub(crate) memory_nodes: bool,
    /// Uses of parts of memory.
    pub(crate) parts: bool,
    /// Host threads that use memory, and free it at once.
    pub(crate) hosts: bool,
    /// Destroyed streams.
    pub(crate) ends: bool,
}

/// A random program.
pub(crate) struct Program<'r> {
    pub(crate) rng: &'r mut Rng,
    pub(crate) kinds: Kinds,
    pub(crate) ops: Vec<Op>,
    streams: u32,
    lives: [u64; MEMORY as usize],
    uses: Vec<ExecId>,
}

impl<'r> Program<'r> {
    /// Makes a program with some streams and `operations` operations on them.
    pub(crate) fn random(rng: &'r mut Rng, kinds: Kinds, operations: usize) -> Vec<Op> {
        let mut program =
            Program { rng, kinds, ops: Vec::new(), streams: 1, lives: [0; MEMORY as usize], uses: Vec::new() };
        (0..3).for_each(|_| program.create());
        if kinds.graphs {
            (0..GRAPHS).for_each(|number| program.make_graph(number));
        }
        if kinds.memory_nodes {
            program.make_memory_graphs();
        }
        for _ in 0..operations {
            program.operation();
        }
        program.ops
    }

    fn push(&mut self, what: What) {
        let (host, line) = (HostId(self.rng.u32(0..2)), self.ops.len() as u32 + 1);
        self.ops.push(Op { host, place: Place::Line(line), what });
    }

    fn create(&mut self) {
        let roles = [StreamRole::NonBlocking, StreamRole::Blocking, StreamRole::PerThread];
        let role = roles[self.rng.usize(0..roles.len())];
        let (stream, device) = (StreamId(self.streams), DeviceId(u32::from(self.rng.u8(0..6) == 0)));
        self.streams += 1;
        self.push(What::StreamCreate { stream, role, device });
    }

    /// Returns a stream. Number 0 is the legacy default stream.
    fn stream(&mut self) -> StreamId {
        StreamId(match self.rng.u8(0..6) {
            0 => 0,
            _ => self.rng.u32(1..self.streams),
        })
    }

    fn event(&mut self) -> EventId {
        EventId(self.rng.u32(0..EVENTS))
    }

    fn memory(&mut self) -> Memory {
        let id = self.rng.u32(0..MEMORY);
        Memory { id: AllocId(id), generation: self.lives[id as usize] }
    }

    fn access(&mut self) -> Access {
        let (memory, act) = (self.memory(), if self.rng.bool() { Act::Read } else { Act::Write });
        let from = self.rng.u64(0..8) * 64;
        let part = match self.kinds.parts && self.rng.bool() {
            true => Part::new(from, from + 64 * self.rng.u64(1..4)).expect("it has bytes"),
            false => Part::WHOLE,
        };
        Access { memory, act, part }
    }

    fn make_graph(&mut self, number: u32) {
        let (graph, exec) = (GraphId(number), ExecId(number));
        self.push(What::GraphCreate { graph, symbolic: true });
        let mut nodes = vec![NodeOp::Kernel(Default::default())];
        nodes.extend((number > 0).then_some(NodeOp::EventWait(EventId(0))));
        for node in nodes {
            self.push(What::GraphNode { graph, node: Box::new(node), after: Default::default(), name: None });
        }
        self.push(What::Instantiate { graph, exec, auto_free_on_launch: false });
    }

    /// Makes two graphs: one allocates memory number [`OUTPUT`], the other one reads and frees it.
    fn make_memory_graphs(&mut self) {
        let (memory, auto_free_on_launch) = (Memory::first(OUTPUT), self.rng.bool());
        let alloc = NodeOp::Alloc { memory, bytes: 512 };
        let read = NodeOp::Kernel(once(Access::whole(memory, Act::Read)).collect());
        for (number, nodes) in [(10, vec![alloc]), (11, vec![read, NodeOp::Free(memory)])] {
            let (graph, exec) = (GraphId(number), ExecId(number));
            self.push(What::GraphCreate { graph, symbolic: false });
            for (at, node) in nodes.into_iter().enumerate() {
                let after = at.checked_sub(1).map(|before| NodeId(before as u32)).into_iter().collect();
                self.push(What::GraphNode { graph, node: Box::new(node), after, name: None });
            }
            self.push(What::Instantiate { graph, exec, auto_free_on_launch });
        }
    }

    /// Makes a graph whose kernel uses memory that a stream allocated.
    fn make_graph_of_uses(&mut self) {
        let number = 20 + self.ops.len() as u32;
        let (graph, exec, access) = (GraphId(number), ExecId(number), self.access());
        self.push(What::GraphCreate { graph, symbolic: true });
        let node = Box::new(NodeOp::Kernel(once(access).collect()));
        self.push(What::GraphNode { graph, node, after: Default::default(), name: None });
        self.push(What::Instantiate { graph, exec, auto_free_on_launch: false });
        self.uses.push(exec);
    }

    fn operation(&mut self) {
        if self.kinds.memory_nodes && self.rng.u8(0..4) == 0 {
            return self.memory_operation();
        }
        let (stream, memory, event) = (self.stream(), self.memory(), self.event());
        let what = match self.rng.u8(0..64) {
            0..=5 => {
                let next = &mut self.lives[memory.id.index()];
                *next += 1;
                let memory = Memory { generation: *next, ..memory };
                What::Alloc { memory, pool: PoolId(0), stream, bytes: 1024, name: None }
            }
            6..=19 => {
                let accesses = (0..self.rng.u8(1..4)).map(|_| self.access()).collect();
                What::Launch { stream, accesses, trust: Trust::None, name: None }
            }
            20..=21 => What::Copy { stream, accesses: once(self.access()).collect() },
            22..=26 => What::Free { memory, stream, trust: Trust::None },
            27..=36 => What::EventRecord { event, stream, external: false, kind: EventKind::Completion },
            37..=48 => What::EventWait { event, stream, external: false },
            49 => What::EventSynchronize { event },
            50 => What::EventQuery { event, is_over: self.rng.bool() },
            51 => What::StreamSynchronize { stream },
            52 => What::StreamQuery { stream, is_idle: self.rng.bool() },
            53 => What::SynchronizeDevice { device: DeviceId(self.rng.u32(0..2)) },
            54 => What::Drop { memory },
            55 if self.kinds.hosts => What::FreeNow { memory },
            56..=57 if self.kinds.hosts => What::HostAccess { accesses: once(self.access()).collect() },
            58 if self.kinds.ends => What::StreamDestroy { stream },
            59 if self.streams < 8 => return self.create(),
            60..=62 if self.kinds.graphs => What::GraphLaunch { exec: ExecId(self.rng.u32(0..GRAPHS)), stream },
            63 if self.kinds.graphs => return self.capture(stream),
            _ => return,
        };
        self.push(what);
    }

    /// Adds an operation on the memory of graphs.
    fn memory_operation(&mut self) {
        let (stream, memory, act) =
            (self.stream(), Memory::first(OUTPUT), [Act::Read, Act::Write][self.rng.usize(0..2)]);
        let what = match self.rng.u8(0..10) {
            0..=1 => What::GraphLaunch { exec: ExecId(10), stream },
            2 => What::GraphLaunch { exec: ExecId(11), stream },
            3 => What::Free { memory, stream, trust: Trust::None },
            4 => What::Drop { memory },
            5 => What::Launch {
                stream,
                accesses: once(Access::whole(memory, act)).collect(),
                trust: Trust::None,
                name: None,
            },
            6 if self.uses.len() < 4 => return self.make_graph_of_uses(),
            _ => match self.uses.len() {
                0 => return self.make_graph_of_uses(),
                uses => What::GraphLaunch { exec: self.uses[self.rng.usize(0..uses)], stream },
            },
        };
        self.push(what);
    }

    /// Makes a stream capture a kernel, and an allocation that it frees. Other streams continue.
    fn capture(&mut self, stream: StreamId) {
        let graph = GraphId(GRAPHS + self.ops.len() as u32);
        self.push(What::CaptureBegin { stream, graph, mode: CaptureMode::Relaxed, symbolic: true });
        self.push(What::Launch { stream, accesses: Default::default(), trust: Trust::None, name: None });
        self.operation();
        self.push(What::CaptureEnd { stream });
    }
}
