//! A frontier: points of different chains, one each, that something must come after.
//!
//! Knows points only. Nearly always it is one point (the free of a block); a drop after uses on several streams, or a
//! merge of neighbours, makes it longer.

use smallvec::SmallVec;

use super::{Completed, Knows};
use crate::ids::Point;

/// At most one point for each chain; the empty frontier is before everything.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Frontier {
    points: SmallVec<[Point; 1]>,
}

impl Frontier {
    /// The frontier of nothing: everything comes after it.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Its points, in no particular order.
    #[inline]
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// Whether everything comes after it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Adds a point; of one chain the later one is kept.
    pub fn add(&mut self, point: Point) {
        match self.points.iter_mut().find(|known| known.slot == point.slot) {
            Some(known) => known.seq = known.seq.max(point.seq),
            None => self.points.push(point),
        }
    }

    /// Adds all points of `other`.
    pub fn join(&mut self, other: &Frontier) {
        other.points.iter().for_each(|point| self.add(*point));
    }

    /// Whether all of it comes before the next point of `who`.
    #[inline]
    pub fn is_before(&self, who: &(impl Knows + ?Sized)) -> bool {
        self.points.iter().all(|point| who.covers(*point))
    }

    /// Whether all of it is over.
    #[inline]
    pub fn is_over(&self, completed: &(impl Completed + ?Sized)) -> bool {
        self.points.iter().all(|point| completed.is_over(*point))
    }

    /// Forgets the points for which `is_past` holds.
    pub fn forget(&mut self, is_past: impl Fn(Point) -> bool) {
        self.points.retain(|point| !is_past(*point));
    }
}

impl From<Point> for Frontier {
    #[inline]
    fn from(point: Point) -> Self {
        Self { points: SmallVec::from_buf([point]) }
    }
}

impl FromIterator<Point> for Frontier {
    fn from_iter<I: IntoIterator<Item = Point>>(points: I) -> Self {
        let mut frontier = Self::default();
        points.into_iter().for_each(|point| frontier.add(point));
        frontier
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Slot;

    #[test]
    fn keeps_the_latest_point_of_each_chain() {
        let point = |slot, seq| Point { slot: Slot(slot), seq };
        let frontier: Frontier = [point(0, 3), point(1, 1), point(0, 2)].into_iter().collect();
        assert_eq!(frontier.points(), [point(0, 3), point(1, 1)]);
    }
}
