//! One thread of a program: the objects at its hand, its operations one by one, and whether each answer is right.
//!
//! What is expected of a call follows from the oracle before it is made: accepted, refused, or, where other threads
//! may know more, either.

mod event_nodes;
mod execs;
mod graphs;
mod memory;
mod order;
mod parts;
mod sharing;
mod sharing_ends;
mod things;

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use millpond::{Device, Error, Event, View};

use crate::finding::{finding, lock};
use crate::kind::Kind;
use crate::life::{Expect, Life};
use crate::marks::External;
use crate::op::Op;
use crate::oracle::{Line, Tie};
use crate::world::{Buf, Held, HeldPool, World};
use graphs::{Built, Instance};
use millpond_reach::Past;
use sharing::{Importer, Offered};

/// A thread of a program.
pub(crate) struct Thread<'w> {
    /// What all share.
    pub(crate) world: &'w World,
    /// Its number.
    pub(crate) number: usize,
    /// Streams.
    pub(crate) streams: Vec<Option<Held>>,
    /// Pools.
    pub(crate) pools: Vec<Option<HeldPool>>,
    /// Buffers.
    pub(crate) bufs: Vec<Option<Buf>>,
    /// Events, and what comes before them.
    pub(crate) events: Vec<Option<(Event, Past, usize)>>,
    /// External events, and what they hold.
    pub(crate) externals: Vec<Option<External>>,
    /// Names of memory that is gone.
    pub(crate) stale: Vec<Option<(View<u64>, usize)>>,
    /// Graphs.
    pub(crate) graphs: Vec<Option<Built>>,
    /// Other processes.
    pub(crate) importers: Vec<Option<Importer>>,
    /// Tickets that were not used, or once.
    pub(crate) tickets: Vec<Option<Offered>>,
    /// Buffers that were dropped while other processes had them, and where they are.
    pub(crate) parked: Vec<(Life, u64)>,
    /// Instances.
    pub(crate) execs: Vec<Option<Instance>>,
    /// What a stream learns with the operation at hand.
    learned: RefCell<Option<(usize, Past)>>,
    /// The number of the operation at hand, for whoever watches.
    pub(crate) progress: Arc<AtomicU64>,
}

/// An empty table of so many places.
fn places<T>(count: usize) -> Vec<Option<T>> {
    (0..count).map(|_| None).collect()
}

/// One of those that are there.
pub(crate) fn pick<T>(table: &[Option<T>], number: u32) -> Option<usize> {
    let there: Vec<usize> = (0..table.len()).filter(|at| table[*at].is_some()).collect();
    (!there.is_empty()).then(|| there[number as usize % there.len()])
}

/// A place for something new: an empty one, or one whose content goes.
pub(crate) fn place<T>(table: &[Option<T>], number: u32) -> usize {
    (0..table.len()).find(|at| table[*at].is_none()).unwrap_or(number as usize % table.len())
}

impl<'w> Thread<'w> {
    /// A thread without objects.
    pub(crate) fn new(world: &'w World, number: usize, progress: Arc<AtomicU64>) -> Self {
        Self {
            world,
            number,
            streams: places(4),
            pools: places(3),
            bufs: places(10),
            events: places(4),
            externals: places(2),
            stale: places(3),
            importers: places(2),
            tickets: places(3),
            parked: Vec::new(),
            graphs: places(3),
            execs: places(4),
            learned: RefCell::default(),
            progress,
        }
    }

    /// Runs operations, then drops everything in an order of chance.
    pub(crate) fn run(mut self, ops: &[Op]) {
        for (at, op) in ops.iter().enumerate() {
            self.progress.store(at as u64 + 1, Ordering::Relaxed);
            self.world.oracle.figures.operations.fetch_add(1, Ordering::Relaxed);
            self.step(*op);
        }
        self.progress.store(u64::MAX - 1, Ordering::Relaxed);
        let order = self.world.number().wrapping_mul(0x9E37_79B9) as u32 ^ ops.len() as u32;
        let progress = Arc::clone(&self.progress);
        self.finish(order);
        progress.store(u64::MAX, Ordering::Relaxed);
    }

    fn step(&mut self, op: Op) {
        match op.kind {
            Kind::Open => self.open(op),
            Kind::Share => self.share(op),
            Kind::UseShared => self.use_shared(op),
            Kind::Close => self.close(op),
            Kind::DropDevice => self.drop_device(op),
            Kind::MakePool => self.make_pool(op),
            Kind::DropPool => self.drop_pool(op),
            Kind::SetPool => self.set_pool(op),
            Kind::Trim => self.trim(op),
            Kind::Look => self.look(op),
            Kind::Alloc => self.alloc(op),
            Kind::Write => self.write(op),
            Kind::Read => self.read(op),
            Kind::Copy => self.copy(op),
            Kind::WritePart => self.write_part(op),
            Kind::ReadPart => self.read_part(op),
            Kind::Free | Kind::FreeAddress => self.free(op),
            Kind::Drop => self.drop_buf(op),
            Kind::FreeNow => self.free_now(op),
            Kind::Stale => self.use_stale(op),
            Kind::Give => self.give(op),
            Kind::Take => self.take(op),
            Kind::Record => self.record(op),
            Kind::Wait => self.wait(op),
            Kind::RecordExternal => self.record_external(op),
            Kind::WaitExternal => self.wait_external(op),
            Kind::SyncEvent | Kind::IsOver => self.ask_event(op),
            Kind::SyncStream | Kind::IsIdle => self.ask_stream(op),
            Kind::SyncDevice => self.synchronize_device(op),
            Kind::Hold => self.hold(op),
            Kind::Owning => self.own_by_kernel(op),
            Kind::Panic => self.panic(op),
            Kind::Fail => self.fail(op),
            Kind::EndFailure => self.end_failure(op),
            Kind::Grant => self.grant(op),
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
            Kind::Capture | Kind::Build => self.build(op),
            Kind::Instantiate => self.instantiate_again(op),
            Kind::Launch => self.launch(op),
            Kind::Upload => self.upload(op),
            Kind::Update => self.update(op),
            Kind::DropExec => self.drop_exec(op),
            Kind::TrimGraphs => self.trim_graphs(op),
        }
    }

    /// Writes a call down.
    pub(crate) fn say(&self, call: std::fmt::Arguments<'_>) {
        self.world.say(self.number, call);
    }

    /// One of the streams at hand.
    pub(crate) fn stream(&self, number: u32) -> Option<Held> {
        pick(&self.streams, number).and_then(|at| self.streams[at].clone())
    }

    /// A device, unless the program has dropped it.
    pub(crate) fn device(&self, at: usize) -> Option<Device> {
        self.world.devices[at].device.read().unwrap_or_else(|it| it.into_inner()).clone()
    }

    /// What the host knows of a device.
    pub(crate) fn host(&self, device: usize) -> Past {
        lock(&self.world.hosts[device]).clone()
    }

    /// The host learns that everything up to there has completed. It must be so.
    pub(crate) fn learn(&mut self, device: usize, past: &Past, call: &str) {
        if self.world.runs_kernels() {
            self.world.oracle.check_over(past, call);
        }
        lock(&self.world.hosts[device]).join(past);
    }

    /// What a stream's next operation comes after: it learns from the host, and from the legacy stream. Others see that
    /// it has learned it only once the operation is done.
    pub(crate) fn before_next(&self, line: &Line) -> Past {
        let mut known = self.host(line.device);
        match line.tie {
            Tie::Free => {}
            Tie::Blocking => {
                let lines = self.world.oracle.lines_of(line.device);
                let legacy = lines.iter().filter(|it| it.tie == Tie::Legacy);
                legacy.for_each(|legacy| known.join(&lock(&legacy.published)));
            }
            Tie::Legacy => {
                let lines = self.world.oracle.lines_of(line.device);
                let tied = lines.iter().filter(|it| it.tie != Tie::Free && it.has_worked.load(Ordering::Acquire));
                tied.for_each(|it| known.join(&it.now()));
            }
        }
        known.join(&line.now());
        self.learned.replace(Some((line.chain, known.clone())));
        known
    }

    /// An operation on a stream was done: the stream knows by now what there was to learn, and blocking streams come
    /// after it, where it was on the legacy one.
    pub(crate) fn publish(&self, line: &Line) {
        if let Some((_, known)) = self.learned.take().filter(|(chain, _)| *chain == line.chain) {
            lock(&line.past).join(&known);
        }
        line.has_worked.store(true, Ordering::Release);
        if line.tie == Tie::Legacy {
            let now = line.now();
            lock(&line.published).join(&now);
        }
    }

    /// What comes before the end of the operation that was done last on a stream, given what it came after. Where
    /// others use the stream their operations may stand in between or behind, and which is not known.
    pub(crate) fn end_of(&self, line: &Line, knows: Past) -> Past {
        match line.is_sure() || self.world.setting.threads == 1 {
            true => line.now(),
            false => knows,
        }
    }

    /// What is expected of something that is right or wrong by what the oracle knows.
    pub(crate) fn expect(&self, is_right: bool, line: &Line) -> Expect {
        match is_right {
            true => Expect::Accepted,
            false if self.world.is_exact() && line.is_sure() => Expect::Refused,
            false => Expect::Either,
        }
    }

    /// Holds an answer against what is expected.
    pub(crate) fn judge(&self, call: &str, expect: Expect, error: Option<&Error>) {
        let Some(error) = error else {
            if expect == Expect::Refused {
                finding(&format!("{call}: accepted, and nothing orders it after what it must come after"));
            }
            return;
        };
        self.say(format_args!("// refused: {}", error.to_string().replace('\n', " ")));
        self.world.oracle.figures.refusals.fetch_add(1, Ordering::Relaxed);
        let setting = self.world.setting;
        let is_fine = match error {
            Error::Violation(_) => expect != Expect::Accepted,
            Error::DeviceLost { .. } => self.world.oracle.lost.iter().any(|lost| lost.load(Ordering::Acquire)),
            Error::Driver(_) => {
                setting.has(Kind::Fail) && self.world.devices.iter().any(|it| !it.driver.struck().is_empty())
            }
            Error::OutOfMemory(_) => {
                call.starts_with("alloc") || call.starts_with("launch") || call.starts_with("upload")
            }
            // A capture may go wrong by itself; another thread's refuses some calls.
            Error::Capture(_) if call == "a capture" => true,
            Error::Capture(_) => setting.has(Kind::Capture) && setting.threads > 1,
            _ => expect != Expect::Accepted,
        };
        if !is_fine {
            finding(&format!("{call}: refused, and it is right: {}", error.report()));
        }
    }

    /// Drops what is left.
    fn finish(mut self, order: u32) {
        self.say(format_args!("// the thread ends and drops what is left"));
        if order & 64 == 0 {
            self.end_importers(order >> 7);
        }
        let bufs = std::mem::take(&mut self.bufs);
        let drop_bufs = || {
            for buf in bufs.into_iter().flatten() {
                self.world.oracle.release(buf.life.id, buf.buffer.address(), &buf.life.uses);
                self.world.say(self.number, format_args!("drop(b{});", buf.life.id));
                drop(buf);
            }
        };
        match order % 4 {
            0 => {
                drop_bufs();
                self.streams.clear();
                self.pools.clear();
                self.execs.clear();
                self.graphs.clear();
            }
            1 => {
                self.streams.clear();
                drop_bufs();
                self.execs.clear();
                self.pools.clear();
                self.graphs.clear();
            }
            2 => {
                self.pools.clear();
                self.graphs.clear();
                self.execs.clear();
                self.streams.clear();
                drop_bufs();
            }
            _ => {
                self.execs.clear();
                self.pools.clear();
                drop_bufs();
                self.streams.clear();
                self.graphs.clear();
            }
        }
        self.end_importers(order >> 7);
    }
}
