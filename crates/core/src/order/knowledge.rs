//! The knowledge of a host, of a chain and of a recorded position: values, shared by reference. `chain.rs` and
//! `host.rs` produce them.

use std::sync::Arc;

use super::clock::Clock;
use super::{Completed, Knows};
use crate::ids::{ChainIndex, Point, Seq};

/// The knowledge of a host at one moment. Immutable and shared.
#[derive(Clone, Debug, Default)]
pub struct Base {
    /// The host's number. Its later bases include its earlier ones.
    pub(super) host: u64,
    pub(super) version: u64,
    /// The chain whose completion it learned since the previous version, if it was a single chain.
    pub(super) news: Option<ChainIndex>,
    pub(super) clock: Clock,
}

/// Identifies a base: the host, and the number of times it had learned something.
pub(super) type Edition = (u64, u64);

impl Base {
    /// Returns `true` if the host knew that everything up to `point` has completed.
    #[inline]
    pub fn covers(&self, point: Point) -> bool {
        self.clock.covers(point)
    }

    #[inline]
    pub(super) fn edition(&self) -> Edition {
        (self.host, self.version)
    }

    /// Returns `true` if the chain with this index, or an earlier one with it, knew all that is new since the edition
    /// `earlier`.
    pub(super) fn came_from(&self, chain: ChainIndex, earlier: Edition) -> bool {
        self.news == Some(chain) && (earlier.0, earlier.1 + 1) == self.edition()
    }

    /// Returns `true` if everything in `other` is in here, as far as can be seen cheaply: `other` is an earlier base
    /// of the same host, or an empty one.
    #[inline]
    pub fn includes(&self, other: &Base) -> bool {
        (self.host == other.host && self.version >= other.version) || other.version == 0
    }

    /// Returns the last position of a chain that the host knew to have completed.
    pub fn seen(&self, chain: ChainIndex) -> Seq {
        self.clock.seen(chain)
    }

    /// Returns the last point of each chain that the host knew to have completed.
    pub fn points(&self) -> impl Iterator<Item = Point> + '_ {
        self.clock.points()
    }
}

/// The host as a party of the order, after everything that it knows to have completed. It is on no chain.
impl Knows for Base {
    fn chain(&self) -> ChainIndex {
        ChainIndex(u32::MAX)
    }

    fn covers(&self, point: Point) -> bool {
        Base::covers(self, point)
    }
}

/// A host's base as a device's progress: everything known to have completed without a query of the device.
impl Completed for Base {
    fn is_over(&self, point: Point) -> bool {
        self.covers(point)
    }
}

/// A chain's knowledge of the others: its host's knowledge at the last submission, and what the chain waited for in
/// addition.
#[derive(Clone, Debug, Default)]
pub(super) struct Knowledge {
    pub(super) base: Arc<Base>,
    /// Holds nothing that `base` covers.
    pub(super) waited: Clock,
    /// `true` if the knowledge belongs to a snapshot that is not closed: a party that covers its point may not cover
    /// all of it.
    is_open: bool,
}

impl Knowledge {
    #[inline]
    pub(super) fn covers(&self, point: Point) -> bool {
        self.waited.covers(point) || self.base.covers(point)
    }

    /// Makes the knowledge of a chain whose host knows `base` and that waited for nothing more.
    pub(super) fn of(base: Arc<Base>) -> Arc<Self> {
        Arc::new(Self { base, waited: Clock::default(), is_open: false })
    }

    /// Adds everything that a snapshot knows.
    pub(super) fn merge(&mut self, snapshot: &Snapshot) {
        self.waited.join(&snapshot.knowledge.waited);
        self.waited.raise(snapshot.point);
        if !Arc::ptr_eq(&self.base, &snapshot.knowledge.base) && !self.adopt(&snapshot.knowledge.base) {
            let Knowledge { base, waited, .. } = self;
            waited.prune(|point| base.covers(point));
        }
    }

    /// Adds a base. Returns `true` if that was new.
    pub(super) fn adopt(&mut self, base: &Arc<Base>) -> bool {
        if self.base.includes(base) {
            return false;
        }
        if !base.includes(&self.base) {
            // The host that submitted here before knows things that this one does not. Keep them as waited for.
            self.waited.join(&self.base.clock);
        }
        self.base = Arc::clone(base);
        self.waited.prune(|point| base.covers(point));
        true
    }
}

/// A recorded position of a chain with everything known there. It never changes (CUDA: what `cudaEventRecord`
/// captures).
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(super) point: Point,
    pub(super) knowledge: Arc<Knowledge>,
}

impl Snapshot {
    /// Makes a snapshot from a record of another order, in points of this one: the position, and the completed points
    /// if these are passed on. The points are closed downwards, as those of [`points`](Self::points) are. But a party
    /// that covers the position need not cover all of them, because the position may have been passed on before with
    /// fewer.
    pub fn foreign(point: Point, known: impl IntoIterator<Item = Point>) -> Self {
        let mut waited = Clock::default();
        known.into_iter().for_each(|point| waited.raise(point));
        Self { point, knowledge: Arc::new(Knowledge { base: Arc::default(), waited, is_open: true }) }
    }

    /// Returns what all the snapshots know, as a record of the first one's chain.
    ///
    /// # Panics
    /// If `all` is empty.
    pub fn common(all: &[&Snapshot]) -> Self {
        let clocks: Vec<Clock> = all.iter().map(|snapshot| snapshot.to_clock()).collect();
        let (first, others) = clocks.split_first().expect("there is one");
        let common = |known: Point| {
            let seq = others.iter().map(|clock| clock.seen(known.chain)).fold(known.seq, Seq::min);
            Point { chain: known.chain, seq }
        };
        Self::foreign(common(all[0].point), first.points().map(common))
    }

    /// Returns the position.
    #[inline]
    pub fn point(&self) -> Point {
        self.point
    }

    /// Returns the last point of each chain that comes before the position or is at it.
    pub fn points(&self) -> Vec<Point> {
        self.to_clock().points().collect()
    }

    /// Returns `true` if `point` comes before the recorded position or is at it.
    pub fn covers(&self, point: Point) -> bool {
        (point.chain == self.point.chain && point.seq <= self.point.seq) || self.knowledge.covers(point)
    }

    /// Returns `true` if a party that covers these points knows the whole snapshot.
    #[inline]
    pub(super) fn is_known(&self, covers: impl Fn(Point) -> bool) -> bool {
        covers(self.point) && (!self.knowledge.is_open || self.knowledge.waited.points().all(covers))
    }

    /// Returns everything known, as one clock.
    pub(super) fn to_clock(&self) -> Clock {
        let mut clock = self.knowledge.base.clock.clone();
        clock.join(&self.knowledge.waited);
        clock.raise(self.point);
        clock
    }
}

/// The chain as it stood at the record.
impl Knows for Snapshot {
    fn chain(&self) -> ChainIndex {
        self.point.chain
    }

    fn covers(&self, point: Point) -> bool {
        Snapshot::covers(self, point)
    }
}
