//! One thread of a program: turns operations as data into the checker's operations, which the runner does with the
//! library.
//!
//! Each thread has its own run, checker and memory. The checker says which operations are right now; some wrong ones
//! are made on purpose. The library and the checker must refuse the same operations. Other threads can only add order.
//! With several threads the library must accept what the checker accepts, but may accept more.

mod graphs;
mod judge;
mod memory;
mod order;
mod owning;
mod things;

use std::collections::{BTreeSet, HashMap, HashSet};

use millpond::config::PoolConfig;
use millpond_core::check::{Checker, Settings};
use millpond_core::ids::{DeviceId, EventId, ExecId, PoolId, StreamId};
use millpond_core::op::{Memory, Op as CoreOp, StreamRole};
use millpond_runner::{Place, Refusal, Run, Schedule, Timing};

use crate::bytes::Content;
use crate::ground::{Before, Done, Pending};
use crate::kind::Kind;
use crate::model::Kernel;
use crate::op::Op;
use crate::settings::DeviceKind;
use crate::stage::Stage;
use crate::steps::{Runs, step};
use graphs::{Exec, Made};

/// The relation of a stream to the legacy default stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tie {
    Legacy,
    Blocking,
    Free,
}

/// A stream of the thread.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) id: StreamId,
    pub(crate) device: usize,
    pub(crate) tie: Tie,
    pub(crate) is_default: bool,
    /// `true` if other threads use it, too, or kernels own it.
    pub(crate) is_shared: bool,
    /// The kernels that its next operation comes after.
    pub(crate) before: Before,
}

/// A pool of the thread.
#[derive(Clone, Debug)]
pub(crate) struct PoolAt {
    pub(crate) id: PoolId,
    pub(crate) device: usize,
    /// `true` if it adds no waits of its own, so that every reuse must be ordered or come after completed work.
    pub(crate) is_strict: bool,
    pub(crate) config: PoolConfig,
}

/// Memory of the thread.
#[derive(Clone, Debug)]
pub(crate) struct Buf {
    pub(crate) memory: Memory,
    pub(crate) words: usize,
    pub(crate) device: usize,
    /// Its pool; `None` if a launch or another thread gave it.
    pub(crate) pool: Option<PoolId>,
    pub(crate) content: Content,
    /// The instance whose launch allocated it, and the alloc node's memory.
    pub(crate) launched_by: Option<(ExecId, Memory)>,
    /// `true` if a graph uses it.
    pub(crate) is_in_graph: bool,
    /// The kernels that use it.
    pub(crate) uses: Before,
}

/// An event of the thread.
#[derive(Clone, Debug)]
pub(crate) struct EventAt {
    pub(crate) id: EventId,
    pub(crate) before: Before,
}

/// A thread of a program.
pub(crate) struct Thread<'w> {
    pub(crate) stage: &'w Stage,
    number: usize,
    run: Run,
    checker: Checker,
    /// The operations so far.
    ops: Vec<CoreOp>,
    /// The refusals so far, by both the library and the checker.
    refused: BTreeSet<Refusal>,
    /// The runner's refusals so far.
    by_runner: BTreeSet<Refusal>,
    /// The indexes of operations that were refused for their order.
    wrong: Vec<usize>,
    /// The indexes of operations that were refused for another reason, or accepted because of other threads' work.
    followed: Vec<usize>,
    /// `true` if the library may know more than the checker.
    has_lost_track: bool,
    /// The kernels that report when they have run.
    kernels: Vec<(Done, Kernel)>,
    /// The kernels that had not run when their memory's addresses were reused, each with the line of the reuse.
    reused: Vec<(Pending, u32)>,
    streams: Vec<Option<Line>>,
    pools: Vec<Option<PoolAt>>,
    bufs: Vec<Option<Buf>>,
    events: Vec<Option<EventAt>>,
    /// External events.
    externals: Vec<Option<EventAt>>,
    /// The names of memory that is gone.
    stale: Vec<Option<Memory>>,
    graphs: Vec<Option<Made>>,
    execs: Vec<Option<Exec>>,
    /// Streams that stand for those of other threads, each with an event at its end.
    stubs: HashMap<StreamId, EventId>,
    /// The number of nodes of each graph, for the log.
    nodes: HashMap<u32, usize>,
    /// `true` if the current operation failed.
    has_failed: bool,
    /// The closed streams.
    closed: Vec<Line>,
    /// The default streams that were taken.
    defaults: HashSet<(usize, StreamRole)>,
    /// The kernels that the current stream's next operation comes after in addition.
    learned: Before,
}

/// Picks one of the objects in a table.
pub(crate) fn pick<T>(table: &[Option<T>], number: u32) -> Option<usize> {
    let there: Vec<usize> = (0..table.len()).filter(|at| table[*at].is_some()).collect();
    (!there.is_empty()).then(|| there[number as usize % there.len()])
}

/// Returns a place for a new object: an empty one, or one whose object is replaced.
pub(crate) fn place<T>(table: &[Option<T>], number: u32) -> usize {
    (0..table.len()).find(|at| table[*at].is_none()).unwrap_or(number as usize % table.len())
}

/// Makes an empty table with a number of places.
pub(crate) fn places<T>(count: usize) -> Vec<Option<T>> {
    (0..count).map(|_| None).collect()
}

/// Returns the id of a device.
pub(crate) fn device_id(at: usize) -> DeviceId {
    DeviceId(at as u32)
}

impl<'w> Thread<'w> {
    /// Creates a thread without objects.
    pub(crate) fn new(stage: &'w Stage, number: usize) -> Self {
        let place = match stage.kind {
            DeviceKind::Host => Place::Host(Timing::Fast),
            DeviceKind::Seeded => Place::Host(Timing::Seeded(0)),
            DeviceKind::Sim => Place::Checked(Schedule::AtOnce),
            DeviceKind::SimLate => Place::Checked(Schedule::AtWait),
            DeviceKind::Cuda => Place::Cuda,
        };
        let device = |at: usize| stage.device(at).expect("no thread has run yet");
        let mut run = Run::new(device(0), place, None);
        (1..stage.devices.len()).for_each(|at| run.give_device(device_id(at), device(at)));
        let settings = Settings { leaks: false, advice: false, ..Settings::RECORDED };
        Self {
            stage,
            number,
            run,
            checker: Checker::new(settings),
            ops: Vec::new(),
            refused: BTreeSet::new(),
            by_runner: BTreeSet::new(),
            wrong: Vec::new(),
            followed: Vec::new(),
            has_lost_track: false,
            kernels: Vec::new(),
            reused: Vec::new(),
            streams: places(4),
            pools: places(3),
            bufs: places(10),
            events: places(4),
            externals: places(2),
            stale: places(3),
            graphs: places(3),
            execs: places(4),
            stubs: HashMap::new(),
            nodes: HashMap::new(),
            has_failed: false,
            closed: Vec::new(),
            defaults: HashSet::new(),
            learned: Before::default(),
        }
    }
}

impl Runs for Thread<'_> {
    fn step(&mut self, op: Op) {
        step!(self, op, {
            Kind::Share => self.share(op),
            Kind::UseShared => self.use_shared(op),
            Kind::DropDevice => self.drop_device(op),
            Kind::Write => self.write(op, false),
            Kind::WritePart => self.write(op, true),
            Kind::Read => self.read(op, false),
            Kind::ReadPart => self.read(op, true),
            Kind::FreeAddress => self.free(op),
            Kind::Give => self.give(op),
            Kind::Take => self.take(op),
            Kind::RecordExternal => self.record_external(op),
            Kind::WaitExternal => self.wait_external(op),
            Kind::SyncDevice => self.synchronize(op.a as usize % self.stage.devices.len()),
            Kind::Hold => self.hold(op),
            Kind::Owning => self.own_by_kernel(op),
            Kind::Panic => self.panic(op),
            Kind::Fail => self.fail(op),
            Kind::EndFailure => self.stage.devices.iter().for_each(|it| it.driver.disarm()),
            Kind::Grant => self.grant(op),
            Kind::Capture => self.capture(op),
            Kind::Build => self.build(op),
            Kind::Instantiate => self.instantiate_again(op),
            Kind::Launch => self.launch(op),
            Kind::Upload => self.upload(op),
            Kind::Update => self.update(op),
            Kind::DropExec => self.drop_exec(op),
            Kind::TrimGraphs => self.trim_graphs(op),
            // Only `sharing` has other processes.
            Kind::Spawn | Kind::Lend | Kind::Redeem | Kind::Work | Kind::Return | Kind::Ask => {},
            Kind::Borrow | Kind::Repay | Kind::Flood | Kind::Kill | Kind::HangUp => {},
        });
    }

    fn finish(self, chance: u64) {
        self.ask_the_model();
        for buf in self.bufs.iter().flatten() {
            if let Some(buffer) = self.run.buffer(buf.memory) {
                self.stage.ground.release(buf.memory.id.0, buffer.address(), &buf.uses);
            }
        }
        self.run.drop_in_order((chance >> 1) as usize);
    }
}
