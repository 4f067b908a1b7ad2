//! Operations as data: a kind and three numbers, which whoever runs it reads as it needs.
//!
//! Any list of operations is a program: what an operation has no object for is left out. So a program stays one
//! whatever is taken away from it, which is all that shrinking does.

use crate::kind::{KINDS, Kind};
use crate::random::Random;
use crate::settings::Setting;

/// One operation.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// What it is.
    pub kind: Kind,
    /// Mostly which stream.
    pub a: u32,
    /// Mostly which buffer.
    pub b: u32,
    /// The rest.
    pub c: u32,
}

/// The operations of each thread.
#[derive(Clone, Debug)]
pub struct Program {
    /// What they run in.
    pub setting: &'static Setting,
    /// Which program of the setting it is.
    pub seed: u64,
    /// The lists.
    pub threads: Vec<Vec<Op>>,
}

impl Program {
    /// The program of a seed.
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

    /// How many operations there are.
    pub fn len(&self) -> usize {
        self.threads.iter().map(Vec::len).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The program with only those operations whose places, counted through all threads, are in the list.
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
