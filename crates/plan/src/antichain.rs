//! The exact weight of the heaviest clique, if conflicts come from an order.
//!
//! "`i`'s free comes before `j`'s allocation" is a strict partial order, so buffers that all conflict are an antichain.
//! The heaviest antichain is easy to find. By the weighted form of Dilworth's theorem it has the same weight as the
//! lightest cover by chains. That weight is the sum of all bytes minus the maximum flow from earlier buffers to later
//! ones, where each buffer sends at most its own bytes and receives at most its own bytes.
//!
//! The simple form: send greedily, then augment along shortest paths until there is none. One departure: the arcs of
//! the order are rows of bits, so a breadth-first step visits only unseen buffers, a word at a time.
//!
//! Invariant **flow**: no buffer sends or receives more than its bytes. Every state therefore gives a valid *upper*
//! bound of the antichain, and only the last state gives its weight. This module does not know plans.

use millpond_core::plan::bits::{self, Matrix};

/// Returns the weight of the heaviest antichain of `part` under the strict partial order `before`, in bytes.
pub(crate) fn heaviest(bytes: impl Fn(u32) -> u64, part: &[u32], before: &Matrix) -> u64 {
    let mut flow = Flow::new(bytes, part, before);
    for from in 0..part.len() {
        flow.hand_on(from);
    }
    while flow.augment() {}
    // All bytes minus the flow: the bytes that were never sent.
    flow.give.iter().sum()
}

/// A flow from each buffer to later buffers. Buffers are positions in the part.
struct Flow {
    /// The bytes that each buffer can still send.
    give: Vec<u64>,
    /// The bytes that each buffer can still receive.
    take: Vec<u64>,
    /// The bytes that each buffer received, by sender.
    taken: Vec<Vec<(u32, u64)>>,
    /// Row `i` has the buffers that come after `i`.
    after: Matrix,
}

impl Flow {
    fn new(bytes: impl Fn(u32) -> u64, part: &[u32], before: &Matrix) -> Self {
        let give: Vec<u64> = part.iter().map(|&i| bytes(i)).collect();
        let mut after = Matrix::zero(part.len());
        for (from, &i) in part.iter().enumerate() {
            for (to, _) in part.iter().enumerate().filter(|&(_, &j)| bits::has(before.row(i as usize), j as usize)) {
                after.put(from, to);
            }
        }
        Self { take: give.clone(), taken: vec![Vec::new(); part.len()], give, after }
    }

    /// Moves `bytes` along the arc from `from` to `to`.
    fn send(&mut self, from: usize, to: usize, bytes: u64) {
        match self.taken[to].iter_mut().find(|(i, _)| *i as usize == from) {
            Some((_, sent)) => *sent += bytes,
            None => self.taken[to].push((from as u32, bytes)),
        }
    }

    /// Takes `bytes` back from the arc from `from` to `to`, which carries at least that many.
    fn recall(&mut self, from: usize, to: usize, bytes: u64) {
        let at = self.taken[to].iter().position(|&(i, _)| i as usize == from).expect("the path follows flow");
        self.taken[to][at].1 -= bytes;
        if self.taken[to][at].1 == 0 {
            self.taken[to].swap_remove(at);
        }
    }

    /// Sends as much as possible from `from` to the buffers after it.
    fn hand_on(&mut self, from: usize) {
        let after: Vec<usize> = bits::ones(self.after.row(from)).collect();
        for to in after {
            let bytes = self.give[from].min(self.take[to]);
            if bytes > 0 {
                self.give[from] -= bytes;
                self.take[to] -= bytes;
                self.send(from, to, bytes);
            }
        }
    }

    /// Augments the flow along one path, from a buffer that can still send to one that can still receive. Returns
    /// `true` if there was such a path.
    fn augment(&mut self) -> bool {
        let n = self.give.len();
        // The sender to each receiver on the way, and for each sender reached by taking flow back, the receiver.
        let mut giver_of = vec![u32::MAX; n];
        let mut taker_of = vec![u32::MAX; n];
        let mut front: Vec<usize> = (0..n).filter(|&i| self.give[i] > 0).collect();
        let mut reached: Vec<bool> = self.give.iter().map(|&bytes| bytes > 0).collect();
        let mut unseen = bits::full(n);
        let mut at = 0;
        while at < front.len() {
            let from = front[at];
            at += 1;
            let mut fresh = unseen.clone();
            bits::keep(&mut fresh, self.after.row(from));
            for to in bits::ones(&fresh) {
                giver_of[to] = from as u32;
                if self.take[to] > 0 {
                    self.push(to, &giver_of, &taker_of);
                    return true;
                }
                for &(giver, _) in &self.taken[to] {
                    let giver = giver as usize;
                    if !reached[giver] {
                        reached[giver] = true;
                        taker_of[giver] = to as u32;
                        front.push(giver);
                    }
                }
            }
            unseen.iter_mut().zip(&fresh).for_each(|(word, fresh)| *word &= !fresh);
        }
        false
    }

    /// Sends as much as the path that ends at `last` can carry.
    fn push(&mut self, last: usize, giver_of: &[u32], taker_of: &[u32]) {
        let mut path = Vec::new();
        let mut to = last;
        let first = loop {
            let from = giver_of[to] as usize;
            path.push((from, to));
            match taker_of[from] {
                u32::MAX => break from,
                taker => to = taker as usize,
            }
        };
        let mut bytes = self.take[last].min(self.give[first]);
        for pair in path.windows(2) {
            let (giver, taker) = (pair[0].0, pair[1].1);
            let carried = self.taken[taker].iter().find(|&&(i, _)| i as usize == giver);
            bytes = bytes.min(carried.expect("the path follows flow").1);
        }
        for pair in path.windows(2) {
            self.recall(pair[0].0, pair[1].1, bytes);
        }
        for &(from, to) in &path {
            self.send(from, to, bytes);
        }
        self.give[first] -= bytes;
        self.take[last] -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heaviest_antichain_of_a_small_order() {
        // 0 before 1 and 2, both before 3; 4 stands alone.
        let pairs = [(0, 1), (0, 2), (0, 3), (1, 3), (2, 3)];
        let mut before = Matrix::zero(5);
        pairs.iter().for_each(|&(i, j)| before.put(i, j));
        let part: Vec<u32> = (0..5).collect();
        let weigh = |bytes: [u64; 5]| heaviest(|i| bytes[i as usize], &part, &before);
        assert_eq!(weigh([1, 1, 1, 1, 1]), 3);
        assert_eq!(weigh([9, 1, 1, 1, 1]), 10);
        assert_eq!(weigh([9, 5, 5, 11, 2]), 13);
    }

    #[test]
    fn flow_is_taken_back_where_that_helps() {
        // Greedy sends from 0 to 2; the best cover pairs 0 with 3 and 1 with 2.
        let mut before = Matrix::zero(4);
        [(0, 2), (0, 3), (1, 2)].iter().for_each(|&(i, j)| before.put(i, j));
        assert_eq!(heaviest(|_| 4, &[0, 1, 2, 3], &before), 8);
    }
}
