//! Islands: sets of buffers not yet placed that no conflict connects.
//!
//! The simple version: flood from one buffer to all that conflict with it and are not placed; if that leaves some
//! out, there is more than one island. Departure: rows of bits, so that a buffer is flooded 64 others at a time, and an
//! end as soon as all are reached, which is early where there is only one island, as is the rule.
//!
//! Knows who is placed; moves nothing.

use super::state::State;
use millpond_core::plan::bits;

/// A set of buffers not yet placed, to be searched by itself.
pub(super) struct Island {
    /// What tells its state from every other.
    pub(super) key: u128,
    /// How many buffers.
    pub(super) left: usize,
    /// The sections that have one of them.
    pub(super) sections: Vec<u32>,
}

/// Finds islands; holds what that needs between times.
#[derive(Default)]
pub(super) struct Splitter {
    dry: Vec<u64>,
    reached: Vec<u32>,
}

impl Splitter {
    /// The islands that the present one, with these `sections`, has fallen into, the smallest first; none where it is
    /// still one.
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

    /// Reaches all that conflicts lead to from `start`; takes it out of what is dry.
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

    /// What was reached, as an island.
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
