//! Cliques that cover all buffers. The search reasons with them.
//!
//! Invariants **clique**: every two members conflict; **cover**: every buffer of the part is in a clique.
//! This module does not know offsets.

use millpond_core::plan::bits;
use millpond_core::plan::cliques::{falling, grow, sweep};
use millpond_core::plan::{Conflicts, Problem, Sharing};

/// Returns cliques that cover `part`. On a line these are all maximal cliques. In a relation they are one clique grown
/// from each buffer, and one from each pair that is not covered yet while there are few such pairs. Returns `None` if
/// they have more than `limit` members in total.
pub(crate) fn cover(problem: &Problem, part: &[u32], limit: usize) -> Option<Vec<Vec<u32>>> {
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

/// The cliques collected so far and the number of their members. Above the limit nothing more is collected.
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

/// The largest number of cliques per buffer that are grown to cover pairs.
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

#[cfg(test)]
mod tests {
    use millpond_core::plan::{Buffer, Lifetime};

    use super::*;

    #[test]
    fn a_line_has_its_maximal_live_sets() {
        let lives = [(0, 3), (3, 9), (0, 9), (9, 21), (0, 21)];
        let lives = lives.map(|(lower, upper)| Lifetime { lower, upper }).into();
        let problem = Problem::from_lifetimes(vec![Buffer::new(4); 5], lives).unwrap();
        let part: Vec<u32> = (0..5).collect();
        assert_eq!(cover(&problem, &part, 100).unwrap(), [vec![0, 2, 4], vec![1, 2, 4], vec![3, 4]]);
        assert_eq!(cover(&problem, &part, 7), None);
    }

    #[test]
    fn a_relation_is_covered_by_cliques() {
        // A ring of five: every maximal clique is a pair.
        let ring = Conflicts::from_fn(5, |i, j| j == i + 1 || (i == 0 && j == 4));
        let problem = Problem::from_conflicts((1..=5).map(Buffer::new).collect(), ring).unwrap();
        let part: Vec<u32> = (0..5).collect();
        assert_eq!(cover(&problem, &part, 100).unwrap(), [[0, 1], [0, 4], [1, 2], [2, 3], [3, 4]]);
    }
}
