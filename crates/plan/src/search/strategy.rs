//! The choice of the next move: one rule chooses a section, and another a buffer on its base.
//!
//! Every rule leads to a plan if there is one. Which rule is quick depends very much on the problem. So a search tries
//! all pairs of rules in turn, each for a limited number of steps, with noise that differs from run to run.
//!
//! Invariant **any choice is right**: a rule changes how soon a search ends, never its result. This module reads the
//! state and does not change it.

use super::state::{State, finalize};

/// The rule that chooses the section to work on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SectionRule {
    /// The one with the fewest buffers that can be next, divided by its failures.
    FewestOverFailures,
    /// The one with the fewest buffers that can be next.
    Fewest,
    /// As `Fewest`, but the bytes to spare count, too.
    FewestAndTight,
    /// The one with the most unplaced bytes.
    Heaviest,
    /// The one with the lowest base.
    Lowest,
    /// The one with the lowest base, weighted by its failures.
    LowestOverFailures,
}

/// The rule that chooses a buffer among those on the section's base.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BufferRule {
    /// The one in most sections.
    Longest,
    /// The one in the heaviest section; among equals, the one in most sections.
    Busiest,
    /// The largest.
    Largest,
    /// The largest product of bytes and sections.
    Widest,
}

use BufferRule::{Busiest, Largest, Longest, Widest};
use SectionRule::{Fewest, FewestAndTight, FewestOverFailures, Heaviest, Lowest, LowestOverFailures};

/// All rules. A search goes through their pairs so that both rules change from one run to the next.
const SECTION_RULES: [SectionRule; 6] =
    [FewestOverFailures, Heaviest, FewestAndTight, LowestOverFailures, Fewest, Lowest];
const BUFFER_RULES: [BufferRule; 4] = [Longest, Busiest, Largest, Widest];

/// The number of pairs of rules.
pub(super) const PAIRS: u64 = (SECTION_RULES.len() * BUFFER_RULES.len()) as u64;

/// The largest change of a buffer's rank by noise, as a share of the rank.
const NOISE: f64 = 0.3;

/// A pair of rules, with the rank of each buffer under the second rule.
pub(super) struct Strategy {
    section: SectionRule,
    rank: Vec<f64>,
}

impl Strategy {
    /// Returns the strategy of run number `run`. Every pair of rules occurs once in [`PAIRS`] runs. The first round has
    /// no noise.
    pub(super) fn new(state: &State<'_>, run: u64) -> Self {
        let field = state.field;
        let round = run / PAIRS;
        // Diagonally: 6 and 4 have a common divisor, so the buffer rule shifts after each common multiple.
        let rule = BUFFER_RULES[((run + run / 12) % 4) as usize];
        let rank = (0..field.len()).map(|i| {
            let sections = field.sections.list(i);
            let (bytes, length) = (field.bytes[i] as f64, sections.len() as f64);
            let value = match rule {
                Longest => length,
                Busiest => {
                    let heaviest = sections.iter().map(|&s| field.weight[s as usize]).max().unwrap_or(0);
                    heaviest as f64 + length / (field.members.len() as f64 + 1.0)
                }
                Largest => bytes,
                Widest => bytes * length,
            };
            let noise = if round == 0 { 0.0 } else { unit(finalize(run << 32 ^ i as u64 ^ 0x5EED)) };
            value * (1.0 + NOISE * noise)
        });
        Self { section: SECTION_RULES[(run % 6) as usize], rank: rank.collect() }
    }

    /// Returns the buffer to decide on: one on the base of the section that the rule chooses among `sections`.
    pub(super) fn choose(&self, state: &State<'_>, sections: &[u32]) -> u32 {
        let mut best = (f64::INFINITY, f64::INFINITY, usize::MAX);
        let sections = sections.iter().map(|&section| section as usize);
        for section in sections.filter(|&section| state.rest[section] > 0) {
            let (first, second) = self.price(state, section);
            if best.2 == usize::MAX || (first, second) < (best.0, best.1) {
                best = (first, second, section);
            }
        }
        let (section, base) = (best.2, state.base[best.2]);
        let on_base = state.field.members.within(section, &state.loose).filter(|&i| state.floor[i] == base);
        on_base.max_by(|&a, &b| self.rank[a].total_cmp(&self.rank[b])).expect("a base has a buffer") as u32
    }

    /// Returns the cost of choosing `section`, and a second cost that decides between equals.
    fn price(&self, state: &State<'_>, section: usize) -> (f64, f64) {
        let (rest, base, low) = (state.rest[section], state.base[section], f64::from(state.low[section]));
        let spare = (state.capacity - rest - base) as f64;
        let failed = state.failures[section] / state.failure;
        let (rest, base) = (rest as f64, base as f64);
        match self.section {
            FewestOverFailures => (low / failed, spare),
            Fewest => (low, spare),
            FewestAndTight => (low * state.capacity as f64 / 1024.0 + spare, base),
            Heaviest => (-rest, base),
            Lowest => (base, spare),
            LowestOverFailures => ((base + state.capacity as f64 / 1024.0) / failed, spare),
        }
    }
}

/// Maps `bits` to a number from 0 up to, but not including, 1.
fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}
