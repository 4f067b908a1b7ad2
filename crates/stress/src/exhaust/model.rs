//! Small programs: their operations, what may come next, and which of them are right, by reachability.

use millpond_reach::{Past, Point};

/// Streams.
pub(super) const STREAMS: usize = 3;
/// The unit of sizes: a granule has two of them.
pub(super) const UNIT: u64 = 64 << 10;
/// Most buffers that live at once.
const LIVE_MAX: usize = 4;

/// An operation. Streams by number, buffers by the number of their allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Act {
    /// So many units, which the stream writes at once.
    Alloc { on: usize, units: u64 },
    /// Another write.
    Use { on: usize, of: usize },
    /// A free on a stream.
    Free { on: usize, of: usize },
    /// The buffer is dropped.
    Drop { of: usize },
    /// `on` waits for an event that is recorded on `after` now.
    Order { after: usize, on: usize },
    /// An event that is kept.
    Record { on: usize },
    /// A wait for the event that was kept.
    Wait { on: usize },
    /// The host waits.
    Sync { on: usize },
    /// The last handle goes.
    Close { on: usize },
}

/// A buffer in the model.
#[derive(Clone, Debug)]
struct Life {
    of: usize,
    uses: Vec<Point>,
    last_on: Option<usize>,
}

/// What was done so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Model {
    pasts: [Past; STREAMS],
    host: Past,
    live: Vec<Life>,
    made: usize,
    event: Option<Past>,
    closed: [bool; STREAMS],
    /// Whether something was done on it since it was waited for.
    is_busy: [bool; STREAMS],
    named: usize,
    pub(super) last: Option<Act>,
}

impl Model {
    fn learn(&mut self, on: usize) {
        let host = self.host.clone();
        self.pasts[on].join(&host);
    }

    fn find(&self, of: usize) -> Option<usize> {
        self.live.iter().position(|life| life.of == of)
    }

    /// Whether an operation is right.
    pub(super) fn is_right(&self, act: Act) -> bool {
        match act {
            Act::Use { on, of } | Act::Free { on, of } => {
                let mut knows = self.pasts[on].clone();
                knows.join(&self.host);
                self.find(of).is_some_and(|at| self.live[at].uses.iter().all(|point| knows.covers(*point)))
            }
            _ => true,
        }
    }

    /// Does an operation that is right.
    pub(super) fn apply(&mut self, act: Act) {
        match act {
            Act::Alloc { on, .. } => {
                self.learn(on);
                let point = self.pasts[on].step(on);
                self.live.push(Life { of: self.made, uses: vec![point], last_on: Some(on) });
                self.made += 1;
                self.is_busy[on] = true;
            }
            Act::Use { on, of } => {
                self.learn(on);
                let point = self.pasts[on].step(on);
                let at = self.find(of).expect("a live buffer");
                // Whoever comes after this write comes after all before it.
                self.live[at].uses = vec![point];
                self.live[at].last_on = Some(on);
                self.is_busy[on] = true;
            }
            Act::Free { on, of } => {
                self.learn(on);
                self.pasts[on].step(on);
                self.live.retain(|life| life.of != of);
            }
            Act::Drop { of } => self.live.retain(|life| life.of != of),
            Act::Order { after, on } => {
                self.learn(after);
                self.learn(on);
                let past = self.pasts[after].clone();
                self.pasts[on].join(&past);
            }
            Act::Record { on } => {
                self.learn(on);
                self.event = Some(self.pasts[on].clone());
            }
            Act::Wait { on } => {
                self.learn(on);
                let past = self.event.clone().unwrap_or_default();
                self.pasts[on].join(&past);
            }
            Act::Sync { on } => {
                self.learn(on);
                let past = self.pasts[on].clone();
                self.host.join(&past);
                self.is_busy[on] = false;
            }
            Act::Close { on } => self.closed[on] = true,
        }
        let streams = act.streams().into_iter().flatten().map(|it| it + 1);
        self.named = streams.fold(self.named, usize::max);
        self.last = Some(act);
    }

    /// What may come next, without what changes nothing.
    pub(super) fn next(&self, sizes: [u64; 2]) -> Vec<Act> {
        let mut acts = Vec::new();
        let open = |on: &usize| !self.closed[*on] && *on <= self.named;
        for on in (0..STREAMS).filter(open) {
            if self.live.len() < LIVE_MAX {
                acts.extend(sizes.map(|units| Act::Alloc { on, units }));
            }
            for life in &self.live {
                acts.push(Act::Free { on, of: life.of });
                if life.last_on != Some(on) {
                    acts.push(Act::Use { on, of: life.of });
                }
            }
            let known = |past: &Past| {
                let (mut knows, mut more) = (self.pasts[on].clone(), self.pasts[on].clone());
                knows.join(&self.host);
                more.join(&self.host);
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

    /// Whether the two, one behind the other, do the same in either order.
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

    /// One order for all.
    fn rank(self) -> (usize, usize) {
        let kind = match self {
            Act::Use { .. } => 0,
            Act::Record { .. } => 1,
            Act::Wait { .. } => 2,
            _ => 3,
        };
        (kind, self.streams()[0].unwrap_or(0))
    }

    /// Whether what is wrong could show with it: memory is found, or given back.
    pub(super) fn shows(self) -> bool {
        matches!(self, Act::Alloc { .. } | Act::Sync { .. })
    }
}
