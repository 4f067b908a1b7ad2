//! The chain indices in use: dense, recycled, never confused.
//!
//! Depends on points only. The index of a closed chain is used again in two cases: the host that opens the next chain
//! covers all points of the closed one, or the owner of the new chain puts it after them. So the next chain really
//! comes after them, and its positions go on counting. A point names one operation for ever, and no table keyed by
//! chain grows with the number of streams ever created. Whether an index is ready depends on the program's own calls
//! alone, never on timing.
//!
//! Devices of one process may order each other's work, so their points must never look alike: they take fresh indices
//! from one [`Numbers`].

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::next_op;
use crate::ids::{ChainIndex, Point, Seq};

/// The number of closed chains to look at before a fresh index is taken. Those that were not usable move to the back,
/// so that chains that no host ever learns of do not hide the others.
const LOOK: usize = 8;

/// The source of fresh indices, shared by orders that may meet. A clone is the same source.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    shared: Arc<Mutex<Left>>,
}

#[derive(Debug, Default)]
struct Left {
    fresh: u32,
    /// Indices of orders that are gone, with the last position of each.
    retired: BTreeSet<(ChainIndex, Seq)>,
}

impl Numbers {
    fn lock(&self) -> MutexGuard<'_, Left> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> (ChainIndex, Seq) {
        let mut left = self.lock();
        // Start at the position of an operation, because operations are counted from there.
        left.retired.pop_first().map(|(chain, last)| (chain, next_op(last))).unwrap_or_else(|| {
            let chain = ChainIndex(left.fresh);
            left.fresh += 1;
            (chain, 0)
        })
    }
}

/// The chain indices of one order.
#[derive(Debug, Default)]
pub struct ChainIndices {
    numbers: Numbers,
    closed: VecDeque<Point>,
    /// The position at which each index began in this order.
    begun: HashMap<ChainIndex, Seq>,
}

impl ChainIndices {
    /// Makes the indices of an order that may meet the other orders that use `numbers`.
    pub fn beside(numbers: &Numbers) -> Self {
        Self { numbers: numbers.clone(), ..Self::default() }
    }

    /// Ends the order, whose chains are all closed. Others may take an index if `is_free` returns `true` for the last
    /// point of its chain: its points cannot be named any more, or all chains come after them.
    pub fn retire(&mut self, is_free: impl Fn(Point) -> bool) {
        let free = std::mem::take(&mut self.closed).into_iter().filter(|last| is_free(*last));
        self.numbers.lock().retired.extend(free.map(|last| (last.chain, last.seq)));
    }

    /// Returns an index for a new chain, and the position after which the chain goes on. `is_known` tells what the
    /// opening host knows.
    pub fn open(&mut self, is_known: impl Fn(Point) -> bool) -> (ChainIndex, Seq) {
        self.open_known(is_known).unwrap_or_else(|| self.open_fresh())
    }

    /// As [`open`](Self::open), but returns only an index that was used before.
    pub fn open_known(&mut self, is_known: impl Fn(Point) -> bool) -> Option<(ChainIndex, Seq)> {
        let looked = self.closed.iter().take(LOOK).take_while(|last| !is_known(**last)).count();
        self.closed.rotate_left(looked);
        self.closed.front().filter(|last| is_known(**last))?;
        self.closed.pop_front().map(|last| (last.chain, last.seq))
    }

    /// Returns an index that no chain of this order had.
    pub fn open_fresh(&mut self) -> (ChainIndex, Seq) {
        let (chain, seq) = self.numbers.take();
        self.begun.insert(chain, seq);
        (chain, seq)
    }

    /// Takes the index of the chain that ended at `last`, for a new chain that the caller puts after it. Returns
    /// `false` if the index is not available: a later chain has it, or had it.
    pub fn open_after(&mut self, last: Point) -> bool {
        let at = self.closed.iter().position(|closed| *closed == last);
        at.is_some_and(|at| self.closed.remove(at).is_some())
    }

    /// Returns the position after which this order's chains with this index began, or `None` if the index never was one
    /// of this order's. Earlier positions belong to another order.
    pub fn begin(&self, chain: ChainIndex) -> Option<Seq> {
        self.begun.get(&chain).copied()
    }

    /// Closes a chain that ended at `last`.
    pub fn close(&mut self, last: Point) {
        self.closed.push_back(last);
    }

    /// Returns the number of fresh indices taken so far, by all orders that share the source.
    pub fn len(&self) -> usize {
        self.numbers.lock().fresh as usize
    }

    /// Returns `true` if no fresh index was taken yet.
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
    fn a_chain_comes_after_the_very_last_point_that_its_index_had() {
        let mut indices = ChainIndices::default();
        let (chain, _) = indices.open(|_| true);
        let [first, second] = [5, 9].map(|seq| Point { chain, seq });
        indices.close(first);
        assert_eq!(indices.open(|_| true), (chain, first.seq), "the host knows its end");
        indices.close(second);
        assert!(!indices.open_after(first), "its owner knows nothing of the chain in between");
        assert!(indices.open_after(second) && !indices.open_after(second));
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
        assert_eq!((right.begin(a), right.begin(b), right.begin(c)), (Some(next_op(7)), Some(0), None));
        assert_ne!(right.open(|_| true).0, c, "whose points may still be named");
    }
}
