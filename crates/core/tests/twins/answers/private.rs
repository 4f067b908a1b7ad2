//! Private memory that is published when a step first names it: the program is judged as if all had been stepped.

use std::collections::BTreeMap;

use fastrand::Rng;
use millpond_core::check::{Checker, Done, Finding, Header, Reason, Settings, Site, StreamHandle, Use};
use millpond_core::ids::{AllocId, Point, Seq, StreamId};
use millpond_core::op::{Access, Act, Memory, Names, Op, What};
use millpond_core::order::next_op;

use super::asked::{VIOLATIONS, finding, step};
use super::program::{Kinds, Program};
use super::withdrawn::{Verdict, verdict};

/// A stream as a library keeps it.
struct Stream {
    handle: StreamHandle,
    last: Point,
    ops: u64,
    /// The epoch at which it last learned what the host knows.
    epoch: Option<u64>,
}

/// An allocation that the checker does not know.
struct Private {
    header: Header,
    owner: StreamId,
}

#[derive(Default)]
struct Counts {
    private: u64,
    published: u64,
    freed_by_others: u64,
}

/// A library that makes no step for operations that cannot be wrong.
struct Library {
    checker: Checker,
    names: Names,
    streams: BTreeMap<StreamId, Stream>,
    memory: BTreeMap<AllocId, Private>,
    epoch: u64,
    counts: Counts,
}

impl Library {
    fn new(settings: Settings) -> Self {
        Library {
            checker: Checker::new(settings),
            names: Names::new(),
            streams: BTreeMap::new(),
            memory: BTreeMap::new(),
            epoch: 0,
            counts: Counts::default(),
        }
    }

    /// Returns the allocation that an operation of a stream names, if the stream owns it and it is live.
    fn own(&mut self, memory: Memory, stream: StreamId) -> Option<&mut Header> {
        let it = self.memory.get_mut(&memory.id).filter(|it| it.owner == stream)?;
        Some(&mut it.header).filter(|header| header.memory == memory && header.free.is_none())
    }

    /// Does an operation on private memory without a step. Returns `true` if it was one.
    fn is_private(&mut self, op: &Op) -> bool {
        let Some(id) = op.what.stream().filter(|id| self.streams.contains_key(id)) else { return false };
        let is_own = match &op.what {
            What::Alloc { .. } => true,
            What::Free { memory, .. } => self.own(*memory, id).is_some(),
            What::Launch { accesses, .. } => {
                accesses.iter().all(|it| it.part.is_whole() && self.own(it.memory, id).is_some())
            }
            _ => false,
        };
        let Some((point, op_number)) = is_own.then(|| self.next(op, id)).flatten() else { return false };
        let used = |act| Use { point, site: Site { act, stream: id, op: op_number, place: op.place } };
        match op.what {
            What::Alloc { memory, pool, bytes, name, .. } => {
                let device = self.checker.device(self.streams[&id].handle).expect("it lives");
                let header = Header::new(memory, (pool, device), bytes, name, used(Act::Allocate));
                self.memory.insert(memory.id, Private { header, owner: id });
            }
            What::Free { memory, .. } => {
                self.own(memory, id).expect("its own").free = Some(used(Act::Free));
            }
            What::Launch { ref accesses, .. } => {
                for Access { memory, act, .. } in accesses {
                    self.own(*memory, id).expect("its own").add_use(used(*act));
                }
            }
            _ => unreachable!("no such operation is private"),
        }
        self.counts.private += 1;
        true
    }

    /// Returns the next point of a stream and the number of that operation, or `None` if it has no private operations.
    fn next(&mut self, op: &Op, id: StreamId) -> Option<(Point, u64)> {
        self.advance(id);
        let (epoch, stream) = (self.epoch, self.streams.get_mut(&id)?);
        if stream.epoch != Some(epoch) {
            stream.last.seq = self.checker.enter_private((op.host, op.place), stream.handle, &mut Vec::new())?;
            stream.epoch = Some(epoch);
        }
        (stream.last.seq, stream.ops) = (next_op(stream.last.seq), stream.ops + 1);
        Some((stream.last, stream.ops))
    }

    fn advance(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get(&id) {
            self.checker.advance(stream.handle, stream.last.seq, &self.names);
        }
    }

    fn advance_all(&mut self) {
        let all: Vec<StreamId> = self.streams.keys().copied().collect();
        all.into_iter().for_each(|id| self.advance(id));
    }

    fn publish(&mut self, memory: Memory) {
        let Some(it) = self.memory.get(&memory.id).filter(|it| it.header.memory == memory) else { return };
        let (owner, header) = (it.owner, it.header);
        self.advance(owner);
        self.checker.publish(&header);
        self.memory.remove(&memory.id);
        self.counts.published += 1;
    }

    /// Frees an allocation of another stream by its header. Returns `true` if that was possible.
    fn is_freed_from_header(&mut self, op: &Op) -> bool {
        let What::Free { memory, stream, .. } = op.what else { return false };
        let header = self.memory.get(&memory.id).map(|it| it.header).filter(|header| header.memory == memory);
        let (Some(header), Some(handle)) = (header, self.streams.get(&stream).map(|it| it.handle)) else {
            return false;
        };
        match stream == StreamId::LEGACY {
            true => self.advance_all(),
            false => self.advance(stream),
        }
        let freed = self.checker.free_private((op.host, op.place), handle, &header, &mut Vec::new());
        let Some(point) = freed else { return false };
        let freeing = self.streams.get_mut(&stream).expect("it lives");
        (freeing.last, freeing.ops) = (point, freeing.ops + 1);
        let free = Use { point, site: Site { act: Act::Free, stream, op: freeing.ops, place: op.place } };
        self.memory.get_mut(&memory.id).expect("it is there").header.free = Some(free);
        self.epoch += u64::from(stream == StreamId::LEGACY);
        self.counts.freed_by_others += 1;
        true
    }

    fn named(op: &Op) -> Vec<Memory> {
        match &op.what {
            What::Launch { accesses, .. } | What::Copy { accesses, .. } | What::HostAccess { accesses } => {
                accesses.iter().map(|it| it.memory).collect()
            }
            What::Free { memory, .. } | What::FreeNow { memory } | What::Drop { memory } => vec![*memory],
            _ => Vec::new(),
        }
    }

    fn step(&mut self, op: &Op) -> Option<Finding> {
        if self.is_private(op) || self.is_freed_from_header(op) {
            return None;
        }
        Self::named(op).into_iter().for_each(|memory| self.publish(memory));
        match op.what.stream() {
            Some(id) if id != StreamId::LEGACY => self.advance(id),
            _ => self.advance_all(),
        }
        let (done, reason) = step(&mut self.checker, op, &self.names);
        assert!(!matches!(reason, Some(Reason::AskAgain(_))), "all launches were confirmed");
        self.learn(op, &done);
        finding(reason)
    }

    fn learn(&mut self, op: &Op, done: &Done) {
        self.epoch += u64::from(!done.learned.is_empty() || op.what.stream() == Some(StreamId::LEGACY));
        let Some(id) = op.what.stream() else { return };
        match done.stream.zip(done.point) {
            Some((handle, last)) => {
                self.checker.advance(handle, last.seq, &self.names);
                let epoch = self.streams.get(&id).and_then(|stream| stream.epoch);
                self.streams.insert(id, Stream { handle, last, ops: done.number, epoch });
            }
            None => drop(self.streams.remove(&id)),
        }
    }
}

/// Adds the numbers of the operations.
fn numbered(finding: &Finding) -> (Verdict, [Option<u64>; 2]) {
    let number = |side: &Option<_>| side.as_ref().and_then(|side: &millpond_core::check::Side| side.op);
    (verdict(finding), [number(&finding.earlier), number(&finding.later)])
}

#[test]
fn private_memory_is_judged_as_if_it_had_been_stepped() {
    let (mut all, mut found) = (Counts::default(), 0);
    for seed in 0..100_000_u64 {
        let kinds = Kinds { parts: seed.is_multiple_of(2), ..Kinds::of(seed) };
        let ops = Program::random(&mut Rng::with_seed(seed), kinds, 40);
        let settings = Settings { races: !seed.is_multiple_of(7), ..VIOLATIONS };
        let (mut checker, names, mut library) = (Checker::new(settings), Names::new(), Library::new(settings));
        for (at, op) in ops.iter().enumerate() {
            let mut expected = Vec::new();
            checker.check(op, &names, &mut expected);
            let is = library.step(op);
            let [is, expected] = [is.iter().next(), expected.first()].map(|it| it.map(numbered));
            assert_eq!(is, expected, "program {seed}, operation {at}: {op:?}");
            found += u64::from(is.is_some());
        }
        let Counts { private, published, freed_by_others } = library.counts;
        all.private += private;
        all.published += published;
        all.freed_by_others += freed_by_others;
    }
    let Counts { private, published, freed_by_others } = all;
    assert!(private > 100_000 && published > 50_000 && found > 50_000, "{private} {published} {found}");
    assert!(freed_by_others > 1_000, "{freed_by_others}");
}

/// A position far ahead on a stream is not an error of the step.
#[test]
fn a_stream_that_is_advanced_counts_its_private_operations() {
    let mut rng = Rng::with_seed(0);
    let create = Program::random(&mut rng, Kinds::of(1), 0);
    let (mut checker, names) = (Checker::new(Settings::default()), Names::new());
    let done = create.iter().map(|op| checker.step(op, &names).expect("a stream is made")).next_back();
    let (handle, point) = done.and_then(|done| done.stream.zip(done.point)).expect("of a stream");
    let third: Seq = next_op(next_op(next_op(point.seq)));
    checker.advance(handle, third, &names);
    checker.advance(handle, point.seq, &names);
    let create = create.last().expect("a stream is made");
    let stream = create.what.stream().expect("a stream");
    let query = Op { what: What::StreamQuery { stream, is_idle: false }, ..create.clone() };
    assert_eq!(checker.step(&query, &names).expect("the stream is there").number, 3);
}
