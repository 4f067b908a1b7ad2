//! What is known at a moment: by a host, by a chain, and at a recorded position. Values, shared by reference; how they
//! come to be is in `chain.rs` and `host.rs`.

use std::sync::Arc;

use super::clock::Clock;
use super::{Completed, Knows};
use crate::ids::{ChainIndex, Point, Seq};

/// What a host knew at one moment; immutable and shared.
#[derive(Clone, Debug, Default)]
pub struct Base {
    /// The host that it is of; its later bases include its earlier ones.
    pub(super) host: u64,
    pub(super) version: u64,
    /// The chain whose completion it learned since the version before, where that was one.
    pub(super) news: Option<ChainIndex>,
    pub(super) clock: Clock,
}

/// Tells bases apart: the host, and how often it had learned something.
pub(super) type Edition = (u64, u64);

impl Base {
    /// Whether the host knew that everything up to `point` has completed.
    #[inline]
    pub fn covers(&self, point: Point) -> bool {
        self.clock.covers(point)
    }

    #[inline]
    pub(super) fn edition(&self) -> Edition {
        (self.host, self.version)
    }

    /// True if the chain with this index, or an earlier one with it, knew all that is new since the edition `earlier`.
    pub(super) fn came_from(&self, chain: ChainIndex, earlier: Edition) -> bool {
        self.news == Some(chain) && (earlier.0, earlier.1 + 1) == self.edition()
    }

    /// Whether everything in `other` is in here, as far as can be seen at once: an earlier base of the same host, or
    /// one that knew nothing.
    #[inline]
    pub fn includes(&self, other: &Base) -> bool {
        (self.host == other.host && self.version >= other.version) || other.version == 0
    }

    /// The last position of a chain that the host knew to have completed.
    pub fn seen(&self, chain: ChainIndex) -> Seq {
        self.clock.seen(chain)
    }

    /// The last point of each chain that it knew to have completed.
    pub fn points(&self) -> impl Iterator<Item = Point> + '_ {
        self.clock.points()
    }
}

/// The host as a party of the order, after all that it knows to have completed. It is on no chain.
impl Knows for Base {
    fn chain(&self) -> ChainIndex {
        ChainIndex(u32::MAX)
    }

    fn covers(&self, point: Point) -> bool {
        Base::covers(self, point)
    }
}

/// What is known to have completed without asking the device.
impl Completed for Base {
    fn is_over(&self, point: Point) -> bool {
        self.covers(point)
    }
}

/// What a chain knows of the others: what its host knew when it last submitted, and what the chain waited for beyond.
#[derive(Clone, Debug, Default)]
pub(super) struct Knowledge {
    pub(super) base: Arc<Base>,
    /// Holds nothing that `base` covers.
    pub(super) waited: Clock,
    /// Whether a snapshot has it that is not closed: whoever covers its point may not cover all of this.
    is_open: bool,
}

impl Knowledge {
    #[inline]
    pub(super) fn covers(&self, point: Point) -> bool {
        self.waited.covers(point) || self.base.covers(point)
    }

    /// What a host knows that waited for nothing.
    pub(super) fn of(base: Arc<Base>) -> Arc<Self> {
        Arc::new(Self { base, waited: Clock::default(), is_open: false })
    }

    /// Learns all that a snapshot has.
    pub(super) fn merge(&mut self, snapshot: &Snapshot) {
        self.waited.join(&snapshot.knowledge.waited);
        self.waited.raise(snapshot.point);
        if !Arc::ptr_eq(&self.base, &snapshot.knowledge.base) && !self.adopt(&snapshot.knowledge.base) {
            let Knowledge { base, waited, .. } = self;
            waited.prune(|point| base.covers(point));
        }
    }

    /// Learns a base; whether that was news.
    pub(super) fn adopt(&mut self, base: &Arc<Base>) -> bool {
        if self.base.includes(base) {
            return false;
        }
        if !base.includes(&self.base) {
            // The host that submitted here before knows things that this one does not: keep them as waited for.
            self.waited.join(&self.base.clock);
        }
        self.base = Arc::clone(base);
        self.waited.prune(|point| base.covers(point));
        true
    }
}

/// A recorded position of a chain with all that it knew there; never changes (CUDA: what `cudaEventRecord` captures).
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(super) point: Point,
    pub(super) knowledge: Arc<Knowledge>,
}

impl Snapshot {
    /// What another order recorded, in points of this one: the position, and what has completed where that is passed
    /// on. The points are closed downwards, as those of [`points`](Self::points) are; but who covers the position need
    /// not cover them, as it may have been passed on before with less.
    pub fn foreign(point: Point, known: impl IntoIterator<Item = Point>) -> Self {
        let mut waited = Clock::default();
        known.into_iter().for_each(|point| waited.raise(point));
        Self { point, knowledge: Arc::new(Knowledge { base: Arc::default(), waited, is_open: true }) }
    }

    /// What all of them know, as a record of the first one's chain.
    ///
    /// # Panics
    /// There is none of them.
    pub fn common(all: &[&Snapshot]) -> Self {
        let clocks: Vec<Clock> = all.iter().map(|snapshot| snapshot.to_clock()).collect();
        let (first, others) = clocks.split_first().expect("there is one");
        let common = |known: Point| {
            let seq = others.iter().map(|clock| clock.seen(known.chain)).fold(known.seq, Seq::min);
            Point { chain: known.chain, seq }
        };
        Self::foreign(common(all[0].point), first.points().map(common))
    }

    /// The position.
    #[inline]
    pub fn point(&self) -> Point {
        self.point
    }

    /// The last point of each chain that comes before the position or is at it.
    pub fn points(&self) -> Vec<Point> {
        self.to_clock().points().collect()
    }

    /// Whether `point` comes before or is at the recorded position.
    pub fn covers(&self, point: Point) -> bool {
        (point.chain == self.point.chain && point.seq <= self.point.seq) || self.knowledge.covers(point)
    }

    /// Whether all of it is known to whoever covers these points.
    #[inline]
    pub(super) fn is_known(&self, covers: impl Fn(Point) -> bool) -> bool {
        covers(self.point) && (!self.knowledge.is_open || self.knowledge.waited.points().all(covers))
    }

    /// All it knows, as one clock.
    pub(super) fn to_clock(&self) -> Clock {
        let mut clock = self.knowledge.base.clock.clone();
        clock.join(&self.knowledge.waited);
        clock.raise(self.point);
        clock
    }
}

/// The chain as it stood when it was recorded.
impl Knows for Snapshot {
    fn chain(&self) -> ChainIndex {
        self.point.chain
    }

    fn covers(&self, point: Point) -> bool {
        Snapshot::covers(self, point)
    }
}
