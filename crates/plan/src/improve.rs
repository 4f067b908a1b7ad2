//! Search again and again for something better, the highest part first.
//!
//! The simple version: search each part for a plan that meets the bound. Departures.
//! * *The highest part first.* No part needs to be lower than the highest bound or the capacity asked for, so every run
//!   goes to the part that is highest now, and all ends when that one is low enough.
//! * *Half-way targets.* Where the bound is not met at once, every other run (fewer where a capacity is asked
//!   for) looks for something between the bound and the
//!   best so far, closer to the best after each failure: a budget that runs out leaves a better plan behind, and a
//!   bound that cannot be met is raised in halves and not byte by byte.
//! * *Units.* If all sizes are multiples of 1024 then so is every height worth trying.
//!
//! Invariants: **monotone**: heights only fall, bounds only rise, and never past each other.

use millpond_core::plan::Problem;

use crate::budget::Budget;
use crate::search::{Field, Search, Verdict};

/// A connected part of a problem and the best that is known of it.
pub(crate) struct Part<'p> {
    /// Its buffers, rising.
    pub(crate) members: &'p [u32],
    /// Their offsets in the best plan.
    pub(crate) offsets: Vec<u64>,
    /// What that plan needs, in bytes.
    pub(crate) height: u64,
    /// No plan needs less.
    pub(crate) bound: u64,
}

/// The bound of all parts together.
pub(crate) fn bound(parts: &[Part<'_>]) -> u64 {
    parts.iter().map(|part| part.bound).max().unwrap_or(0)
}

/// Improves the plans of `parts` until none is higher than `enough` or than the highest bound, or the budget is spent,
/// or the highest part is too large to search in.
pub(crate) fn improve(problem: &Problem, parts: &mut [Part<'_>], enough: u64, budget: &mut Budget<'_>) {
    let fields: Vec<_> = parts.iter().map(|_| std::cell::OnceCell::new()).collect();
    let mut hunts: Vec<Option<Hunt<'_>>> = parts.iter().map(|_| None).collect();
    // Whoever names a capacity wants that and nothing between.
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

/// The searches of one part: one for the aim, one for a target half-way to it.
struct Hunt<'f> {
    field: &'f Field,
    /// Every height worth trying is a multiple of this.
    unit: u64,
    aim: (u64, Search<'f>),
    half: Option<(u64, Search<'f>)>,
    /// The highest half-way target given up since something was found.
    given_up: u64,
    turn: u64,
}

/// A half-way target is given up after so many runs.
const PATIENCE: u64 = 6;

impl<'f> Hunt<'f> {
    fn new(field: &'f Field, aim: u64) -> Self {
        Self { field, unit: field.unit(), aim: (aim, Search::new(field, aim)), half: None, given_up: 0, turn: 0 }
    }

    /// One run, for the aim or half-way.
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

    /// A target half-way between the aim and the best plan, above those given up; none where there is no room.
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
