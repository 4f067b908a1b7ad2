//! The states from which no plan can be reached.
//!
//! A set of keys of bounded size. When it is full, no key is added, and none is removed. This module does not know the
//! meaning of a key.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

/// The largest number of keys. Each takes 16 bytes, and as much again for the table's slack.
const MOST: usize = 1 << 22;

/// The keys of dead states.
#[derive(Default)]
pub(super) struct Dead {
    keys: HashSet<u128, BuildHasherDefault<Half>>,
}

impl Dead {
    /// Adds the state of this key: no plan can be reached from it.
    pub(super) fn bury(&mut self, key: u128) {
        if self.keys.len() < MOST {
            self.keys.insert(key);
        }
    }

    /// Returns `true` if it is known that no plan can be reached from the state of this key.
    pub(super) fn has(&self, key: u128) -> bool {
        self.keys.contains(&key)
    }
}

/// Hashes a key by taking one of its halves, which is random already.
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
