//! States from which no plan can be reached.
//!
//! A set of keys, of bounded size: when it is full, nothing more is learned, and nothing is forgotten. Knows nothing of
//! what a key stands for.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

/// The most keys kept: 16 bytes each, and as much again for the table's slack.
const MOST: usize = 1 << 22;

/// The keys of dead states.
#[derive(Default)]
pub(super) struct Dead {
    keys: HashSet<u128, BuildHasherDefault<Half>>,
}

impl Dead {
    /// Nothing leads on from the state of this key.
    pub(super) fn bury(&mut self, key: u128) {
        if self.keys.len() < MOST {
            self.keys.insert(key);
        }
    }

    /// Whether it is known that nothing leads on from the state of this key.
    pub(super) fn has(&self, key: u128) -> bool {
        self.keys.contains(&key)
    }
}

/// The hash of a key is one of its halves: it is random already.
#[derive(Default)]
struct Half(u64);

impl Hasher for Half {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are u128");
    }

    fn write_u128(&mut self, key: u128) {
        self.0 = key as u64;
    }
}
