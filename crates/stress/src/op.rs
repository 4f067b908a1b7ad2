//! Operations as data: a kind and three numbers, which each kind interprets in its own way.
//!
//! Any list of operations is a program: an operation without the objects that it needs is skipped. A program therefore
//! stays valid whatever operations are removed. Shrinking only removes operations.

use crate::kind::{KINDS, Kind};
use crate::random::Random;
use crate::settings::Setting;

/// One operation.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// Its kind.
    pub kind: Kind,
    /// Usually selects the stream.
    pub a: u32,
    /// Usually selects the buffer.
    pub b: u32,
    /// All other choices.
    pub c: u32,
}

/// The operations of each thread.
#[derive(Clone, Debug)]
pub struct Program {
    /// The setting that they run in.
    pub setting: &'static Setting,
    /// The number of the program within the setting.
    pub seed: u64,
    /// The operations of each thread.
    pub threads: Vec<Vec<Op>>,
}

impl Program {
    /// Returns the program of a seed.
    pub fn random(setting: &'static Setting, seed: u64) -> Self {
        let mut random = Random::new(crate::random::mix(seed ^ 0x5EED));
        let weight = |kind| setting.weight_of(kind) as u64;
        let total: u64 = KINDS.iter().map(|(kind, _)| weight(*kind)).sum();
        let mut op = || {
            let mut at = random.below(total);
            let kind = KINDS.iter().map(|(kind, _)| *kind).find(|kind| match at.checked_sub(weight(*kind)) {
                Some(rest) => {
                    at = rest;
                    false
                }
                None => true,
            });
            let (kind, numbers) = (kind.expect("below the total"), random.number());
            Op { kind, a: numbers as u16 as u32, b: (numbers >> 16) as u16 as u32, c: (numbers >> 32) as u32 }
        };
        let threads = (0..setting.threads).map(|_| (0..setting.ops).map(|_| op()).collect()).collect();
        Self { setting, seed, threads }
    }

    /// Returns the number of operations.
    pub fn len(&self) -> usize {
        self.threads.iter().map(Vec::len).sum()
    }

    /// Returns `true` if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the program with only those operations whose indexes, counted through all threads, are in the list.
    pub fn keep(&self, places: &[usize]) -> Self {
        let mut at = 0;
        let kept = |op: &Op| {
            at += 1;
            places.binary_search(&(at - 1)).is_ok().then_some(*op)
        };
        let mut kept = kept;
        let threads = self.threads.iter().map(|ops| ops.iter().filter_map(&mut kept).collect()).collect();
        Self { threads, ..*self }
    }
}
