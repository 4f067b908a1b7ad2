//! Small programs: their operations, and which of these may come next. Other modules decide which programs are right.

use millpond_core::ids::{DeviceId, EventId, HostId, PoolId, StreamId};
use millpond_core::op::{Access, Act as Uses, EventKind, Memory, Op, Place, StreamRole, Trust, What};
use millpond_reach::Past;
use smallvec::smallvec;

/// The number of streams.
pub(super) const STREAMS: usize = 3;
/// The unit of sizes: half a granule.
pub(super) const UNIT: u64 = 64 << 10;
/// The pool of all programs.
pub(super) const POOL: PoolId = PoolId(1);
/// The largest number of live buffers.
const LIVE_MAX: usize = 4;

/// An operation. Streams are given by number, and buffers by the number of their allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Act {
    /// Allocates some units, which the stream writes at once.
    Alloc { on: usize, units: u64 },
    /// Writes again.
    Use { on: usize, of: usize },
    /// Frees on a stream.
    Free { on: usize, of: usize },
    /// Drops the buffer.
    Drop { of: usize },
    /// Lets `on` wait for an event that is recorded on `after` now.
    Order { after: usize, on: usize },
    /// Records the event that is kept.
    Record { on: usize },
    /// Waits for the event that was kept.
    Wait { on: usize },
    /// Synchronises the stream with the host.
    Sync { on: usize },
    /// Drops the last handle.
    Close { on: usize },
}

fn op(line: usize, what: What) -> Op {
    Op { host: HostId(0), place: Place::Line(line as u32), what }
}

/// Returns the operations before every program, which make its streams and its pool.
fn beginning() -> Vec<Op> {
    let stream =
        |at| What::StreamCreate { stream: StreamId(at as u32), role: StreamRole::NonBlocking, device: DeviceId(0) };
    let pool = What::PoolCreate { pool: POOL, exportable: false, device: None };
    (0..STREAMS).map(stream).chain([pool]).map(|what| op(0, what)).collect()
}

/// Returns a program as operations. Each has its number, from 1 on, as its line.
pub(super) fn operations(acts: &[Act]) -> Vec<Op> {
    let mut ops = beginning();
    let mut made = 0;
    for (at, act) in acts.iter().enumerate() {
        let stream = |on: usize| StreamId(on as u32);
        let memory = |of: usize| Memory::first(of as u32);
        let write = |on, of| {
            let accesses = smallvec![Access::whole(memory(of), Uses::Write)];
            What::Launch { stream: stream(on), accesses, trust: Trust::None, name: None }
        };
        let record =
            |event, on| What::EventRecord { event, stream: stream(on), external: false, kind: EventKind::Completion };
        let wait = |event, on| What::EventWait { event, stream: stream(on), external: false };
        // The first event is the kept one.
        let (kept, other) = (EventId(0), EventId(1));
        let whats: [Option<What>; 2] = match *act {
            Act::Alloc { on, units } => {
                let of = made;
                made += 1;
                let bytes = units * UNIT;
                let made = What::Alloc { memory: memory(of), pool: POOL, stream: stream(on), bytes, name: None };
                [Some(made), Some(write(on, of))]
            }
            Act::Use { on, of } => [Some(write(on, of)), None],
            Act::Free { on, of } => {
                [Some(What::Free { memory: memory(of), stream: stream(on), trust: Trust::None }), None]
            }
            Act::Drop { of } => [Some(What::Drop { memory: memory(of) }), None],
            Act::Order { after, on } => [Some(record(other, after)), Some(wait(other, on))],
            Act::Record { on } => [Some(record(kept, on)), None],
            Act::Wait { on } => [Some(wait(kept, on)), None],
            Act::Sync { on } => [Some(What::StreamSynchronize { stream: stream(on) }), None],
            Act::Close { on } => [Some(What::StreamDestroy { stream: stream(on) }), None],
        };
        ops.extend(whats.into_iter().flatten().map(|what| op(at + 1, what)));
    }
    ops
}

/// A live buffer.
#[derive(Clone, Copy, Debug)]
struct Live {
    of: usize,
    last_on: usize,
}

/// The effects of the operations so far, as far as they determine what may come next.
#[derive(Clone, Debug, Default)]
pub(super) struct Done {
    /// The past of each stream, to leave out waits that change nothing.
    pasts: [Past; STREAMS],
    host: Past,
    event: Option<Past>,
    live: Vec<Live>,
    made: usize,
    closed: [bool; STREAMS],
    /// `true` for a stream with operations since the last synchronisation.
    is_busy: [bool; STREAMS],
    named: usize,
    last: Option<Act>,
}

impl Done {
    /// Returns the state after these operations, as if none was the last.
    pub(super) fn of(acts: &[Act]) -> Self {
        let mut done = Self::default();
        acts.iter().for_each(|act| done.apply(*act));
        Self { last: None, ..done }
    }

    fn step(&mut self, on: usize) {
        self.pasts[on].step(on);
        self.is_busy[on] = true;
    }

    /// Adds an operation.
    pub(super) fn apply(&mut self, act: Act) {
        for on in act.streams().into_iter().flatten() {
            self.pasts[on].join(&self.host);
        }
        match act {
            Act::Alloc { on, .. } => {
                self.step(on);
                self.live.push(Live { of: self.made, last_on: on });
                self.made += 1;
            }
            Act::Use { on, of } => {
                self.step(on);
                self.live.iter_mut().filter(|life| life.of == of).for_each(|life| life.last_on = on);
            }
            Act::Free { of, on } => {
                self.pasts[on].step(on);
                self.live.retain(|life| life.of != of);
            }
            Act::Drop { of } => self.live.retain(|life| life.of != of),
            Act::Order { after, on } => {
                let past = self.pasts[after].clone();
                self.pasts[on].join(&past);
            }
            Act::Record { on } => self.event = Some(self.pasts[on].clone()),
            Act::Wait { on } => {
                let past = self.event.clone().unwrap_or_default();
                self.pasts[on].join(&past);
            }
            Act::Sync { on } => {
                self.host.join(&self.pasts[on]);
                self.is_busy[on] = false;
            }
            Act::Close { on } => self.closed[on] = true,
        }
        let streams = act.streams().into_iter().flatten().map(|it| it + 1);
        self.named = streams.fold(self.named, usize::max);
        self.last = Some(act);
    }

    /// Returns the operations that may come next, without those that change nothing.
    pub(super) fn next(&self, sizes: [u64; 2]) -> Vec<Act> {
        let mut acts = Vec::new();
        let open = |on: &usize| !self.closed[*on] && *on <= self.named;
        for on in (0..STREAMS).filter(open) {
            if self.live.len() < LIVE_MAX {
                acts.extend(sizes.map(|units| Act::Alloc { on, units }));
            }
            for life in &self.live {
                acts.push(Act::Free { on, of: life.of });
                if life.last_on != on {
                    acts.push(Act::Use { on, of: life.of });
                }
            }
            let known = |past: &Past| {
                let mut knows = self.pasts[on].clone();
                knows.join(&self.host);
                let mut more = knows.clone();
                more.join(past);
                knows == more
            };
            let others = (0..STREAMS).filter(|after| open(after) && *after != on);
            acts.extend(others.filter(|it| !known(&self.pasts[*it])).map(|after| Act::Order { after, on }));
            if self.event.as_ref().is_some_and(|event| !known(event)) {
                acts.push(Act::Wait { on });
            }
            if self.is_busy[on] {
                acts.push(Act::Sync { on });
                if self.event.as_ref() != Some(&self.pasts[on]) {
                    acts.push(Act::Record { on });
                }
            }
            if on < self.named {
                acts.push(Act::Close { on });
            }
        }
        acts.extend(self.live.iter().map(|life| Act::Drop { of: life.of }));
        acts.retain(|act| self.last.is_none_or(|last| !act.commutes(last) || act.rank() > last.rank()));
        acts
    }
}

impl Act {
    fn streams(self) -> [Option<usize>; 2] {
        match self {
            Act::Alloc { on, .. }
            | Act::Use { on, .. }
            | Act::Free { on, .. }
            | Act::Record { on }
            | Act::Wait { on }
            | Act::Sync { on }
            | Act::Close { on } => [Some(on), None],
            Act::Order { after, on } => [Some(after), Some(on)],
            Act::Drop { .. } => [None, None],
        }
    }

    /// Returns `true` if two adjacent operations have the same effect in either order.
    fn commutes(self, other: Act) -> bool {
        let meets = self.streams().iter().flatten().any(|it| other.streams().contains(&Some(*it)));
        match (self, other) {
            (Act::Use { of, .. }, Act::Use { of: also, .. }) => !meets && of != also,
            (Act::Use { .. }, Act::Record { .. } | Act::Wait { .. } | Act::Order { .. }) => !meets,
            (Act::Record { .. } | Act::Wait { .. } | Act::Order { .. }, Act::Use { .. }) => !meets,
            (Act::Order { .. }, Act::Record { .. } | Act::Wait { .. }) => !meets,
            (Act::Record { .. } | Act::Wait { .. }, Act::Order { .. }) => !meets,
            _ => false,
        }
    }

    /// Returns the rank by which commuting operations are sorted.
    fn rank(self) -> (usize, usize) {
        let kind = match self {
            Act::Use { .. } => 0,
            Act::Record { .. } => 1,
            Act::Wait { .. } => 2,
            _ => 3,
        };
        (kind, self.streams()[0].unwrap_or(0))
    }

    /// Returns `true` if the operation can reveal an error: it allocates memory or lets memory be given back.
    pub(super) fn shows(self) -> bool {
        matches!(self, Act::Alloc { .. } | Act::Sync { .. })
    }

    /// Returns `true` if the operation's order may be wrong.
    pub(super) fn may_be_wrong(self) -> bool {
        matches!(self, Act::Use { .. } | Act::Free { .. })
    }
}
