//! Cliques that cover all buffers. The search reasons with them.
//!
//! Invariants **clique**: every two members conflict; **cover**: every buffer of the part is in a clique.
//! This module does not know offsets.

use millpond_core::plan::Lifetime;
use millpond_core::plan::cliques::sweep;

/// Returns all maximal cliques of `part`. They cover it. Returns `None` if they have more than `limit` members in
/// total.
pub(crate) fn cover(lifetimes: &[Lifetime], part: &[u32], limit: usize) -> Option<Vec<Vec<u32>>> {
    let mut cliques = Vec::new();
    let mut members = 0;
    sweep(part, lifetimes, |live| {
        members += live.len();
        if members <= limit {
            let mut clique = live.to_vec();
            clique.sort_unstable();
            cliques.push(clique);
        }
    });
    (members <= limit).then(|| {
        cliques.sort_unstable();
        cliques
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_maximal_live_sets() {
        let lives = [(0, 3), (3, 9), (0, 9), (9, 21), (0, 21)];
        let lives = lives.map(|(lower, upper)| Lifetime { lower, upper });
        let part: Vec<u32> = (0..5).collect();
        assert_eq!(cover(&lives, &part, 100).unwrap(), [vec![0, 2, 4], vec![1, 2, 4], vec![3, 4]]);
        assert_eq!(cover(&lives, &part, 7), None);
    }
}
