//! Random programs: the library's verdicts equal those of a plain model, on every device and with any timing.
//!
//! The model keeps, for each stream, event and host, the set of all operations that come before, as a bit set. It
//! forgets nothing, and shares no code with the library.

use std::collections::BTreeSet;
use std::time::Duration;

use fastrand::Rng;
use millpond::check::Kind;
use millpond::config::Schedule;
use millpond::error::Invalid;
use millpond::{Buffer, DeviceConfig, Error, Event, Pool, PoolConfig, Stream, View};

use crate::common::{Make, Subject, makes, visit_for};

/// The legacy default stream's number in a program.
const LEGACY: usize = 0;
const STEPS: usize = 90;

/// One step of a program. Streams, buffers and events are numbered in the order in which they were made.
#[derive(Clone, Copy, Debug)]
enum Step {
    Open { blocking: bool },
    Close { stream: usize },
    Alloc { stream: usize, bytes: usize },
    Use { stream: usize, buffer: usize, write: bool },
    Both { stream: usize, read: usize, write: usize },
    Free { stream: usize, buffer: usize },
    Drop { buffer: usize },
    Record { stream: usize },
    Wait { stream: usize, event: usize },
    SyncStream { stream: usize },
    SyncEvent { event: usize },
    SyncDevice,
}

/// Makes a program in which every number names something that was made before. Its order may be wrong.
fn program(seed: u64) -> Vec<Step> {
    let mut random = Rng::with_seed(seed);
    let mut steps: Vec<Step> = (0..3).map(|i| Step::Open { blocking: i < 2 }).collect();
    let (mut open, mut streams, mut buffers, mut events) = (vec![LEGACY, 1, 2, 3], 4, 0, 0);
    while steps.len() < STEPS {
        let stream = open[random.usize(..open.len())];
        let mut buffer = || random.u64(..buffers.max(1)) as usize;
        let (buffer, other) = (buffer(), buffer());
        let step = match random.u64(..100) {
            0..3 => {
                open.push(streams);
                streams += 1;
                Step::Open { blocking: (random.u64(..100) < 60) }
            }
            3..5 if stream != LEGACY && open.len() > 2 => {
                open.retain(|other| *other != stream);
                Step::Close { stream }
            }
            5..20 => {
                buffers += 1;
                Step::Alloc { stream, bytes: [100, 4096, 3 << 20][random.usize(..3)] }
            }
            20..50 if buffers > 0 => Step::Use { stream, buffer, write: (random.u64(..100) < 50) },
            50..56 if buffers > 0 => Step::Both { stream, read: buffer, write: other },
            56..66 if buffers > 0 => Step::Free { stream, buffer },
            66..68 if buffers > 0 => Step::Drop { buffer },
            68..80 => {
                events += 1;
                Step::Record { stream }
            }
            80..94 if events > 0 => Step::Wait { stream, event: random.u64(..events) as usize },
            94..96 => Step::SyncStream { stream },
            96..98 if events > 0 => Step::SyncEvent { event: random.u64(..events) as usize },
            98 => Step::SyncDevice,
            _ => continue,
        };
        steps.push(step);
    }
    steps
}

/// The verdicts on a step that can be refused: none if it is right. A launch of two accesses may be wrong in two ways.
type Verdict = BTreeSet<&'static str>;

/// A set of steps.
type Set = u128;

#[derive(Clone, Copy)]
struct ModelStream {
    past: Set,
    blocking: bool,
    closed: bool,
}

#[derive(Default)]
struct ModelBuffer {
    born: Set,
    reads: Set,
    writes: Set,
    freed: bool,
}

/// The model.
struct Model {
    streams: Vec<ModelStream>,
    buffers: Vec<ModelBuffer>,
    events: Vec<Set>,
    host: Set,
    /// All that comes before the end of the legacy stream's last operation.
    legacy: Set,
}

impl Model {
    fn verdicts(program: &[Step]) -> Vec<Verdict> {
        let legacy = ModelStream { past: 0, blocking: false, closed: false };
        let mut model = Model { streams: vec![legacy], buffers: Vec::new(), events: Vec::new(), host: 0, legacy: 0 };
        program.iter().enumerate().map(|(number, step)| model.step(*step, 1 << number)).collect()
    }

    /// Begins an operation of a stream.
    fn enter(&mut self, stream: usize) {
        let gathered = self.streams.iter().filter(|other| other.blocking).fold(0, |all, other| all | other.past);
        let (host, legacy) = (self.host, self.legacy);
        let at = &mut self.streams[stream];
        at.past |= host;
        if stream == LEGACY {
            at.past |= gathered;
        } else if at.blocking {
            at.past |= legacy;
        }
    }

    /// Ends an operation of a stream.
    fn leave(&mut self, stream: usize, new: Set) -> Set {
        self.streams[stream].past |= new;
        if stream == LEGACY {
            self.legacy = self.streams[LEGACY].past;
        }
        self.streams[stream].past
    }

    fn check(&self, stream: usize, buffer: usize, act: &'static str) -> Verdict {
        let (past, at) = (self.streams[stream].past, &self.buffers[buffer]);
        let before = match act {
            "read" => at.writes,
            _ => at.reads | at.writes,
        };
        let fault = if at.freed {
            "freed"
        } else if at.born & !past != 0 {
            if act == "free" { "free-before-alloc" } else { "use-before-alloc" }
        } else if before & !past != 0 {
            if act == "free" { "free-before-use" } else { "race" }
        } else {
            return Verdict::new();
        };
        Verdict::from([fault])
    }

    fn step(&mut self, step: Step, new: Set) -> Verdict {
        let mut verdict = Verdict::new();
        match step {
            Step::Open { blocking } => self.streams.push(ModelStream { past: self.host, blocking, closed: false }),
            Step::Close { stream } => self.streams[stream].closed = true,
            Step::Alloc { stream, .. } => {
                self.enter(stream);
                self.buffers.push(ModelBuffer { born: new, ..Default::default() });
                self.leave(stream, new);
            }
            Step::Use { stream, buffer, write } => {
                self.enter(stream);
                verdict = self.check(stream, buffer, if write { "write" } else { "read" });
                if verdict.is_empty() {
                    let at = &mut self.buffers[buffer];
                    *(if write { &mut at.writes } else { &mut at.reads }) |= new;
                    self.leave(stream, new);
                }
            }
            Step::Both { stream, read, write } => {
                self.enter(stream);
                verdict = self.check(stream, read, "read");
                verdict.extend(self.check(stream, write, "write"));
                if read == write {
                    verdict.insert("aliased");
                }
                if verdict.is_empty() {
                    self.buffers[read].reads |= new;
                    self.buffers[write].writes |= new;
                    self.leave(stream, new);
                }
            }
            Step::Free { stream, buffer } => {
                if !self.buffers[buffer].freed {
                    self.enter(stream);
                    verdict = self.check(stream, buffer, "free");
                    if verdict.is_empty() {
                        self.buffers[buffer].freed = true;
                        self.leave(stream, new);
                    }
                }
            }
            Step::Drop { buffer } => self.buffers[buffer].freed = true,
            Step::Record { stream } => {
                self.enter(stream);
                let past = self.leave(stream, 0);
                self.events.push(past);
            }
            Step::Wait { stream, event } => {
                self.enter(stream);
                let past = self.events[event];
                self.leave(stream, past);
            }
            Step::SyncStream { stream } => {
                self.enter(stream);
                self.host |= self.leave(stream, 0);
            }
            Step::SyncEvent { event } => self.host |= self.events[event],
            Step::SyncDevice => self.host |= self.streams.iter().fold(0, |all, stream| all | stream.past),
        }
        verdict
    }
}

/// A program on a device.
struct Run<'s> {
    subject: &'s Subject,
    pool: Pool,
    streams: Vec<Option<Stream>>,
    buffers: Vec<(Option<Buffer<u8>>, View<u8>)>,
    events: Vec<Event>,
    /// Makes kernels take some time.
    pause: Option<Rng>,
}

impl Run<'_> {
    /// Returns the verdicts, and the facts of each violation that do not depend on which of two operations came first.
    fn verdicts(subject: &Subject, program: &[Step], pause: Option<Rng>) -> (Vec<Verdict>, Vec<String>) {
        let mut run = Run {
            subject,
            pool: subject.pool(PoolConfig::default()),
            streams: vec![Some(subject.device.legacy_stream())],
            buffers: Vec::new(),
            events: Vec::new(),
            pause,
        };
        let mut facts = Vec::new();
        let mut verdicts = Vec::new();
        for step in program {
            let result = run.step(*step);
            if let (Err(Error::Violation(violation)), Step::Use { .. } | Step::Free { .. }) = (&result, step) {
                let text = violation.facts();
                // Allocations get their numbers when memory is placed, so the numbers may depend on timing.
                let number = format!("allocation={} ", violation.subject.as_ref().unwrap().id.0);
                if violation.kind != Kind::UseAfterFree {
                    facts.push(text.replace(&number, ""));
                }
            }
            verdicts.push(result.err().map(|error| name(&error)).into_iter().collect());
        }
        (verdicts, facts)
    }

    fn stream(&self, stream: usize) -> &Stream {
        self.streams[stream].as_ref().expect("programs use open streams")
    }

    fn kernel_time(&mut self) -> Duration {
        let pause = self.pause.as_mut().filter(|_| self.subject.is_parallel);
        pause.map_or(Duration::ZERO, |random| Duration::from_micros(random.u64(..8).saturating_sub(5) * 60))
    }

    fn step(&mut self, step: Step) -> Result<(), Error> {
        let time = self.kernel_time();
        let work = move || {
            if !time.is_zero() {
                std::thread::sleep(time);
            }
        };
        match step {
            Step::Open { blocking } => self.streams.push(Some(match blocking {
                true => self.subject.stream(),
                false => self.subject.device.non_blocking_stream()?,
            })),
            Step::Close { stream } => self.streams[stream] = None,
            Step::Alloc { stream, bytes } => {
                let buffer = self.stream(stream).alloc(&self.pool, bytes)?;
                let view = buffer.view();
                self.buffers.push((Some(buffer), view));
            }
            Step::Use { stream, buffer, write } => match (&self.buffers[buffer], write) {
                ((Some(buffer), _), true) => visit_for(self.stream(stream), buffer.write(), work)?,
                ((Some(buffer), _), false) => visit_for(self.stream(stream), buffer.read(), work)?,
                ((None, view), true) => visit_for(self.stream(stream), view.write(), work)?,
                ((None, view), false) => visit_for(self.stream(stream), view.read(), work)?,
            },
            // Devices differ in what kernels may do and closures may not: the same memory is copied.
            Step::Both { stream, read, write } if read == write => {
                let view = self.buffers[read].1;
                self.stream(stream).copy(view.read(), view.write())?;
            }
            Step::Both { stream, read, write } => {
                let (read, write) = (self.buffers[read].1.read(), self.buffers[write].1.write());
                visit_for(self.stream(stream), (read, write), work)?;
            }
            Step::Free { stream, buffer } => {
                if let Some(owned) = self.buffers[buffer].0.take() {
                    let refused = self.stream(stream).free(owned);
                    refused.map_err(|refused| {
                        self.buffers[buffer].0 = Some(refused.buffer);
                        refused.error
                    })?;
                }
            }
            Step::Drop { buffer } => self.buffers[buffer].0 = None,
            Step::Record { stream } => {
                let event = self.stream(stream).record()?;
                self.events.push(event);
            }
            Step::Wait { stream, event } => self.stream(stream).wait(&self.events[event])?,
            Step::SyncStream { stream } => self.stream(stream).synchronize()?,
            Step::SyncEvent { event } => self.events[event].synchronize()?,
            Step::SyncDevice => self.subject.device.synchronize()?,
        }
        Ok(())
    }
}

/// Returns the model's name of a refusal.
fn name(error: &Error) -> &'static str {
    match (error, error.invalid()) {
        (Error::Violation(violation), _) if violation.kind == Kind::UseAfterFree => "freed",
        (Error::Violation(violation), _) => violation.kind.name(),
        (_, Some(Invalid::Stale)) => "freed",
        _ => panic!("{error}"),
    }
}

/// Checks one program on one device against the model. Returns the facts of its violations.
fn check(make: Make, seed: u64, pause: Option<Rng>) -> Vec<String> {
    let program = program(seed);
    let expected = Model::verdicts(&program);
    let subject = Subject::with(make, DeviceConfig::default());
    let (found, facts) = Run::verdicts(&subject, &program, pause);
    for (number, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let agree = found.is_subset(expected) && found.is_empty() == expected.is_empty();
        let step = program[number];
        assert!(agree, "seed {seed} on {make:?}, step {number} {step:?}: {found:?}, should be {expected:?}");
    }
    subject.device.synchronize().expect("a device in order");
    subject.assert_contract();
    facts
}

fn check_all(seeds: std::ops::Range<u64>) {
    let makes = makes();
    let allowed = |make: &Make| makes.iter().any(|known| std::mem::discriminant(known) == std::mem::discriminant(make));
    for seed in seeds {
        let devices = [
            Make::Sim(Schedule::AtOnce),
            Make::Sim(Schedule::AtWait),
            Make::Seeded(seed),
            Make::Parallel,
            Make::Fake,
            Make::Cuda,
        ];
        let mut facts = devices.into_iter().filter(allowed).map(|make| check(make, seed, None));
        let Some(first) = facts.next() else { return };
        assert!(facts.all(|other| other == first), "seed {seed}: the same words everywhere");
    }
}

#[test]
fn verdicts_are_the_models_on_every_device() {
    check_all(0..500);
}

#[test]
fn and_for_another_five_hundred() {
    check_all(500..1000);
}

#[test]
fn and_however_long_kernels_take() {
    if !makes().contains(&Make::Parallel) {
        return;
    }
    for seed in 0..60 {
        let facts = check(Make::Parallel, seed, None);
        for pause in 0..3 {
            assert_eq!(check(Make::Parallel, seed, Some(Rng::with_seed(pause))), facts, "seed {seed}, pauses {pause}");
        }
    }
}

/// The programs are useful: they are right and wrong in every way.
#[test]
fn programs_are_wrong_in_every_way() {
    let all: Vec<Verdict> = (0..100).flat_map(|seed| Model::verdicts(&program(seed))).collect();
    for kind in ["freed", "use-before-alloc", "free-before-alloc", "free-before-use", "race", "aliased"] {
        let count = all.iter().filter(|verdict| verdict.contains(kind)).count();
        assert!(count > 25, "{kind}: {count}");
    }
    assert!(all.iter().filter(|verdict| verdict.is_empty()).count() > all.len() / 2);
}
