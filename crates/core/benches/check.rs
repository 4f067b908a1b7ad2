//! Host time of the checker: a launch with three declared accesses, and operations of a whole program.
//!
//! Run with `cargo bench -p millpond-core --bench check`. `launches` are launches alone, each with two reads and a
//! write of memory that its stream allocated; the `mix` is alloc, three launches, record, wait on a neighbour, launch,
//! record, wait back, free.

use std::time::Instant;

use millpond_core::check::{Checker, Settings};
use millpond_core::ids::{DeviceId, EventId, HostId, PoolId, StreamId};
use millpond_core::op::{Access, Act, Mark, Memory, Names, Op, Place, Start, StreamRole, What};
use smallvec::SmallVec;

/// Few enough that reading them costs little beside checking them.
const OPERATIONS: usize = 20_480;
/// How often they are checked over.
const ROUNDS: usize = 50;
const REPEATS: usize = 7;

fn op(what: What) -> Op {
    Op { host: HostId(0), place: Place::Line(1), what }
}

fn alloc(memory: Memory, stream: StreamId) -> Op {
    op(What::Alloc { memory, pool: PoolId(0), stream, bytes: 1024, name: None })
}

fn launch(stream: StreamId, accesses: &[(Memory, Act)]) -> Op {
    let accesses: SmallVec<[Access; 2]> = accesses.iter().map(|&(memory, act)| Access::whole(memory, act)).collect();
    op(What::Launch { stream, accesses, start: Start::Ordered, name: None })
}

fn create(streams: u32) -> Vec<Op> {
    let role = StreamRole::NonBlocking;
    let create = |stream| op(What::StreamCreate { stream: StreamId(stream), role, device: DeviceId(0) });
    (1..=streams).map(create).collect()
}

/// The streams with four allocations each, and launches on them in turn.
fn launches(streams: u32) -> (Vec<Op>, Vec<Op>) {
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

fn mix(streams: u32) -> (Vec<Op>, Vec<Op>) {
    let mut ops = Vec::new();
    for round in 0..OPERATIONS as u32 / 10 {
        let at = round % streams;
        let (here, there) = (StreamId(at + 1), StreamId(at / 2 * 2 + (at + 1) % 2 % streams + 1));
        let memory = Memory { generation: u64::from(round / streams), ..Memory::first(at) };
        let record = |event: u32, stream| {
            op(What::EventRecord { event: EventId(event), stream, external: false, mark: Mark::Completion })
        };
        let wait = |event: u32, stream| op(What::EventWait { event: EventId(event), stream, external: false });
        ops.push(alloc(memory, here));
        ops.extend((0..3).map(|_| launch(here, &[(memory, Act::Write)])));
        ops.extend([record(2 * at, here), wait(2 * at, there), launch(there, &[(memory, Act::Read)])]);
        ops.extend([record(2 * at + 1, there), wait(2 * at + 1, here), op(What::Free { memory, stream: here })]);
    }
    (create(streams.max(2)), ops)
}

fn run(before: &[Op], ops: &[Op]) -> f64 {
    let settings = Settings { advice: false, ..Settings::default() };
    let (mut checker, mut findings, names) = (Checker::new(settings), Vec::new(), Names::new());
    for op in before {
        checker.check(op, &names, &mut findings);
    }
    let start = Instant::now();
    for _ in 0..ROUNDS {
        for op in ops {
            checker.check(op, &names, &mut findings);
        }
    }
    let nanoseconds = start.elapsed().as_nanos() as f64 / (ops.len() * ROUNDS) as f64;
    assert!(findings.is_empty(), "the programs are right: {}", findings[0]);
    nanoseconds
}

fn main() {
    if std::env::args().any(|arg| arg == "--test") {
        return;
    }
    println!("{:<12} {:>8} {:>12} {:>12}", "workload", "streams", "min ns/op", "median");
    for (name, make) in [("launches", launches as fn(u32) -> _), ("mix", mix)] {
        for streams in [1, 64, 1024] {
            let (before, ops): (Vec<Op>, Vec<Op>) = make(streams);
            let mut times: Vec<f64> = (0..REPEATS).map(|_| run(&before, &ops)).collect();
            times.sort_by(f64::total_cmp);
            println!("{name:<12} {streams:>8} {:>12.1} {:>12.1}", times[0], times[REPEATS / 2]);
        }
    }
}
