//! One thread of a program that shares memory with other processes: its objects, its operations one by one, and the
//! judgement of each answer.
//!
//! The expected answer of a call follows from the oracle before the call is made: accepted, refused, or, if other
//! threads may know more, either.

mod ends;
pub mod importer;
mod life;
mod loans;
mod memory;
mod oracle;
mod order;
mod party;
mod process;
mod things;
mod world;

use std::cell::RefCell;
use std::sync::atomic::Ordering;

use millpond::{Device, Error, Event, View};
use millpond_reach::Past;

use crate::finding::{finding, lock};
use crate::kind::Kind;
use crate::maker::{Tie, pick, places};
use crate::op::Op;
use crate::random::mix;
use crate::steps::{Runs, step};
use life::{Expect, Life};
use loans::{Importer, Offered};
use oracle::Line;
use world::{Buf, Held, HeldPool};

pub(crate) use party::Doubt;
pub(crate) use world::World;

/// A thread of a program.
pub(crate) struct Thread<'w> {
    /// The state that all threads share.
    world: &'w World,
    /// Its number.
    number: usize,
    /// Streams.
    streams: Vec<Option<Held>>,
    /// Pools.
    pools: Vec<Option<HeldPool>>,
    /// Buffers.
    bufs: Vec<Option<Buf>>,
    /// Events, each with what comes before it.
    events: Vec<Option<(Event, Past)>>,
    /// Stale views of memory that is gone.
    stale: Vec<Option<View<u8>>>,
    /// Other processes.
    importers: Vec<Option<Importer>>,
    /// Tickets that were not used, or used once.
    tickets: Vec<Option<Offered>>,
    /// Buffers that were dropped while other processes had them, with their addresses.
    parked: Vec<(Life, u64)>,
    /// The knowledge that the current stream gains with the current operation.
    learned: RefCell<Option<(usize, Past)>>,
}

impl Runs for Thread<'_> {
    fn step(&mut self, op: Op) {
        step!(self, op, {
            Kind::Write => self.write(op),
            Kind::Read => self.read(op),
            Kind::SyncDevice => self.synchronize(),
            Kind::Spawn => self.spawn(op),
            Kind::Lend => self.lend(op),
            Kind::Redeem => self.redeem(op),
            Kind::Work => self.work(op),
            Kind::Return => self.give_return(op),
            Kind::Ask => self.ask_importer(op),
            Kind::Borrow => self.borrow(op),
            Kind::Repay => self.repay(op),
            Kind::Flood => self.flood(op),
            Kind::Kill | Kind::HangUp => self.end_importer(op),
            // All other kinds are tested without other processes.
            _ => {},
        });
    }

    fn finish(mut self, chance: u64) {
        let order = mix(chance) as u32;
        self.say(format_args!("// the thread ends and drops what is left"));
        if order & 64 == 0 {
            self.end_importers(order >> 7);
        }
        let bufs = std::mem::take(&mut self.bufs);
        let drop_bufs = || {
            for buf in bufs.into_iter().flatten() {
                self.world.stage.ground.release(buf.life.id, buf.buffer.address(), &buf.life.kernels());
                self.world.stage.say(self.number, format_args!("drop(b{});", buf.life.id));
                drop(buf);
            }
        };
        match order % 4 {
            0 => {
                drop_bufs();
                self.streams.clear();
                self.pools.clear();
            }
            1 => {
                self.streams.clear();
                drop_bufs();
                self.pools.clear();
            }
            2 => {
                self.pools.clear();
                self.streams.clear();
                drop_bufs();
            }
            _ => {
                self.pools.clear();
                drop_bufs();
                self.streams.clear();
            }
        }
        self.end_importers(order >> 7);
    }
}

impl<'w> Thread<'w> {
    /// Creates a thread without objects.
    pub(crate) fn new(world: &'w World, number: usize) -> Self {
        Self {
            world,
            number,
            streams: places(4),
            pools: places(3),
            bufs: places(10),
            events: places(4),
            stale: places(3),
            importers: places(2),
            tickets: places(3),
            parked: Vec::new(),
            learned: RefCell::default(),
        }
    }

    /// Logs a call.
    fn say(&self, call: std::fmt::Arguments<'_>) {
        self.world.stage.say(self.number, call);
    }

    /// Picks one of the streams.
    fn stream(&self, number: u32) -> Option<Held> {
        pick(&self.streams, number).and_then(|at| self.streams[at].clone())
    }

    /// Returns the device, which no thread drops.
    fn device(&self) -> Device {
        self.world.stage.device(0).expect("a device")
    }

    /// Returns what the host knows.
    fn host(&self) -> Past {
        lock(&self.world.host).clone()
    }

    /// Notes that the host learns that everything in `past` has completed, and checks that it has.
    fn learn(&mut self, past: &Past, call: &str) {
        self.world.oracle.check_over(past, call);
        lock(&self.world.host).join(past);
    }

    /// Returns what a stream's next operation comes after: it learns from the host and from the legacy stream. Others
    /// see this only once the operation is done.
    fn before_next(&self, line: &Line) -> Past {
        let mut known = self.host();
        match line.tie {
            Tie::Free => {}
            Tie::Blocking => {
                let lines = self.world.oracle.lines();
                let legacy = lines.iter().filter(|it| it.tie == Tie::Legacy);
                legacy.for_each(|legacy| known.join(&lock(&legacy.published)));
            }
            Tie::Legacy => {
                let lines = self.world.oracle.lines();
                let tied = lines.iter().filter(|it| it.tie != Tie::Free && it.has_worked.load(Ordering::Acquire));
                tied.for_each(|it| known.join(&it.now()));
            }
        }
        known.join(&line.now());
        self.learned.replace(Some((line.chain, known.clone())));
        known
    }

    /// Notes that an operation on a stream was done: the stream now knows what it could learn. If it is the legacy
    /// stream, blocking streams come after it.
    fn publish(&self, line: &Line) {
        if let Some((_, known)) = self.learned.take().filter(|(chain, _)| *chain == line.chain) {
            lock(&line.past).join(&known);
        }
        line.has_worked.store(true, Ordering::Release);
        if line.tie == Tie::Legacy {
            let now = line.now();
            lock(&line.published).join(&now);
        }
    }

    /// Returns what comes before the end of the last operation of a stream, given what the operation came after. If
    /// other threads use the stream, their operations may be in between or after it, and it is not known which.
    fn end_of(&self, line: &Line, knows: Past) -> Past {
        match line.is_sure() || self.world.stage.is_exact() {
            true => line.now(),
            false => knows,
        }
    }

    /// Returns the expected answer of something that is right or wrong according to the oracle.
    fn expect(&self, is_right: bool, line: &Line) -> Expect {
        match is_right {
            true => Expect::Accepted,
            false if self.world.stage.is_exact() && line.is_sure() => Expect::Refused,
            false => Expect::Either,
        }
    }

    /// Compares an answer with the expected one.
    fn judge(&self, call: &str, expect: Expect, error: Option<&Error>) {
        let Some(error) = error else {
            if expect == Expect::Refused {
                finding(&format!("{call}: accepted, and nothing orders it after what it must come after"));
            }
            return;
        };
        self.say(format_args!("// refused: {}", error.to_string().replace('\n', " ")));
        self.world.stage.ground.figures.refusals.fetch_add(1, Ordering::Relaxed);
        let is_fine = match error {
            Error::OutOfMemory(_) => call.starts_with("alloc"),
            _ => expect != Expect::Accepted,
        };
        if !is_fine {
            finding(&format!("{call}: refused, and it is right: {}", error.report()));
        }
    }
}
