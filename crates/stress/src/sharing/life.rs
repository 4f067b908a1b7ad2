//! One life of a buffer: its uses in this process and in others, and their order.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use millpond_reach::{Past, Point};

use super::oracle::{Line, Use};
use super::party::{Act, Doubt, Party};
use crate::bytes::Content;
use crate::finding::lock;
use crate::ground::{Before, Done};

/// The expected answer of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Expect {
    /// The call is right and is done.
    Accepted,
    /// The call is wrong and is refused.
    Refused,
    /// The answer is not known in advance.
    Either,
}

impl Expect {
    /// Returns the expected answer of a call with several parts, of which all or none are done.
    pub(super) fn of_all<const N: usize>(all: [Expect; N]) -> Expect {
        match all.contains(&Expect::Either) {
            true => Expect::Either,
            false if all.contains(&Expect::Refused) => Expect::Refused,
            false => Expect::Accepted,
        }
    }
}

/// One life of a buffer.
#[derive(Clone, Debug)]
pub(super) struct Life {
    /// Its number in the program.
    pub(super) id: u32,
    /// Its allocation.
    pub(super) born: Point,
    /// All uses.
    pub(super) uses: Vec<Use>,
    /// Its content.
    pub(super) content: Content,
    /// The process that owns the memory, if it is not this one.
    pub(super) from: Option<Arc<Party>>,
    /// `true` if another process has had a ticket for it.
    pub(super) is_lent: bool,
    /// `true` if its pool is for other processes.
    pub(super) is_shareable: bool,
    /// Set if its content may never have been written.
    pub(super) doubt: Option<Doubt>,
}

impl Use {
    /// Returns `true` if a party with this knowledge comes after the use. The work of a process on memory that it
    /// imported has completed for all processes once that process knows it. For memory that it exported, only events
    /// count.
    pub(super) fn is_before(&self, knows: &Past, is_import: bool) -> bool {
        let is_over = |party: &Arc<Party>| !is_import && party.is_over(self.point);
        knows.covers(self.point) || self.party.as_ref().is_some_and(is_over)
    }

    /// Returns `true` if `act` must come after this use.
    pub(super) fn meets(&self, act: Act) -> bool {
        match act {
            Act::Read => self.writes,
            Act::Write => !self.frees,
            Act::Free => true,
        }
    }

    /// Returns `true` if everything after `later` also comes after this use, so that this use need not be checked.
    fn is_said_by(&self, later: &Use) -> bool {
        let is_later = self.point.chain == later.point.chain && self.point.seq < later.point.seq;
        is_later && (later.writes || !self.writes)
    }
}

impl Life {
    /// Starts a life in plain memory of this process.
    pub(super) fn new(id: u32, born: Point, content: Content) -> Self {
        Self { id, born, uses: Vec::new(), content, from: None, is_lent: false, is_shareable: false, doubt: None }
    }

    /// Returns `true` if a use by a stream with this knowledge is in order.
    pub(super) fn is_right(&self, knows: &Past, act: Act) -> bool {
        let is_import = self.from.is_some();
        // An importer frees its own import: the exporter's free comes after the uses of the others.
        let is_meant = |it: &&Use| it.meets(act) && (act != Act::Free || !is_import || it.party.is_none());
        let is_born = (act == Act::Free && is_import) || knows.covers(self.born);
        is_born && self.uses.iter().filter(is_meant).all(|it| it.is_before(knows, is_import))
    }

    /// Returns the expected answer if the act depends on what this process knows of the work of others, else `None`.
    pub(super) fn expect_foreign(&self, knows: &Past, act: Act) -> Option<Expect> {
        let is_import = self.from.is_some();
        if is_import && act == Act::Free {
            return None;
        }
        let born = self.from.as_ref().filter(|_| !knows.covers(self.born)).map(|party| (party, self.born));
        let open = self.uses.iter().filter(|it| it.meets(act) && !it.is_before(knows, is_import));
        let open = open.filter_map(|it| Some((it.party.as_ref()?, it.point))).chain(born);
        let is_unknown = |(party, point): (&Arc<Party>, Point)| {
            !party.is_gone() && !lock(&party.reached).covers(point) && !lock(&party.known).covers(point)
        };
        let (mut some, mut unknown) = (false, false);
        for it in open {
            (some, unknown) = (true, unknown || is_unknown(it));
        }
        some.then_some(if unknown { Expect::Refused } else { Expect::Either })
    }

    /// Returns `true` if other processes may use it.
    pub(super) fn stays(&self) -> bool {
        self.is_lent || self.from.is_some()
    }

    /// Returns the kernels that use it.
    pub(super) fn kernels(&self) -> Before {
        let mut kernels = Before::default();
        self.uses.iter().filter_map(|it| it.done.as_ref()).for_each(|done| kernels.add(done));
        kernels
    }

    /// Notes an accepted use.
    pub(super) fn used(&mut self, line: &Line, writes: bool, done: Option<Done>) {
        let new = Use { point: line.step(done.as_ref()), writes, frees: false, done, party: None };
        self.uses.retain(|it| !it.is_said_by(&new) || it.done.is_some());
        self.uses.push(new);
        if self.uses.len() > 64 {
            let uses = self.uses.clone();
            let has_run = |it: &Use| it.done.as_ref().is_none_or(|done| done.load(Ordering::Acquire));
            self.uses.retain(|it| !has_run(it) || !uses.iter().any(|later| it.is_said_by(later)));
        }
    }
}
