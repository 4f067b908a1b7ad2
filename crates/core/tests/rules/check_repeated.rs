//! Repeated uses of memory by a stream get the same verdicts as if each was checked separately.

use millpond_core::check::{Checker, Finding, Kind, Settings};
use millpond_core::ids::{AllocId, DeviceId, EventId, HostId, PoolId, StreamId};
use millpond_core::op::{Access, Act, EventKind, Memory, Names, Op, Place, StreamRole, Trust, What};

const MEMORY: Memory = Memory { id: AllocId(7), generation: 3 };

/// Returns the findings of a program whose first two operations create streams 1 and 2.
fn found(program: &[What]) -> Vec<Finding> {
    let mut checker = Checker::new(Settings { races: false, leaks: false, advice: false, unused_graphs: true });
    let (names, mut findings) = (Names::new(), Vec::new());
    let stream = |stream| What::StreamCreate { stream, role: StreamRole::NonBlocking, device: DeviceId(0) };
    let streams = [stream(StreamId(1)), stream(StreamId(2))];
    for (line, what) in streams.iter().chain(program).enumerate() {
        let op = Op { host: HostId(0), place: Place::Line(line as u32 + 1), what: what.clone() };
        checker.check(&op, &names, &mut findings);
    }
    findings
}

fn alloc() -> What {
    What::Alloc { memory: MEMORY, pool: PoolId(0), stream: StreamId(1), bytes: 64, name: None }
}

fn launch(stream: u32, act: Act) -> What {
    let accesses = std::iter::once(Access::whole(MEMORY, act)).collect();
    What::Launch { stream: StreamId(stream), accesses, trust: Trust::None, name: None }
}

fn free(stream: u32) -> What {
    What::Free { memory: MEMORY, stream: StreamId(stream), trust: Trust::None }
}

fn hand_over(from: u32, to: u32) -> [What; 2] {
    let (event, external) = (EventId(from), false);
    [
        What::EventRecord { event, stream: StreamId(from), external, kind: EventKind::Completion },
        What::EventWait { event, stream: StreamId(to), external },
    ]
}

fn told(program: &[What]) -> Vec<(Kind, u64)> {
    let told = found(program).into_iter().map(|it| (it.kind, it.earlier.and_then(|side| side.op).unwrap_or(0)));
    told.collect()
}

#[test]
fn what_was_repeated_last_is_the_other_side() {
    for act in [Act::Read, Act::Write] {
        let mut program = vec![alloc(), launch(1, act), launch(1, act)];
        program.extend(hand_over(1, 2));
        assert_eq!(told(&[&program[..], &[free(2)]].concat()), []);
        program.extend([launch(1, act), launch(1, act), free(2)]);
        assert_eq!(told(&program), [(Kind::FreeBeforeUse, 6)], "{act:?}: the record has a number, too");
    }
}

#[test]
fn both_of_two_streams_that_repeat_must_precede_the_free() {
    let mut program = vec![alloc()];
    program.extend(hand_over(1, 2));
    for _ in 0..3 {
        program.extend([launch(1, Act::Read), launch(1, Act::Read), launch(2, Act::Read), launch(2, Act::Read)]);
    }
    assert_eq!(told(&[&program[..], &[free(1)]].concat()), [(Kind::FreeBeforeUse, 7)]);
    assert_eq!(told(&[&program[..], &[free(2)]].concat()), [(Kind::FreeBeforeUse, 8)]);
    program.extend(hand_over(2, 1));
    assert_eq!(told(&[&program[..], &[free(1)]].concat()), []);
}

#[test]
fn a_read_after_a_repeated_write_does_not_stand_for_it() {
    let mut program = vec![alloc(), launch(1, Act::Write), launch(1, Act::Write)];
    program.extend([launch(1, Act::Read), launch(1, Act::Read), launch(1, Act::Read)]);
    program.extend(hand_over(1, 2));
    assert_eq!(told(&[&program[..], &[free(2)]].concat()), []);
    program.push(launch(1, Act::Write));
    assert_eq!(told(&[&program[..], &[free(2)]].concat()), [(Kind::FreeBeforeUse, 8)]);
}

#[test]
fn memory_that_is_freed_is_not_used_again_by_repeating() {
    let program = [alloc(), launch(1, Act::Read), launch(1, Act::Read), free(1), launch(1, Act::Read)];
    assert_eq!(told(&program), [(Kind::UseAfterFree, 4)]);
}

#[test]
fn a_number_that_leads_elsewhere_takes_no_use_with_it() {
    let anew = Memory { generation: 4, ..MEMORY };
    let alloc_anew = What::Alloc { memory: anew, pool: PoolId(0), stream: StreamId(1), bytes: 64, name: None };
    let use_anew = |stream: u32| What::Launch {
        stream: StreamId(stream),
        accesses: std::iter::once(Access::whole(anew, Act::Read)).collect(),
        trust: Trust::None,
        name: None,
    };
    // The first allocation is never freed. Its uses stay its own, including those that were not written back yet.
    let mut program = vec![alloc(), launch(1, Act::Read), launch(1, Act::Read), alloc_anew];
    program.extend([use_anew(1), use_anew(1), launch(1, Act::Read)]);
    assert_eq!(told(&program), [(Kind::UseAfterFree, 0)], "the old name, while the history of the new one is behind");
    program.extend([use_anew(2), use_anew(1)]);
    let told = told(&program);
    assert_eq!(told.last(), Some(&(Kind::UseBeforeAlloc, 4)), "{told:?}");
}

#[test]
fn what_many_accesses_repeat_is_judged_as_what_few_do() {
    let all: Vec<Memory> = (0..40).map(|id| Memory { id: AllocId(id), generation: 0 }).collect();
    let alloc =
        |memory: &Memory| What::Alloc { memory: *memory, pool: PoolId(0), stream: StreamId(1), bytes: 64, name: None };
    let launch = |stream: u32| What::Launch {
        stream: StreamId(stream),
        accesses: all.iter().map(|memory| Access::whole(*memory, Act::Read)).collect(),
        trust: Trust::None,
        name: None,
    };
    let mut program: Vec<What> = all.iter().map(alloc).collect();
    program.extend([launch(1), launch(1)]);
    program.extend(hand_over(1, 2));
    program.extend([launch(2), launch(2), launch(1), launch(1)]);
    let free = |stream: u32, at: usize| What::Free { memory: all[at], stream: StreamId(stream), trust: Trust::None };
    assert_eq!(told(&[&program[..], &[free(1, 39)]].concat()), [(Kind::FreeBeforeUse, 3)]);
    assert_eq!(told(&[&program[..], &[free(2, 39)]].concat()), [(Kind::FreeBeforeUse, 45)]);
}
