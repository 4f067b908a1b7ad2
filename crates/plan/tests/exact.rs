//! `plan` against its definition: on small problems the search finds exactly the optimum of an exhaustive search, and
//! its bounds hold. The verifier finds planted faults.
//!
//! The twin tries every order of buffers, and puts each at the lowest place above the earlier ones that conflict with
//! it. Some order of that kind gives the optimum: take any optimal plan in rising order of offset.

use millpond_plan::{Budget, Buffer, Effort, Fault, Lifetime, Plan, Problem, Progress, lower_bound, solve, verify};
use proptest::prelude::*;

/// Returns the smallest capacity, by trying every order.
fn exhaustive(problem: &Problem) -> u64 {
    fn place(problem: &Problem, placed: &mut Vec<(usize, u64)>, height: u64, best: &mut u64) {
        let n = problem.buffers().len();
        if height >= *best {
            return;
        }
        if placed.len() == n {
            *best = height;
            return;
        }
        for i in (0..n).filter(|i| placed.iter().all(|(j, _)| i != j)).collect::<Vec<_>>() {
            let need = problem.buffers()[i];
            let below = placed.iter().filter(|&&(j, _)| problem.conflict(i, j));
            let top = below.map(|&(j, offset)| offset + problem.buffers()[j].bytes).max().unwrap_or(0);
            let offset = top.next_multiple_of(need.alignment);
            placed.push((i, offset));
            place(problem, placed, height.max(offset + need.bytes), best);
            placed.pop();
        }
    }
    let mut best = u64::MAX;
    place(problem, &mut Vec::new(), 0, &mut best);
    best
}

fn buffers(n: usize) -> impl Strategy<Value = Vec<Buffer>> {
    let buffer = (1u64..40, prop_oneof![4 => Just(1u64), 1 => Just(2), 1 => Just(8), 1 => Just(16)]);
    prop::collection::vec(buffer.prop_map(|(bytes, alignment)| Buffer::new(bytes).aligned(alignment)), n)
}

fn on_a_line() -> impl Strategy<Value = Problem> {
    (1usize..=7).prop_flat_map(|n| {
        let lives = prop::collection::vec((-3i64..10, 1i64..8), n);
        (buffers(n), lives).prop_map(|(buffers, lives)| {
            let lives = lives.iter().map(|&(lower, length)| Lifetime { lower, upper: lower + length }).collect();
            Problem::from_lifetimes(buffers, lives).expect("sound by construction")
        })
    })
}

/// Returns the heaviest set of buffers that all conflict, by trying every set.
fn heaviest_clique(problem: &Problem) -> u64 {
    let n = problem.buffers().len();
    let is_clique =
        |set: u32| (0..n).all(|i| (0..i).all(|j| set >> i & 1 == 0 || set >> j & 1 == 0 || problem.conflict(i, j)));
    let weight = |set: u32| (0..n).filter(|i| set >> i & 1 == 1).map(|i| problem.buffers()[i].bytes).sum();
    (0..1u32 << n).filter(|&set| is_clique(set)).map(weight).max().unwrap_or(0)
}

fn agrees_with_the_twin(problem: &Problem) -> Result<(), TestCaseError> {
    let optimum = exhaustive(problem);
    let bound = lower_bound(problem);
    prop_assert!(bound <= optimum);
    let quick = solve(problem, None, Effort::Quick);
    prop_assert_eq!(verify(problem, &quick.plan), Ok(()));
    prop_assert!(quick.bound <= optimum && optimum <= quick.plan.capacity);

    let best = solve(problem, None, Effort::Search(Budget::steps(1_000_000)));
    prop_assert_eq!(verify(problem, &best.plan), Ok(()));
    prop_assert_eq!(best.plan.capacity, optimum);
    prop_assert!(best.proven(), "{} found, {} proven", best.plan.capacity, best.bound);

    let within = solve(problem, Some(optimum), Effort::Search(Budget::steps(1_000_000)));
    prop_assert_eq!(within.plan.capacity, optimum);
    let below = solve(problem, Some(optimum - 1), Effort::Search(Budget::steps(1_000_000)));
    prop_assert_eq!((below.plan.capacity, below.bound), (optimum, optimum));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn lines_agree(problem in on_a_line()) {
        agrees_with_the_twin(&problem)?;
        prop_assert_eq!(lower_bound(&problem), heaviest_clique(&problem));
    }
}

fn pair() -> Problem {
    let lives = [(0, 2), (1, 3), (2, 4)].map(|(lower, upper)| Lifetime { lower, upper });
    Problem::from_lifetimes(vec![Buffer::new(4), Buffer::new(8).aligned(8), Buffer::new(4)], lives.to_vec()).unwrap()
}

#[test]
fn planted_faults_are_found() {
    let problem = pair();
    let fault = |offsets: &[u64], capacity| verify(&problem, &Plan { offsets: offsets.to_vec(), capacity });
    assert_eq!(fault(&[8, 0, 8], 12), Ok(()));
    assert_eq!(fault(&[8, 0], 12), Err(Fault::Count { buffers: 3, offsets: 2 }));
    assert_eq!(fault(&[12, 4, 0], 16), Err(Fault::Misaligned { buffer: 1, offset: 4 }));
    assert_eq!(fault(&[8, 0, 9], 12), Err(Fault::Beyond { buffer: 2, offset: 9 }));
    assert_eq!(fault(&[u64::MAX, 0, 8], 12), Err(Fault::Beyond { buffer: 0, offset: u64::MAX }));
    assert_eq!(fault(&[7, 0, 8], 12), Err(Fault::Overlap { lower: 1, upper: 0, byte: 7 }));
    assert_eq!(fault(&[0, 8, 12], 16), Err(Fault::Overlap { lower: 1, upper: 2, byte: 12 }));
}

#[test]
fn every_moved_buffer_of_a_tight_plan_is_found() {
    // Four that are live together and fill the capacity: any of them, moved by one byte, overlaps another or the limit.
    let lives = vec![Lifetime { lower: 0, upper: 1 }; 4];
    let problem = Problem::from_lifetimes([3, 5, 7, 9].map(Buffer::new).to_vec(), lives).unwrap();
    let plan = solve(&problem, None, Effort::Quick).plan;
    assert_eq!((plan.capacity, verify(&problem, &plan)), (24, Ok(())));
    for buffer in 0..4 {
        for by in [1, u64::MAX] {
            let mut moved = plan.clone();
            moved.offsets[buffer] = moved.offsets[buffer].wrapping_add(by);
            let names_it = match verify(&problem, &moved).unwrap_err() {
                Fault::Overlap { lower, upper, .. } => lower == buffer || upper == buffer,
                Fault::Beyond { buffer: named, .. } => named == buffer,
                other => panic!("{other}"),
            };
            assert!(names_it);
        }
    }
}

#[test]
fn nothing_needs_nothing() {
    let problem = Problem::from_lifetimes(Vec::new(), Vec::new()).unwrap();
    let outcome = solve(&problem, None, Effort::Search(Budget::steps(10)));
    assert_eq!((outcome.plan.capacity, outcome.bound, outcome.proven()), (0, 0, true));
    assert_eq!(verify(&problem, &outcome.plan), Ok(()));
}

#[test]
fn sizes_near_the_end_of_u64_do_not_overflow() {
    let lives = [(0, 2), (1, 3), (3, 5)].map(|(lower, upper)| Lifetime { lower, upper }).to_vec();
    let buffers = [u64::MAX - 9, 9, u64::MAX].map(Buffer::new).to_vec();
    let problem = Problem::from_lifetimes(buffers, lives).unwrap();
    let outcome = solve(&problem, Some(u64::MAX - 1), Effort::Search(Budget::steps(1000)));
    assert_eq!(outcome.plan.capacity, u64::MAX);
    assert_eq!(verify(&problem, &outcome.plan), Ok(()));
}

#[test]
fn a_budget_ends_when_the_watcher_says_so() {
    // No plan of these meets the bound at once.
    let life = |at: i64| Lifetime { lower: at * 19 % 40, upper: at * 19 % 40 + 3 + at * 7 % 17 };
    let sizes = (0..60).map(|at| Buffer::new(97 + at * 37 % 89)).collect();
    let problem = Problem::from_lifetimes(sizes, (0..60).map(life).collect()).unwrap();
    // First fit also calls it, before there is a step.
    let (mut before, mut asked) = (0, 0);
    let mut watch = |progress: &Progress| {
        *(if progress.steps == 0 { &mut before } else { &mut asked }) += 1;
        asked < 4
    };
    let outcome = solve(&problem, None, Effort::Search(Budget::steps(u64::MAX).watched(&mut watch)));
    assert_eq!((before > 1, asked), (true, 4));
    assert_eq!(outcome.steps, 256);
    assert_eq!(verify(&problem, &outcome.plan), Ok(()));
}

#[test]
fn who_has_no_time_gets_a_plan_all_the_same() {
    let lives = (0..9000).map(|at| Lifetime { lower: at, upper: at + 700 }).collect();
    let problem = Problem::from_lifetimes((0..9000).map(|at| Buffer::new(1 + at % 97)).collect(), lives).unwrap();
    let mut never = |_: &Progress| false;
    let outcome = solve(&problem, None, Effort::Search(Budget::steps(u64::MAX).watched(&mut never)));
    assert_eq!(verify(&problem, &outcome.plan), Ok(()));
    assert!(outcome.plan.capacity >= outcome.bound && outcome.plan.capacity < 2 * outcome.bound);
}
