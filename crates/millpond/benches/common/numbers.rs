//! The random numbers of the benchmarks (`bench/gpu/peers.cpp` has the same), and the statistics of their rounds.

use std::time::Duration;

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

    /// Returns a log-uniform size between 512 B and 16 MiB.
    pub(crate) fn size(&mut self) -> usize {
        let exponent = 9.0 + 15.0 * (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        exponent.exp2() as usize
    }
}

/// Returns the median over rounds of the time of one call, in nanoseconds.
pub(crate) fn rounds<E: std::fmt::Debug>(rounds: usize, calls: u32, mut call: impl FnMut() -> Result<(), E>) -> f64 {
    let round = |_| timed(calls, &mut call).expect("a call").as_nanos() as f64 / f64::from(calls);
    median((0..rounds).map(round).collect())
}

/// Returns the medians of two calls that take turns in each round, in nanoseconds per call, and the median of their
/// ratio round by round: other load on the machine in a round affects both.
pub(crate) fn in_turns(
    rounds: usize,
    calls: u32,
    mut first: impl FnMut(u32) -> Duration,
    mut second: impl FnMut(u32) -> Duration,
) -> [f64; 3] {
    let (mut times, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
    for round in 0..rounds {
        // The second one finds the processor as the first one left it, so they swap.
        let [ours, theirs] = match round % 2 {
            0 => [first(calls), second(calls)],
            _ => {
                let theirs = second(calls);
                [first(calls), theirs]
            }
        };
        let [ours, theirs] = [ours, theirs].map(|time| time.as_nanos() as f64 / f64::from(calls));
        times[0].push(ours);
        times[1].push(theirs);
        ratios.push(ours / theirs);
    }
    let [ours, theirs] = times.map(median);
    [ours, theirs, median(ratios)]
}
