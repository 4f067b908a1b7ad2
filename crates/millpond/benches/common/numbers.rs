//! The random numbers of the benchmarks (`bench/gpu/peers.cpp` has the same), and what is kept of their rounds.

use crate::loops::{median, timed};

pub(crate) struct Random(u64);

impl Default for Random {
    fn default() -> Self {
        Self(0x1234_5678_9ABC_DEF1)
    }
}

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Log-uniform between 512 B and 16 MiB.
    pub(crate) fn size(&mut self) -> usize {
        let exponent = 9.0 + 15.0 * (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        exponent.exp2() as usize
    }
}

/// The median over rounds of the time of one call, in nanoseconds.
pub(crate) fn rounds<E: std::fmt::Debug>(rounds: usize, calls: u32, mut call: impl FnMut() -> Result<(), E>) -> f64 {
    let round = |_| timed(calls, &mut call).expect("a call").as_nanos() as f64 / f64::from(calls);
    median((0..rounds).map(round).collect())
}
