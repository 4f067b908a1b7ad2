//! A symmetric relation between buffers as rows of bits: who may not share a byte with whom.
//!
//! One bit for a pair and direction: 4000 buffers take 2 MB, and "who conflicts with all of these" is an `and` of
//! rows. Knows nothing of sizes. Invariants: **symmetric**; **irreflexive** (nobody conflicts with itself).

use super::bits::{self, Matrix};

/// Which pairs of buffers may not share a byte.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Conflicts {
    matrix: Matrix,
}

impl Conflicts {
    /// No conflicts between `buffers` buffers.
    pub fn none(buffers: usize) -> Self {
        Self { matrix: Matrix::zero(buffers) }
    }

    /// The conflicts for which `conflict(i, j)` answers true, asked once for each pair `i < j`.
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

    /// From now on `i` and `j` may not share a byte. Nothing where they are the same.
    ///
    /// # Panics
    /// Where one of them is not below the number of buffers.
    pub fn add(&mut self, i: usize, j: usize) {
        assert!(i < self.buffers() && j < self.buffers(), "pair ({i}, {j}) of {} buffers", self.buffers());
        if i != j {
            self.matrix.put(i, j);
            self.matrix.put(j, i);
        }
    }

    /// Whether `i` and `j` may not share a byte.
    ///
    /// # Panics
    /// Where `i` is not below the number of buffers.
    #[inline]
    pub fn has(&self, i: usize, j: usize) -> bool {
        bits::has(self.row(i), j)
    }

    /// How many buffers the relation is about.
    pub fn buffers(&self) -> usize {
        self.matrix.side()
    }

    /// All that may not share a byte with `i`, as words of bits.
    #[inline]
    pub(super) fn row(&self, i: usize) -> &[u64] {
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
