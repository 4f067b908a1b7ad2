//! What is asked of a plan: buffers with sizes and alignments, and which pairs of them conflict.
//!
//! Two kinds of lifetimes. On a *line* each buffer lives from one step up to another, and two conflict where they
//! have a step in common. In an *order* (a graph) there are no steps: two buffers may share bytes where one's free
//! comes before the other's allocation, and conflict otherwise; that is given as a relation.
//!
//! Invariant **fits**: for every connected part, the sum of `bytes + alignment - 1` fits a `u64`; so no offset
//! that first fit finds, and no sum of sizes within a part, passes the end of `u64`. Knows nothing of solving.

use super::bits::{self, Matrix, ones};
use super::conflicts::{Conflicts, Lifetime, Sharing};
use super::parts;

/// What one buffer needs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Buffer {
    /// How many bytes; at least 1.
    pub bytes: u64,
    /// Its offset is a multiple of this power of two.
    pub alignment: u64,
}

impl Buffer {
    /// A buffer that may begin at any byte.
    pub const fn new(bytes: u64) -> Self {
        Self { bytes, alignment: 1 }
    }

    /// The same, beginning at a multiple of `alignment`, a power of two.
    pub const fn aligned(self, alignment: u64) -> Self {
        Self { alignment, ..self }
    }
}

/// Buffers to be placed, and which pairs of them may not share a byte.
#[derive(Clone, Debug)]
pub struct Problem {
    buffers: Vec<Buffer>,
    sharing: Sharing,
    parts: Vec<Vec<u32>>,
}

impl Problem {
    /// Buffers whose lifetimes lie on one line: `i` conflicts with `j` where `lifetimes[i]` meets `lifetimes[j]`.
    ///
    /// # Errors
    /// Where the two lists differ in length, a lifetime is empty or a buffer is not sound: see [`Invalid`].
    pub fn from_lifetimes(buffers: Vec<Buffer>, lifetimes: Vec<Lifetime>) -> Result<Self, Invalid> {
        if buffers.len() != lifetimes.len() {
            return Err(Invalid::Lengths { buffers: buffers.len(), others: lifetimes.len() });
        }
        if let Some(buffer) = lifetimes.iter().position(|life| life.lower >= life.upper) {
            return Err(Invalid::EmptyLifetime { buffer });
        }
        Self::new(buffers, Sharing::Line(lifetimes))
    }

    /// Buffers of which the pairs in `conflicts` may not share a byte.
    ///
    /// # Errors
    /// Where `conflicts` is about another number of buffers, or a buffer is not sound: see [`Invalid`].
    pub fn from_conflicts(buffers: Vec<Buffer>, conflicts: Conflicts) -> Result<Self, Invalid> {
        if buffers.len() != conflicts.buffers() {
            return Err(Invalid::Lengths { buffers: buffers.len(), others: conflicts.buffers() });
        }
        Self::new(buffers, Sharing::Relation { conflicts, before: None })
    }

    /// Buffers of a graph: `before(i, j)` says whether `i`'s free comes before `j`'s allocation. Two buffers
    /// conflict where neither comes before the other. It is asked for each pair both ways.
    ///
    /// The order makes the lower bound exact (the heaviest antichain), where [`Problem::from_conflicts`] has to be
    /// content with a heavy clique that it happens to find.
    ///
    /// # Errors
    /// Where `before` is no strict partial order (two come before each other, or the relation is not transitive),
    /// or a buffer is not sound: see [`Invalid`].
    pub fn from_order(buffers: Vec<Buffer>, mut before: impl FnMut(usize, usize) -> bool) -> Result<Self, Invalid> {
        let n = buffers.len();
        let mut order = Matrix::zero(n);
        let mut conflicts = Conflicts::none(n);
        for i in 0..n {
            for j in i + 1..n {
                match (before(i, j), before(j, i)) {
                    (true, true) => return Err(Invalid::NoOrder { first: i, second: j }),
                    (true, false) => order.put(i, j),
                    (false, true) => order.put(j, i),
                    (false, false) => conflicts.add(i, j),
                }
            }
        }
        if let Some((first, second)) = untransitive(&order) {
            return Err(Invalid::NoOrder { first, second });
        }
        Self::new(buffers, Sharing::Relation { conflicts, before: Some(order) })
    }

    fn new(buffers: Vec<Buffer>, sharing: Sharing) -> Result<Self, Invalid> {
        for (buffer, Buffer { bytes, alignment }) in buffers.iter().enumerate() {
            if *bytes == 0 {
                return Err(Invalid::NoBytes { buffer });
            }
            if !alignment.is_power_of_two() {
                return Err(Invalid::Alignment { buffer });
            }
        }
        if u32::try_from(buffers.len()).is_err() {
            return Err(Invalid::TooMany);
        }
        let parts = parts::connected(buffers.len(), &sharing);
        for part in &parts {
            let mut sum = 0u64;
            for &i in part {
                let Buffer { bytes, alignment } = buffers[i as usize];
                let padded = bytes.checked_add(alignment - 1);
                sum =
                    padded.and_then(|bytes| sum.checked_add(bytes)).ok_or(Invalid::TooLarge { buffer: i as usize })?;
            }
        }
        Ok(Self { buffers, sharing, parts })
    }

    /// The buffers, in the order in which they were given.
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// Whether buffers `i` and `j` may not share a byte. A buffer does not conflict with itself.
    ///
    /// # Panics
    /// Where one of them is not below the number of buffers.
    #[inline]
    pub fn conflict(&self, i: usize, j: usize) -> bool {
        match &self.sharing {
            Sharing::Line(lifetimes) => i != j && lifetimes[i].meets(lifetimes[j]),
            Sharing::Relation { conflicts, .. } => conflicts.has(i, j),
        }
    }

    /// Where conflicts come from.
    pub fn sharing(&self) -> &Sharing {
        &self.sharing
    }

    /// The connected parts, each rising: buffers of different parts do not conflict.
    pub fn parts(&self) -> &[Vec<u32>] {
        &self.parts
    }
}

/// A pair `i before k` missing although `i before j` and `j before k`; none where the relation is transitive.
fn untransitive(order: &Matrix) -> Option<(usize, usize)> {
    for i in 0..order.side() {
        for j in ones(order.row(i)) {
            let missing = |(&there, &here): (&u64, &u64)| there & !here != 0;
            if order.row(j).iter().zip(order.row(i)).any(missing) {
                let k = ones(order.row(j)).find(|&k| !bits::has(order.row(i), k));
                return Some((i, k.expect("a word of the row differs")));
            }
        }
    }
    None
}

/// Why a problem was refused. Buffers are named by their index.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Invalid {
    /// Buffers and lifetimes (or conflicts) are not equally many.
    #[error("{buffers} buffers, but lifetimes of {others}")]
    Lengths {
        /// How many buffers.
        buffers: usize,
        /// How many lifetimes, or buffers that the conflicts are about.
        others: usize,
    },
    /// More buffers than a `u32` counts.
    #[error("more than {} buffers", u32::MAX)]
    TooMany,
    /// A buffer of no bytes.
    #[error("buffer {buffer} has no bytes")]
    NoBytes {
        /// Which.
        buffer: usize,
    },
    /// An alignment that is no power of two.
    #[error("the alignment of buffer {buffer} is no power of two")]
    Alignment {
        /// Whose.
        buffer: usize,
    },
    /// A lifetime that ends where it begins, or before.
    #[error("buffer {buffer} is never live: its lifetime ends where it begins, or before")]
    EmptyLifetime {
        /// Whose.
        buffer: usize,
    },
    /// The bytes of buffers that are tied together by conflicts pass `u64::MAX`.
    #[error("the sizes of buffers tied together by conflicts pass 2^64 bytes with buffer {buffer}")]
    TooLarge {
        /// The one with which the sum passes it.
        buffer: usize,
    },
    /// The relation is no strict partial order.
    #[error("not a partial order: see buffers {first} and {second}")]
    NoOrder {
        /// One of the two that are each before the other, or that should be ordered by transitivity and are not.
        first: usize,
        /// The other.
        second: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(lower: i64, upper: i64) -> Lifetime {
        Lifetime { lower, upper }
    }

    #[test]
    fn unsound_buffers_are_named() {
        let refuse = |buffers: Vec<Buffer>, lives: Vec<Lifetime>| Problem::from_lifetimes(buffers, lives).unwrap_err();
        let one = Buffer::new(1);
        assert_eq!(refuse(vec![one], vec![]), Invalid::Lengths { buffers: 1, others: 0 });
        assert_eq!(refuse(vec![one, one], vec![life(0, 1), life(3, 3)]), Invalid::EmptyLifetime { buffer: 1 });
        assert_eq!(refuse(vec![Buffer::new(0)], vec![life(0, 1)]), Invalid::NoBytes { buffer: 0 });
        assert_eq!(refuse(vec![one.aligned(24)], vec![life(0, 1)]), Invalid::Alignment { buffer: 0 });
        let huge = Buffer::new(u64::MAX);
        assert_eq!(refuse(vec![huge, one], vec![life(0, 2), life(1, 3)]), Invalid::TooLarge { buffer: 1 });
        assert!(Problem::from_lifetimes(vec![huge, huge], vec![life(0, 2), life(2, 3)]).is_ok());
    }

    #[test]
    fn an_order_is_checked() {
        let buffers = vec![Buffer::new(1); 3];
        let chain = Problem::from_order(buffers.clone(), |i, j| i < j).unwrap();
        assert!(!chain.conflict(0, 2));
        assert_eq!(chain.parts().len(), 3);
        let gap = Problem::from_order(buffers.clone(), |i, j| i + 1 == j).unwrap_err();
        assert_eq!(gap, Invalid::NoOrder { first: 0, second: 2 });
        let circle = Problem::from_order(buffers, |_, _| true).unwrap_err();
        assert_eq!(circle, Invalid::NoOrder { first: 0, second: 1 });
    }
}
