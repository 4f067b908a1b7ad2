//! Islands: sets of unplaced buffers that no conflict connects.
//!
//! The simple form: flood from one buffer to all unplaced buffers that conflict with it. If some are left out, there is
//! more than one island. Departures: the flood uses rows of bits, 64 buffers at a time, and it ends as soon as all
//! buffers are reached. Usually there is only one island, and the flood ends early.
//!
//! This module knows which buffers are placed, and moves none.

use super::state::State;
use millpond_core::plan::bits;

/// A set of unplaced buffers that is searched by itself.
pub(super) struct Island {
    /// The key of its state.
    pub(super) key: u128,
    /// The number of its buffers.
    pub(super) left: usize,
    /// The sections that contain one of them.
    pub(super) sections: Vec<u32>,
}

/// Finds islands. Keeps its memory between calls.
#[derive(Default)]
pub(super) struct Splitter {
    dry: Vec<u64>,
    reached: Vec<u32>,
}

impl Splitter {
    /// Returns the islands into which the current one, with these `sections`, has fallen, the smallest first; empty if
    /// it is still one.
    pub(super) fn split(&mut self, state: &State<'_>, sections: &[u32]) -> Vec<Island> {
        self.dry.clone_from(&state.loose);
        let mut islands = Vec::new();
        let mut found = 0;
        for &section in sections {
            if state.rest[section as usize] == 0 {
                continue;
            }
            let Some(first) = state.field.members.within(section as usize, &self.dry).next() else { continue };
            self.flood(state, first);
            found += self.reached.len();
            if self.reached.len() == state.left {
                break;
            }
            islands.push(self.island(state));
            if found == state.left {
                break;
            }
        }
        islands.sort_by_key(|island| island.left);
        islands
    }

    /// Reaches all buffers that conflicts connect with `start`, and removes them from `dry`.
    fn flood(&mut self, state: &State<'_>, start: usize) {
        self.reached.clear();
        self.reached.push(start as u32);
        bits::take(&mut self.dry, start);
        let mut next = 0;
        while next < self.reached.len() && self.reached.len() < state.left {
            let (first, row) = state.field.conflicts.row(self.reached[next] as usize);
            next += 1;
            for (word, row) in row.iter().enumerate() {
                let fresh = self.dry[first + word] & row;
                if fresh != 0 {
                    self.dry[first + word] &= !fresh;
                    self.reached.extend(bits::ones_of(fresh).map(|bit| ((first + word) * bits::WORD + bit) as u32));
                }
            }
        }
    }

    /// Returns the reached buffers as an island.
    fn island(&self, state: &State<'_>) -> Island {
        let mut sections: Vec<u32> = Vec::new();
        for &i in &self.reached {
            sections.extend(state.field.sections.list(i as usize));
        }
        sections.sort_unstable();
        sections.dedup();
        let key = self.reached.iter().fold(0, |key, &i| key ^ state.print(i));
        Island { key, left: self.reached.len(), sections }
    }
}
