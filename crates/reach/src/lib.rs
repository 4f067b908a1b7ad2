//! Naive reachability: the past of an operation is a set of operations.
//!
//! An edge adds the set of its earlier end to that of its later end. Nothing is ever dropped, shared or summarised. The
//! library's order (`millpond_core::order`), its pool and random programs are compared with it. It uses none of them.
#![forbid(unsafe_code)]

use std::fmt;

/// An operation: number `seq` of a chain, from 1 on. A point with `seq` 0 comes before everything.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Point {
    /// The number of the chain: a stream, whose number is never reused.
    pub chain: usize,
    /// Its position in the chain.
    pub seq: u64,
}

/// The operations that come before something: one bit for each, by chain and position.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Past(Vec<Vec<u64>>);

impl Past {
    /// Adds an edge: all operations that come before `other` also come before this.
    pub fn join(&mut self, other: &Past) {
        if self.0.len() < other.0.len() {
            self.0.resize_with(other.0.len(), Vec::new);
        }
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            if own.len() < other.len() {
                own.resize(other.len(), 0);
            }
            own.iter_mut().zip(other).for_each(|(own, other)| *own |= other);
        }
    }

    /// Adds the next operation of the chain whose past this is. It comes after everything that is in the set, and is
    /// then in the set, too.
    pub fn step(&mut self, chain: usize) -> Point {
        if self.0.len() <= chain {
            self.0.resize_with(chain + 1, Vec::new);
        }
        let own = &mut self.0[chain];
        let before: u32 = own.iter().map(|bits| bits.count_ones()).sum();
        let (word, bit) = (before as usize / 64, before % 64);
        if own.len() <= word {
            own.push(0);
        }
        own[word] |= 1 << bit;
        Point { chain, seq: u64::from(before) + 1 }
    }

    /// Removes the operations of a chain.
    pub fn forget(&mut self, chain: usize) {
        self.0.iter_mut().skip(chain).take(1).for_each(Vec::clear);
    }

    /// Returns `true` if an operation is in the set.
    pub fn covers(&self, point: Point) -> bool {
        let Some(at) = point.seq.checked_sub(1) else { return true };
        let word = self.0.get(point.chain).and_then(|bits| bits.get(at as usize / 64));
        word.is_some_and(|bits| bits >> (at % 64) & 1 == 1)
    }
}

impl fmt::Debug for Past {
    /// Prints the number of operations of each chain.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |bits: &Vec<u64>| bits.iter().map(|bits| bits.count_ones()).sum::<u32>();
        f.debug_list().entries(self.0.iter().map(count)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_leads_to_all_before_its_earlier_end() {
        let [mut a, mut b, mut c] = [0; 3].map(|_| Past::default());
        let (first, second) = (a.step(0), a.step(0));
        b.join(&a);
        let third = b.step(7);
        let late = a.step(0);
        c.join(&b);
        assert!([first, second, third].iter().all(|point| c.covers(*point)));
        assert!(!c.covers(late) && !a.covers(third));
        assert_eq!((late.seq, third.seq), (3, 1));
        c.forget(0);
        assert!(!c.covers(first) && c.covers(third) && c.covers(Point { seq: 0, ..first }));
    }

    #[test]
    fn a_chain_may_be_long() {
        let mut past = Past::default();
        let points: Vec<Point> = (0..200).map(|_| past.step(1)).collect();
        assert!(points.iter().enumerate().all(|(at, point)| point.seq == at as u64 + 1 && past.covers(*point)));
        assert!(!past.covers(Point { chain: 1, seq: 201 }) && !past.covers(Point { chain: 2, seq: 1 }));
    }
}
