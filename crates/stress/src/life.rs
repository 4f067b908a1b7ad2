//! What is known of one life of a buffer: who uses it, in this process and in others, and what comes after what.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::clock::{Clock, Point};
use crate::oracle::{Done, Line, Use, lock};
use crate::thread::Expect;
use crate::world::Life;

/// Another process, as far as verdicts of this one depend on it.
#[derive(Debug, Default)]
pub struct Party {
    /// It was ended, or is about to be.
    pub is_gone: AtomicBool,
    /// What its host was told has completed. Of memory that it was lent this process hears that.
    pub known: Mutex<Clock>,
    /// What comes before some event of it that this process has imported.
    pub reached: Mutex<Clock>,
}

impl Party {
    /// Whether it is ended.
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// Whether what it did there has completed for all: with memory that it was lent.
    pub fn is_over(&self, point: Point) -> bool {
        self.is_gone() || lock(&self.known).covers(point)
    }
}

/// Bytes that another process wrote, or a copy of them: it may be killed before.
#[derive(Clone, Debug)]
pub struct Doubt {
    /// Who.
    pub party: Arc<Party>,
    /// Where.
    pub point: Point,
}

impl Doubt {
    /// Whether the bytes may never have been written.
    pub fn is_true(&self) -> bool {
        self.party.is_gone() && !lock(&self.party.known).covers(self.point)
    }
}

/// Words of a buffer: those from `from` on, before `to`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// The first.
    pub from: usize,
    /// The first behind them.
    pub to: usize,
}

/// All words.
pub(crate) const ALL: Part = Part { from: 0, to: usize::MAX };

impl Part {
    fn meets(self, other: Part) -> bool {
        self.from < other.to && other.from < self.to
    }

    fn has(self, other: Part) -> bool {
        self.from <= other.from && other.to <= self.to
    }
}

/// What is about to be done to a life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    Read,
    Write,
    Free,
}

impl Use {
    /// Whether a party that knows so much comes after it. What a process did with what it imported from another one is
    /// over for all when that is known there; of what it exported, only events tell.
    pub(crate) fn is_before(&self, knows: &Clock, is_import: bool) -> bool {
        let is_over = |party: &Arc<Party>| !is_import && party.is_over(self.point);
        knows.covers(self.point) || self.party.as_ref().is_some_and(is_over)
    }

    /// Whether something must come after it.
    pub(crate) fn meets(&self, act: Act, part: Part) -> bool {
        let meets = match act {
            Act::Read => self.writes,
            Act::Write => !self.frees,
            Act::Free => true,
        };
        meets && self.part.meets(part)
    }

    /// Whether whoever comes after another use comes after this one, and for that has nothing to look for here.
    fn is_said_by(&self, later: &Use) -> bool {
        let is_later = self.point.chain == later.point.chain && self.point.seq < later.point.seq;
        is_later && (later.writes || !self.writes) && later.part.has(self.part)
    }
}

impl Life {
    /// Whether a use of a stream that knows so much is in order.
    pub(crate) fn is_right(&self, knows: &Clock, act: Act, part: Part) -> bool {
        let is_import = self.from.is_some();
        // Whoever imported it frees it for himself: the exporter's free comes after the rest.
        let is_meant = |it: &&Use| it.meets(act, part) && (act != Act::Free || !is_import || it.party.is_none());
        let is_born = (act == Act::Free && is_import) || knows.covers(self.born);
        is_born && self.uses.iter().filter(is_meant).all(|it| it.is_before(knows, is_import))
    }

    /// What follows from what other processes did, where that is in order only if this one has heard of it.
    pub(crate) fn expect_abroad(&self, knows: &Clock, act: Act, part: Part) -> Option<Expect> {
        let is_import = self.from.is_some();
        if is_import && act == Act::Free {
            return None;
        }
        let born = self.from.as_ref().filter(|_| !knows.covers(self.born)).map(|party| (party, self.born));
        let open = self.uses.iter().filter(|it| it.meets(act, part) && !it.is_before(knows, is_import));
        let open = open.filter_map(|it| Some((it.party.as_ref()?, it.point))).chain(born);
        let is_unheard = |(party, point): (&Arc<Party>, Point)| {
            !party.is_gone() && !lock(&party.reached).covers(point) && !lock(&party.known).covers(point)
        };
        let (mut some, mut unheard) = (false, false);
        for it in open {
            (some, unheard) = (true, unheard || is_unheard(it));
        }
        some.then_some(if unheard { Expect::Refused } else { Expect::Either })
    }

    /// Whether launches of this thread may change it or free it, or other processes: then no other thread has it.
    pub(crate) fn stays(&self) -> bool {
        self.launched_by.is_some() || self.is_in_graph || self.is_lent || self.from.is_some()
    }

    /// A use was accepted.
    pub(crate) fn used(&mut self, line: &Line, part: Part, writes: bool, done: Option<Done>) {
        let new = Use { point: line.step(done.as_ref()), part, writes, frees: false, done, party: None };
        self.uses.retain(|it| !it.is_said_by(&new) || it.done.is_some());
        self.uses.push(new);
        if self.uses.len() > 64 {
            let uses = self.uses.clone();
            let has_run = |it: &Use| it.done.as_ref().is_none_or(|done| done.load(Ordering::Acquire));
            self.uses.retain(|it| !has_run(it) || !uses.iter().any(|later| it.is_said_by(later)));
        }
    }
}
