//! Sets of small integers as words of bits, and relations as rows of them.
//!
//! Depends on integers only.

/// The number of bits in a word.
pub const WORD: usize = u64::BITS as usize;

/// Returns the number of words that hold `bits` bits.
pub const fn words(bits: usize) -> usize {
    bits.div_ceil(WORD)
}

/// Returns the positions of the ones of `set`, in ascending order.
pub fn ones(set: &[u64]) -> impl Iterator<Item = usize> + '_ {
    set.iter().enumerate().flat_map(|(at, &word)| ones_of(word).map(move |bit| at * WORD + bit))
}

/// Returns the positions of the ones of `word`, in ascending order.
#[inline]
pub fn ones_of(word: u64) -> impl Iterator<Item = usize> {
    let mut rest = word;
    std::iter::from_fn(move || {
        let bit = (rest != 0).then(|| rest.trailing_zeros() as usize);
        rest &= rest.wrapping_sub(1);
        bit
    })
}

/// Returns `true` if `set` has `bit`.
#[inline]
pub fn has(set: &[u64], bit: usize) -> bool {
    set[bit / WORD] >> (bit % WORD) & 1 == 1
}

/// Adds `bit` to `set`.
pub fn put(set: &mut [u64], bit: usize) {
    set[bit / WORD] |= 1 << (bit % WORD);
}

/// Removes `bit` from `set`.
pub fn take(set: &mut [u64], bit: usize) {
    set[bit / WORD] &= !(1 << (bit % WORD));
}

/// Adds the bits of `other` to `set`.
pub fn join(set: &mut [u64], other: &[u64]) {
    for (word, other) in set.iter_mut().zip(other) {
        *word |= other;
    }
}

/// Removes from `set` the bits that `other` does not have.
pub fn keep(set: &mut [u64], other: &[u64]) {
    for (word, other) in set.iter_mut().zip(other) {
        *word &= other;
    }
}

/// Returns the set of all integers below `bits`.
pub fn full(bits: usize) -> Vec<u64> {
    let mut set = vec![u64::MAX; words(bits)];
    if let (Some(last), rest @ 1..) = (set.last_mut(), bits % WORD) {
        *last = (1 << rest) - 1;
    }
    set
}

/// A square matrix of bits, row by row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Matrix {
    side: usize,
    stride: usize,
    rows: Vec<u64>,
}

impl Matrix {
    /// Makes `side` rows of `side` zeros.
    pub fn zero(side: usize) -> Self {
        let stride = words(side);
        Self { side, stride, rows: vec![0; stride * side] }
    }

    /// Returns the number of rows.
    pub fn side(&self) -> usize {
        self.side
    }

    /// Sets bit `j` of row `i`.
    pub fn put(&mut self, i: usize, j: usize) {
        put(&mut self.rows[i * self.stride..][..self.stride], j);
    }

    /// Returns row `i`.
    #[inline]
    pub fn row(&self, i: usize) -> &[u64] {
        &self.rows[i * self.stride..][..self.stride]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_comes_out_in_order() {
        let mut set = vec![0; words(130)];
        for bit in [129, 0, 64, 63] {
            put(&mut set, bit);
        }
        assert_eq!(ones(&set).collect::<Vec<_>>(), [0, 63, 64, 129]);
        assert!(has(&set, 64) && !has(&set, 65));
        take(&mut set, 63);
        assert_eq!(ones(&set).collect::<Vec<_>>(), [0, 64, 129]);
        let mut joined = vec![1 << 5, 0, 0];
        join(&mut joined, &set);
        assert_eq!(ones(&joined).collect::<Vec<_>>(), [0, 5, 64, 129]);
        let mut all = full(130);
        assert_eq!(ones(&all).count(), 130);
        keep(&mut all, &set);
        assert_eq!(all, set);
    }
}
