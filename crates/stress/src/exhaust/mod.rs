//! Runs every small program: all combinations of a few operations on three streams, one pool and two sizes.
//!
//! The runner does each on a host device without memory. The library, the checker and the litmus model, which takes
//! every schedule, must agree on what is refused. What reached the driver is then read again, call by call, by a naive
//! device that knows streams, events and waits and nothing of the library: two uses of one byte of physical memory must
//! be ordered there, and memory is unmapped only when what used it has completed.
//!
//! Programs that are equivalent to another one are left out. Streams are named in the order of their first use. A
//! refused operation, or one that fails for lack of memory, changes nothing and ends the program. A wait for something
//! known, a repeated use and a repeated synchronisation do nothing. Neighbouring operations that commute come in one
//! order.

mod programs;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millpond::config::{ReusePolicy, Slack};
use millpond::{Device, DeviceConfig, PoolConfig};
use millpond_core::check::{Checker, Settings};
use millpond_core::op::{Names, Op};
use millpond_driver::{Checked, HostConfig, HostDriver, Schedule};
use millpond_litmus::Program;
use millpond_litmus::model::Model;
use millpond_runner::{Cannot, Place, Refusal, Run};

use crate::replay::Replay;
use programs::{Act, Done, POOL, UNIT, operations};

/// The reuse that the pool may do.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    name: &'static str,
    reuse: ReusePolicy,
    schedule: Schedule,
}

const fn policy(name: &'static str, events: bool, over: bool, waits: bool, schedule: Schedule) -> Policy {
    let reuse = ReusePolicy {
        follow_event_dependencies: events,
        allow_opportunistic: over,
        allow_internal_dependencies: waits,
    };
    Policy { name, reuse, schedule }
}

/// All policies.
pub const POLICIES: [Policy; 4] = [
    policy("by events only, work completes when a thread waits", true, false, false, Schedule::AtWait),
    policy("any reuse, work completes when a thread waits", true, true, true, Schedule::AtWait),
    policy("by what has completed, work completes when a thread waits", false, true, false, Schedule::AtWait),
    policy("any reuse, work completes at once", true, true, true, Schedule::AtOnce),
];
/// The largest number of states of a program to explore. These programs have fewer.
const STATES: usize = 1 << 16;

/// The beginning of programs, the units of the pool, and the sizes of allocations in units.
struct Start {
    units: u64,
    sizes: [u64; 2],
    acts: &'static [Act],
}

/// `b` was freed by stream 1 and is in the heap, between `a` of stream 0 and memory of stream 1.
const BETWEEN: [Act; 5] = [
    Act::Alloc { on: 0, units: 1 },
    Act::Alloc { on: 1, units: 1 },
    Act::Alloc { on: 1, units: 1 },
    Act::Free { on: 1, of: 1 },
    Act::Alloc { on: 1, units: 2 },
];

/// As [`BETWEEN`], but `a` is freed, too, and in its stream's cache.
const THEN_FREED: [Act; 6] = [BETWEEN[0], BETWEEN[1], BETWEEN[2], BETWEEN[3], BETWEEN[4], Act::Free { on: 0, of: 0 }];

/// Nothing; two neighbours of two streams; and the two beginnings above.
const STARTS: [Start; 4] = [
    Start { units: 2, sizes: [1, 2], acts: &[] },
    Start { units: 4, sizes: [1, 2], acts: BETWEEN.split_at(2).0 },
    Start { units: 8, sizes: [2, 3], acts: &BETWEEN },
    Start { units: 8, sizes: [2, 3], acts: &THEN_FREED },
];

/// Formats a program as calls of the library.
struct Written<'a>(&'a [Act], &'a Policy, &'a Start);

impl fmt::Display for Written<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Written(_, policy, start) = self;
        writeln!(f, "// a pool of {} units of 64 KiB in granules of 128 KiB; {}", start.units, policy.name)?;
        let mut made = 0;
        for act in self.0 {
            match act {
                Act::Alloc { on, units } => {
                    writeln!(f, "let b{made} = s{on}.alloc::<u8>(&pool, {units} * UNIT)?;")?;
                    writeln!(f, "s{on}.memset(b{made}.write(), 1)?;")?;
                    made += 1;
                }
                Act::Use { on, of } => writeln!(f, "s{on}.memset(b{of}.write(), 1)?;")?,
                Act::Free { on, of } => writeln!(f, "s{on}.free(b{of})?;")?,
                Act::Drop { of } => writeln!(f, "drop(b{of});")?,
                Act::Order { after, on } => writeln!(f, "s{on}.wait(&s{after}.record()?)?;")?,
                Act::Record { on } => writeln!(f, "let event = s{on}.record()?;")?,
                Act::Wait { on } => writeln!(f, "s{on}.wait(&event)?;")?,
                Act::Sync { on } => writeln!(f, "s{on}.synchronize()?;")?,
                Act::Close { on } => writeln!(f, "drop(s{on});")?,
            }
        }
        Ok(())
    }
}

/// The number of operations of a program that can be done under each policy.
type Reached = [usize; POLICIES.len()];

/// Stands for all operations.
const ALL: usize = usize::MAX;

/// Returns the checker's refusals of a program.
fn refused(ops: &[Op]) -> Vec<Refusal> {
    let settings = Settings { leaks: false, advice: false, ..Settings::RECORDED };
    let (names, mut checker, mut findings) = (Names::default(), Checker::new(settings), Vec::new());
    for op in ops {
        checker.check(op, &names, &mut findings);
    }
    findings.iter().map(|it| Refusal { line: it.line().unwrap_or(0), kind: it.kind }).collect()
}

/// Returns `true` if some schedule of a program does damage.
fn does_damage(ops: Vec<Op>) -> Result<bool, String> {
    let model = Model::new(&Program::of(ops)).map_err(|error| error.to_string())?;
    let schedules = model.explore(STATES).ok_or("it has too many schedules")?;
    Ok(!schedules.damages.is_empty())
}

/// Runs a program of which at most the last operation is refused, and checks the calls that reached the driver. Returns
/// the number of operations done.
fn run(ops: &[Op], expected: &[Refusal], policy: &Policy, start: &Start) -> Result<usize, String> {
    let (schedule, memory) = (policy.schedule, false);
    let config = HostConfig { total_bytes: 1 << 30, granularity: 2 * UNIT, schedule, memory };
    let driver = HostDriver::new(config).map(Checked::recording).map_err(|error| error.to_string())?;
    let driver = Arc::new(driver);
    let device = Device::with_driver(driver.clone(), DeviceConfig::default()).map_err(|error| error.to_string())?;
    let pools = PoolConfig::default().max_bytes(start.units * UNIT).reuse(policy.reuse).slack(Slack::Fixed(0.0));
    let mut run = Run::new(device.clone(), Place::Checked(schedule), None).with_pools(pools);
    let mut done = ALL;
    for op in ops {
        match run.step(op) {
            Ok(()) => {}
            Err(Cannot::Memory(_)) => {
                done = op.place.line().unwrap_or(0) as usize - 1;
                break;
            }
            Err(why) => return Err(why.to_string()),
        }
    }
    if done == ALL && !run.found().verdict.iter().eq(expected) {
        return Err(format!("the library refuses {:?}, and the checker {expected:?}", run.found().verdict));
    }
    run.pool(POOL).expect("no program ends its pool").audit()?;
    let replayed = Replay::read(&driver.take_calls(), schedule == Schedule::AtOnce)?;
    drop(run);
    // Everything ends. After this also the effects of the last calls have completed.
    device.synchronize().map_err(|error| error.to_string())?;
    drop(device);
    replayed.go_on(&driver.take_calls())?;
    match (driver.violations(), driver.leaks()) {
        (broken, leaks) if broken.is_empty() && leaks.is_empty() => Ok(done),
        (broken, leaks) => Err(format!("the driver's contract: {broken:?}, left: {leaks:?}")),
    }
}

/// The enumeration of all programs of a certain length after a beginning.
struct Search<'a> {
    start: &'a Start,
    programs: &'a AtomicU64,
    is_found: &'a AtomicBool,
    found: Option<String>,
}

impl Search<'_> {
    /// Extends a program, under the policies that can do all of it. Returns the policies that still can.
    fn extend(&mut self, acts: &mut Vec<Act>, before: &Done, left: usize, mut reached: Reached) -> Reached {
        for act in before.next(self.start.sizes) {
            if self.is_found.load(Ordering::Relaxed) || reached.iter().all(|it| *it != ALL) {
                break;
            }
            acts.push(act);
            let came = self.look(acts, before, left, reached);
            acts.pop();
            // If the operations before this one cannot be done, nothing after it can.
            let kept = came.map(|it| if it < acts.len() { it } else { ALL });
            reached = std::array::from_fn(|at| reached[at].min(kept[at]));
        }
        reached
    }

    /// Examines a program of which all operations but the last are right.
    fn look(&mut self, acts: &mut Vec<Act>, before: &Done, left: usize, reached: Reached) -> Reached {
        let act = *acts.last().expect("a program has operations");
        let expected = if act.may_be_wrong() { refused(&operations(acts)) } else { Vec::new() };
        if expected.is_empty() && left > 1 {
            let mut before = before.clone();
            before.apply(act);
            return self.extend(acts, &before, left - 1, reached);
        }
        if expected.is_empty() && !act.shows() {
            return reached;
        }
        let ops = operations(acts);
        let is_damaged = does_damage(ops.clone());
        if is_damaged != Ok(!expected.is_empty()) {
            return self.report(&format!("the model: {is_damaged:?}, the checker: {expected:?}"), acts, &POLICIES[0]);
        }
        let mut came = reached;
        for (policy, came) in POLICIES.iter().zip(&mut came).filter(|(_, came)| **came == ALL) {
            self.programs.fetch_add(1, Ordering::Relaxed);
            match run(&ops, &expected, policy, self.start) {
                Ok(done) => *came = done,
                Err(wrong) => return self.report(&wrong, acts, policy),
            }
        }
        came
    }

    fn report(&mut self, wrong: &str, acts: &[Act], policy: &Policy) -> Reached {
        self.is_found.store(true, Ordering::Relaxed);
        self.found = Some(format!("{wrong}\n{}", Written(acts, policy, self.start)));
        [0; POLICIES.len()]
    }
}

/// Runs every program of up to `ops` operations after each beginning, on `threads` threads. Returns the number of
/// programs.
///
/// # Errors
/// Describes the first program that is wrong.
pub fn exhaust(ops: usize, threads: usize) -> Result<u64, String> {
    let (programs, is_found) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut tasks = Vec::new();
    for start in &STARTS {
        let before = Done::of(start.acts);
        let first = before.next(start.sizes);
        tasks.extend(first.into_iter().map(|first| (start, before.clone(), first)));
    }
    let next = AtomicU64::new(0);
    let found: Vec<String> = std::thread::scope(|scope| {
        let search = || {
            let mut found = Vec::new();
            while let Some((start, before, first)) = tasks.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                let mut search = Search { start, programs: &programs, is_found: &is_found, found: None };
                let mut acts = start.acts.to_vec();
                acts.push(*first);
                search.look(&mut acts, before, ops, [ALL; POLICIES.len()]);
                found.extend(search.found);
            }
            found
        };
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(search)).collect();
        handles.into_iter().flat_map(|it| it.join().expect("a search does not panic")).collect()
    });
    match found.into_iter().next() {
        Some(found) => Err(found),
        None => Ok(programs.into_inner()),
    }
}
