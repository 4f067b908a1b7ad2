//! Which chain numbers are in use: dense, recycled, never confused.
//!
//! Knows points only. A closed chain's number is given out again once the host that opens the next chain covers all
//! its points, or to a chain that its owner puts after them. The next chain then really comes after them, and its
//! positions go on counting: a point names one operation for ever, and no table keyed by chain grows with the number of
//! streams that ever lived. Whether a number is ready depends on the program's own calls alone, never on timing.
//!
//! Devices of one process may order each other, so that their points must never look alike: their indices take fresh
//! numbers from one [`Numbers`].

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::next_op;
use crate::ids::{ChainIndex, Point, Seq};

/// Closed chains looked at before a fresh number is taken. What was looked at in vain comes last the next time: chains
/// that no host ever learns of do not stand in front of the others.
const LOOK: usize = 8;

/// Where orders that may meet take fresh numbers from. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    shared: Arc<Mutex<Left>>,
}

#[derive(Debug, Default)]
struct Left {
    fresh: u32,
    /// Numbers of orders that are gone, and where their positions ended.
    retired: BTreeSet<(ChainIndex, Seq)>,
}

impl Numbers {
    fn lock(&self) -> MutexGuard<'_, Left> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> (ChainIndex, Seq) {
        let mut left = self.lock();
        // From an operation's position on: others count operations from there.
        left.retired.pop_first().map(|(chain, last)| (chain, next_op(last))).unwrap_or_else(|| {
            let chain = ChainIndex(left.fresh);
            left.fresh += 1;
            (chain, 0)
        })
    }
}

/// The numbers of the chains of one order.
#[derive(Debug, Default)]
pub struct ChainIndices {
    numbers: Numbers,
    closed: VecDeque<Point>,
    /// Where the positions of each number began in this order.
    begun: HashMap<ChainIndex, Seq>,
}

impl ChainIndices {
    /// For an order that may meet others which take their numbers from there.
    pub fn beside(numbers: &Numbers) -> Self {
        Self { numbers: numbers.clone(), ..Self::default() }
    }

    /// The order is gone, and all its chains are closed: others may have the numbers of those whose points cannot be
    /// named any more, or that all chains come after, which `is_free` says of a chain's last point.
    pub fn retire(&mut self, is_free: impl Fn(Point) -> bool) {
        let free = std::mem::take(&mut self.closed).into_iter().filter(|last| is_free(*last));
        self.numbers.lock().retired.extend(free.map(|last| (last.chain, last.seq)));
    }

    /// A number for a new chain, and the position after which it goes on. `is_known` is what the opening host knows.
    pub fn open(&mut self, is_known: impl Fn(Point) -> bool) -> (ChainIndex, Seq) {
        self.open_known(is_known).unwrap_or_else(|| self.open_fresh())
    }

    /// As [`open`](Self::open), where there is a number that was given before.
    pub fn open_known(&mut self, is_known: impl Fn(Point) -> bool) -> Option<(ChainIndex, Seq)> {
        let looked = self.closed.iter().take(LOOK).take_while(|last| !is_known(**last)).count();
        self.closed.rotate_left(looked);
        self.closed.front().filter(|last| is_known(**last))?;
        self.closed.pop_front().map(|last| (last.chain, last.seq))
    }

    /// A number that no chain of this order had.
    pub fn open_fresh(&mut self) -> (ChainIndex, Seq) {
        let (chain, seq) = self.numbers.take();
        self.begun.insert(chain, seq);
        (chain, seq)
    }

    /// The number of a closed chain, for a chain that comes after all its points: the position after which it goes on.
    /// None where the number is not to be had.
    pub fn open_after(&mut self, chain: ChainIndex) -> Option<Seq> {
        let at = self.closed.iter().position(|last| last.chain == chain)?;
        self.closed.remove(at).map(|last| last.seq)
    }

    /// The position after which this order's chains on a number go on: what lies before is another order's.
    pub fn begin(&self, chain: ChainIndex) -> Seq {
        self.begun.get(&chain).copied().unwrap_or(0)
    }

    /// Whether a number is, or was, one of this order's.
    pub fn has(&self, chain: ChainIndex) -> bool {
        self.begun.contains_key(&chain)
    }

    /// A chain ended at `last`.
    pub fn close(&mut self, last: Point) {
        self.closed.push_back(last);
    }

    /// How many numbers were ever needed at once, by all orders that share them.
    pub fn len(&self) -> usize {
        self.numbers.lock().fresh as usize
    }

    /// Whether no chain was ever opened.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_that_nobody_hears_of_do_not_keep_others_from_their_numbers() {
        let mut chain_indices = ChainIndices::default();
        let forgotten: Vec<ChainIndex> = (0..100).map(|_| chain_indices.open(|_| false).0).collect();
        forgotten.iter().for_each(|chain| chain_indices.close(Point { chain: *chain, seq: 1 }));
        for seq in 1..10_000 {
            let (chain, _) = chain_indices.open(|last| !forgotten.contains(&last.chain));
            chain_indices.close(Point { chain, seq });
        }
        assert!(chain_indices.len() < 130, "{} numbers for 100 chains that are forgotten and one", chain_indices.len());
    }

    #[test]
    fn orders_that_may_meet_share_no_number_until_one_is_gone() {
        let numbers = Numbers::default();
        let (mut left, mut right) = (ChainIndices::beside(&numbers), ChainIndices::beside(&numbers));
        let (a, b) = (left.open(|_| true).0, right.open(|_| true).0);
        assert_ne!(a, b);
        left.close(Point { chain: a, seq: 7 });
        assert_ne!(right.open(|_| true).0, a, "whose points are another order's");
        let c = left.open(|_| false).0;
        left.close(Point { chain: c, seq: 9 });
        left.retire(|last| last.chain == a);
        assert_eq!(right.open(|_| true), (a, next_op(7)), "positions go on");
        assert_eq!((right.begin(a), right.begin(b)), (next_op(7), 0));
        assert_ne!(right.open(|_| true).0, c, "whose points may still be named");
    }
}
