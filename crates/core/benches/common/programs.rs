//! Right programs for the checker to judge.
//!
//! `launches` are launches alone, each with two reads and a write of memory that its stream allocated; the `mix` is
//! alloc, three launches, record, wait on a neighbour, launch, record, wait back, free.

use millpond_core::check::{Checker, Finding, Settings};
use millpond_core::ids::{DeviceId, EventId, HostId, PoolId, StreamId};
use millpond_core::op::{Access, Act, EventKind, Memory, Names, Op, Place, StreamRole, Trust, What};

/// Few enough that reading them costs little compared with checking them.
pub(crate) const OPERATIONS: usize = 20_480;

fn op(what: What) -> Op {
    Op { host: HostId(0), place: Place::Line(1), what }
}

fn alloc(memory: Memory, stream: StreamId) -> Op {
    op(What::Alloc { memory, pool: PoolId(0), stream, bytes: 1024, name: None })
}

fn launch(stream: StreamId, accesses: &[(Memory, Act)]) -> Op {
    let accesses = accesses.iter().map(|&(memory, act)| Access::whole(memory, act)).collect();
    op(What::Launch { stream, accesses, trust: Trust::None, name: None })
}

fn create(streams: u32) -> Vec<Op> {
    let role = StreamRole::NonBlocking;
    let create = |stream| op(What::StreamCreate { stream: StreamId(stream), role, device: DeviceId(0) });
    (1..=streams).map(create).collect()
}

/// Returns the creation of streams with four allocations each, and launches on them in turn.
pub(crate) fn launches(streams: u32) -> (Vec<Op>, Vec<Op>) {
    let mut before = create(streams);
    for stream in 1..=streams {
        before.extend((0..4).map(|at| alloc(Memory::first(stream * 4 + at), StreamId(stream))));
    }
    let ops = (0..OPERATIONS as u32).map(|at| {
        let (stream, first) = (at % streams + 1, at / streams);
        let memory = |n: u32| Memory::first(stream * 4 + (first + n) % 4);
        launch(StreamId(stream), &[(memory(0), Act::Read), (memory(1), Act::Read), (memory(2), Act::Write)])
    });
    (before, ops.collect())
}

/// Returns memory that passes from stream to stream and back.
pub(crate) fn mix(streams: u32) -> (Vec<Op>, Vec<Op>) {
    let mut ops = Vec::new();
    for round in 0..OPERATIONS as u32 / 10 {
        let at = round % streams;
        let (here, there) = (StreamId(at + 1), StreamId(at / 2 * 2 + (at + 1) % 2 % streams + 1));
        let memory = Memory { generation: u64::from(round / streams), ..Memory::first(at) };
        let record = |event: u32, stream| {
            op(What::EventRecord { event: EventId(event), stream, external: false, kind: EventKind::Completion })
        };
        let wait = |event: u32, stream| op(What::EventWait { event: EventId(event), stream, external: false });
        ops.push(alloc(memory, here));
        ops.extend((0..3).map(|_| launch(here, &[(memory, Act::Write)])));
        ops.extend([record(2 * at, here), wait(2 * at, there), launch(there, &[(memory, Act::Read)])]);
        ops.extend([
            record(2 * at + 1, there),
            wait(2 * at + 1, here),
            op(What::Free { memory, stream: here, trust: Trust::None }),
        ]);
    }
    (create(streams.max(2)), ops)
}

/// A checker that judges a program repeatedly.
pub(crate) struct Judge {
    checker: Checker,
    names: Names,
    findings: Vec<Finding>,
    ops: Vec<Op>,
}

impl Judge {
    /// Judges, once, the operations before the measured ones.
    pub(crate) fn new((before, ops): (Vec<Op>, Vec<Op>)) -> Self {
        let settings = Settings { advice: false, ..Settings::default() };
        let mut judge = Self { checker: Checker::new(settings), names: Names::new(), findings: Vec::new(), ops };
        for op in &before {
            judge.checker.check(op, &judge.names, &mut judge.findings);
        }
        judge
    }

    /// Judges the program once more.
    ///
    /// # Errors
    /// A finding, which is a mistake of this file.
    pub(crate) fn pass(&mut self) -> Result<(), String> {
        for op in &self.ops {
            self.checker.check(op, &self.names, &mut self.findings);
        }
        self.findings.first().map_or(Ok(()), |finding| Err(format!("the program is right: {finding}")))
    }
}
