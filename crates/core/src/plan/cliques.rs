//! Cliques: sets of buffers that all conflict with each other. In any plan, their sizes add up.
//!
//! On a line the maximal cliques are known: they are the buffers live just before some buffer dies, if one was born
//! since the last death. One sweep finds them, and the heaviest of them is the heaviest clique. In a relation there
//! may be too many, and the heaviest is hard to find. So cliques are grown: starting from each buffer, the largest
//! buffer that conflicts with all so far is added until there is none. Each clique found this way still proves a
//! bound.
//!
//! Invariant **clique**: every two members conflict. Depends on nothing about offsets.

use super::bits;
use super::conflicts::Conflicts;
use super::conflicts::{Lifetime, Sharing};
use super::problem::{Buffer, Problem};

/// The number of cliques that are grown for a bound.
const GROWN: usize = 32;

/// Returns the bytes of the heaviest clique of `part` that is found. On a line it is the heaviest of all.
pub fn heaviest(problem: &Problem, part: &[u32]) -> u64 {
    match problem.sharing() {
        Sharing::Line(lifetimes) => heaviest_step(problem.buffers(), part, lifetimes),
        Sharing::Relation(conflicts) => {
            let falling = falling(problem.buffers(), part);
            let grown = falling.iter().take(GROWN).map(|&i| grow(conflicts, &falling, i));
            grown.map(|clique| weight(problem.buffers(), &clique)).max().unwrap_or(0)
        }
    }
}

/// Returns the bytes that are live at the fullest step.
fn heaviest_step(buffers: &[Buffer], part: &[u32], lifetimes: &[Lifetime]) -> u64 {
    let life = |&i: &u32| (lifetimes[i as usize], buffers[i as usize].bytes);
    // At the same step, deaths come first.
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

/// Grows a maximal clique from `first`: adds the first buffer of `falling` that conflicts with all so far.
fn grow(conflicts: &Conflicts, falling: &[u32], first: u32) -> Vec<u32> {
    let mut clique = vec![first];
    let mut fit = conflicts.row(first as usize).to_vec();
    for &i in falling {
        if bits::has(&fit, i as usize) {
            clique.push(i);
            bits::keep(&mut fit, conflicts.row(i as usize));
        }
    }
    clique
}

/// Returns the members of `part`, the largest first.
fn falling(buffers: &[Buffer], part: &[u32]) -> Vec<u32> {
    let mut falling = part.to_vec();
    falling.sort_by_key(|&i| std::cmp::Reverse(buffers[i as usize].bytes));
    falling
}

fn weight(buffers: &[Buffer], clique: &[u32]) -> u64 {
    clique.iter().map(|&i| buffers[i as usize].bytes).sum()
}

/// Calls `visit` with every maximal set of buffers of `part` that are live together.
pub fn sweep(part: &[u32], lifetimes: &[Lifetime], mut visit: impl FnMut(&[u32])) {
    let mut births = part.to_vec();
    births.sort_unstable_by_key(|&i| lifetimes[i as usize].lower);
    let mut births = births.into_iter().peekable();
    let mut live: Vec<u32> = Vec::new();
    while let Some(&first) = births.peek() {
        // The dead are removed before the next birth. The set was maximal if a buffer dies after a birth.
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

    #[test]
    fn a_line_has_its_maximal_live_sets() {
        let lives = [(0, 3), (3, 9), (0, 9), (9, 21), (0, 21)];
        let lives: Vec<Lifetime> = lives.map(|(lower, upper)| Lifetime { lower, upper }).into();
        let part: Vec<u32> = (0..5).collect();
        let mut sets = Vec::new();
        sweep(&part, &lives, |live| sets.push(live.to_vec()));
        sets.iter_mut().for_each(|set| set.sort_unstable());
        assert_eq!(sets, [vec![0, 2, 4], vec![1, 2, 4], vec![3, 4]]);
        let problem = Problem::from_lifetimes(vec![Buffer::new(4); 5], lives).unwrap();
        assert_eq!(heaviest(&problem, &part), 12);
    }

    #[test]
    fn a_clique_of_a_relation_is_grown() {
        // In a ring of five every maximal clique is a pair.
        let ring = Conflicts::from_fn(5, |i, j| j == i + 1 || (i == 0 && j == 4));
        let problem = Problem::from_conflicts((1..=5).map(Buffer::new).collect(), ring).unwrap();
        assert_eq!(heaviest(&problem, &[0, 1, 2, 3, 4]), 9);
    }
}
