//! Makes a plan of a line quickly: places buffer after buffer by birth, each in the smallest hole of that moment.
//!
//! For problems that are too large for first fit to end in time. It takes `n log n`, and its plans need more bytes.
//! Invariant **sound**: at each step, the live buffers have no byte in common.

use crate::plan::conflicts::Sharing;
use crate::plan::holes::Holes;
use crate::plan::problem::Problem;

/// Returns the offsets in the order of `part` and the highest byte used, or `None` if there is no line.
pub(super) fn place(problem: &Problem, part: &[u32]) -> Option<(Vec<u64>, u64)> {
    let Sharing::Line(lifetimes) = problem.sharing() else { return None };
    let life = |k: usize| lifetimes[part[k] as usize];
    let need = |k: usize| problem.buffers()[part[k] as usize];
    // At the same step, deaths come first: a buffer that dies there is not live there.
    let births = (0..part.len()).map(|k| (life(k).lower, true, k));
    let mut events: Vec<_> = births.chain((0..part.len()).map(|k| (life(k).upper, false, k))).collect();
    events.sort_unstable();
    let (mut holes, mut offsets, mut height) = (Holes::default(), vec![0; part.len()], 0);
    for (_, is_birth, k) in events {
        if is_birth {
            offsets[k] = holes.take(need(k).bytes, need(k).alignment)?;
            height = height.max(offsets[k] + need(k).bytes);
        } else {
            holes.give(offsets[k], offsets[k] + need(k).bytes);
        }
    }
    Some((offsets, height))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Buffer, Lifetime, Plan, verify};

    #[test]
    fn plans_are_right_whatever_the_lifetimes() {
        let mut state = 5_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..200 {
            let count = 1 + random(60);
            let mut one = || Buffer::new(1 + random(900)).aligned(1 << random(6));
            let buffers: Vec<Buffer> = (0..count).map(|_| one()).collect();
            let lower: Vec<i64> = (0..count).map(|_| random(40) as i64).collect();
            let lives = lower.iter().map(|&lower| Lifetime { lower, upper: lower + 1 + random(20) as i64 }).collect();
            let problem = Problem::from_lifetimes(buffers, lives).unwrap();
            let all: Vec<u32> = (0..count as u32).collect();
            let (offsets, capacity) = place(&problem, &all).unwrap();
            assert_eq!(verify(&problem, &Plan { offsets, capacity }), Ok(()));
        }
    }
}
