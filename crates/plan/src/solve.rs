//! Bound, first fit and search: the smallest capacity that the effort allows.
//!
//! Every connected part gets a bound and a plan by first fit. With a budget, `improve` searches for better plans.
//! Invariants: **sound**: every plan passes `verify`; **proven**: see `cliques` for the bound.

use millpond_core::plan::{Plan, Problem, cliques, first_fit_of, verify};

use crate::budget::Budget;
use crate::improve::{Part, bound, improve};

/// The effort to spend on a plan.
pub enum Effort<'a> {
    /// First fit only; no search.
    Quick,
    /// First fit, then search for as long as the budget lasts.
    Search(Budget<'a>),
}

/// The result of [`solve`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The best plan found.
    pub plan: Plan,
    /// The proven lower bound: no plan needs a smaller capacity.
    pub bound: u64,
    /// The number of search steps made.
    pub steps: u64,
}

impl Outcome {
    /// Returns `true` if no plan needs less than this one, because it meets the bound.
    pub fn proven(&self) -> bool {
        self.plan.capacity == self.bound
    }
}

/// Returns a capacity, in bytes, that every plan of `problem` needs.
///
/// On a line this is the bytes of the fullest step. For other conflicts it is the heaviest clique that was found, which
/// need not be the heaviest one.
pub fn lower_bound(problem: &Problem) -> u64 {
    problem.parts().iter().map(|part| cliques::heaviest(problem, part)).max().unwrap_or(0)
}

/// Returns a plan for `problem` within `capacity`, or the smallest plan found if there is none or no capacity is given.
///
/// Stops at the first plan within `capacity`, at a plan that meets the bound, or when the effort is spent. The result
/// is repeatable: the same number of steps gives the same plan.
pub fn solve(problem: &Problem, capacity: Option<u64>, mut effort: Effort<'_>) -> Outcome {
    let enough = capacity.unwrap_or(0);
    let mut parts: Vec<Part<'_>> = Vec::with_capacity(problem.parts().len());
    for members in problem.parts() {
        let bound = cliques::heaviest(problem, members);
        // Without a watcher the budget limits only the search, so the first fit is always the same.
        let mut go = || match &mut effort {
            Effort::Search(budget) if budget.is_watched() => budget.is_on(0, bound),
            _ => true,
        };
        let (offsets, height) = first_fit_of(problem, members, bound.max(enough), &mut go);
        parts.push(Part { members, offsets, height, bound });
    }
    let steps = match effort {
        Effort::Quick => 0,
        Effort::Search(mut budget) => {
            improve(problem, &mut parts, enough, &mut budget);
            budget.spent()
        }
    };
    let mut plan = Plan { offsets: vec![0; problem.buffers().len()], capacity: 0 };
    for part in &parts {
        plan.put(part.members, &part.offsets, part.height);
    }
    debug_assert_eq!(verify(problem, &plan), Ok(()));
    Outcome { plan, bound: bound(&parts), steps }
}
