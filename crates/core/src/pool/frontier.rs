//! The points after which a block is free.
//!
//! Nearly always none (free for all streams) or one (freed by a stream). There are several if a buffer that was used
//! on several streams is dropped. Depends on points, not on blocks.
//!
//! Invariants: there is at most one point for each chain, sorted by chain; a boxed list has at least two points.

use crate::ids::{ChainIndex, Point, Seq};
use crate::order::{Completed, Knows};

/// A set of points, at most one for each chain. "After the frontier" means after all of them. Everything is after the
/// empty frontier.
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
    // A boxed slice would take two words.
    #[expect(clippy::box_collection)]
    Many(Box<Vec<Point>>),
}

impl Frontier {
    /// The frontier without points: every stream is past it.
    pub const EMPTY: Frontier = Frontier(Points::None);

    /// Makes a frontier of these points. Of several on one chain only the last is kept.
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

    /// Returns the points, sorted by chain.
    #[inline]
    pub fn points(&self) -> impl Iterator<Item = Point> + '_ {
        let many: &[Point] = match &self.0 {
            Points::Many(points) => points,
            _ => &[],
        };
        self.single().into_iter().chain(many.iter().copied())
    }

    /// Returns `true` if the frontier has no points.
    #[inline]
    pub fn is_empty(&self) -> bool {
        matches!(self.0, Points::None)
    }

    /// Returns the point, if there is exactly one.
    #[inline]
    pub(super) fn single(&self) -> Option<Point> {
        match self.0 {
            Points::One { chain, seq } => Some(Point { chain, seq }),
            _ => None,
        }
    }

    /// Returns `true` if everything past this frontier is certainly past the other: for each point of the other, this
    /// one has the same or a later point on the same chain.
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

    /// Returns `true` if `who` comes after all points (the relation **ordered**).
    #[inline]
    pub fn is_known_to(&self, who: &(impl Knows + ?Sized)) -> bool {
        self.points().all(|point| who.covers(point))
    }

    /// Returns `true` if the device has completed all points (the relation **completed**).
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
