//! A free, as the pool takes it: the points after which the block is free, and who knew what there.
//!
//! Two neighbours become one block under the later free where whoever freed the later one knew of the earlier free *at
//! that point*. What a chain has learned since says nothing of that point: another chain that waited for the free alone
//! does not know it, nor does it come after what the chain itself did later. So who freed is named by [`Freed::at`]
//! only, which leaves out a chain that has learned since, and what is asked is the chain [as it stood](Then).

use super::Frontier;
use crate::ids::{ChainIndex, Point, Seq};
use crate::order::{Knows, Learns};
use std::fmt;

/// A free: see the module.
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
    /// Free after these points; what was known there is not kept.
    #[inline]
    pub fn after(points: impl Into<Frontier>) -> Self {
        Self { after: points.into(), who: None }
    }

    /// After which points it is free.
    pub fn into_points(self) -> Frontier {
        self.after
    }

    /// Freed by a chain at a point that it has taken. Frees of others that it knew there count.
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
