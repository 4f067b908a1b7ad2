//! The connected parts of the conflicts. Only buffers of the same part have to be placed together.
//!
//! The simple version finds the connected components of the conflict graph. On a line one sweep finds them (a part
//! ends where nothing is live); in a relation they are flooded along rows, a word of candidates at a time. Invariant
//! **apart**: no buffer conflicts with one of another part, so each part may begin at offset 0.

use super::bits;
use super::conflicts::Sharing;

/// Returns the connected parts of `n` buffers, each with its members in ascending order.
pub(super) fn connected(n: usize, sharing: &Sharing) -> Vec<Vec<u32>> {
    let mut parts = match sharing {
        Sharing::Line(lifetimes) => {
            let mut order: Vec<u32> = (0..n as u32).collect();
            order.sort_unstable_by_key(|&i| lifetimes[i as usize].lower);
            let mut parts: Vec<Vec<u32>> = Vec::new();
            let mut last_upper = i64::MIN;
            for i in order {
                let life = lifetimes[i as usize];
                match parts.last_mut() {
                    Some(part) if life.lower < last_upper => part.push(i),
                    _ => parts.push(vec![i]),
                }
                last_upper = last_upper.max(life.upper);
            }
            parts
        }
        Sharing::Relation(conflicts) => {
            let mut unseen = bits::full(n);
            let mut parts = Vec::new();
            for first in 0..n {
                if bits::has(&unseen, first) {
                    parts.push(flood(first, &mut unseen, |i| conflicts.row(i)));
                }
            }
            parts
        }
    };
    for part in &mut parts {
        part.sort_unstable();
    }
    parts
}

/// Removes from `unseen` all that is reached from `first` along rows, and returns it.
fn flood<'a>(first: usize, unseen: &mut [u64], row: impl Fn(usize) -> &'a [u64]) -> Vec<u32> {
    let mut part = Vec::new();
    let mut front = vec![first];
    bits::take(unseen, first);
    while let Some(i) = front.pop() {
        part.push(i as u32);
        for (at, (word, neighbours)) in unseen.iter_mut().zip(row(i)).enumerate() {
            let fresh = *word & neighbours;
            *word &= !fresh;
            front.extend(bits::ones(&[fresh]).map(|bit| at * bits::WORD + bit));
        }
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Conflicts, Lifetime};

    #[test]
    fn parts_are_the_components() {
        let lives = [(4, 6), (0, 2), (1, 3), (5, 7), (3, 4)];
        let lives: Vec<_> = lives.iter().map(|&(lower, upper)| Lifetime { lower, upper }).collect();
        let conflicts = Conflicts::from_fn(5, |i, j| lives[i].meets(lives[j]));
        let line = connected(5, &Sharing::Line(lives));
        assert_eq!(line, [vec![1, 2], vec![4], vec![0, 3]]);
        let mut relation = connected(5, &Sharing::Relation(conflicts));
        relation.sort_by_key(|part| part.contains(&0));
        assert_eq!(relation, line);
    }
}
