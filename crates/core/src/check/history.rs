//! What has been done to one life of an allocation, as far as it can still matter.
//!
//! Knows points and sites; not where the memory is. The simple version keeps every access for ever. Here an access is
//! dropped once a later write comes after it, or a later access if it is a read itself, because whatever must come
//! after the later one then comes after it, too. (A read drops no write: another read need not come after the first,
//! but must come after the write.) What stays are two antichains, of at most one write and one read a chain: two
//! unordered kernels may read an allocation, and both must precede the free. (One "last access" would forget one of
//! them, which is a well-known bug.) They are of all bytes, until an operation uses a part of them: then each part has
//! its own (`parts`), until something that is done to all makes them one again.

use smallvec::SmallVec;

use super::kind::Kind;
use super::parts::{Parts, Uses};
use crate::ids::{Point, StreamId};
use crate::op::{Act, Part, Place};
use crate::order::Knows;

/// Where an operation stands in its program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Site {
    /// What it does.
    pub act: Act,
    /// On which stream.
    pub stream: StreamId,
    /// The how many-th operation of that stream it is, counted from 1.
    pub op: u64,
    /// Where in the source.
    pub place: Place,
}

/// One thing done to an allocation: where in the order, and by whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Use {
    /// Its point.
    pub point: Point,
    /// What it was and where it stands in the program.
    pub site: Site,
}

/// Why an operation is wrong: what it had to come after and does not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The rule that is broken.
    pub kind: Kind,
    /// The other side.
    pub earlier: Use,
    /// The newest that each stream did and that has to come first, the other side's stream first: what comes after
    /// these comes after all.
    pub ends: Box<[Use]>,
}

impl Fault {
    /// A fault with nothing to come after but the other side.
    pub fn new(kind: Kind, earlier: Use) -> Self {
        Self { kind, earlier, ends: Box::new([earlier]) }
    }
}

/// One life of an allocation: its birth and the uses that something later may have to come after.
#[derive(Clone, Debug)]
#[repr(C)] // What each alloc and free needs lies together: the birth, and how many uses there are.
pub struct History {
    born: Use,
    /// Where there are parts, one of theirs: whoever finds none need not look for parts.
    uses: Uses,
    parts: Option<Box<Parts>>,
}

impl History {
    /// A life that begins at `born`.
    #[inline]
    pub fn new(born: Use) -> Self {
        Self { born, uses: Uses::new(), parts: None }
    }

    /// Begins a new life in the same place.
    #[inline]
    pub fn restart(&mut self, born: Use) {
        self.born = born;
        if !self.uses.is_empty() {
            self.forget_uses();
        }
    }

    #[inline(never)]
    fn forget_uses(&mut self) {
        self.uses.clear();
        self.parts = None;
    }

    /// Where it was allocated.
    pub fn born(&self) -> Use {
        self.born
    }

    /// The uses that something later may have to come after; one of several parts may come several times.
    pub fn uses(&self) -> impl Iterator<Item = &Use> + Clone {
        self.uses_of(Part::WHOLE)
    }

    /// The newest read, write and free of each stream: who comes after these comes after all that was done.
    pub fn latest(&self) -> SmallVec<[Use; 2]> {
        self.parts.as_ref().map_or_else(|| self.uses.clone(), |parts| parts.latest())
    }

    /// How much is kept, for who lets it settle: uses of all bytes, or parts with uses.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.parts.as_ref().map_or(self.uses.len(), |parts| parts.len())
    }

    /// Those of a part.
    pub fn uses_of(&self, part: Part) -> impl Iterator<Item = &Use> + Clone {
        let whole: &[Use] = if self.parts.is_none() { &self.uses } else { &[] };
        whole.iter().chain(self.parts.as_deref().into_iter().flat_map(move |parts| parts.of(part)))
    }

    /// Whether `who` may use a part of the memory with its next operation: it must come after the allocation and, where
    /// `races` are looked for, a write after every use of these bytes and a read after every write.
    #[inline]
    pub fn check_use(&self, act: Act, part: Part, who: &impl Knows, races: bool) -> Result<(), Fault> {
        let conflicts = |earlier: &&Use| act.conflicts(earlier.site.act);
        if !who.covers(self.born.point) {
            return Err(self.fault(Kind::UseBeforeAlloc, self.born, part, who, |it| races && conflicts(&it)));
        }
        if !races {
            return Ok(());
        }
        match self.find(part, |earlier| conflicts(&earlier) && !who.covers(earlier.point)) {
            Some(earlier) => Err(self.fault(Kind::Race, *earlier, part, who, |it| conflicts(&it))),
            None => Ok(()),
        }
    }

    /// Adds a use of a part that was found right; `who` stood before it when it was checked.
    #[inline]
    pub fn add_use(&mut self, new: Use, part: Part, who: &impl Knows) {
        match part.is_whole() && self.is_whole() {
            true => add(&mut self.uses, new, who),
            false => self.change(part, |uses| add(uses, new, who)),
        }
    }

    /// Adds a use that repeats a known one: that of the same kind by its chain, which knew nothing less then. Parts are
    /// not used by themselves.
    pub(super) fn repeat(&mut self, new: Use) {
        debug_assert!(self.parts.is_none(), "parts have uses of their own");
        let is_same = |known: &&mut Use| known.point.slot == new.point.slot && known.site.act == new.site.act;
        match self.uses.iter_mut().find(is_same) {
            Some(known) => *known = new,
            None => self.uses.push(new),
        }
    }

    /// Adds something that a free must come after, whoever did it and whatever that knew. What its chain did before
    /// comes before it at any rate.
    pub fn add_apart(&mut self, new: Use) {
        let outweighs = |known: &Use| match known.site.act {
            Act::Write => new.site.act == Act::Write,
            Act::Read => new.site.act != Act::Free,
            _ => true,
        };
        let is_before = |known: &Use| known.point.slot == new.point.slot && known.point.seq <= new.point.seq;
        self.change(Part::WHOLE, |uses| {
            uses.retain(|known| !(is_before(known) && outweighs(known)));
            uses.push(new);
        });
    }

    /// Forgets the uses that all streams come after: nothing that is still to come can be unordered with them.
    pub fn settle(&mut self, is_settled: impl Fn(Point) -> bool) {
        self.change(Part::WHOLE, |uses| uses.retain(|known| !is_settled(known.point)));
        self.parts.iter_mut().for_each(|parts| parts.settled());
    }

    /// Whether parts are used by themselves, and settling them would cost no more than was done since the last time.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.parts.as_ref().is_some_and(|parts| parts.is_due())
    }

    /// Changes the uses of a part.
    fn change(&mut self, part: Part, mut change: impl FnMut(&mut Uses)) {
        if part.is_whole() && self.is_whole() {
            return change(&mut self.uses);
        }
        let mut parts = self.parts.take().unwrap_or_else(|| Box::new(Parts::new(std::mem::take(&mut self.uses))));
        parts.change(part, change);
        match parts.is_whole() {
            true => self.uses = parts.into_whole(),
            false => {
                self.uses = parts.of(Part::WHOLE).take(1).copied().collect();
                self.parts = Some(parts);
            }
        }
    }

    /// Whether all bytes have the same uses.
    #[inline]
    pub(super) fn is_whole(&self) -> bool {
        self.parts.is_none() || self.uses.is_empty()
    }

    /// Whether `who` may free the memory with its next operation: it must come after the allocation and every use.
    #[inline]
    pub fn check_free(&self, who: &impl Knows) -> Result<(), Fault> {
        if !who.covers(self.born.point) {
            return Err(self.fault(Kind::FreeBeforeAlloc, self.born, Part::WHOLE, who, |_| true));
        }
        match self.find(Part::WHOLE, |earlier| !who.covers(earlier.point)) {
            Some(earlier) => Err(self.fault(Kind::FreeBeforeUse, *earlier, Part::WHOLE, who, |_| true)),
            None => Ok(()),
        }
    }

    #[inline]
    fn find(&self, part: Part, is_it: impl Fn(&Use) -> bool) -> Option<&Use> {
        match &self.parts {
            _ if self.uses.is_empty() => None,
            None => self.uses.iter().find(|it| is_it(it)),
            Some(parts) => parts.find(part, is_it),
        }
    }

    /// Whether all points are so: of its birth and all uses.
    #[inline]
    pub fn all_points(&self, is_so: impl Fn(Point) -> bool) -> bool {
        is_so(self.born.point) && self.find(Part::WHOLE, |it| !is_so(it.point)).is_none()
    }

    /// The fault, and how far each stream has to be come after for all that it did to these bytes, which one edge does.
    #[cold]
    fn fault(
        &self,
        kind: Kind,
        earlier: Use,
        part: Part,
        who: &impl Knows,
        must_precede: impl Fn(&Use) -> bool,
    ) -> Fault {
        let chain = |it: &Use| (it.point.slot, it.site.stream);
        let mut ends = vec![earlier];
        for it in self.uses_of(part).filter(|it| must_precede(it) && !who.covers(it.point)) {
            match ends.iter_mut().find(|known| chain(known) == chain(it)) {
                Some(known) if known.point.seq < it.point.seq => *known = *it,
                Some(_) => {}
                None => ends.push(*it),
            }
        }
        Fault { kind, earlier, ends: ends.into() }
    }

    /// The points after which the memory is free for certain: of its birth and all uses.
    pub fn points(&self) -> impl Iterator<Item = Point> + '_ {
        std::iter::once(self.born.point).chain(self.uses().map(|known| known.point))
    }
}

/// Adds a use to those of the same bytes.
#[inline]
fn add(uses: &mut Uses, new: Use, who: &impl Knows) {
    // Of one launch a write outweighs a read.
    let outweighs = |known: &Use| new.site.act == Act::Write || known.site.act != Act::Write;
    let is_news = |known: &Use| !(outweighs(known) && who.covers(known.point));
    // The new one takes the place of the first that it stands for: nearly always there is just that one.
    let Some(first) = uses.iter().position(|known| !is_news(known)) else { return uses.push(new) };
    uses[first] = new;
    let mut at = first + 1;
    while at < uses.len() {
        match is_news(&uses[at]) {
            true => at += 1,
            false => drop(uses.swap_remove(at)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::ids::{Slot, StreamId};
    use crate::op::Place;
    use crate::order::Chain;

    fn chain(slot: u32) -> Chain {
        Chain::new(Slot(slot), 0, Arc::default())
    }

    fn at(chain: &mut Chain, act: Act) -> Use {
        let point = chain.submit();
        Use { point, site: Site { act, stream: StreamId(point.slot.0), op: point.seq, place: Place::Unknown } }
    }

    fn use_on(history: &mut History, chain: &mut Chain, act: Act) {
        history.check_use(act, Part::WHOLE, chain, false).unwrap();
        let knew = Chain::new(chain.slot(), chain.seq(), Arc::default());
        let new = at(chain, act);
        history.add_use(new, Part::WHOLE, &knew);
    }

    #[test]
    fn two_unordered_readers_must_both_precede_the_free() {
        let (mut s0, mut s1, mut s2) = (chain(0), chain(1), chain(2));
        let mut history = History::new(at(&mut s0, Act::Allocate));
        s1.wait(&s0.snapshot());
        s2.wait(&s0.snapshot());
        use_on(&mut history, &mut s1, Act::Read);
        use_on(&mut history, &mut s2, Act::Read);
        s0.wait(&s2.snapshot());
        let mut stranger = chain(3);
        stranger.submit();
        let fault = history.check_free(&stranger).unwrap_err();
        let streams = |uses: &[Use]| uses.iter().map(|it| it.site.stream.0).collect::<Vec<_>>();
        assert_eq!((fault.kind, fault.earlier.site.stream), (Kind::FreeBeforeAlloc, StreamId(0)));
        assert_eq!(streams(&fault.ends), [0, 1, 2], "all that it has to come after");
        let fault = history.check_free(&s0).unwrap_err();
        assert_eq!((fault.kind, fault.earlier.site.stream), (Kind::FreeBeforeUse, StreamId(1)));
        assert_eq!(streams(&fault.ends), [1], "it knows the other");
        s0.wait(&s1.snapshot());
        history.check_free(&s0).unwrap();
    }

    #[test]
    fn ordered_uses_leave_one_entry() {
        let mut s0 = chain(0);
        let mut history = History::new(at(&mut s0, Act::Allocate));
        for _ in 0..100 {
            use_on(&mut history, &mut s0, Act::Write);
        }
        assert_eq!(history.uses().count(), 1);
    }

    #[test]
    fn an_ordered_read_does_not_hide_the_write_before_it() {
        let (mut s0, mut s1, mut s2) = (chain(0), chain(1), chain(2));
        let mut history = History::new(at(&mut s0, Act::Allocate));
        s2.wait(&s0.snapshot());
        use_on(&mut history, &mut s0, Act::Write);
        s1.wait(&s0.snapshot());
        for _ in 0..10 {
            let read = at(&mut s1, Act::Read);
            history.add_use(read, Part::WHOLE, &s1);
        }
        assert_eq!(history.uses().count(), 2, "the write and the last read");
        let fault = history.check_use(Act::Read, Part::WHOLE, &s2, true).unwrap_err();
        assert_eq!((fault.kind, fault.earlier.site.act), (Kind::Race, Act::Write));
        s0.wait(&s1.snapshot());
        let write = at(&mut s0, Act::Write);
        history.add_use(write, Part::WHOLE, &s0);
        assert_eq!(history.uses().count(), 1, "a write outweighs all that it comes after");
    }

    #[test]
    fn a_fault_says_how_far_the_other_stream_has_to_be_come_after() {
        let (mut s0, mut s1) = (chain(0), chain(1));
        let born = at(&mut s0, Act::Allocate);
        let mut history = History::new(born);
        let (alloc, write) = (born.site.op, born.site.op + 1);
        let allocated = s0.snapshot();
        use_on(&mut history, &mut s0, Act::Write);
        let newest = |fault: Fault| (fault.earlier.site.op, fault.ends[0].site.op);
        assert_eq!(newest(history.check_use(Act::Read, Part::WHOLE, &s1, true).unwrap_err()), (alloc, write));
        assert_eq!(
            newest(history.check_use(Act::Read, Part::WHOLE, &s1, false).unwrap_err()),
            (alloc, alloc),
            "no write has to precede it"
        );
        assert_eq!(newest(history.check_free(&s1).unwrap_err()), (alloc, write));
        s1.wait(&allocated);
        assert_eq!(newest(history.check_use(Act::Read, Part::WHOLE, &s1, true).unwrap_err()), (write, write));
    }

    #[test]
    fn parts_that_everybody_comes_after_are_forgotten() {
        let (mut s0, mut s1) = (chain(0), chain(1));
        let mut history = History::new(at(&mut s0, Act::Allocate));
        s1.wait(&s0.snapshot());
        for page in 0..100 {
            let stream = if page % 2 == 0 { &mut s0 } else { &mut s1 };
            let write = at(stream, Act::Write);
            history.add_use(write, Part::new(page * 10, page * 10 + 10).unwrap(), stream);
        }
        assert_eq!(history.len(), 101);
        assert!(!history.is_due(), "each was changed once or twice");
        s0.wait(&s1.snapshot());
        for _ in 0..3 {
            let read = at(&mut s0, Act::Read);
            history.add_use(read, Part::WHOLE, &s0);
        }
        assert!(history.is_due());
        let last = s0.seq();
        history.settle(|point| point.seq < last);
        assert_eq!((history.len(), history.is_due()), (1, false));
        assert_eq!(history.check_free(&s1).unwrap_err().earlier.site.act, Act::Read);
    }

    #[test]
    fn races_are_a_question_of_their_own() {
        let (mut s0, mut s1) = (chain(0), chain(1));
        let mut history = History::new(at(&mut s0, Act::Allocate));
        s1.wait(&s0.snapshot());
        use_on(&mut history, &mut s0, Act::Write);
        assert_eq!(history.check_use(Act::Read, Part::WHOLE, &s1, true).unwrap_err().kind, Kind::Race);
        history.check_use(Act::Read, Part::WHOLE, &s1, false).unwrap();
    }
}
