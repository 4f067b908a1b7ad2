//! A chain of points and what it knows of other chains: the part of a stream that takes part in the order.
//!
//! Depends on no stream, handle or device. The simple version is a vector clock for each chain, copied at each record
//! and merged at each wait. This version is faster:
//!
//! * Chains share their knowledge by reference. A record clones an [`Arc`], O(1); the knowledge is copied only when
//!   it changes.
//! * The knowledge of a host is one more shared reference, the [`Base`]. A device synchronisation reaches a thousand
//!   streams by a thousand pointer copies, and entries that the base covers are dropped.
//! * A wait for something already known does nothing; **closed-clock** makes that right. A synchronisation of the
//!   host with this chain alone changes nothing either.
//!
//! Invariants:
//!
//! * **closed-clock**: a chain that covers a point covers everything that comes before it.
//! * **growing-clock**: a chain's knowledge never shrinks from one operation to the next.
//! * **merge-advances**: every merge takes a new position, so that a record before it and one after it differ. If
//!   record, wait and record shared one position, the two records would look equal and an edge would be lost.

use std::sync::Arc;

use super::clock::Clock;
use super::host::Host;
use super::knowledge::{Base, Edition, Knowledge, Snapshot};
use super::{Knows, Learns};
use crate::ids::{ChainIndex, Point, Seq};

/// The number of low bits of a position that do not count operations. They count what the chain learns before its
/// next operation, and drops. If these bits overflow between two operations, later operations get numbers that are
/// too large by one; the order stays right.
const MERGE_BITS: u32 = 16;

/// Returns the number of the operation that is at this position or the last one before it. Merges are not operations.
#[inline]
pub fn op_at(seq: Seq) -> u64 {
    seq >> MERGE_BITS
}

/// Returns the position of the first operation after `seq`.
#[inline]
pub fn next_op(seq: Seq) -> Seq {
    (seq | ((1 << MERGE_BITS) - 1)) + 1
}

/// A chain of points: one stream from its creation to its destruction.
#[derive(Debug)]
pub struct Chain {
    chain: ChainIndex,
    /// The last position taken.
    seq: Seq,
    /// The position of the last merge.
    learned: Seq,
    /// The edition of the base that it learned last: the host, and that host's version.
    host_edition: Edition,
    knowledge: Arc<Knowledge>,
}

impl Chain {
    /// Makes a chain with index `chain` whose positions go on after `seq`, created by a host that knows `base`. Its
    /// creation is its first point, because it knows something there (**merge-advances**).
    ///
    /// An index is used again only if the new chain comes after all points of the former chain: either every host
    /// that can create a chain covers them, or the new chain is made with [`after`](Chain::after). Positions go on
    /// counting, so no generation is needed to tell the chains apart.
    pub fn new(chain: ChainIndex, seq: Seq, base: Arc<Base>) -> Self {
        Self { chain, seq: seq + 1, learned: seq + 1, host_edition: base.edition(), knowledge: Knowledge::of(base) }
    }

    /// As [`new`](Chain::new), but the hosts need not know the end of the former chain: the new chain comes after it
    /// and after everything known there.
    pub fn after(end: &Snapshot, seq: Seq, base: Arc<Base>) -> Self {
        let mut chain = Self::new(end.point.chain, seq.max(end.point.seq), base);
        Arc::make_mut(&mut chain.knowledge).merge(end);
        chain
    }

    /// Returns the last position taken.
    #[inline]
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// Returns the last point taken.
    #[inline]
    pub fn last(&self) -> Point {
        Point { chain: self.chain, seq: self.seq }
    }

    /// Takes the next point, for an operation.
    #[inline]
    pub fn submit(&mut self) -> Point {
        self.seq = next_op(self.seq);
        self.last()
    }

    /// Takes the next point, for something that is not an operation.
    #[inline]
    pub fn pass(&mut self) -> Point {
        self.seq += 1;
        self.last()
    }

    /// Advances to a position without an operation.
    pub fn pass_to(&mut self, to: Seq) {
        self.seq = self.seq.max(to);
    }

    /// Returns `true` if the point was taken by this chain. [`Knows::covers`] needs no more for most points.
    #[inline(always)]
    pub fn has_taken(&self, point: Point) -> bool {
        point.chain == self.chain && point.seq <= self.seq
    }

    /// Returns everything up to now as an immutable value (CUDA: `cudaEventRecord`). O(1).
    #[inline]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot { point: self.last(), knowledge: Arc::clone(&self.knowledge) }
    }

    /// Turns an older snapshot into what [`snapshot`](Chain::snapshot) returns now. If the chain has learned nothing
    /// since, no shared reference count is touched.
    #[inline]
    pub fn renew(&self, snapshot: &mut Snapshot) {
        match Arc::ptr_eq(&snapshot.knowledge, &self.knowledge) {
            true => snapshot.point = self.last(),
            false => *snapshot = self.snapshot(),
        }
    }

    /// Returns the last position of `chain` that comes before the next point.
    pub fn seen(&self, chain: ChainIndex) -> Seq {
        match chain == self.chain {
            true => self.seq,
            false => self.knowledge.waited.seen(chain).max(self.knowledge.base.seen(chain)),
        }
    }

    /// Returns `true` if the snapshot already comes before the next point, so that a wait for it would add nothing.
    #[inline]
    pub fn knows_of(&self, snapshot: &Snapshot) -> bool {
        snapshot.is_known(|point| self.covers(point))
    }

    /// Puts all later points after the snapshot (CUDA: `cudaStreamWaitEvent`). Returns `true` if that added an edge.
    #[inline]
    pub fn wait(&mut self, snapshot: &Snapshot) -> bool {
        if self.knows_of(snapshot) {
            return false;
        }
        self.merge(snapshot);
        true
    }

    /// The cold half of [`wait`](Chain::wait), reached only by new edges.
    fn merge(&mut self, snapshot: &Snapshot) {
        let before = self.before_news();
        Arc::make_mut(&mut self.knowledge).merge(snapshot);
        self.seq += 1;
        self.learned = self.seq;
        self.audit(before, || snapshot.points());
    }

    /// Puts all later points after what a host knows, because that host submits here now. Costs two comparisons if
    /// the host has learned nothing since it last submitted here.
    #[inline]
    pub fn learn_base(&mut self, base: &Arc<Base>) {
        if self.host_edition != base.edition() {
            self.learn_news(base, None);
        }
    }

    /// As [`learn_base`](Chain::learn_base), for what the host knows now. A chain that waited for nothing more shares
    /// the host's knowledge.
    #[inline]
    pub fn learn_from(&mut self, host: &Host) {
        if self.host_edition != host.base().edition() {
            self.learn_news(host.base(), Some(&host.knowledge));
        }
    }

    /// Returns `true` if the host's knowledge has changed since this chain last learned from it.
    pub fn has_news(&self, host: &Host) -> bool {
        self.host_edition != host.base().edition()
    }

    /// The cold half of [`learn_base`](Chain::learn_base), reached once for each synchronisation of the host.
    #[cold]
    fn learn_news(&mut self, base: &Arc<Base>, shared: Option<&Arc<Knowledge>>) {
        let earlier = std::mem::replace(&mut self.host_edition, base.edition());
        if self.knowledge.base.includes(base) {
            return;
        }
        let before = self.before_news();
        self.seq += 1;
        // If the host waited for this chain and nothing else, the chain knows all of that already.
        if !base.came_from(self.chain, earlier) {
            self.learned = self.seq;
            match shared {
                Some(shared) if self.knowledge.waited.is_empty() && base.includes(&self.knowledge.base) => {
                    self.knowledge = Arc::clone(shared);
                }
                _ => {
                    Arc::make_mut(&mut self.knowledge).adopt(base);
                }
            }
        }
        self.audit(before, || base.points().collect());
    }

    /// Returns everything that the chain knows, before it learns something, for [`audit`](Self::audit).
    fn before_news(&self) -> Option<Clock> {
        cfg!(debug_assertions).then(|| self.snapshot().to_clock())
    }

    /// Asserts the invariants of the module after the chain has learned `news`, in builds with debug assertions.
    fn audit(&self, before: Option<Clock>, news: impl Fn() -> Vec<Point>) {
        let Some(before) = before else { return };
        assert!(before.points().all(|point| self.covers(point)), "growing-clock: {self:?} knew {before:?}");
        assert!(news().into_iter().all(|point| self.covers(point)), "closed-clock: {self:?} learned {:?}", news());
        assert!(self.seq > before.seen(self.chain), "merge-advances: {self:?} was there before");
    }
}

impl Knows for Chain {
    #[inline]
    fn chain(&self) -> ChainIndex {
        self.chain
    }

    #[inline]
    fn covers(&self, point: Point) -> bool {
        if point.chain == self.chain { point.seq <= self.seq } else { self.knowledge.covers(point) }
    }
}

impl Learns for Chain {
    #[inline]
    fn learned(&self) -> Seq {
        self.learned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(chain: u32) -> Chain {
        Chain::new(ChainIndex(chain), 0, Arc::default())
    }

    #[test]
    fn a_wait_orders_what_was_recorded_and_no_more() {
        let (mut a, mut b) = (chain(0), chain(1));
        let first = a.submit();
        let event = a.snapshot();
        let second = a.submit();
        assert!(b.wait(&event));
        assert!(b.covers(first) && !b.covers(second));
        assert!(!b.wait(&event), "known already");
    }

    #[test]
    fn a_chain_after_the_end_of_another_knows_all_that_was_known_there() {
        let (mut a, mut b) = (chain(0), chain(1));
        let before = a.submit();
        b.wait(&a.snapshot());
        let last = b.submit();
        let end = b.snapshot();
        let c = Chain::after(&end, b.seq(), Arc::default());
        assert!(c.covers(before) && c.covers(last) && c.knows_of(&end));
        assert!(c.seq() > last.seq && c.last().chain == last.chain);
        let mut d = chain(2);
        assert!(d.wait(&c.snapshot()) && d.covers(before), "closed-clock");
    }

    #[test]
    fn operations_are_counted_without_what_is_learned_between() {
        let (mut a, mut b) = (chain(0), chain(1));
        for op in 1..=3 {
            b.submit();
            assert!(a.wait(&b.snapshot()));
            a.pass();
            assert_eq!((op_at(a.seq()), op_at(a.submit().seq)), (op - 1, op));
        }
    }

    #[test]
    fn every_merge_advances_the_position() {
        // record, wait, record: the second record knows more than the first, so it must not look equal to it.
        let (mut a, mut b, mut c) = (chain(0), chain(1), chain(2));
        a.submit();
        let early = a.snapshot();
        c.wait(&early);
        let on_b = b.submit();
        a.wait(&b.snapshot());
        let late = a.snapshot();
        assert_ne!(early.point(), late.point());
        assert!(c.wait(&late), "the second record is news although nothing was submitted in between");
        assert!(c.covers(on_b));
    }

    #[test]
    fn what_a_chain_knows_it_has_known_since_it_last_learned() {
        let (mut a, mut b) = (chain(0), chain(1));
        let (before, on_b) = (a.submit().seq, b.submit());
        assert!(a.learned() <= before);
        a.wait(&b.snapshot());
        assert!(before < a.learned() && a.learned() <= a.seq() && a.covers(on_b));
        let learned = a.learned();
        a.submit();
        a.wait(&b.snapshot());
        assert_eq!(a.learned(), learned, "no news");
        let mut host = Host::new(0);
        host.learn(&a.snapshot());
        a.learn_from(&host);
        assert_eq!(a.learned(), learned, "the host knew nothing but this chain");
        b.submit();
        host.learn(&b.snapshot());
        a.learn_from(&host);
        assert_eq!(a.learned(), a.seq());
    }

    #[test]
    fn what_another_order_recorded_counts_like_an_own_record() {
        let (mut a, mut b) = (chain(0), chain(1));
        let (on_a, on_b) = (a.submit(), b.submit());
        b.wait(&a.snapshot());
        let recorded = b.snapshot();
        // The other order gives the two chains other indices.
        let foreign = |point: Point| Point { chain: ChainIndex(point.chain.0 + 10), ..point };
        let snapshot = Snapshot::foreign(foreign(recorded.point()), recorded.points().into_iter().map(foreign));
        let mut c = chain(2);
        assert!(c.wait(&snapshot) && c.covers(foreign(on_a)) && c.covers(foreign(on_b)));
        assert!(!c.covers(foreign(a.submit())) && !c.covers(foreign(b.submit())));
    }

    #[test]
    fn what_is_passed_on_again_with_more_is_news() {
        let position = Point { chain: ChainIndex(10), seq: 5 };
        let more = Point { chain: ChainIndex(11), seq: 3 };
        let (early, late) = (Snapshot::foreign(position, []), Snapshot::foreign(position, [more]));
        let mut a = chain(0);
        assert!(a.wait(&early) && !a.wait(&early) && a.wait(&late) && a.covers(more) && !a.wait(&late));
        let mut host = Host::new(0);
        assert!(host.learn(&early) && host.learn_all([&late]) && host.base().covers(more) && !host.learn(&late));
    }

    #[test]
    fn a_renewed_snapshot_is_one_taken_now() {
        let (mut a, mut b, mut c) = (chain(0), chain(1), chain(2));
        let mut kept = a.snapshot();
        let on_a = a.submit();
        a.renew(&mut kept);
        assert_eq!(kept.point(), on_a);
        let on_b = b.submit();
        a.wait(&b.snapshot());
        a.renew(&mut kept);
        assert!(c.wait(&kept) && c.covers(on_a) && c.covers(on_b));
        // A snapshot of another chain is replaced by this chain's.
        c.renew(&mut kept);
        assert_eq!(kept.point(), c.last());
    }

    #[test]
    fn a_host_that_waited_for_the_chain_alone_tells_it_nothing() {
        let (mut host, mut a, mut b) = (Host::new(0), chain(0), chain(1));
        a.learn_from(&host);
        b.learn_from(&host);
        for _ in 0..3 {
            let (on_a, before) = (a.submit(), a.snapshot());
            host.learn(&before);
            a.learn_from(&host);
            assert!(a.seq() > before.point().seq && Arc::ptr_eq(&a.knowledge, &before.knowledge));
            b.learn_from(&host);
            assert!(b.covers(on_a));
        }
        // One of the two synchronisations in between was for another chain.
        let on_b = b.submit();
        host.learn(&b.snapshot());
        a.submit();
        host.learn(&a.snapshot());
        assert!(!a.covers(on_b));
        a.learn_from(&host);
        assert!(a.covers(on_b));
        // And of both at once.
        let on_b = b.submit();
        a.submit();
        host.learn_all(&[a.snapshot(), b.snapshot()]);
        a.learn_base(host.base());
        assert!(a.covers(on_b));
    }

    #[test]
    fn order_is_transitive_over_three_chains() {
        let (mut a, mut b, mut c) = (chain(0), chain(1), chain(2));
        let on_a = a.submit();
        b.wait(&a.snapshot());
        c.wait(&b.snapshot());
        assert!(c.covers(on_a));
        assert!(!a.covers(b.submit()));
    }

    #[test]
    fn what_a_chain_is_born_with_is_handed_on_before_its_first_operation() {
        let mut a = chain(0);
        let on_a = a.submit();
        let mut host = Host::new(0);
        host.learn(&a.snapshot());
        let mut informed = chain(3);
        informed.learn_from(&host);
        assert!(informed.covers(on_a));
        let born = Chain::new(ChainIndex(1), 0, Arc::clone(host.base()));
        let mut b = chain(2);
        b.wait(&born.snapshot());
        assert!(b.covers(on_a));
    }
}
