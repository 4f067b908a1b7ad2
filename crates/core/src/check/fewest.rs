//! The fewest edges that settle several missing orders.
//!
//! The simple version adds one edge for each operation that has to come first. Here an edge from a stream that comes
//! after several of them counts for all of these. Knows who brings what as bits; no stream and no order.

/// So many wanted things are looked at together.
pub(super) const WANTED_MAX: usize = 64;
/// Among more brings the widest are taken one after the other: few enough, if not always the fewest.
const EXACT_MAX: usize = 16;

/// Which of `brings` are needed so that all `wanted` bits are brought: the fewest, and of those the ones that come
/// first. Empty where they cannot be brought.
pub(super) fn fewest(wanted: u64, brings: &[u64]) -> Vec<usize> {
    let mut useful: Vec<usize> = Vec::new();
    for (at, bits) in brings.iter().enumerate() {
        let bits = bits & wanted;
        let is_less = |other: &usize| bits & !brings[*other] == 0;
        if bits != 0 && !useful.iter().any(is_less) {
            useful.retain(|other| brings[*other] & wanted & !bits != 0);
            useful.push(at);
        }
    }
    let mut chosen = Vec::new();
    match useful.len() > EXACT_MAX {
        true => widest(wanted, brings, &useful),
        false => (1..=useful.len())
            .find(|most| exact(wanted, brings, &useful, *most, &mut chosen))
            .map_or_else(Vec::new, |_| chosen),
    }
}

/// Whether at most so many of `useful` bring it; those are `chosen`.
fn exact(wanted: u64, brings: &[u64], useful: &[usize], most: usize, chosen: &mut Vec<usize>) -> bool {
    if wanted == 0 {
        return true;
    }
    let first = wanted & wanted.wrapping_neg();
    most > 0
        && useful.iter().filter(|at| brings[**at] & first != 0).any(|at| {
            chosen.push(*at);
            let is_all = exact(wanted & !brings[*at], brings, useful, most - 1, chosen);
            if !is_all {
                chosen.pop();
            }
            is_all
        })
}

fn widest(mut wanted: u64, brings: &[u64], useful: &[usize]) -> Vec<usize> {
    let mut chosen = Vec::new();
    while wanted != 0 {
        let gain = |at: &usize| (brings[*at] & wanted).count_ones();
        let Some(best) = useful.iter().copied().rev().max_by_key(gain).filter(|at| gain(at) > 0) else {
            return Vec::new();
        };
        wanted &= !brings[best];
        chosen.push(best);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every choice, the smallest first.
    fn tried(wanted: u64, brings: &[u64]) -> usize {
        let all = 0..1u32 << brings.len();
        let brought =
            |choice: &u32| (0..brings.len()).filter(|at| choice >> at & 1 == 1).fold(0, |it, at| it | brings[at]);
        all.filter(|choice| brought(choice) & wanted == wanted).map(|choice| choice.count_ones()).min().unwrap_or(0)
            as usize
    }

    #[test]
    fn no_choice_is_smaller() {
        let mut random = 88172645463325252u64;
        let mut next = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 20) % below
        };
        for _ in 0..2000 {
            let brings: Vec<u64> = (0..next(9)).map(|_| next(64) & next(64)).collect();
            let wanted = next(64);
            let chosen = fewest(wanted, &brings);
            assert_eq!(chosen.len(), tried(wanted, &brings), "{wanted:b} of {brings:?}: {chosen:?}");
            let all = chosen.iter().fold(0, |it, at| it | brings[*at]);
            assert!(chosen.is_empty() || all & wanted == wanted);
        }
    }

    #[test]
    fn the_first_of_those_that_bring_the_same_is_taken() {
        assert_eq!(fewest(0b11, &[0b01, 0b11, 0b11]), [1]);
        assert_eq!(fewest(0b11, &[0b01, 0b10]), [0, 1]);
        assert!(fewest(0b11, &[0b01]).is_empty());
    }

    #[test]
    fn many_are_brought_as_well() {
        let brings: Vec<u64> = (0..64).map(|at| 1 << at).collect();
        assert_eq!(fewest(u64::MAX, &brings).len(), 64);
        let wide = [brings, vec![u64::MAX >> 1, 1 << 63]].concat();
        assert_eq!(fewest(u64::MAX, &wide).len(), 2);
    }
}
