//! The lifetime of an allocation: its uses, and the check of the next operation on it.
//!
//! The uses belong to all bytes until an operation uses a part of them. Then the bytes are divided into segments,
//! each with the uses of all its bytes: a segment is divided where a part begins or ends, and neighbours with the
//! same uses are joined. A step costs the logarithm of the number of segments, plus the segments that it overlaps.
//! `uses.rs` has the rule by which one use stands for another.
//!
//! Knows only what was done. The caller supplies the order, knows where the memory is, and records the free: an act
//! after the free breaks [`Kind::after_free`] (by then, a stream's memory belongs to another allocation).

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::kind::Kind;
use super::site::Use;
use super::uses::{Done, Uses};
use crate::ids::{ChainIndex, Point, StreamId};
use crate::op::{Act, Part};
use crate::order::Knows;

/// An operation that is wrong: the broken rule, and what it had to come after and does not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The rule that is broken.
    pub kind: Kind,
    /// The other operation.
    pub earlier: Use,
    /// The newest use of each stream that has to come first, beginning with the stream of the other operation. What
    /// comes after these comes after all uses.
    pub ends: Box<[Use]>,
    /// The bytes concerned.
    pub part: Part,
}

impl Fault {
    /// Makes a fault in which only the other operation has to come first.
    pub fn new(kind: Kind, earlier: Use) -> Self {
        Self { kind, earlier, ends: Box::new([earlier]), part: Part::WHOLE }
    }

    /// Makes the fault of an act after the free.
    #[cold]
    pub fn after_free(free: Use, act: Act) -> Self {
        Self::new(Kind::after_free(act), free)
    }
}

/// The lifetime of an allocation: its allocation, and the uses that something later may have to come after.
#[derive(Clone, Debug)]
#[repr(C)] // Keeps together what each alloc and free needs: `born` and the number of uses.
pub struct History<D: Done = Use> {
    born: D,
    /// The uses of all bytes. If there are parts, one of their uses, so that an empty list means that the parts need
    /// no look.
    whole: Uses<D>,
    parts: Option<Box<Parts<D>>>,
}

impl<D: Done> History<D> {
    /// Makes a lifetime that begins at `born`.
    #[inline]
    pub fn new(born: D) -> Self {
        Self { born, whole: Uses::new(), parts: None }
    }

    /// Begins a new lifetime in the same place.
    #[inline]
    pub fn restart(&mut self, born: D) {
        self.born = born;
        if !self.whole.is_empty() {
            self.clear();
        }
    }

    #[inline(never)]
    fn clear(&mut self) {
        (self.whole, self.parts) = (Uses::new(), None);
    }

    /// Returns the allocation.
    pub fn born(&self) -> D {
        self.born
    }

    /// Returns the uses that something later may have to come after. A use of several parts may appear several times.
    pub fn uses(&self) -> impl Iterator<Item = &D> + Clone {
        self.uses_of(Part::WHOLE)
    }

    /// Returns the uses of a part.
    pub fn uses_of(&self, part: Part) -> impl Iterator<Item = &D> + Clone {
        let whole = if self.parts.is_none() { self.whole.all() } else { &[] };
        whole.iter().chain(self.parts.as_deref().into_iter().flat_map(move |parts| parts.of(part)))
    }

    /// Returns the segments of bytes that have the same uses, each with these uses. Some segments have none.
    pub fn by_part(&self) -> impl Iterator<Item = (Part, &[D])> {
        let whole = self.parts.is_none().then(|| (Part::WHOLE, self.whole.all()));
        whole.into_iter().chain(self.parts.as_deref().into_iter().flat_map(|parts| parts.all()))
    }

    /// Returns the amount kept, to decide when to settle: the number of uses of all bytes, or of segments.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.parts.as_ref().map_or(self.whole.all().len(), |parts| parts.segments.len())
    }

    /// Returns the first use of some bytes that `act` must come after, with races checked, and for which `is_so`
    /// holds.
    #[inline]
    fn find(&self, act: Act, part: Part, is_so: impl Fn(&D) -> bool) -> Option<&D> {
        match &self.parts {
            _ if self.whole.is_empty() => None,
            None => self.whole.find(act, is_so),
            Some(parts) => parts.find(part, |uses| uses.find(act, &is_so)),
        }
    }

    /// Checks `act` on these bytes by a party that comes after the uses for which `is_before` holds. The act must
    /// come after the allocation. A free must come after every use. If `races` are checked, a write must come after
    /// every use of these bytes, and a read after every write.
    ///
    /// # Errors
    /// The broken rule, and the other operation.
    #[inline]
    pub fn check(&self, act: Act, part: Part, races: bool, is_before: impl Fn(&D) -> bool) -> Result<(), (Kind, D)> {
        if !is_before(&self.born) {
            return Err((Kind::before_alloc(act), self.born));
        }
        if !races && act != Act::Free {
            return Ok(());
        }
        match self.find(act, part, |earlier| !is_before(earlier)) {
            Some(earlier) => Err((Kind::before_use(act), *earlier)),
            None => Ok(()),
        }
    }

    /// Adds a use and drops the uses that it stands for.
    #[inline]
    pub fn add(&mut self, new: D, part: Part, is_before: impl Fn(&D) -> bool) {
        match part.is_whole() && self.is_whole() {
            true => self.whole.add(new, is_before),
            false => self.change(part, |uses| uses.add(new, &is_before)),
        }
    }

    /// Adds a use without looking for those that it stands for.
    pub fn push(&mut self, new: D, part: Part) {
        self.change(part, |uses| uses.push(new));
    }

    /// Returns `true` if the bytes are in parts, and settling them would cost no more than was done since the last
    /// time.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.parts.as_ref().is_some_and(|parts| parts.is_due())
    }

    /// Returns `true` if all bytes have the same uses.
    #[inline]
    pub(crate) fn is_whole(&self) -> bool {
        self.parts.is_none() || self.whole.is_empty()
    }

    fn change(&mut self, part: Part, mut change: impl FnMut(&mut Uses<D>)) {
        if part.is_whole() && self.is_whole() {
            return change(&mut self.whole);
        }
        let whole = || Box::new(Parts::new(std::mem::replace(&mut self.whole, Uses::new())));
        let mut parts = self.parts.take().unwrap_or_else(whole);
        parts.change(part, change);
        match parts.segments.len() {
            1 => self.whole = parts.into_whole(),
            _ => {
                self.whole = Uses::new();
                if let Some(first) = parts.of(Part::WHOLE).next() {
                    self.whole.push(*first);
                }
                self.parts = Some(parts);
            }
        }
    }
}

impl History {
    /// Runs [`check`](Self::check) for a use by the next operation of `who`.
    ///
    /// # Errors
    /// The order that the use lacks.
    #[inline]
    pub fn check_use(&self, act: Act, part: Part, who: &impl Knows, races: bool) -> Result<(), Fault> {
        let checked = self.check(act, part, races, |earlier| who.covers(earlier.point));
        checked.map_err(|broken| self.fault(broken, (act, part, races), who))
    }

    /// Runs [`check`](Self::check) for a free by the next operation of `who`.
    ///
    /// # Errors
    /// The order that the free lacks.
    #[inline]
    pub fn check_free(&self, who: &impl Knows) -> Result<(), Fault> {
        self.check_use(Act::Free, Part::WHOLE, who, true)
    }

    /// Adds a use of a part that passed its check. `who` is as it was before the use, at the check.
    #[inline]
    pub fn add_use(&mut self, new: Use, part: Part, who: &impl Knows) {
        self.add(new, part, |known| who.covers(known.point));
    }

    /// Replaces the use of the same kind by the same chain, if there is one; the chain knew no less at the new use.
    /// The bytes are not in parts.
    pub(crate) fn repeat(&mut self, new: Use) {
        let is_same = |known: &Use| known.point.chain == new.point.chain && known.site.act == new.site.act;
        self.change(Part::WHOLE, |uses| uses.replace(new, is_same));
    }

    /// Adds something that a free must come after, independent of who did it and what that party knew. What the same
    /// chain did before comes before it in any case.
    pub fn add_apart(&mut self, new: Use) {
        let outweighs = |known: &Use| match known.site.act {
            Act::Write => new.site.act == Act::Write,
            Act::Read => new.site.act != Act::Free,
            _ => true,
        };
        let is_before = |known: &Use| known.point.chain == new.point.chain && known.point.seq <= new.point.seq;
        self.change(Part::WHOLE, |uses| {
            uses.retain(|known| !(is_before(known) && outweighs(known)));
            uses.push(new);
        });
    }

    /// Returns the newest read, write and free of each stream. What comes after these comes after all uses.
    pub fn latest(&self) -> SmallVec<[Use; 2]> {
        let mut latest = SmallVec::new();
        keep_newest(&mut latest, self.uses(), |it| (it.point.chain, it.site.stream, Some(it.site.act)));
        latest
    }

    /// Drops the uses that all streams come after: no later operation can be unordered with them.
    pub fn settle(&mut self, is_settled: impl Fn(Point) -> bool) {
        self.change(Part::WHOLE, |uses| uses.retain(|known| !is_settled(known.point)));
        self.parts.iter_mut().for_each(|parts| parts.changed = 0);
    }

    /// Returns `true` if `is_so` holds for all points: of the allocation and of all uses.
    #[inline(always)]
    pub fn all_points(&self, is_so: impl Fn(Point) -> bool) -> bool {
        is_so(self.born.point) && self.find(Act::Free, Part::WHOLE, |it| !is_so(it.point)).is_none()
    }

    /// Returns the points after which the memory is certainly free: of the allocation and of all uses.
    pub fn points(&self) -> impl Iterator<Item = Point> + '_ {
        std::iter::once(self.born.point).chain(self.uses().map(|known| known.point))
    }

    /// Makes the fault, with the newest use of these bytes for each stream: one edge from it covers all that the
    /// stream did to them.
    #[cold]
    fn fault(&self, (kind, earlier): (Kind, Use), next: (Act, Part, bool), who: &impl Knows) -> Fault {
        let (act, part, races) = next;
        let must_precede =
            |it: &&Use| (act == Act::Free || (races && act.conflicts(it.site.act))) && !who.covers(it.point);
        let mut ends = SmallVec::<[Use; 2]>::from_elem(earlier, 1);
        keep_newest(&mut ends, self.uses_of(part).filter(must_precede), |it| (it.point.chain, it.site.stream, None));
        Fault { kind, earlier, ends: ends.into_vec().into(), part }
    }
}

/// The segments of a lifetime whose parts have uses of their own, by their first byte. The first segment begins with
/// the allocation; each ends where the next begins.
#[derive(Clone, Debug)]
struct Parts<D: Done> {
    segments: BTreeMap<u64, Uses<D>>,
    /// The number of changes to segments since they were last settled.
    changed: usize,
}

impl<D: Done> Parts<D> {
    /// Makes one segment of all bytes.
    fn new(uses: Uses<D>) -> Self {
        Self { segments: BTreeMap::from([(0, uses)]), changed: 0 }
    }

    /// Returns `true` if the changes since the last settling have paid for another one.
    #[inline]
    fn is_due(&self) -> bool {
        self.changed > 2 * self.segments.len()
    }

    /// Returns the uses of the first segment.
    fn into_whole(self) -> Uses<D> {
        self.segments.into_values().next().unwrap_or_else(Uses::new)
    }

    /// Returns the uses of the segments that overlap a part. A use may appear several times.
    fn of(&self, part: Part) -> impl Iterator<Item = &D> + Clone {
        self.with_bytes_of(part).flat_map(Uses::all)
    }

    fn with_bytes_of(&self, part: Part) -> impl Iterator<Item = &Uses<D>> + Clone {
        let first = self.segments.range(..=part.from()).next_back().map_or(0, |(at, _)| *at);
        self.segments.range(first..part.to()).map(|(_, uses)| uses)
    }

    /// Returns the segments, each with its bytes.
    fn all(&self) -> impl Iterator<Item = (Part, &[D])> {
        let ends = self.segments.keys().skip(1).copied().chain([Part::WHOLE.to()]);
        let segments = self.segments.iter().zip(ends);
        segments.filter_map(|((from, uses), to)| Some((Part::new(*from, to)?, uses.all())))
    }

    /// Returns the first result of `find` among the segments that overlap a part.
    #[cold]
    fn find<'a, R>(&'a self, part: Part, find: impl Fn(&'a Uses<D>) -> Option<R>) -> Option<R> {
        self.with_bytes_of(part).find_map(find)
    }

    /// Changes the uses of a part, segment by segment.
    fn change(&mut self, part: Part, mut change: impl FnMut(&mut Uses<D>)) {
        self.divide(part.from());
        self.divide(part.to());
        for (_, uses) in self.segments.range_mut(part.from()..part.to()) {
            change(uses);
            self.changed += 1;
        }
        self.join(part);
    }

    /// Divides the segment that contains `at`, so that one begins there.
    fn divide(&mut self, at: u64) {
        if at == Part::WHOLE.to() || self.segments.contains_key(&at) {
            return;
        }
        let uses = self.segments.range(..at).next_back().map_or_else(Uses::new, |(_, uses)| uses.clone());
        self.segments.insert(at, uses);
    }

    /// Joins neighbours that have the same uses, within a part and at both its ends.
    fn join(&mut self, part: Part) {
        let before = self.segments.range(..part.from()).next_back().map_or(part.from(), |(at, _)| *at);
        let near = || self.segments.range(before..=part.to());
        let same = near().zip(near().skip(1)).filter(|((_, uses), (_, next))| uses == next);
        let same: Vec<u64> = same.map(|(_, (at, _))| *at).collect();
        same.into_iter().for_each(|at| drop(self.segments.remove(&at)));
    }
}

/// Keeps the newest use with each key, at the index of the first use with that key.
fn keep_newest<'a>(
    newest: &mut SmallVec<[Use; 2]>,
    uses: impl Iterator<Item = &'a Use>,
    key: impl Fn(&Use) -> (ChainIndex, StreamId, Option<Act>),
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
    use crate::ids::Seq;
    use crate::op::Place;
    use crate::order::{Chain, next_op};

    fn chain(chain: u32) -> Chain {
        Chain::new(ChainIndex(chain), 0, Arc::default())
    }

    fn at(chain: &mut Chain, act: Act) -> Use {
        let point = chain.submit();
        Use { point, site: Site { act, stream: StreamId(point.chain.0), op: point.seq, place: Place::Unknown } }
    }

    fn use_on(history: &mut History, chain: &mut Chain, act: Act) {
        history.check_use(act, Part::WHOLE, chain, false).unwrap();
        let knew = Chain::new(chain.chain(), chain.seq(), Arc::default());
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

    fn by(seq: Seq) -> Use {
        let site = Site { act: Act::Write, stream: StreamId(0), op: seq, place: Place::Unknown };
        Use { point: Point { chain: ChainIndex(0), seq }, site }
    }

    fn part(from: u64, to: u64) -> Part {
        Part::new(from, to).expect("it has bytes")
    }

    fn of(all: &[Use]) -> Uses<Use> {
        let mut uses = Uses::new();
        all.iter().for_each(|it| uses.push(*it));
        uses
    }

    fn seqs(parts: &Parts<Use>, from: u64, to: u64) -> Vec<Seq> {
        parts.of(part(from, to)).map(|it| it.point.seq).collect()
    }

    #[test]
    fn a_part_has_its_own_uses() {
        let mut parts = Parts::new(of(&[by(1)]));
        parts.change(part(100, 200), |uses| uses.push(by(2)));
        assert_eq!(seqs(&parts, 0, 100), [1]);
        assert_eq!(seqs(&parts, 99, 101), [1, 1, 2]);
        assert_eq!(seqs(&parts, 150, 151), [1, 2]);
        assert_eq!(seqs(&parts, 200, u64::MAX), [1]);
        parts.change(part(150, 250), |uses| uses.push(by(3)));
        assert_eq!(seqs(&parts, 140, 150), [1, 2]);
        assert_eq!(seqs(&parts, 150, 200), [1, 2, 3]);
        assert_eq!(seqs(&parts, 200, 250), [1, 3]);
        assert_eq!(parts.segments.len(), 5);
    }

    #[test]
    fn neighbours_with_the_same_uses_are_one() {
        let mut parts = Parts::new(Uses::new());
        for from in [0, 10, 30, 20] {
            parts.change(part(from, from + 10), |uses| uses.push(by(1)));
        }
        assert_eq!(parts.segments.keys().copied().collect::<Vec<_>>(), [0, 40]);
        parts.change(Part::WHOLE, |uses| *uses = of(&[by(2)]));
        assert_eq!(parts.segments.len(), 1);
        assert_eq!(parts.into_whole().all(), [by(2)]);
    }
}
