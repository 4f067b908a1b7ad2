//! What is known of one life of a buffer: who uses it, in this process and in others, and what comes after what.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::finding::lock;
use crate::oracle::{Done, Line, Use};
use crate::party::{Act, Doubt, Part, Party};
use crate::work::Content;
use millpond_reach::{Past, Point};

/// What a call must answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Expect {
    /// It is right, and is done.
    Accepted,
    /// It is wrong, and is refused.
    Refused,
    /// It is not known before.
    Either,
}

impl Expect {
    /// What is expected of something that does several things, or none of them.
    pub(crate) fn of_all<const N: usize>(all: [Expect; N]) -> Expect {
        match all.contains(&Expect::Either) {
            true => Expect::Either,
            false if all.contains(&Expect::Refused) => Expect::Refused,
            false => Expect::Accepted,
        }
    }
}

/// One life of a buffer.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    /// Its number in the program.
    pub(crate) id: u64,
    /// Where it was allocated.
    pub(crate) born: Point,
    /// All uses.
    pub(crate) uses: Vec<Use>,
    /// What is in it.
    pub(crate) content: Content,
    /// Its device.
    pub(crate) device: usize,
    /// The bytes of its pool, where it is of one.
    pub(crate) used: Option<Arc<AtomicU64>>,
    /// Whether a graph may have freed it.
    pub(crate) may_be_freed: bool,
    /// The instance whose launch made it.
    pub(crate) launched_by: Option<u64>,
    /// Whether a graph uses it.
    pub(crate) is_in_graph: bool,
    /// The other process whose memory it is.
    pub(crate) from: Option<Arc<Party>>,
    /// Whether another process has had a ticket for it.
    pub(crate) is_lent: bool,
    /// Whether its pool is for other processes.
    pub(crate) is_shareable: bool,
    /// Whether what is in it may never have been written.
    pub(crate) doubt: Option<Doubt>,
}

impl Use {
    /// Whether a party that knows so much comes after it. What a process did with what it imported from another one is
    /// over for all when that is known there; of what it exported, only events tell.
    pub(crate) fn is_before(&self, knows: &Past, is_import: bool) -> bool {
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
    /// One that begins, in plain memory of this process.
    pub(crate) fn new(id: u64, born: Point, content: Content, device: usize) -> Self {
        Self {
            id,
            born,
            uses: Vec::new(),
            content,
            device,
            used: None,
            may_be_freed: false,
            launched_by: None,
            is_in_graph: false,
            from: None,
            is_lent: false,
            is_shareable: false,
            doubt: None,
        }
    }

    /// Whether a use of a stream that knows so much is in order.
    pub(crate) fn is_right(&self, knows: &Past, act: Act, part: Part) -> bool {
        let is_import = self.from.is_some();
        // Whoever imported it frees it for himself: the exporter's free comes after the rest.
        let is_meant = |it: &&Use| it.meets(act, part) && (act != Act::Free || !is_import || it.party.is_none());
        let is_born = (act == Act::Free && is_import) || knows.covers(self.born);
        is_born && self.uses.iter().filter(is_meant).all(|it| it.is_before(knows, is_import))
    }

    /// What follows from what other processes did, where that is in order only if this one knows of it.
    pub(crate) fn expect_abroad(&self, knows: &Past, act: Act, part: Part) -> Option<Expect> {
        let is_import = self.from.is_some();
        if is_import && act == Act::Free {
            return None;
        }
        let born = self.from.as_ref().filter(|_| !knows.covers(self.born)).map(|party| (party, self.born));
        let open = self.uses.iter().filter(|it| it.meets(act, part) && !it.is_before(knows, is_import));
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
