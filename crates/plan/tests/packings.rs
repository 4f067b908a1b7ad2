//! `plan` on packings without waste: the known packing is found, at exactly the capacity it was cut from.

mod recipes;

use millpond_plan::{Budget, Effort, Fault, Outcome, Plan, Problem, lower_bound, solve, verify};
use recipes::Recipe;

/// Several times enough for every packing here. A run is repeatable, so the result is not random.
const STEPS: u64 = 400_000;

fn search(problem: &Problem, capacity: Option<u64>) -> Outcome {
    let outcome = solve(problem, capacity, Effort::Search(Budget::steps(STEPS)));
    assert_eq!(verify(problem, &outcome.plan), Ok(()));
    outcome
}

fn recipes() -> impl Iterator<Item = Recipe> {
    (0..40).map(|seed| Recipe {
        steps: [40, 500, 1_000_000][seed as usize % 3],
        units: [48, 200, 1024][seed as usize / 3 % 3],
        unit: [1, 512, 1000][seed as usize / 9 % 3],
        pieces: 12 + seed as usize * 3,
        pinwheels: [0, 20, 60][seed as usize % 5 % 3],
        seed,
    })
}

#[test]
fn packings_without_waste_are_found() {
    for recipe in recipes() {
        let (problem, known) = recipe.problem();
        assert_eq!(verify(&problem, &known), Ok(()), "{recipe:?}");
        assert_eq!(lower_bound(&problem), known.capacity, "{recipe:?}");
        let found = search(&problem, Some(known.capacity));
        assert_eq!(found.plan.capacity, known.capacity, "{recipe:?} after {} steps", found.steps);
    }
}

#[test]
fn without_a_capacity_the_same_is_found_and_proven() {
    for recipe in recipes().step_by(5) {
        let (problem, known) = recipe.problem();
        let found = search(&problem, None);
        assert!(found.proven() && found.plan.capacity == known.capacity, "{recipe:?}: {}", found.plan.capacity);
    }
}

#[test]
fn nothing_fits_where_there_is_no_waste_to_save() {
    let (problem, known) = recipes().nth(3).unwrap().problem();
    let found = search(&problem, Some(known.capacity - 1));
    assert_eq!((found.plan.capacity, found.bound), (known.capacity, known.capacity));
}

#[test]
fn a_search_is_repeatable() {
    let recipe = Recipe { steps: 1000, units: 300, unit: 7, pieces: 90, pinwheels: 50, seed: 99 };
    let (problem, known) = recipe.problem();
    let budget = || Effort::Search(Budget::steps(3000));
    assert_eq!(solve(&problem, None, budget()), solve(&problem, None, budget()));
    assert_eq!(lower_bound(&problem), known.capacity);
}

#[test]
fn any_two_buffers_swapped_in_a_full_packing_overlap() {
    let recipe = Recipe { steps: 60, units: 60, unit: 1, pieces: 40, pinwheels: 30, seed: 7 };
    let (problem, known) = recipe.problem();
    let mut swapped = 0;
    for (i, j) in (0..40).flat_map(|i| (0..i).map(move |j| (i, j))) {
        let bytes = |k: usize| problem.buffers()[k].bytes;
        if !problem.conflict(i, j) || bytes(i) == bytes(j) {
            continue;
        }
        let mut plan = known.clone();
        plan.offsets.swap(i, j);
        swapped += 1;
        match verify(&problem, &plan) {
            Err(Fault::Overlap { lower, upper, .. }) => {
                assert!([lower, upper].iter().any(|k| [i, j].contains(k)), "{lower} and {upper} are named");
            }
            Err(Fault::Beyond { buffer, .. }) => assert!([i, j].contains(&buffer)),
            // Two pieces on top of each other may change places if both span the same steps.
            other => assert!(other.is_ok() && is_tower(&known, &problem, i, j), "{other:?}"),
        }
    }
    assert!(swapped > 100);
}

/// Returns `true` if swapping the offsets of `i` and `j` can be right: then one began where the other ended.
fn is_tower(plan: &Plan, problem: &Problem, i: usize, j: usize) -> bool {
    let end = |k: usize| plan.offsets[k] + problem.buffers()[k].bytes;
    end(i) == plan.offsets[j] || end(j) == plan.offsets[i]
}
