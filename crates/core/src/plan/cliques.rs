//! Sets of buffers of which every two conflict: their sizes add up, whatever the plan.
//!
//! On a line the maximal cliques are known: they are the sets live just before some buffer dies, where one was born
//! since the last death. One sweep finds them, and the heaviest is the heaviest of all.
//! In a relation there may be too many, and the heaviest is hard to find, so cliques are grown: from each buffer, add
//! the largest that conflicts with all so far, until none does. Every one so found is a proof nevertheless.
//!
//! Invariants **clique**: every two members conflict; **cover**: [`cover`] leaves no buffer of the part out.
//! Knows nothing of offsets.

use super::bits;
use super::conflicts::Conflicts;
use super::conflicts::{Lifetime, Sharing};
use super::problem::{Buffer, Problem};

/// The heaviest clique of `part` that `starts` attempts find, in bytes. On a line: the heaviest of all.
pub(super) fn heaviest(problem: &Problem, part: &[u32], starts: usize) -> u64 {
    match problem.sharing() {
        Sharing::Line(lifetimes) => heaviest_step(problem.buffers(), part, lifetimes),
        Sharing::Relation { conflicts, .. } => {
            let falling = falling(problem.buffers(), part);
            let grown = falling.iter().take(starts).map(|&i| grow(conflicts, &falling, &[i]));
            grown.map(|clique| weight(problem.buffers(), &clique)).max().unwrap_or(0)
        }
    }
}

/// The bytes that live at the fullest step.
fn heaviest_step(buffers: &[Buffer], part: &[u32], lifetimes: &[Lifetime]) -> u64 {
    let life = |&i: &u32| (lifetimes[i as usize], buffers[i as usize].bytes);
    // At one step deaths go first.
    let births = part.iter().map(life).map(|(life, bytes)| (life.lower, true, bytes));
    let mut events: Vec<_> =
        births.chain(part.iter().map(life).map(|(life, bytes)| (life.upper, false, bytes))).collect();
    events.sort_unstable();
    let (mut live, mut heaviest) = (0, 0);
    for (_, is_birth, bytes) in events {
        live = if is_birth { live + bytes } else { live - bytes };
        heaviest = heaviest.max(live);
    }
    heaviest
}

/// Cliques of `part` that cover it: on a line all maximal ones; in a relation one grown from each buffer, and one
/// from each pair not yet covered while they are few. `None` where they have more than `limit` members in all.
pub(super) fn cover(problem: &Problem, part: &[u32], limit: usize) -> Option<Vec<Vec<u32>>> {
    let mut cover = Cover { cliques: Vec::new(), members: 0, limit };
    match problem.sharing() {
        Sharing::Line(lifetimes) => sweep(part, lifetimes, |live| cover.add(live)),
        Sharing::Relation { conflicts, .. } => cover_relation(&mut cover, conflicts, &falling(problem.buffers(), part)),
    }
    (cover.members <= limit).then(|| {
        cover.cliques.sort_unstable();
        cover.cliques.dedup();
        cover.cliques
    })
}

/// Cliques collected so far, and how many members they have; no longer collected above the limit.
struct Cover {
    cliques: Vec<Vec<u32>>,
    members: usize,
    limit: usize,
}

impl Cover {
    fn add(&mut self, clique: &[u32]) {
        self.members += clique.len();
        if self.members <= self.limit {
            let mut clique = clique.to_vec();
            clique.sort_unstable();
            self.cliques.push(clique);
        }
    }
}

/// How many cliques are grown for each buffer, at most, to cover pairs.
const PAIRS_PER_BUFFER: usize = 3;

fn cover_relation(cover: &mut Cover, conflicts: &Conflicts, falling: &[u32]) {
    let mut covered = Conflicts::none(conflicts.buffers());
    let mut add = |clique: &[u32], covered: &mut Conflicts| {
        for (at, &i) in clique.iter().enumerate() {
            clique[at + 1..].iter().for_each(|&j| covered.add(i as usize, j as usize));
        }
        cover.add(clique);
        cover.members <= cover.limit
    };
    for &i in falling {
        if !add(&grow(conflicts, falling, &[i]), &mut covered) {
            return;
        }
    }
    let mut spare = PAIRS_PER_BUFFER * falling.len();
    for &i in falling {
        for j in bits::ones(conflicts.row(i as usize)) {
            if spare == 0 {
                return;
            }
            if !covered.has(i as usize, j) {
                spare -= 1;
                if !add(&grow(conflicts, falling, &[i, j as u32]), &mut covered) {
                    return;
                }
            }
        }
    }
}

/// A maximal clique around `seed`, itself a clique: adds the first of `falling` that conflicts with all so far.
fn grow(conflicts: &Conflicts, falling: &[u32], seed: &[u32]) -> Vec<u32> {
    let mut clique = seed.to_vec();
    let mut fit = conflicts.row(seed[0] as usize).to_vec();
    seed[1..].iter().for_each(|&i| bits::keep(&mut fit, conflicts.row(i as usize)));
    for &i in falling {
        if bits::has(&fit, i as usize) {
            clique.push(i);
            bits::keep(&mut fit, conflicts.row(i as usize));
        }
    }
    clique
}

/// The members of `part`, the largest first.
fn falling(buffers: &[Buffer], part: &[u32]) -> Vec<u32> {
    let mut falling = part.to_vec();
    falling.sort_by_key(|&i| std::cmp::Reverse(buffers[i as usize].bytes));
    falling
}

fn weight(buffers: &[Buffer], clique: &[u32]) -> u64 {
    clique.iter().map(|&i| buffers[i as usize].bytes).sum()
}

/// Calls `visit` with every maximal set of buffers of `part` that are live together.
fn sweep(part: &[u32], lifetimes: &[Lifetime], mut visit: impl FnMut(&[u32])) {
    let mut births = part.to_vec();
    births.sort_unstable_by_key(|&i| lifetimes[i as usize].lower);
    let mut births = births.into_iter().peekable();
    let mut live: Vec<u32> = Vec::new();
    while let Some(&first) = births.peek() {
        // The dead leave before the next is born, and with the first to leave after a birth the set was maximal.
        let now = lifetimes[first as usize].lower;
        live.retain(|&i| lifetimes[i as usize].upper > now);
        let mut death = live.iter().map(|&i| lifetimes[i as usize].upper).min().unwrap_or(i64::MAX);
        while let Some(born) = births.next_if(|&i| lifetimes[i as usize].lower < death) {
            death = death.min(lifetimes[born as usize].upper);
            live.push(born);
        }
        visit(&live);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(rows: &[(i64, i64, u64)]) -> Problem {
        let lives = rows.iter().map(|&(lower, upper, _)| Lifetime { lower, upper }).collect();
        Problem::from_lifetimes(rows.iter().map(|row| Buffer::new(row.2)).collect(), lives).unwrap()
    }

    #[test]
    fn a_line_has_its_maximal_live_sets() {
        let problem = line(&[(0, 3, 4), (3, 9, 4), (0, 9, 4), (9, 21, 4), (0, 21, 4)]);
        let part: Vec<u32> = (0..5).collect();
        assert_eq!(cover(&problem, &part, 100).unwrap(), [vec![0, 2, 4], vec![1, 2, 4], vec![3, 4]]);
        assert_eq!(heaviest(&problem, &part, 0), 12);
        assert_eq!(cover(&problem, &part, 7), None);
    }

    #[test]
    fn a_relation_is_covered_by_cliques() {
        // A ring of five: every maximal clique is a pair.
        let ring = Conflicts::from_fn(5, |i, j| j == i + 1 || (i == 0 && j == 4));
        let problem = Problem::from_conflicts((1..=5).map(Buffer::new).collect(), ring).unwrap();
        let part: Vec<u32> = (0..5).collect();
        assert_eq!(cover(&problem, &part, 100).unwrap(), [[0, 1], [0, 4], [1, 2], [2, 3], [3, 4]]);
        assert_eq!(heaviest(&problem, &part, 1), 9);
    }
}
