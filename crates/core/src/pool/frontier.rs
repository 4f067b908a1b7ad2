//! The points after which a block is free.
//!
//! Nearly always none (free for all) or one (freed by a stream); several where a buffer used on several streams was
//! dropped. Knows points, not blocks.
//!
//! Invariants: at most one point a chain, in the order of the chains; a boxed list has at least two.

use crate::ids::{ChainIndex, Point, Seq};
use crate::order::{Completed, Knows};

/// A set of points, at most one a chain; "after" it is after all of them. The empty one has always been passed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Frontier(Points);

/// 16 bytes, so that a block is one cache line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
enum Points {
    #[default]
    None,
    One {
        chain: ChainIndex,
        seq: Seq,
    },
    // A box of a slice would be two words.
    #[expect(clippy::box_collection)]
    Many(Box<Vec<Point>>),
}

impl Frontier {
    /// No points: passed for all streams.
    pub const EMPTY: Frontier = Frontier(Points::None);

    /// All of these points; of several on one chain the last counts.
    pub fn of(points: impl IntoIterator<Item = Point>) -> Self {
        let mut points: Vec<Point> = points.into_iter().collect();
        points.sort_unstable();
        points.reverse();
        points.dedup_by_key(|point| point.chain);
        points.reverse();
        match points[..] {
            [] => Self::EMPTY,
            [point] => point.into(),
            _ => Self(Points::Many(points.into())),
        }
    }

    /// The points, in the order of their chains.
    #[inline]
    pub fn points(&self) -> impl Iterator<Item = Point> + '_ {
        let many: &[Point] = match &self.0 {
            Points::Many(points) => points,
            _ => &[],
        };
        self.single().into_iter().chain(many.iter().copied())
    }

    /// Whether it has no points.
    #[inline]
    pub fn is_empty(&self) -> bool {
        matches!(self.0, Points::None)
    }

    /// Its point, if it has exactly one.
    #[inline]
    pub(super) fn single(&self) -> Option<Point> {
        match self.0 {
            Points::One { chain, seq } => Some(Point { chain, seq }),
            _ => None,
        }
    }

    /// Whether who is past this frontier is past the other for sure: each point of the other has one here that is the
    /// same or later on its chain.
    #[inline]
    pub fn covers(&self, other: &Frontier) -> bool {
        match (&self.0, &other.0) {
            (_, Points::None) => true,
            (Points::None, _) => false,
            (Points::One { chain, seq }, Points::One { chain: on, seq: earlier }) => chain == on && seq >= earlier,
            _ => other.points().all(|point| self.points().any(|own| own.chain == point.chain && own.seq >= point.seq)),
        }
    }

    /// Adds the points of another.
    pub fn join(&mut self, other: &Frontier) {
        if other.covers(self) {
            self.clone_from(other);
        } else if !self.covers(other) {
            *self = Self::of(self.points().chain(other.points()));
        }
    }

    /// Whether `who` stands after all of its points (the relation *ordered*).
    #[inline]
    pub fn is_known_to(&self, who: &(impl Knows + ?Sized)) -> bool {
        self.points().all(|point| who.covers(point))
    }

    /// Whether the device is past all of its points (the relation *completed*).
    #[inline]
    pub fn is_over(&self, completed: &impl Completed) -> bool {
        self.points().all(|point| completed.is_over(point))
    }
}

impl From<Point> for Frontier {
    #[inline]
    fn from(point: Point) -> Self {
        Self(Points::One { chain: point.chain, seq: point.seq })
    }
}

impl From<&Frontier> for Frontier {
    fn from(frontier: &Frontier) -> Self {
        frontier.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::ChainIndex;

    fn point(chain: u32, seq: u64) -> Point {
        Point { chain: ChainIndex(chain), seq }
    }

    fn list(frontier: &Frontier) -> Vec<Point> {
        frontier.points().collect()
    }

    #[test]
    fn a_frontier_is_two_words() {
        assert_eq!(size_of::<Frontier>(), 16);
    }

    #[test]
    fn the_last_point_of_a_chain_counts() {
        let both = Frontier::of([point(1, 5), point(0, 3), point(1, 7)]);
        assert_eq!(list(&both), [point(0, 3), point(1, 7)]);
        assert_eq!(Frontier::of([point(2, 1), point(2, 2)]), point(2, 2).into());
    }

    #[test]
    fn covering_is_by_chain() {
        let (early, late) = (Frontier::from(point(0, 3)), Frontier::from(point(0, 4)));
        assert!(late.covers(&early) && !early.covers(&late));
        assert!(early.covers(&Frontier::EMPTY) && !Frontier::EMPTY.covers(&early));
        assert!(!late.covers(&point(1, 1).into()));
        let mut joined = early.clone();
        joined.join(&point(1, 1).into());
        assert_eq!(list(&joined), [point(0, 3), point(1, 1)]);
        joined.join(&late);
        assert_eq!(list(&joined), [point(0, 4), point(1, 1)]);
        assert!(joined.covers(&late));
    }
}
