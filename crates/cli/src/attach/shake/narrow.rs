//! Narrowing: which few of many delays make the program fail. Pure functions over the question whether it fails.
//!
//! A run answers each question, so that questions are few: first halves, then smaller parts and what is left without
//! them (Zeller's `ddmin`). A program may pass by chance where it could fail; then more delays are left than needed.

/// The runs that are left.
#[derive(Debug)]
pub(super) struct Runs(pub(super) usize);

impl Runs {
    /// Takes one. Returns `false` if none is left.
    pub(super) fn take(&mut self) -> bool {
        let is_left = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        is_left
    }
}

/// Returns few items, in their order, with which the program fails as it does with all of them.
///
/// # Errors
/// Those of `fails`.
pub(super) fn fewest<T: Clone, E>(
    all: &[T],
    runs: &mut Runs,
    mut fails: impl FnMut(&[T]) -> Result<bool, E>,
) -> Result<Vec<T>, E> {
    let mut items = all.to_vec();
    let mut parts = 2;
    'smaller: while items.len() > 1 {
        let size = items.len().div_ceil(parts);
        let places: Vec<_> = (0..items.len()).step_by(size).map(|at| at..items.len().min(at + size)).collect();
        for place in &places {
            if !runs.take() {
                break 'smaller;
            }
            if fails(&items[place.clone()])? {
                items = items[place.clone()].to_vec();
                parts = 2;
                continue 'smaller;
            }
        }
        // Of two parts each is what is left without the other.
        for place in places.iter().filter(|_| places.len() > 2) {
            if !runs.take() {
                break 'smaller;
            }
            let rest = [&items[..place.start], &items[place.end..]].concat();
            if fails(&rest)? {
                items = rest;
                parts = (parts - 1).max(2);
                continue 'smaller;
            }
        }
        if size == 1 {
            break;
        }
        parts = (2 * parts).min(items.len());
    }
    Ok(items)
}

/// Returns the index of the last item with which the program fails, if it fails with the first and does not fail again
/// once it passes.
///
/// # Errors
/// Those of `fails`.
pub(super) fn last<E>(
    count: usize,
    runs: &mut Runs,
    mut fails: impl FnMut(usize) -> Result<bool, E>,
) -> Result<usize, E> {
    let (mut known, mut end, mut step) = (0, count, 1);
    while known + 1 < end {
        // Nearly always it is one of the next few, so that steps grow from one.
        let next = if end == count { (known + step).min(end - 1) } else { known.midpoint(end) };
        if !runs.take() {
            break;
        }
        match fails(next)? {
            true => (known, step) = (next, 2 * step),
            false => end = next,
        }
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn fewest_of(count: u32, needed: &[u32], most: usize) -> (Vec<u32>, usize) {
        let all: Vec<u32> = (0..count).collect();
        let mut runs = Runs(most);
        let fails = |some: &[u32]| Ok::<_, Infallible>(needed.iter().all(|it| some.contains(it)));
        let found = fewest(&all, &mut runs, fails).unwrap();
        (found, most - runs.0)
    }

    #[test]
    fn one_of_many_is_found_in_few_runs() {
        for needed in [0, 1, 499, 500, 999] {
            let (found, runs) = fewest_of(1000, &[needed], 40);
            assert_eq!(found, [needed]);
            assert!(runs <= 20, "{runs}");
        }
        assert_eq!(fewest_of(1, &[0], 40), (vec![0], 0));
        assert_eq!(fewest_of(0, &[], 40), (vec![], 0));
    }

    #[test]
    fn several_that_are_needed_together_are_kept() {
        assert_eq!(fewest_of(16, &[3, 12], 100).0, [3, 12]);
        assert_eq!(fewest_of(9, &[0, 4, 8], 100).0, [0, 4, 8]);
        assert_eq!(fewest_of(3, &[0, 1, 2], 100).0, [0, 1, 2]);
    }

    #[test]
    fn what_is_left_when_runs_end_still_fails() {
        for most in 0..20 {
            let (found, runs) = fewest_of(64, &[5, 60], most);
            assert!(found.contains(&5) && found.contains(&60) && runs <= most);
        }
    }

    #[test]
    fn the_last_place_that_fails_is_found() {
        for count in 1..20 {
            for at in 0..count {
                let mut runs = Runs(100);
                let found = last(count, &mut runs, |place| Ok::<_, Infallible>(place <= at)).unwrap();
                assert_eq!(found, at, "of {count}");
                assert!(runs.0 > 88, "{runs:?}");
            }
        }
        let found = last(1000, &mut Runs(3), |place| Ok::<_, Infallible>(place <= 900)).unwrap();
        assert_eq!(found, 7, "a place that failed, where runs end early");
    }
}
