//! Which move to try next: a section by one rule, a buffer on its base by another.
//!
//! Every rule leads to a plan if there is one; which is quick depends on the problem, and wildly so. So a search runs
//! all pairs of rules in turn, each for a limited number of steps, with noise that differs from run to run.
//!
//! Invariant **any choice is right**: a rule decides how soon a search ends, never how. Knows the state, and does not
//! change it.

use super::state::{State, finalize};

/// How the section is chosen on which to work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SectionRule {
    /// The one with the fewest buffers that can be next, less those where search failed before.
    FewestOverFailures,
    /// The one with the fewest buffers that can be next.
    Fewest,
    /// The same, where a byte to spare counts, too.
    FewestAndTight,
    /// The one with most left to place.
    Heaviest,
    /// The lowest.
    Lowest,
    /// The lowest, less those where search failed before.
    LowestOverFailures,
}

/// How the buffer is chosen among those on the section's base.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BufferRule {
    /// The one in most sections.
    Longest,
    /// The one in the heaviest section, of these the one in most.
    Busiest,
    /// The largest.
    Largest,
    /// The largest product of bytes and sections.
    Widest,
}

use BufferRule::{Busiest, Largest, Longest, Widest};
use SectionRule::{Fewest, FewestAndTight, FewestOverFailures, Heaviest, Lowest, LowestOverFailures};

/// All rules; a search goes through their pairs so that both change from one run to the next.
const SECTION_RULES: [SectionRule; 6] =
    [FewestOverFailures, Heaviest, FewestAndTight, LowestOverFailures, Fewest, Lowest];
const BUFFER_RULES: [BufferRule; 4] = [Longest, Busiest, Largest, Widest];

/// How many pairs of rules there are.
pub(super) const PAIRS: u64 = (SECTION_RULES.len() * BUFFER_RULES.len()) as u64;

/// How strongly noise changes a buffer's rank, as a share of it.
const NOISE: f64 = 0.3;

/// A pair of rules, with the rank of each buffer under the second.
pub(super) struct Strategy {
    section: SectionRule,
    rank: Vec<f64>,
}

impl Strategy {
    /// The strategy of run number `run`: every pair of rules comes once in [`PAIRS`] runs. The first round is without
    /// noise.
    pub(super) fn new(state: &State<'_>, run: u64) -> Self {
        let field = state.field;
        let round = run / PAIRS;
        // Along diagonals: 6 and 4 have a common divisor, so the buffer rule shifts after each common multiple.
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

    /// The buffer to decide on: one on the base of the section that the rule chooses of `sections`.
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

    /// What it costs to choose `section`, and what decides where that is equal.
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

/// `bits` as a number from 0 up to 1.
fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}
