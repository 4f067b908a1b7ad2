//! The checker against a model device: clean exactly where no schedule reads poison.
//!
//! The model knows nothing of clocks. The host submits operations in program order and blocks where it synchronises;
//! the device runs whatever has all its dependencies behind it, in any order. Memory is poison until its allocation
//! runs and from the moment its free runs (the allocator gives it out again at once). All reachable states of a small
//! program are enumerated, so "some schedule reads poison" is exact. Of a program found right every edge is taken away
//! in turn, and the verdict is compared with plain reachability.

use std::collections::{HashMap, HashSet};

use fastrand::Rng;
use millpond_core::check::{Checker, Settings};
use millpond_core::ids::{DeviceId, EventId, HostId, PoolId, StreamId};
use millpond_core::op::{Access, Act, Mark, Memory, Names, Op, Part, Place, StreamRole, What};
use smallvec::smallvec;

const STREAMS: u64 = 4;
const MEMORIES: u64 = 2;
const EVENTS: u64 = 2;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Step {
    Alloc(u64, u64),
    Use(u64, u64, Act, Part),
    Free(u64, u64),
    Record(u64, u64),
    Wait(u64, u64),
    SyncStream(u64),
    SyncEvent(u64),
    SyncDevice,
}

/// Streams 0 and 1 are non-blocking, 2 is blocking, 3 is the legacy default stream.
const LEGACY: u64 = 3;

fn is_blocking(stream: u64) -> bool {
    stream == 2
}

/// A program that names memory between its allocation and, mostly, its free.
fn program(random: &mut Rng) -> Vec<Step> {
    let streams = 2 + random.u64(..STREAMS - 1);
    let stream = |random: &mut Rng| random.u64(..streams);
    let mut steps = Vec::new();
    let mut state = [0_u8; MEMORIES as usize];
    for _ in 0..5 + random.u64(..8) {
        let memory = random.u64(..MEMORIES);
        let at = stream(random);
        let is_live = state[memory as usize] == 1;
        steps.push(match random.u64(..12) {
            _ if state[memory as usize] == 0 => {
                state[memory as usize] = 1;
                Step::Alloc(memory, at)
            }
            0 | 1 if is_live => {
                state[memory as usize] = 2;
                Step::Free(memory, at)
            }
            2..=4 if is_live || random.u64(..8) == 0 => {
                let part = [Part::WHOLE, part(0, 40), part(39, 64), part(40, 64)];
                let act = if random.u64(..2) == 0 { Act::Read } else { Act::Write };
                Step::Use(memory, at, act, part[random.usize(..4)])
            }
            5 | 6 => Step::Record(random.u64(..EVENTS), at),
            7 | 8 => Step::Wait(random.u64(..EVENTS), at),
            9 => Step::SyncStream(at),
            10 => Step::SyncEvent(random.u64(..EVENTS)),
            _ if random.u64(..4) == 0 => Step::SyncDevice,
            _ => Step::Wait(random.u64(..EVENTS), at),
        });
    }
    steps
}

fn part(from: u64, to: u64) -> Part {
    Part::new(from, to).expect("it has bytes")
}

fn op(what: What) -> Op {
    Op { host: HostId(0), place: Place::Unknown, what }
}

fn stream_id(stream: u64) -> StreamId {
    if stream == LEGACY { StreamId(0) } else { StreamId(stream as u32 + 1) }
}

fn ops(steps: &[Step]) -> Vec<Op> {
    let role = |stream| match stream {
        LEGACY => StreamRole::Legacy,
        stream if is_blocking(stream) => StreamRole::Blocking,
        _ => StreamRole::NonBlocking,
    };
    let create = |at| What::StreamCreate { stream: stream_id(at), role: role(at), device: DeviceId(0) };
    let mut ops: Vec<Op> = (0..STREAMS).map(|at| op(create(at))).collect();
    ops.extend(steps.iter().map(|step| {
        let event = |event: u64| EventId(event as u32);
        op(match *step {
            Step::Alloc(memory, at) => What::Alloc {
                memory: Memory::first(memory as u32),
                pool: PoolId(0),
                stream: stream_id(at),
                bytes: 64,
                name: None,
            },
            Step::Use(memory, at, act, part) => What::Launch {
                stream: stream_id(at),
                accesses: smallvec![Access { memory: Memory::first(memory as u32), act, part }],
                name: None,
            },
            Step::Free(memory, at) => What::Free { memory: Memory::first(memory as u32), stream: stream_id(at) },
            Step::Record(e, at) => {
                What::EventRecord { event: event(e), stream: stream_id(at), external: false, mark: Mark::Completion }
            }
            Step::Wait(e, at) => What::EventWait { event: event(e), stream: stream_id(at), external: false },
            Step::SyncStream(at) => What::StreamSynchronize { stream: stream_id(at) },
            Step::SyncEvent(e) => What::EventSynchronize { event: event(e) },
            Step::SyncDevice => What::DeviceSynchronize,
        })
    }));
    ops
}

fn is_clean(steps: &[Step], races: bool) -> bool {
    let settings = Settings { races, leaks: false, advice: false };
    let (mut checker, mut findings, names) = (Checker::new(settings), Vec::new(), Names::new());
    for op in ops(steps) {
        checker.check(&op, &names, &mut findings);
    }
    checker.finish(&names, &mut findings);
    findings.is_empty()
}

/// For each step what must have run before it runs (device steps) or before the host goes on (host steps).
fn dependencies(steps: &[Step]) -> Vec<HashSet<usize>> {
    let mut last: HashMap<u64, usize> = HashMap::new();
    let mut recorded: HashMap<u64, usize> = HashMap::new();
    let mut all = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let mut needs = HashSet::new();
        let stream = match *step {
            // A wait for nothing is no operation.
            Step::Wait(e, _) if !recorded.contains_key(&e) => {
                all.push(needs);
                continue;
            }
            Step::Alloc(_, s) | Step::Use(_, s, ..) | Step::Free(_, s) | Step::Record(_, s) | Step::Wait(_, s) => s,
            Step::SyncStream(s) => {
                if s == LEGACY {
                    needs.extend((0..STREAMS).filter(|s| is_blocking(*s)).filter_map(|s| last.get(&s)));
                }
                if is_blocking(s) {
                    needs.extend(last.get(&LEGACY));
                }
                needs.extend(last.get(&s));
                all.push(needs);
                continue;
            }
            Step::SyncEvent(e) => {
                needs.extend(recorded.get(&e));
                all.push(needs);
                continue;
            }
            Step::SyncDevice => {
                needs.extend(last.values());
                all.push(needs);
                continue;
            }
        };
        needs.extend(last.get(&stream));
        if stream == LEGACY {
            needs.extend((0..STREAMS).filter(|s| is_blocking(*s)).filter_map(|s| last.get(&s)));
        } else if is_blocking(stream) {
            needs.extend(last.get(&LEGACY));
        }
        match *step {
            Step::Record(e, _) => {
                recorded.insert(e, at);
            }
            Step::Wait(e, _) => needs.extend(recorded.get(&e)),
            _ => {}
        }
        last.insert(stream, at);
        all.push(needs);
    }
    all
}

fn is_host(step: Step) -> bool {
    matches!(step, Step::SyncStream(_) | Step::SyncEvent(_) | Step::SyncDevice)
}

/// Whether some schedule does damage: every reachable state is visited. With `races`, also whether two conflicting
/// accesses can run in either order.
fn does_damage(steps: &[Step], races: bool) -> bool {
    let needs = dependencies(steps);
    let allocs: HashMap<u64, usize> = steps
        .iter()
        .enumerate()
        .filter_map(|(at, it)| if let Step::Alloc(m, _) = it { Some((*m, at)) } else { None })
        .collect();
    let frees: HashMap<u64, usize> = steps
        .iter()
        .enumerate()
        .filter_map(|(at, it)| if let Step::Free(m, _) = it { Some((*m, at)) } else { None })
        .collect();
    let mut seen: HashSet<(usize, u32)> = HashSet::new();
    let mut open = vec![(0_usize, 0_u32)];
    let mut before: HashSet<(usize, usize)> = HashSet::new();
    while let Some((submitted, ran)) = open.pop() {
        if !seen.insert((submitted, ran)) {
            continue;
        }
        let has_run = |at: &usize| ran & (1 << at) != 0;
        if submitted < steps.len() && (!is_host(steps[submitted]) || needs[submitted].iter().all(has_run)) {
            let ran = if is_host(steps[submitted]) { ran | 1 << submitted } else { ran };
            open.push((submitted + 1, ran));
        }
        for at in (0..submitted).filter(|at| !has_run(at) && needs[*at].iter().all(has_run)) {
            match steps[at] {
                Step::Use(memory, ..) | Step::Free(memory, _) => {
                    let is_born = allocs.get(&memory).is_some_and(has_run);
                    let is_freed = frees.get(&memory).is_some_and(has_run);
                    if !is_born || is_freed {
                        return true;
                    }
                }
                _ => {}
            }
            before.extend((0..steps.len()).filter(|other| has_run(other)).map(|other| (other, at)));
            open.push((submitted, ran | 1 << at));
        }
    }
    let conflict = |a: usize, b: usize| match (steps[a], steps[b]) {
        (Step::Use(m, _, one, here), Step::Use(n, _, other, there)) => {
            // Byte by byte.
            let shared =
                (0..64).any(|at| (here.from()..here.to()).contains(&at) && (there.from()..there.to()).contains(&at));
            m == n && shared && (one == Act::Write || other == Act::Write)
        }
        _ => false,
    };
    races && before.iter().any(|&(a, b)| conflict(a, b) && before.contains(&(b, a)))
}

/// Whether the program's own order is right, by a walk over all edges: host program order counts only where the host
/// was told that something is over.
fn is_ordered(steps: &[Step]) -> bool {
    let needs = dependencies(steps);
    let mut before: Vec<HashSet<usize>> = Vec::new();
    let mut told: HashSet<usize> = HashSet::new();
    for (at, step) in steps.iter().enumerate() {
        let mut mine: HashSet<usize> = told.clone();
        for need in &needs[at] {
            mine.insert(*need);
            mine.extend(before[*need].iter().copied());
        }
        if is_host(*step) {
            told.extend(mine.iter().copied());
        }
        before.push(mine);
    }
    let of = |m: u64| {
        steps.iter().enumerate().filter(move |(_, it)| matches!(it, Step::Use(n, ..) if *n == m)).map(|it| it.0)
    };
    (0..MEMORIES).all(|memory| {
        let alloc = steps.iter().position(|it| matches!(it, Step::Alloc(m, _) if *m == memory));
        let free = steps.iter().position(|it| matches!(it, Step::Free(m, _) if *m == memory));
        let after_alloc = |at: usize| alloc.is_some_and(|alloc| before[at].contains(&alloc));
        let before_free = |at: usize| free.is_none_or(|free| before[free].contains(&at));
        of(memory).all(|at| after_alloc(at) && before_free(at)) && free.is_none_or(after_alloc)
    })
}

#[test]
fn clean_exactly_where_no_schedule_reads_poison() {
    let mut random = Rng::with_seed(0x9E37_79B9_7F4A_7C15);
    let (mut clean, mut wrong) = (0, 0);
    for _ in 0..20_000 {
        let steps = program(&mut random);
        for races in [false, true] {
            let (said, damaged) = (is_clean(&steps, races), does_damage(&steps, races));
            assert_eq!(said, !damaged, "races: {races}\n{steps:#?}");
        }
        if is_clean(&steps, false) { clean += 1 } else { wrong += 1 }
    }
    assert!(clean > 3_000 && wrong > 3_000, "both kinds are met: {clean} clean, {wrong} wrong");
}

#[test]
fn taking_an_edge_away_fires_exactly_when_reachability_says_so() {
    let mut random = Rng::with_seed(0x0123_4567_89AB_CDEF);
    let (mut fired, mut silent) = (0, 0);
    while fired < 1_500 || silent < 1_500 {
        let steps = program(&mut random);
        if !is_clean(&steps, false) {
            continue;
        }
        for at in 0..steps.len() {
            if !matches!(steps[at], Step::Wait(..)) && !is_host(steps[at]) {
                continue;
            }
            let mut fewer = steps.clone();
            fewer.remove(at);
            let said = is_clean(&fewer, false);
            assert_eq!(said, is_ordered(&fewer), "without step {at} of {steps:#?}");
            if said { silent += 1 } else { fired += 1 }
        }
    }
}
