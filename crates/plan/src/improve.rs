//! Searches repeatedly for a better plan, in the highest part first.
//!
//! The simple form: search each part for a plan that meets the bound. Departures:
//! * *The highest part first.* No part needs to be lower than the highest bound or the requested capacity. So every run
//!   is for the part that is highest now, and the search ends when that part is low enough.
//! * *Half-way targets.* If the bound is not met at once, every other run (fewer if a capacity is requested) aims for a
//!   height between the bound and the best so far, closer to the best after each failure. A budget that runs out then
//!   leaves a better plan behind, and a bound that cannot be met is raised by halves instead of byte by byte.
//! * *Units.* If all sizes are multiples of 1024, so is every height worth trying.
//!
//! Invariants: **monotone**: heights only fall, bounds only rise, and they never cross.

use millpond_core::plan::Problem;

use crate::budget::Budget;
use crate::search::{Field, Search, Verdict};

/// A connected part of a problem, with its best plan so far.
pub(crate) struct Part<'p> {
    /// Its buffers, ascending.
    pub(crate) members: &'p [u32],
    /// The offsets of the buffers in the best plan.
    pub(crate) offsets: Vec<u64>,
    /// The height of that plan, in bytes.
    pub(crate) height: u64,
    /// The lower bound: no plan needs less.
    pub(crate) bound: u64,
}

/// Returns the bound of all parts together.
pub(crate) fn bound(parts: &[Part<'_>]) -> u64 {
    parts.iter().map(|part| part.bound).max().unwrap_or(0)
}

/// Improves the plans of `parts`. Ends if no plan is higher than `enough` or than the highest bound, if the budget is
/// spent, or if the highest part is too large for a search.
pub(crate) fn improve(problem: &Problem, parts: &mut [Part<'_>], enough: u64, budget: &mut Budget<'_>) {
    let fields: Vec<_> = parts.iter().map(|_| std::cell::OnceCell::new()).collect();
    let mut hunts: Vec<Option<Hunt<'_>>> = parts.iter().map(|_| None).collect();
    // With a requested capacity, only plans within it are wanted, so half-way runs are fewer.
    let half_turns = if enough == 0 { 2 } else { 8 };
    while !budget.is_over() {
        let aim = bound(parts).max(enough);
        let Some(highest) = (0..parts.len()).max_by_key(|&at| (parts[at].height, std::cmp::Reverse(at))) else {
            return;
        };
        let part = &mut parts[highest];
        if part.height <= aim {
            return;
        }
        let Some(field) = fields[highest].get_or_init(|| Field::new(problem, part.members)) else { return };
        let hunt = hunts[highest].get_or_insert_with(|| Hunt::new(field, aim));
        hunt.run(part, aim, half_turns, budget);
    }
}

/// The searches of one part: one for the aim, and one for a half-way target.
struct Hunt<'f> {
    field: &'f Field,
    /// Every height worth trying is a multiple of this.
    unit: u64,
    aim: (u64, Search<'f>),
    half: Option<(u64, Search<'f>)>,
    /// The highest half-way target that was given up since the last success.
    given_up: u64,
    turn: u64,
}

/// The number of runs after which a half-way target is given up.
const PATIENCE: u64 = 6;

impl<'f> Hunt<'f> {
    fn new(field: &'f Field, aim: u64) -> Self {
        Self { field, unit: field.unit(), aim: (aim, Search::new(field, aim)), half: None, given_up: 0, turn: 0 }
    }

    /// Makes one run, for the aim or for the half-way target.
    fn run(&mut self, part: &mut Part<'_>, aim: u64, half_turns: u64, budget: &mut Budget<'_>) {
        if self.aim.0 != aim {
            self.aim = (aim, Search::new(self.field, aim));
        }
        self.turn += 1;
        let half = if self.turn.is_multiple_of(half_turns) { self.half_way(part, aim) } else { None };
        let (target, search) = match half {
            Some(target) => {
                if self.half.as_ref().is_none_or(|half| half.0 != target) {
                    self.half = Some((target, Search::new(self.field, target)));
                }
                self.half.as_mut().expect("just set")
            }
            None => &mut self.aim,
        };
        let (height, bound, target) = (part.height, part.bound, *target);
        match search.run(|| budget.take(height, bound)) {
            Verdict::Found { offsets, height } => {
                (part.offsets, part.height) = (offsets, height);
                self.given_up = 0;
            }
            Verdict::Impossible => part.bound = part.bound.max(target / self.unit * self.unit + self.unit),
            Verdict::Stopped if half.is_some() && search.runs().is_multiple_of(PATIENCE) => self.given_up = target,
            Verdict::Stopped => {}
        }
    }

    /// Returns a target half-way between the aim and the best plan, above those given up, or `None` if there is no
    /// room.
    fn half_way(&mut self, part: &Part<'_>, aim: u64) -> Option<u64> {
        let lowest = aim.max(self.given_up);
        let target = (lowest + (part.height - lowest) / 2) / self.unit * self.unit;
        if target > lowest {
            return Some(target);
        }
        self.given_up = 0;
        None
    }
}
