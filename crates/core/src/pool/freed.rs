//! A free, as the pool gets it: the points after which the block is free, and what the freeing chain knew then.
//!
//! Two neighbours become one block under the later free if the chain that made the later free knew of the earlier one
//! *at that point*. What the chain has learned since does not count: another chain that waited for the later free
//! alone does not know it, and does not come after what the chain did later either. So only [`Freed::at`] passes the
//! chain, it leaves out a chain that has learned something since, and the pool asks the chain [as it stood](Then).

use super::Frontier;
use crate::ids::{ChainIndex, Point, Seq};
use crate::order::{Knows, Learns};
use std::fmt;

/// A free. See the module.
pub struct Freed<'k> {
    pub(super) after: Frontier,
    pub(super) who: Option<Then<'k>>,
}

/// A chain as it stood at one of its points; it has learned nothing since.
#[derive(Clone, Copy)]
pub(super) struct Then<'k> {
    chain: &'k dyn Knows,
    seq: Seq,
}

impl Knows for Then<'_> {
    #[inline]
    fn chain(&self) -> ChainIndex {
        self.chain.chain()
    }

    #[inline]
    fn covers(&self, point: Point) -> bool {
        if point.chain == self.chain.chain() { point.seq <= self.seq } else { self.chain.covers(point) }
    }
}

impl<'k> Freed<'k> {
    /// Makes a free after these points, without what was known there.
    #[inline]
    pub fn after(points: impl Into<Frontier>) -> Self {
        Self { after: points.into(), who: None }
    }

    /// Returns the points after which the block is free.
    pub fn into_points(self) -> Frontier {
        self.after
    }

    /// Makes a free by a chain at a point that it has taken. Frees by others that it knew of at that point count.
    #[inline]
    pub fn at(chain: &'k impl Learns, seq: Seq) -> Self {
        let point = Point { chain: chain.chain(), seq };
        debug_assert!(chain.covers(point), "the chain has taken the point");
        Self { after: point.into(), who: (seq >= chain.learned()).then_some(Then { chain, seq }) }
    }
}

impl fmt::Debug for Freed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Freed").field("after", &self.after).field("is_at", &self.who.is_some()).finish()
    }
}
