//! First fit: one buffer after the other, each at the lowest place where it fits.
//!
//! The simple version keeps the placed buffers in ascending order of offset. To place the next one, it walks up
//! through those that conflict with it and stops at the first hole that is large enough. This version tries several
//! orders and keeps the best plan, because the order decides how good the plan is and no order is always best. It
//! gives up an order as soon as its plan gets higher than the best, and stops when a plan meets the bound.
//!
//! Invariant **sound**: in any order, no two conflicting buffers overlap. Depends on nothing about searching.

mod around;
mod online;

use std::cmp::Reverse;

use super::bits;
use super::conflicts::{Lifetime, Sharing};
use super::problem::{Buffer, Problem};
use super::{Plan, cliques};
use crate::units::round_up;
use around::{Around, Scan, Stretches};

/// The properties of buffers by which orders sort.
struct Traits {
    /// The length of each buffer's lifetime: in steps, or as the number of buffers that it conflicts with.
    length: Vec<u64>,
    /// The bytes of all buffers that conflict with it.
    company: Vec<u64>,
    /// The beginning of its lifetime: its first step, or its index in the problem.
    birth: Vec<i64>,
}

/// Sorts positions in a part into the order in which to place them.
type Sort<'a> = &'a dyn Fn(&mut Vec<usize>);

/// Returns the best plan that first fit finds.
pub fn first_fit(problem: &Problem) -> Plan {
    let mut plan = Plan { offsets: vec![0; problem.buffers().len()], capacity: 0 };
    for part in problem.parts() {
        let (offsets, height) = first_fit_of(problem, part, cliques::heaviest(problem, part), &mut || true);
        plan.put(part, &offsets, height);
    }
    debug_assert_eq!(super::verify(problem, &plan), Ok(()));
    plan
}

/// Returns the best plan of `part` that first fit finds: offsets in the order of `part`, and the highest byte used.
/// Stops at the first plan that needs no more than `enough`. Also stops if `go`, called from time to time, returns
/// `false`: then the best plan so far is returned, or, on a line, where even one order takes long, a plan that is
/// made quickly.
pub fn first_fit_of(problem: &Problem, part: &[u32], enough: u64, go: &mut dyn FnMut() -> bool) -> (Vec<u64>, u64) {
    let traits = traits(problem, part);
    let bytes = |k: usize| problem.buffers()[part[k] as usize].bytes;
    let area = |k: usize| u128::from(bytes(k)) * u128::from(traits.length[k]);
    let orders: [Sort<'_>; 6] = [
        &|order| order.sort_by_key(|&k| Reverse((bytes(k), traits.length[k]))),
        &|order| order.sort_by_key(|&k| Reverse((area(k), bytes(k)))),
        &|order| order.sort_by_key(|&k| Reverse((traits.length[k], bytes(k)))),
        &|order| order.sort_by_key(|&k| Reverse((traits.company[k], bytes(k)))),
        &|order| order.sort_by_key(|&k| (traits.birth[k], Reverse(traits.length[k]))),
        &|order| order.sort_by_key(|&k| Reverse((bytes(k), Reverse(traits.birth[k])))),
    ];
    let mut best: Option<(Vec<u64>, u64)> = None;
    for sort in orders {
        let mut order: Vec<usize> = (0..part.len()).collect();
        sort(&mut order);
        let most = best.as_ref().map_or(u64::MAX, |(_, height)| height - 1);
        best = in_order(problem, part, &order, most, go).or(best);
        if best.as_ref().is_some_and(|(_, height)| *height <= enough) || !go() {
            break;
        }
    }
    let quickly = || online::place(problem, part);
    best.or_else(quickly)
        .or_else(|| in_order(problem, part, &(0..part.len()).collect::<Vec<_>>(), u64::MAX, &mut || true))
        .expect("the last order has no limit and no end")
}

/// The number of buffers placed between two calls of `go`.
const WATCHED: usize = 64;

/// The number of buffers on a line from which conflicting buffers are looked up by lifetime.
const MANY: usize = 4096;

/// Places the members of `part` in `order` (positions in `part`), each at the lowest place where it fits. Returns
/// `None` as soon as one ends above `most` or `go` returns `false`.
fn in_order(
    problem: &Problem,
    part: &[u32],
    order: &[usize],
    most: u64,
    go: &mut dyn FnMut() -> bool,
) -> Option<(Vec<u64>, u64)> {
    let id = |k: usize| part[k] as usize;
    let needs: Vec<Buffer> = part.iter().map(|&i| problem.buffers()[i as usize]).collect();
    match problem.sharing() {
        Sharing::Line(lifetimes) => {
            let lives: Vec<Lifetime> = part.iter().map(|&i| lifetimes[i as usize]).collect();
            if lives.len() >= MANY {
                return fit(&needs, order, (most, go), Stretches::new(lives));
            }
            let lives = &lives;
            let conflicting = |k: usize| move |other: usize| lives[k].meets(lives[other]);
            fit(&needs, order, (most, go), Scan::new(part.len(), conflicting))
        }
        Sharing::Relation(conflicts) => {
            let conflicting = |k: usize| {
                let row = conflicts.row(id(k));
                move |other: usize| bits::has(row, id(other))
            };
            fit(&needs, order, (most, go), Scan::new(part.len(), conflicting))
        }
    }
}

/// As [`in_order`], for buffers with these `needs`. The placed buffers are kept in `around`.
fn fit(
    needs: &[Buffer],
    order: &[usize],
    (most, go): (u64, &mut dyn FnMut() -> bool),
    mut around: impl Around,
) -> Option<(Vec<u64>, u64)> {
    let mut offsets = vec![0; needs.len()];
    let mut height = 0;
    for (at, &k) in order.iter().enumerate() {
        if at % WATCHED == WATCHED - 1 && !go() {
            return None;
        }
        let need = needs[k];
        let mut offset = 0;
        for &(begin, end) in around.find(k) {
            if begin >= offset && begin - offset >= need.bytes {
                break;
            }
            if end > offset {
                offset = round_up(end, need.alignment).expect("fits: checked by the problem");
            }
        }
        let end = offset + need.bytes;
        if end > most {
            return None;
        }
        offsets[k] = offset;
        height = height.max(end);
        around.place(k, offset, end);
    }
    Some((offsets, height))
}

/// Returns the traits of the members of `part`, in its order.
fn traits(problem: &Problem, part: &[u32]) -> Traits {
    let bytes = |i: u32| problem.buffers()[i as usize].bytes;
    match problem.sharing() {
        Sharing::Line(lifetimes) => {
            let life = |i: u32| lifetimes[i as usize];
            let born = running(part.iter().map(|&i| (life(i).lower, bytes(i))).collect());
            let dead = running(part.iter().map(|&i| (life(i).upper, bytes(i))).collect());
            // All buffers born before it dies, minus those dead before it is born, minus itself.
            let company = |i: u32| before(&born, life(i).upper) - before(&dead, life(i).lower + 1) - bytes(i);
            Traits {
                length: part.iter().map(|&i| life(i).upper.abs_diff(life(i).lower)).collect(),
                company: part.iter().map(|&i| company(i)).collect(),
                birth: part.iter().map(|&i| life(i).lower).collect(),
            }
        }
        Sharing::Relation(conflicts) => {
            let row = |i: u32| bits::ones(conflicts.row(i as usize));
            Traits {
                length: part.iter().map(|&i| row(i).count() as u64).collect(),
                company: part.iter().map(|&i| row(i).map(|j| bytes(j as u32)).sum()).collect(),
                birth: part.iter().map(|&i| i64::from(i)).collect(),
            }
        }
    }
}

/// Returns the steps in ascending order, each with the sum of the bytes up to and at it.
fn running(mut at: Vec<(i64, u64)>) -> Vec<(i64, u64)> {
    at.sort_unstable();
    let mut sum = 0;
    for (_, bytes) in &mut at {
        sum += *bytes;
        *bytes = sum;
    }
    at
}

/// Returns the bytes at steps before `step`.
fn before(running: &[(i64, u64)], step: i64) -> u64 {
    match running.partition_point(|&(at, _)| at < step) {
        0 => 0,
        n => running[n - 1].1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Conflicts, verify};

    #[test]
    fn plans_are_right_whatever_the_relation() {
        let mut state = 5_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for round in 0..200 {
            let count = 1 + random(60);
            let mut one = || Buffer::new(1 + random(900)).aligned(1 << random(6));
            let buffers: Vec<Buffer> = (0..count).map(|_| one()).collect();
            let conflicts = Conflicts::from_fn(buffers.len(), |_, _| random(10) < round % 11);
            let all: u64 = buffers.iter().map(|it| it.bytes).sum();
            let largest = buffers.iter().map(|it| it.bytes).max().unwrap_or(0);
            let problem = Problem::from_conflicts(buffers, conflicts).unwrap();
            let plan = first_fit(&problem);
            assert_eq!(verify(&problem, &plan), Ok(()));
            match round % 11 {
                0 => assert_eq!(plan.capacity, largest, "without conflicts"),
                10 => assert!(plan.capacity >= all, "all conflict"),
                _ => assert!(plan.capacity >= largest),
            }
        }
    }
}
