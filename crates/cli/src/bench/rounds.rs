//! Rounds: who is compared takes turns, so that what the machine does meanwhile hits all alike.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::loops::{Outcome, median};
use super::rows::{Row, Unit, Who};

/// How often everything is measured.
pub(super) const ROUNDS: usize = 15;
/// How short a measurement may be: below it the clock and the scheduler show.
const SLICE_MIN: Duration = Duration::from_millis(1);

/// Some figures of the same: one a round.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Spread {
    /// The lowest.
    pub min: f64,
    /// The middle one.
    pub median: f64,
    /// The highest.
    pub max: f64,
}

impl Spread {
    fn of(rounds: &[f64]) -> Self {
        let extreme = |pick: fn(f64, f64) -> f64| rounds.iter().copied().reduce(pick).unwrap_or(0.0);
        Self { min: extreme(f64::min), median: median(rounds.to_vec()), max: extreme(f64::max) }
    }

    /// Whether they are numbers in this order, as all that are measured.
    pub(super) fn is_right(&self) -> bool {
        self.min > 0.0 && self.min <= self.median && self.median <= self.max && self.max.is_finite()
    }
}

/// The figures of one row.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Measured {
    pub(super) figures: Vec<(Who, Spread)>,
    /// The time of the first over that of each other, round by round.
    pub(super) ratios: Vec<(Who, Spread)>,
}

/// How many measurements there will be.
pub(super) fn count(rows: &[Row<'_>]) -> usize {
    rows.iter().map(|row| row.contenders.len()).sum::<usize>() * ROUNDS
}

/// Measures all rows, in about so much time; `advance` is called after each measurement.
pub(super) fn measure(rows: &mut [Row<'_>], time: Duration, advance: &mut dyn FnMut()) -> Outcome<Vec<Measured>> {
    let (began, slices) = (Instant::now(), count(rows) as u32);
    let trial = (time / slices / 8).clamp(SLICE_MIN / 4, SLICE_MIN * 20);
    let mut costs = Vec::new();
    for (_, batch) in rows.iter_mut().flat_map(|row| &mut row.contenders) {
        costs.push(cost(batch, trial)?);
    }
    let slice = (time.saturating_sub(began.elapsed()) / slices).max(SLICE_MIN);
    let calls = |cost: f64| (slice.as_secs_f64() / cost).clamp(1.0, f64::from(u32::MAX / 2)) as u32;
    let mut times: Vec<Vec<Vec<f64>>> = rows.iter().map(|row| vec![Vec::new(); row.contenders.len()]).collect();
    for round in 0..ROUNDS {
        let mut costs = costs.iter();
        for (row, times) in rows.iter_mut().zip(&mut times) {
            let calls: Vec<u32> = costs.by_ref().take(row.contenders.len()).map(|&cost| calls(cost)).collect();
            let turns = row.contenders.iter_mut().zip(times).zip(calls);
            let mut turns: Vec<_> = turns.collect();
            // Who comes second finds the processor as the first one left it: they swap.
            if round % 2 == 1 {
                turns.reverse();
            }
            for (((_, batch), times), calls) in turns {
                times.push(row.unit.figure(batch(calls)?, calls));
                advance();
            }
        }
    }
    Ok(rows.iter().zip(times).map(|(row, times)| measured(row, &times)).collect())
}

/// What a call takes, in seconds; so many calls as take `enough` are a trial, and warm everything up. The fastest of
/// three trials counts: one that was preempted would make each round a call or two, which find everything cold.
fn cost(batch: &mut dyn FnMut(u32) -> Outcome<Duration>, enough: Duration) -> Outcome<f64> {
    let mut calls = 1_u32;
    loop {
        let taken = batch(calls)?.min(batch(calls)?).min(batch(calls)?);
        if taken >= enough || calls >= 1 << 28 {
            return Ok(taken.as_secs_f64().max(1e-9) / f64::from(calls));
        }
        calls *= 4;
    }
}

fn measured(row: &Row<'_>, times: &[Vec<f64>]) -> Measured {
    let who = || row.contenders.iter().map(|(who, _)| *who);
    let ratio = |ours: f64, theirs: f64| match row.unit {
        Unit::Nanoseconds => ours / theirs,
        Unit::Rate => theirs / ours,
    };
    let ratios = |theirs: &Vec<f64>| -> Vec<f64> {
        times[0].iter().zip(theirs).map(|(&ours, &theirs)| ratio(ours, theirs)).collect()
    };
    Measured {
        figures: who().zip(times.iter().map(|rounds| Spread::of(rounds))).collect(),
        ratios: who().zip(times).skip(1).map(|(who, theirs)| (who, Spread::of(&ratios(theirs)))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row whose contenders take so many nanoseconds a call, by their own clock.
    fn row(costs: &[u64], unit: Unit) -> Row<'static> {
        let batch = |&cost: &u64| -> super::super::rows::Batch<'static> {
            Box::new(move |calls| Ok(Duration::from_nanos(cost * u64::from(calls))))
        };
        let contenders = [Who::Millpond, Who::Mimalloc].into_iter().zip(costs.iter().map(batch)).collect();
        Row { name: "row".to_owned(), device: "sim", unit, contenders }
    }

    #[test]
    fn each_round_measures_all_and_ratios_are_of_times() {
        let (mut rows, mut steps) = ([row(&[30, 20], Unit::Nanoseconds), row(&[50], Unit::Nanoseconds)], 0);
        let all = measure(&mut rows, Duration::from_millis(50), &mut || steps += 1).unwrap();
        assert_eq!((steps, count(&rows)), (3 * ROUNDS, 3 * ROUNDS));
        let exactly = |value| Spread { min: value, median: value, max: value };
        assert_eq!(all[0].figures, [(Who::Millpond, exactly(30.0)), (Who::Mimalloc, exactly(20.0))]);
        assert_eq!(all[0].ratios, [(Who::Mimalloc, exactly(1.5))]);
        assert_eq!((all[1].figures.len(), all[1].ratios.len()), (1, 0));
    }

    #[test]
    fn a_trial_that_was_preempted_does_not_count() {
        let mut trials = 0;
        let mut batch = |calls: u32| {
            trials += 1;
            let away = if trials % 3 == 1 { Duration::from_millis(4) } else { Duration::ZERO };
            Ok(Duration::from_nanos(20 * u64::from(calls)) + away)
        };
        let cost = cost(&mut batch, Duration::from_millis(1)).unwrap();
        assert!((cost - 20e-9).abs() < 1e-12, "{cost}");
    }

    #[test]
    fn who_fails_ends_it() {
        let mut failing = row(&[1], Unit::Nanoseconds);
        failing.contenders.push((Who::Cuda, Box::new(|_| Err("the device is lost".into()))));
        let error = measure(&mut [failing], Duration::from_millis(1), &mut || ()).unwrap_err();
        assert_eq!(error.to_string(), "the device is lost");
    }

    #[test]
    fn the_spread_is_of_the_rounds() {
        let spread = Spread::of(&[3.0, 1.0, 2.0]);
        assert_eq!(spread, Spread { min: 1.0, median: 2.0, max: 3.0 });
        assert!(spread.is_right() && !Spread { min: f64::NAN, ..spread }.is_right());
        assert!(!Spread { max: 1.5, ..spread }.is_right() && !Spread { min: 0.0, ..spread }.is_right());
    }
}
