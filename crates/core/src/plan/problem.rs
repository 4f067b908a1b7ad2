//! The input of a plan: buffers with sizes and alignments, and the pairs of them that conflict.
//!
//! There are two kinds of lifetimes. On a *line* each buffer is live from one step up to another, and two conflict if
//! they have a step in common. In a graph there are no steps: two buffers may share bytes if the free of one comes
//! before the allocation of the other, and conflict otherwise. This is given as a relation.
//!
//! Invariant **fits**: for every connected part, the sum of `bytes + alignment - 1` fits a `u64`. So no offset that
//! first fit finds and no sum of sizes within a part exceeds `u64`. Depends on nothing about solving.

use super::conflicts::{Conflicts, Lifetime, Sharing};
use super::parts;

/// The needs of one buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Buffer {
    /// Its number of bytes; at least 1.
    pub bytes: u64,
    /// A power of two. Its offset is a multiple of this.
    pub alignment: u64,
}

impl Buffer {
    /// Makes a buffer that may begin at any byte.
    pub const fn new(bytes: u64) -> Self {
        Self { bytes, alignment: 1 }
    }

    /// Returns the same buffer, but beginning at a multiple of `alignment`, a power of two.
    pub const fn aligned(self, alignment: u64) -> Self {
        Self { alignment, ..self }
    }
}

/// Buffers to be placed, and the pairs of them that may not share a byte.
#[derive(Clone, Debug)]
pub struct Problem {
    buffers: Vec<Buffer>,
    sharing: Sharing,
    parts: Vec<Vec<u32>>,
}

impl Problem {
    /// Makes a problem of buffers on one line: `i` conflicts with `j` if `lifetimes[i]` meets `lifetimes[j]`.
    ///
    /// # Errors
    /// If the two lists differ in length, a lifetime is empty, or a buffer is invalid: see [`Invalid`].
    pub fn from_lifetimes(buffers: Vec<Buffer>, lifetimes: Vec<Lifetime>) -> Result<Self, Invalid> {
        if buffers.len() != lifetimes.len() {
            return Err(Invalid::Lengths { buffers: buffers.len(), others: lifetimes.len() });
        }
        if let Some(buffer) = lifetimes.iter().position(|life| life.lower >= life.upper) {
            return Err(Invalid::EmptyLifetime { buffer });
        }
        Self::new(buffers, Sharing::Line(lifetimes))
    }

    /// Makes a problem of buffers of which the pairs in `conflicts` may not share a byte.
    ///
    /// # Errors
    /// If `conflicts` has another number of buffers, or a buffer is invalid: see [`Invalid`].
    pub fn from_conflicts(buffers: Vec<Buffer>, conflicts: Conflicts) -> Result<Self, Invalid> {
        if buffers.len() != conflicts.buffers() {
            return Err(Invalid::Lengths { buffers: buffers.len(), others: conflicts.buffers() });
        }
        Self::new(buffers, Sharing::Relation(conflicts))
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

    /// Returns the buffers, in the order in which they were given.
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// Returns `true` if buffers `i` and `j` may not share a byte. A buffer does not conflict with itself.
    ///
    /// # Panics
    /// If one of them is not below the number of buffers.
    #[inline]
    pub fn conflict(&self, i: usize, j: usize) -> bool {
        match &self.sharing {
            Sharing::Line(lifetimes) => i != j && lifetimes[i].meets(lifetimes[j]),
            Sharing::Relation(conflicts) => conflicts.has(i, j),
        }
    }

    /// Returns the source of the conflicts.
    pub fn sharing(&self) -> &Sharing {
        &self.sharing
    }

    /// Returns the connected parts, each in ascending order. Buffers of different parts do not conflict.
    pub fn parts(&self) -> &[Vec<u32>] {
        &self.parts
    }
}

/// The reason why a problem was refused. Buffers are named by their index.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Invalid {
    /// The numbers of buffers and of lifetimes (or buffers of the conflicts) differ.
    #[error("{buffers} buffers, but lifetimes of {others}")]
    Lengths {
        /// The number of buffers.
        buffers: usize,
        /// The number of lifetimes, or of buffers of the conflicts.
        others: usize,
    },
    /// There are more buffers than a `u32` can count.
    #[error("more than {} buffers", u32::MAX)]
    TooMany,
    /// A buffer has no bytes.
    #[error("buffer {buffer} has no bytes")]
    NoBytes {
        /// The buffer.
        buffer: usize,
    },
    /// An alignment is not a power of two.
    #[error("the alignment of buffer {buffer} is no power of two")]
    Alignment {
        /// The buffer.
        buffer: usize,
    },
    /// A lifetime ends where it begins, or before.
    #[error("buffer {buffer} is never live: its lifetime ends where it begins, or before")]
    EmptyLifetime {
        /// The buffer.
        buffer: usize,
    },
    /// The bytes of buffers connected by conflicts exceed `u64::MAX`.
    #[error("the sizes of buffers tied together by conflicts pass 2^64 bytes with buffer {buffer}")]
    TooLarge {
        /// The buffer with which the sum exceeds it.
        buffer: usize,
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
}
