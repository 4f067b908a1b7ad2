//! Bound, first fit, search: the smallest capacity that the effort allows.
//!
//! Every connected part gets a bound and a plan by first fit; with a budget, `improve` searches for better ones.
//! Invariants: **sound**: every plan passes `verify`; **proven**: see `antichain` and `cliques` for the bound.

use super::improve::{Part, bound, improve};
use super::problem::{Problem, Sharing};
use super::{Plan, antichain, cliques, greedy};

/// What a plan costs in time.
pub enum Effort<'a> {
    /// First fit only; no search.
    Quick,
    /// First fit, then search for as long as the budget lasts.
    Search(Budget<'a>),
}

/// How long a search may last, in steps; and who watches it, having a clock where this module has none.
pub struct Budget<'a> {
    steps: u64,
    spent: u64,
    watch: Option<&'a mut dyn FnMut(&Progress) -> bool>,
}

/// A budget's watcher is asked once in so many steps.
const WATCHED: u64 = 64;

impl<'a> Budget<'a> {
    /// No more than `steps` moves; one takes from one to a few tens of microseconds.
    pub fn steps(steps: u64) -> Self {
        Self { steps, spent: 0, watch: None }
    }

    /// The same, ended as well when `watch`, asked every few steps, answers false.
    pub fn watched(self, watch: &'a mut dyn FnMut(&Progress) -> bool) -> Self {
        Self { watch: Some(watch), ..self }
    }

    /// Takes one step, with the best plan and the bound as they are. Whether it may be made.
    pub(super) fn take(&mut self, best: u64, bound: u64) -> bool {
        if self.spent >= self.steps {
            return false;
        }
        if self.spent.is_multiple_of(WATCHED) {
            let progress = Progress { steps: self.spent, best, bound };
            if self.watch.as_mut().is_some_and(|watch| !watch(&progress)) {
                self.steps = self.spent;
                return false;
            }
        }
        self.spent += 1;
        true
    }

    /// Whether there is time, without a step.
    pub(super) fn is_on(&mut self, best: u64, bound: u64) -> bool {
        let progress = Progress { steps: self.spent, best, bound };
        if !self.is_over() && self.watch.as_mut().is_some_and(|watch| !watch(&progress)) {
            self.steps = self.spent;
        }
        !self.is_over()
    }

    /// Whether nothing is left of it.
    pub(super) fn is_over(&self) -> bool {
        self.spent >= self.steps
    }
}

/// How far a search has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// How many steps were made.
    pub steps: u64,
    /// The capacity of the best plan so far; 0 where there is none yet.
    pub best: u64,
    /// No plan needs less than this.
    pub bound: u64,
}

/// What came of [`solve`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The best plan found.
    pub plan: Plan,
    /// No plan needs a smaller capacity: proven.
    pub bound: u64,
    /// How many steps of search were made.
    pub steps: u64,
}

impl Outcome {
    /// Whether no plan needs less than this one: it meets the bound.
    pub fn proven(&self) -> bool {
        self.plan.capacity == self.bound
    }
}

/// A capacity, in bytes, that every plan of `problem` needs.
///
/// On a line the bytes of the fullest step. In an order the heaviest antichain. For other conflicts the heaviest clique
/// that was found, which need not be the heaviest.
pub fn lower_bound(problem: &Problem) -> u64 {
    problem.parts().iter().map(|part| bound_of(problem, part, usize::MAX)).max().unwrap_or(0)
}

/// How many cliques are grown for a bound where the effort is [`Effort::Quick`].
const QUICK_CLIQUES: usize = 32;

fn bound_of(problem: &Problem, part: &[u32], cliques: usize) -> u64 {
    match problem.sharing() {
        Sharing::Relation { before: Some(before), .. } if cliques > QUICK_CLIQUES => {
            antichain::heaviest(|i| problem.buffers()[i as usize].bytes, part, before)
        }
        _ => cliques::heaviest(problem, part, cliques),
    }
}

/// A plan for `problem` within `capacity`, or where that is not found, the smallest found; without a capacity, the
/// smallest found.
///
/// Stops at the first plan within `capacity`, at a plan that meets the bound, or when the effort is spent. Repeatable:
/// the same steps give the same plan.
pub fn solve(problem: &Problem, capacity: Option<u64>, mut effort: Effort<'_>) -> Outcome {
    let enough = capacity.unwrap_or(0);
    let starts = if matches!(effort, Effort::Quick) { QUICK_CLIQUES } else { usize::MAX };
    let mut parts: Vec<Part<'_>> = Vec::with_capacity(problem.parts().len());
    for members in problem.parts() {
        let bound = bound_of(problem, members, starts);
        // A budget without a clock is one of search alone: the first fit is always the same.
        let mut go = || match &mut effort {
            Effort::Search(budget) if budget.watch.is_some() => budget.is_on(0, bound),
            _ => true,
        };
        let (offsets, height) = greedy::best(problem, members, bound.max(enough), &mut go);
        parts.push(Part { members, offsets, height, bound });
    }
    let steps = match effort {
        Effort::Quick => 0,
        Effort::Search(mut budget) => {
            improve(problem, &mut parts, enough, &mut budget);
            budget.spent
        }
    };
    let mut plan = Plan { offsets: vec![0; problem.buffers().len()], capacity: 0 };
    for part in &parts {
        plan.capacity = plan.capacity.max(part.height);
        part.members.iter().zip(&part.offsets).for_each(|(&i, &offset)| plan.offsets[i as usize] = offset);
    }
    debug_assert_eq!(super::verify(problem, &plan), Ok(()));
    Outcome { plan, bound: bound(&parts), steps }
}
