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
    /// What its host was told is over. Of memory that it was lent this process hears that.
    pub known: Mutex<Clock>,
    /// What comes before some event of it that this process has imported.
    pub reached: Mutex<Clock>,
}

impl Party {
    /// Whether it is ended.
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// Whether what it did there is over for everybody: with memory that it was lent.
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

/// What is about to be done to a life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    Read,
    Write,
    Free,
}

impl Use {
    /// Whether somebody who knows so much comes after it. What a process did with what it imported from another one is
    /// over for all when that is known there; of what it exported, only events tell.
    pub(crate) fn is_before(&self, knows: &Clock, is_import: bool) -> bool {
        let is_over = |party: &Arc<Party>| !is_import && party.is_over(self.point);
        knows.covers(self.point) || self.party.as_ref().is_some_and(is_over)
    }

    /// Whether something must come after it.
    pub(crate) fn meets(&self, act: Act) -> bool {
        match act {
            Act::Read => self.writes,
            Act::Write => !self.frees,
            Act::Free => true,
        }
    }
}

impl Life {
    /// Whether a use of a stream that knows so much is in order.
    pub(crate) fn is_right(&self, knows: &Clock, act: Act) -> bool {
        let is_import = self.from.is_some();
        // Whoever imported it frees it for himself: the exporter's free comes after the rest.
        let is_meant = |it: &&Use| it.meets(act) && (act != Act::Free || !is_import || it.party.is_none());
        let is_born = (act == Act::Free && is_import) || knows.covers(self.born);
        is_born && self.uses.iter().filter(is_meant).all(|it| it.is_before(knows, is_import))
    }

    /// What follows from what other processes did, where that is in order only if this one has heard of it.
    pub(crate) fn expect_abroad(&self, knows: &Clock, act: Act) -> Option<Expect> {
        let is_import = self.from.is_some();
        if is_import && act == Act::Free {
            return None;
        }
        let born = self.from.as_ref().filter(|_| !knows.covers(self.born)).map(|party| (party, self.born));
        let open = self.uses.iter().filter(|it| it.meets(act) && !it.is_before(knows, is_import));
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
    pub(crate) fn used(&mut self, line: &Line, writes: bool, done: Option<Done>) {
        let point = line.step(done.as_ref());
        // Of one stream the last of each kind says all.
        self.uses.retain(|it| it.point.chain != point.chain || (it.writes && !writes) || it.done.is_some());
        self.uses.push(Use { point, writes, frees: false, done, party: None });
        if self.uses.len() > 64 {
            self.uses
                .retain(|it| it.done.as_ref().is_none_or(|done| !done.load(Ordering::Acquire)) || it.point == point);
        }
    }
}
