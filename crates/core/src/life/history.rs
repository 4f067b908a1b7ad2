//! One life of memory: its allocation, its uses, and whether an act may come here.
//!
//! Knows what was done. The caller supplies the order, knows where the memory is, and records the free: an act after
//! that breaks [`Kind::after_free`] (a stream's memory has another life by then).

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::kept::Done;
use super::kind::Kind;
use super::site::Use;
use super::uses::{Replaced, Uses};
use crate::ids::{Point, Slot, StreamId};
use crate::op::{Act, Part};
use crate::order::Knows;

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
    /// The bytes that it is about.
    pub part: Part,
}

impl Fault {
    /// A fault with nothing to come after but the other side.
    pub fn new(kind: Kind, earlier: Use) -> Self {
        Self { kind, earlier, ends: Box::new([earlier]), part: Part::WHOLE }
    }

    /// The fault of touching a life that was freed.
    #[cold]
    pub fn after_free(free: Use, act: Act) -> Self {
        Self::new(Kind::after_free(act), free)
    }
}

/// One life of an allocation: its birth and the uses that something later may have to come after.
#[derive(Clone, Debug)]
#[repr(C)] // What each alloc and free needs lies together: the birth, and how many uses there are.
pub struct History<D: Done = Use> {
    born: D,
    uses: Uses<D>,
}

impl<D: Done> History<D> {
    /// A life that begins at `born`.
    #[inline]
    pub fn new(born: D) -> Self {
        Self { born, uses: Uses::new() }
    }

    /// Begins a new life in the same place.
    #[inline]
    pub fn restart(&mut self, born: D) {
        self.born = born;
        self.uses.clear();
    }

    /// Where it was allocated.
    pub fn born(&self) -> D {
        self.born
    }

    /// The uses that something later may have to come after; one of several parts may come several times.
    pub fn uses(&self) -> impl Iterator<Item = &D> + Clone {
        self.uses_of(Part::WHOLE)
    }

    /// Those of a part.
    pub fn uses_of(&self, part: Part) -> impl Iterator<Item = &D> + Clone {
        self.uses.of(part)
    }

    /// Those of bytes that have the same uses, with these bytes; some have none.
    pub fn by_part(&self) -> impl Iterator<Item = (Part, &[D])> {
        self.uses.by_part()
    }

    /// How much is kept, for who lets it settle: uses of all bytes, or parts with uses.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.uses.len()
    }

    /// Whether `act` may be done to these bytes next, by who comes after what `is_before` says: it must come after the
    /// allocation, a free after every use, and where `races` are looked for a write after every use of these bytes and
    /// a read after every write.
    ///
    /// # Errors
    /// The rule that is broken, and the other side.
    #[inline]
    pub fn check(&self, act: Act, part: Part, races: bool, is_before: impl Fn(&D) -> bool) -> Result<(), (Kind, D)> {
        if !is_before(&self.born) {
            return Err((Kind::before_alloc(act), self.born));
        }
        if !races && act != Act::Free {
            return Ok(());
        }
        match self.uses.find(act, part, |earlier| !is_before(earlier)) {
            Some(earlier) => Err((Kind::before_use(act), *earlier)),
            None => Ok(()),
        }
    }

    /// Adds a use, in place of those that it stands for.
    #[inline]
    pub fn add(&mut self, new: D, part: Part, is_before: impl Fn(&D) -> bool) {
        self.uses.add(new, part, is_before, |_| ());
    }

    /// As [`add`](Self::add). `replaced` gets the uses that the new one takes the place of.
    pub(crate) fn add_replacing(
        &mut self,
        new: D,
        part: Part,
        is_before: impl Fn(&D) -> bool,
        replaced: impl FnMut(Replaced<D>),
    ) {
        self.uses.add(new, part, is_before, replaced);
    }

    /// Begins at another point: the one before.
    pub(crate) fn replace_born(&mut self, born: D) -> D {
        std::mem::replace(&mut self.born, born)
    }

    /// Takes a use out again. Those that it replaced are to be [put back](Self::put_back), the last one first.
    pub(crate) fn remove(&mut self, old: &D, part: Part) {
        self.uses.remove(old, part);
    }

    /// Puts a use back that another one replaced.
    pub(crate) fn put_back(&mut self, replaced: Replaced<D>) {
        self.uses.put_back(replaced);
    }

    /// Adds a use, without looking for those that it stands for.
    pub fn push(&mut self, new: D, part: Part) {
        self.uses.push(new, part);
    }
}

impl History {
    /// [`check`](Self::check) of a use by the next operation of `who`.
    ///
    /// # Errors
    /// What it must come after and does not.
    #[inline]
    pub fn check_use(&self, act: Act, part: Part, who: &impl Knows, races: bool) -> Result<(), Fault> {
        let checked = self.check(act, part, races, |earlier| who.covers(earlier.point));
        checked.map_err(|broken| self.fault(broken, (act, part, races), who))
    }

    /// [`check`](Self::check) of a free by the next operation of `who`.
    ///
    /// # Errors
    /// What it must come after and does not.
    #[inline]
    pub fn check_free(&self, who: &impl Knows) -> Result<(), Fault> {
        self.check_use(Act::Free, Part::WHOLE, who, true)
    }

    /// Adds a use of a part that was found right; `who` stood before it when it was checked.
    #[inline]
    pub fn add_use(&mut self, new: Use, part: Part, who: &impl Knows) {
        self.add(new, part, |known| who.covers(known.point));
    }

    /// Adds a use that repeats a known one: that of the same kind by its chain, which knew nothing less then. Parts are
    /// not used by themselves.
    pub(crate) fn repeat(&mut self, new: Use) {
        let is_same = |known: &Use| known.point.slot == new.point.slot && known.site.act == new.site.act;
        self.uses.replace(new, is_same);
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
        self.uses.retain(|known| !(is_before(known) && outweighs(known)));
        self.uses.push(new, Part::WHOLE);
    }

    /// The newest read, write and free of each stream: who comes after these comes after all that was done.
    pub fn latest(&self) -> SmallVec<[Use; 2]> {
        let mut latest = SmallVec::new();
        keep_newest(&mut latest, self.uses(), |it| (it.point.slot, it.site.stream, Some(it.site.act)));
        latest
    }

    /// Forgets the uses that all streams come after: nothing that is still to come can be unordered with them.
    pub fn settle(&mut self, is_settled: impl Fn(Point) -> bool) {
        self.uses.settle(|known| !is_settled(known.point));
    }

    /// Whether parts are used by themselves, and settling them would cost no more than was done since the last time.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.uses.is_due()
    }

    /// Whether all bytes have the same uses.
    #[inline]
    pub(crate) fn is_whole(&self) -> bool {
        self.uses.is_whole()
    }

    /// Whether all points are so: of its birth and all uses.
    #[inline(always)]
    pub fn all_points(&self, is_so: impl Fn(Point) -> bool) -> bool {
        is_so(self.born.point) && self.uses.find(Act::Free, Part::WHOLE, |it| !is_so(it.point)).is_none()
    }

    /// The points after which the memory is free for certain: of its birth and all uses.
    pub fn points(&self) -> impl Iterator<Item = Point> + '_ {
        std::iter::once(self.born.point).chain(self.uses().map(|known| known.point))
    }

    /// The fault, and how far each stream has to be come after for all that it did to these bytes, which one edge does.
    #[cold]
    fn fault(&self, (kind, earlier): (Kind, Use), next: (Act, Part, bool), who: &impl Knows) -> Fault {
        let (act, part, races) = next;
        let must_precede =
            |it: &&Use| (act == Act::Free || (races && act.conflicts(it.site.act))) && !who.covers(it.point);
        let mut ends = SmallVec::<[Use; 2]>::from_elem(earlier, 1);
        keep_newest(&mut ends, self.uses_of(part).filter(must_precede), |it| (it.point.slot, it.site.stream, None));
        Fault { kind, earlier, ends: ends.into_vec().into(), part }
    }
}

/// The newest use with each key, where the first of that key stands.
fn keep_newest<'a>(
    newest: &mut SmallVec<[Use; 2]>,
    uses: impl Iterator<Item = &'a Use>,
    key: impl Fn(&Use) -> (Slot, StreamId, Option<Act>),
) {
    let mut places: FxHashMap<_, usize> = newest.iter().enumerate().map(|(at, it)| (key(it), at)).collect();
    for it in uses {
        let at = *places.entry(key(it)).or_insert(newest.len());
        match newest.get_mut(at) {
            None => newest.push(*it),
            Some(known) if known.point.seq < it.point.seq => *known = *it,
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::site::Site;
    use super::*;
    use crate::op::Place;
    use crate::order::{Chain, next_op};

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
        let (alloc, write) = (born.site.op, next_op(born.site.op));
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
