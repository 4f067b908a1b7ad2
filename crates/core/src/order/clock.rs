//! A clock: the last known position of each chain. As a set of points it is closed downwards.
//!
//! Depends on chains and positions only. The simple version is a map from chain to position. Here it is an array of
//! [`SMALL`] positions while it knows no chain beyond those (few programs have more: no search, no branch), a sorted
//! list while it is short (synchronisation is local), and an array indexed by chain above [`SPARSE_ENTRIES_MAX`]
//! entries. All three are hidden behind [`Clock::seen`] and [`Clock::join`].

use smallvec::SmallVec;

use crate::ids::{ChainIndex, Point, Seq};

/// Above this many entries a clock becomes an array indexed by chain.
pub const SPARSE_ENTRIES_MAX: usize = 32;

/// A clock starts as an array, and stays one while all chains that it knows have an index below this.
const SMALL: usize = 8;

/// For each chain, the last position known; 0 for an unknown chain.
#[derive(Clone, Debug)]
pub struct Clock {
    form: Form,
}

#[derive(Debug)]
enum Form {
    /// Indexed by chain.
    Small([Seq; SMALL]),
    /// Sorted by chain, no position 0.
    Sparse(SmallVec<[(ChainIndex, Seq); 4]>),
    /// Indexed by chain.
    Dense(Vec<Seq>),
}

impl Clone for Form {
    fn clone(&self) -> Self {
        match self {
            Form::Small(positions) => Form::Small(*positions),
            // Copies the bytes at once; the derived clone copies entry by entry.
            Form::Sparse(entries) => Form::Sparse(SmallVec::from_slice(entries)),
            Form::Dense(positions) => Form::Dense(positions.clone()),
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self { form: Form::Small([0; SMALL]) }
    }
}

impl Clock {
    /// Returns the last known position of `chain`.
    #[inline]
    pub fn seen(&self, chain: ChainIndex) -> Seq {
        match &self.form {
            Form::Small(positions) => positions.get(chain.index()).copied().unwrap_or(0),
            Form::Sparse(entries) if entries.len() <= 8 => {
                entries.iter().find(|entry| entry.0 == chain).map_or(0, |entry| entry.1)
            }
            Form::Sparse(entries) => entries.binary_search_by_key(&chain, |entry| entry.0).map_or(0, |i| entries[i].1),
            Form::Dense(positions) => positions.get(chain.index()).copied().unwrap_or(0),
        }
    }

    /// Returns `true` if the clock covers `point`.
    #[inline]
    pub fn covers(&self, point: Point) -> bool {
        self.seen(point.chain) >= point.seq
    }

    /// Learns `point` and, since clocks are closed downwards, everything before it on its chain.
    pub fn raise(&mut self, point: Point) {
        match &mut self.form {
            _ if point.seq == 0 => {}
            Form::Small(positions) => match positions.get_mut(point.chain.index()) {
                Some(known) => *known = (*known).max(point.seq),
                None => {
                    self.form = Form::Sparse(self.entries().collect());
                    self.raise(point);
                }
            },
            Form::Sparse(entries) => {
                let i = entries.iter().position(|entry| entry.0 >= point.chain).unwrap_or(entries.len());
                match entries.get_mut(i) {
                    Some(entry) if entry.0 == point.chain => entry.1 = entry.1.max(point.seq),
                    _ => {
                        entries.insert(i, (point.chain, point.seq));
                        self.densify_if_long();
                    }
                }
            }
            Form::Dense(positions) => {
                if positions.len() <= point.chain.index() {
                    positions.resize(point.chain.index() + 1, 0);
                }
                let known = &mut positions[point.chain.index()];
                *known = (*known).max(point.seq);
            }
        }
    }

    /// Learns everything that `other` knows.
    pub fn join(&mut self, other: &Clock) {
        match (&mut self.form, &other.form) {
            (Form::Small(mine), Form::Small(theirs)) => {
                for (mine, theirs) in mine.iter_mut().zip(theirs) {
                    *mine = (*mine).max(*theirs);
                }
            }
            (Form::Sparse(mine), Form::Sparse(theirs)) => {
                join_sorted(mine, theirs);
                self.densify_if_long();
            }
            (Form::Dense(mine), Form::Dense(theirs)) => {
                if mine.len() < theirs.len() {
                    mine.resize(theirs.len(), 0);
                }
                for (mine, theirs) in mine.iter_mut().zip(theirs) {
                    *mine = (*mine).max(*theirs);
                }
            }
            _ => other.points().for_each(|point| self.raise(point)),
        }
    }

    /// Drops the entries for which `is_known_anyway` holds, and goes back to a smaller form if the rest fits.
    pub fn prune(&mut self, is_known_anyway: impl Fn(Point) -> bool) {
        if let Form::Small(positions) = &mut self.form {
            for (i, seq) in positions.iter_mut().enumerate() {
                if is_known_anyway(Point { chain: ChainIndex(i as u32), seq: *seq }) {
                    *seq = 0;
                }
            }
            return;
        }
        let kept = |entry: &(ChainIndex, Seq)| !is_known_anyway(Point { chain: entry.0, seq: entry.1 });
        let kept: SmallVec<[(ChainIndex, Seq); 4]> = self.entries().filter(kept).collect();
        *self = Self::default();
        if kept.last().is_some_and(|last| last.0.index() >= SMALL) {
            self.form = Form::Sparse(kept);
            self.densify_if_long();
        } else {
            kept.iter().for_each(|&(chain, seq)| self.raise(Point { chain, seq }));
        }
    }

    /// Returns the last known point of each chain.
    pub fn points(&self) -> impl Iterator<Item = Point> + '_ {
        self.entries().map(|(chain, seq)| Point { chain, seq })
    }

    /// The entries, ordered by chain.
    fn entries(&self) -> impl Iterator<Item = (ChainIndex, Seq)> + '_ {
        let (sparse, dense): (&[(ChainIndex, Seq)], &[Seq]) = match &self.form {
            Form::Small(positions) => (&[], positions),
            Form::Sparse(entries) => (entries, &[]),
            Form::Dense(positions) => (&[], positions),
        };
        let dense = dense.iter().enumerate().map(|(i, seq)| (ChainIndex(i as u32), *seq));
        sparse.iter().copied().chain(dense).filter(|entry| entry.1 > 0)
    }

    /// Returns `true` if the clock knows nothing.
    pub fn is_empty(&self) -> bool {
        self.points().next().is_none()
    }

    fn densify_if_long(&mut self) {
        if let Form::Sparse(entries) = &self.form
            && entries.len() > SPARSE_ENTRIES_MAX
        {
            let mut positions = vec![0; entries.last().map_or(0, |entry| entry.0.index() + 1)];
            for (chain, seq) in entries {
                positions[chain.index()] = *seq;
            }
            self.form = Form::Dense(positions);
        }
    }
}

/// Merges two sorted lists, keeping the later position of each chain.
fn join_sorted(mine: &mut SmallVec<[(ChainIndex, Seq); 4]>, theirs: &[(ChainIndex, Seq)]) {
    let mut i = 0;
    for &(chain, seq) in theirs {
        while i < mine.len() && mine[i].0 < chain {
            i += 1;
        }
        if i < mine.len() && mine[i].0 == chain {
            mine[i].1 = mine[i].1.max(seq);
        } else {
            mine.insert(i, (chain, seq));
        }
        i += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn clock(entries: &BTreeMap<u32, u64>) -> Clock {
        let mut clock = Clock::default();
        for (chain, seq) in entries {
            clock.raise(Point { chain: ChainIndex(*chain), seq: *seq });
        }
        clock
    }

    /// Clocks of few chains (small), of some of many (sparse), of most of many (dense).
    fn entries() -> impl Strategy<Value = BTreeMap<u32, u64>> {
        prop::sample::select(vec![SMALL as u32, SMALL as u32 + 1, 100])
            .prop_flat_map(|chains| prop::collection::btree_map(0..chains, 1u64..50, 0..80.min(chains as usize)))
    }

    proptest! {
        #[test]
        fn agrees_with_a_map(
            a in entries(),
            b in entries(),
            cut in 0u64..50,
        ) {
            let mut joined = clock(&a);
            joined.join(&clock(&b));
            let mut expected = a.clone();
            for (chain, seq) in &b {
                let known = expected.entry(*chain).or_insert(0);
                *known = (*known).max(*seq);
            }
            for chain in 0..100 {
                prop_assert_eq!(joined.seen(ChainIndex(chain)), expected.get(&chain).copied().unwrap_or(0));
            }
            prop_assert_eq!(joined.is_empty(), expected.is_empty());
            joined.prune(|point| point.seq <= cut);
            expected.retain(|_, seq| *seq > cut);
            prop_assert_eq!(joined.points().count(), expected.len());
            for chain in 0..100 {
                prop_assert_eq!(joined.seen(ChainIndex(chain)), expected.get(&chain).copied().unwrap_or(0));
            }
        }
    }
}
