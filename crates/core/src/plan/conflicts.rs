//! The pairs of buffers that may not share a byte, by lifetimes on a line or by a symmetric relation as rows of bits.
//!
//! There is one bit for each pair and direction: 4000 buffers take 2 MB, and the buffers that conflict with all of
//! some set are an `and` of rows. Depends on nothing about sizes. Invariants: **symmetric**; **irreflexive** (no
//! buffer conflicts with itself).

use super::bits::{self, Matrix};

/// The steps at which a buffer is live: from `lower` up to `upper`, without the latter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Lifetime {
    /// The first step at which it is live.
    pub lower: i64,
    /// The first step at which it is no longer live; it is above `lower`.
    pub upper: i64,
}

impl Lifetime {
    /// Returns `true` if the two lifetimes have a step in common.
    #[inline]
    pub const fn meets(self, other: Self) -> bool {
        self.lower < other.upper && other.lower < self.upper
    }
}

/// The source of the conflicts.
#[derive(Clone, Debug)]
pub enum Sharing {
    /// Two buffers conflict if their lifetimes have a step in common.
    Line(Vec<Lifetime>),
    /// Two buffers conflict if the relation contains the pair.
    Relation(Conflicts),
}

/// The pairs of buffers that may not share a byte.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conflicts {
    matrix: Matrix,
}

impl Conflicts {
    /// Makes a relation without conflicts, of `buffers` buffers.
    pub fn none(buffers: usize) -> Self {
        Self { matrix: Matrix::zero(buffers) }
    }

    /// Makes the conflicts for which `conflict(i, j)` returns `true`. It is called once for each pair `i < j`.
    pub fn from_fn(buffers: usize, mut conflict: impl FnMut(usize, usize) -> bool) -> Self {
        let mut conflicts = Self::none(buffers);
        for i in 0..buffers {
            for j in i + 1..buffers {
                if conflict(i, j) {
                    conflicts.add(i, j);
                }
            }
        }
        conflicts
    }

    /// Adds the conflict of `i` and `j`: they may not share a byte. Does nothing if they are equal.
    ///
    /// # Panics
    /// If one of them is not below the number of buffers.
    pub fn add(&mut self, i: usize, j: usize) {
        assert!(i < self.buffers() && j < self.buffers(), "pair ({i}, {j}) of {} buffers", self.buffers());
        if i != j {
            self.matrix.put(i, j);
            self.matrix.put(j, i);
        }
    }

    /// Returns `true` if `i` and `j` may not share a byte.
    ///
    /// # Panics
    /// If `i` is not below the number of buffers.
    #[inline]
    pub fn has(&self, i: usize, j: usize) -> bool {
        bits::has(self.row(i), j)
    }

    /// Returns the number of buffers.
    pub fn buffers(&self) -> usize {
        self.matrix.side()
    }

    /// Returns all buffers that may not share a byte with `i`, as words of bits.
    #[inline]
    pub fn row(&self, i: usize) -> &[u64] {
        self.matrix.row(i)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_known_from_both_sides() {
        let conflicts = Conflicts::from_fn(70, |i, j| i + j == 69);
        assert!(conflicts.has(0, 69) && conflicts.has(69, 0));
        assert!(!conflicts.has(0, 68));
        assert_eq!(bits::ones(conflicts.row(3)).collect::<Vec<_>>(), [66]);
        let mut own = Conflicts::none(2);
        own.add(1, 1);
        assert_eq!(own, Conflicts::none(2));
    }
}
