//! Every small program: all that can be done in so many operations on three streams, one pool and two sizes.
//!
//! Each is run on a host device without memory, and what reached the driver is then read again, call by call, by a
//! naive device that knows streams, marks and waits and nothing of the library: two uses of one byte of physical
//! memory must be ordered there, and memory is unmapped only when what used it has completed. So neither the
//! library's own order nor this crate's decides; this crate's decides only which operations are right and must be
//! accepted, and which must be refused.
//!
//! What is left out, because another program of the list does the same: streams are named in the order of their first
//! use; what is refused, or fails for want of memory, changes nothing and ends the program; a wait for what is known, a
//! second use in a row and a second synchronisation in a row do nothing; neighbours that do not meet come in one order.

mod model;
mod replay;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millpond::config::{ReusePolicy, Slack};
use millpond::{Buffer, Device, DeviceConfig, Error, Event, PoolConfig, Stream};
use millpond_driver::{Checked, HostConfig, HostDriver, Schedule};

use model::{Act, Model, STREAMS, UNIT};
use replay::Replay;

/// What the pool may do.
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

/// All of them.
pub const POLICIES: [Policy; 4] = [
    policy("by events only, work completes when a thread waits", true, false, false, Schedule::AtWait),
    policy("any reuse, work completes when a thread waits", true, true, true, Schedule::AtWait),
    policy("by what has completed, work completes when a thread waits", false, true, false, Schedule::AtWait),
    policy("any reuse, work completes at once", true, true, true, Schedule::AtOnce),
];

/// Where programs begin, how many units the pool has, and of how many units allocations are.
struct Start {
    units: u64,
    sizes: [u64; 2],
    acts: &'static [Act],
}

/// `b` is freed by stream 1 and in the heap, between `a` of stream 0 and memory that stream 1 has.
const BETWEEN: [Act; 5] = [
    Act::Alloc { on: 0, units: 1 },
    Act::Alloc { on: 1, units: 1 },
    Act::Alloc { on: 1, units: 1 },
    Act::Free { on: 1, of: 1 },
    Act::Alloc { on: 1, units: 2 },
];

/// The same, and `a` is freed, too, and on its stream's shelf.
const THEN_FREED: [Act; 6] = [BETWEEN[0], BETWEEN[1], BETWEEN[2], BETWEEN[3], BETWEEN[4], Act::Free { on: 0, of: 0 }];

/// Nothing yet; two neighbours of two streams; and the two above.
const STARTS: [Start; 4] = [
    Start { units: 2, sizes: [1, 2], acts: &[] },
    Start { units: 4, sizes: [1, 2], acts: BETWEEN.split_at(2).0 },
    Start { units: 8, sizes: [2, 3], acts: &BETWEEN },
    Start { units: 8, sizes: [2, 3], acts: &THEN_FREED },
];

/// A program as calls of the library.
struct Written<'a>(&'a [Act], &'a Case<'a>);

impl fmt::Display for Written<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { policy, start } = self.1;
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

/// In what a program runs.
struct Case<'a> {
    policy: &'a Policy,
    start: &'a Start,
}

/// How a program went.
enum Ran {
    /// All of it was done.
    Whole,
    /// The operation at this place was refused, as it had to be, or found no memory.
    To(usize),
}

/// A program on its way.
struct Program {
    driver: Arc<Checked<HostDriver>>,
    device: Device,
    streams: [Option<Stream>; STREAMS],
    buffers: Vec<Option<Buffer<u8>>>,
    event: Option<Event>,
}

impl Program {
    fn new(case: &Case<'_>) -> Result<(Self, millpond::Pool), Error> {
        let Case { policy, start } = case;
        let (schedule, memory) = (policy.schedule, false);
        let config = HostConfig { total_bytes: 1 << 30, granularity: 2 * UNIT, schedule, memory };
        let driver = Arc::new(Checked::recording(HostDriver::new(config)?));
        let device = Device::with_driver(driver.clone(), DeviceConfig::default())?;
        let slack = Slack::Fixed(0.0);
        let pool = PoolConfig::default().max_bytes(start.units * UNIT).reuse(policy.reuse).slack(slack);
        let pool = device.pool(pool)?;
        let mut streams = [const { None }; STREAMS];
        for stream in &mut streams {
            *stream = Some(device.non_blocking_stream()?);
        }
        Ok((Self { driver, device, streams, buffers: Vec::new(), event: None }, pool))
    }

    fn on(&self, on: usize) -> &Stream {
        self.streams[on].as_ref().expect("no operation names a closed stream")
    }

    fn of(&self, of: usize) -> &Buffer<u8> {
        self.buffers[of].as_ref().expect("no operation names a freed buffer")
    }

    fn act(&mut self, act: Act, pool: &millpond::Pool) -> Result<(), Error> {
        match act {
            Act::Alloc { on, units } => {
                let buffer = self.on(on).alloc::<u8>(pool, (units * UNIT) as usize)?;
                self.on(on).memset(buffer.write(), 1)?;
                self.buffers.push(Some(buffer));
            }
            Act::Use { on, of } => self.on(on).memset(self.of(of).write(), 1)?,
            Act::Free { on, of } => {
                let buffer = self.buffers[of].take().expect("no operation names a freed buffer");
                if let Err(refused) = self.on(on).free(buffer) {
                    self.buffers[of] = Some(refused.buffer);
                    return Err(refused.error);
                }
            }
            Act::Drop { of } => drop(self.buffers[of].take()),
            Act::Order { after, on } => self.on(on).wait(&self.on(after).record()?)?,
            Act::Record { on } => self.event = Some(self.on(on).record()?),
            Act::Wait { on } => self.on(on).wait(self.event.as_ref().expect("a wait follows a record"))?,
            Act::Sync { on } => self.on(on).synchronize()?,
            Act::Close { on } => drop(self.streams[on].take()),
        }
        Ok(())
    }
}

/// Runs a program and reads what reached the driver.
fn run(acts: &[Act], is_last_right: bool, case: &Case<'_>) -> Result<Ran, String> {
    let (mut program, pool) = Program::new(case).map_err(|error| format!("no device: {error}"))?;
    let mut ran = Ran::Whole;
    for (at, act) in acts.iter().enumerate() {
        let is_right = is_last_right || at + 1 < acts.len();
        match program.act(*act, &pool) {
            Ok(()) if is_right => {}
            Ok(()) => return Err("the last operation is accepted, and nothing orders it".into()),
            Err(Error::OutOfMemory(_)) => {
                ran = Ran::To(at);
                break;
            }
            Err(Error::Violation(_)) if !is_right => ran = Ran::To(at),
            Err(error) => return Err(format!("operation {at}, {act:?}: {error}")),
        }
    }
    pool.audit()?;
    let device = Replay::read(&program.driver.take_calls(), case.policy.schedule == Schedule::AtOnce)?;
    let Program { driver, device: handle, streams, buffers, event } = program;
    drop((buffers, streams, event, pool));
    // Everything ends, and what the last calls take away has completed, too.
    handle.synchronize().map_err(|error| error.to_string())?;
    drop(handle);
    device.go_on(&driver.take_calls())?;
    match (driver.violations(), driver.leaks()) {
        (broken, leaks) if broken.is_empty() && leaks.is_empty() => Ok(ran),
        (broken, leaks) => Err(format!("the driver's contract: {broken:?}, left: {leaks:?}")),
    }
}

/// All programs of so many operations behind a start.
struct Search<'a> {
    case: &'a Case<'a>,
    programs: &'a AtomicU64,
    is_found: &'a AtomicBool,
    found: Option<String>,
}

impl Search<'_> {
    /// Goes on from a program; how many of its operations can be done, where that is not all.
    fn extend(&mut self, acts: &mut Vec<Act>, model: &Model, left: usize) -> usize {
        for act in model.next(self.case.start.sizes) {
            if self.is_found.load(Ordering::Relaxed) {
                return 0;
            }
            let is_right = model.is_right(act);
            if left == 1 && is_right && !act.shows() {
                continue;
            }
            acts.push(act);
            let done = match left > 1 && is_right {
                true => {
                    let mut model = model.clone();
                    model.apply(act);
                    self.extend(acts, &model, left - 1)
                }
                false => self.try_out(acts, is_right),
            };
            acts.pop();
            if done < acts.len() {
                // What is in front of this operation cannot be done.
                return done;
            }
        }
        usize::MAX
    }

    fn try_out(&mut self, acts: &[Act], is_right: bool) -> usize {
        self.programs.fetch_add(1, Ordering::Relaxed);
        match run(acts, is_right, self.case) {
            Ok(Ran::Whole) => usize::MAX,
            Ok(Ran::To(at)) => at,
            Err(wrong) => {
                self.is_found.store(true, Ordering::Relaxed);
                self.found = Some(format!("{wrong}\n{}", Written(acts, self.case)));
                0
            }
        }
    }
}

/// Runs every program of up to `ops` operations (from each beginning), on as many threads: how many there were.
///
/// # Errors
/// The first that is wrong, with what is wrong.
pub fn exhaust(ops: usize, threads: usize) -> Result<u64, String> {
    let (programs, is_found) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut tasks = Vec::new();
    for policy in &POLICIES {
        for start in &STARTS {
            let mut model = Model::default();
            start.acts.iter().for_each(|act| model.apply(*act));
            model.last = None;
            tasks.extend(
                model.next(start.sizes).into_iter().map(|first| (Case { policy, start }, model.clone(), first)),
            );
        }
    }
    let next = AtomicU64::new(0);
    let found: Vec<String> = std::thread::scope(|scope| {
        let search = || {
            let mut found = Vec::new();
            while let Some((case, model, first)) = tasks.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                let mut search = Search { case, programs: &programs, is_found: &is_found, found: None };
                let mut acts = case.start.acts.to_vec();
                acts.push(*first);
                if !model.is_right(*first) {
                    search.try_out(&acts, false);
                } else if ops > 1 {
                    let mut model = model.clone();
                    model.apply(*first);
                    search.extend(&mut acts, &model, ops - 1);
                }
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
