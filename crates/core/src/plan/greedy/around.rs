//! Finds the placed buffers that conflict with the next one, in ascending order of offset.
//!
//! The simple version, [`Scan`], keeps the placed buffers in that order and goes through them all. For a thousand
//! buffers nothing is faster. The other version, [`Stretches`], is for many buffers on a line: it finds the buffers
//! that meet a lifetime by their own lifetimes, and sorts only these. Those live at its first step are on a path of a
//! segment tree. Those born later, but before it ends, are a contiguous stretch of the order of births.
//!
//! Invariant **all of them**: both versions find every conflicting placed buffer, once. Buffers are positions in
//! their part.

use crate::plan::bits;
use crate::plan::conflicts::Lifetime;

/// The buffers placed so far.
pub(super) trait Around {
    /// Returns the begin and the end of each placed buffer that conflicts with `buffer`, in ascending order of the
    /// begin.
    fn find(&mut self, buffer: usize) -> &[(u64, u64)];

    /// Places `buffer` from `begin` to `end`.
    fn place(&mut self, buffer: usize, begin: u64, end: u64);
}

/// All placed buffers, in ascending order of their begin. `conflicting(a)(b)` returns `true` if `a` and `b` conflict;
/// the work that depends on `a` alone is done once.
pub(super) struct Scan<Conflicting> {
    conflicting: Conflicting,
    placed: Vec<(u64, u64, u32)>,
    found: Vec<(u64, u64)>,
}

impl<Conflicting> Scan<Conflicting> {
    /// Makes a list of no placed buffers out of `buffers`.
    pub(super) fn new(buffers: usize, conflicting: Conflicting) -> Self {
        Self { conflicting, placed: Vec::with_capacity(buffers), found: vec![(0, 0); buffers] }
    }
}

impl<Of: Fn(usize) -> bool, Conflicting: Fn(usize) -> Of> Around for Scan<Conflicting> {
    fn find(&mut self, buffer: usize) -> &[(u64, u64)] {
        let conflicts = (self.conflicting)(buffer);
        // A processor cannot predict whether two buffers conflict, so there is no branch on it.
        let mut found = 0;
        for &(begin, end, other) in &self.placed {
            self.found[found] = (begin, end);
            found += usize::from(conflicts(other as usize));
        }
        &self.found[..found]
    }

    fn place(&mut self, buffer: usize, begin: u64, end: u64) {
        let at = self.placed.partition_point(|&(other, ..)| other <= begin);
        self.placed.insert(at, (begin, end, buffer as u32));
    }
}

/// The placed buffers of many on a line.
pub(super) struct Stretches {
    lives: Vec<Lifetime>,
    /// The steps at which a buffer is born, ascending; the buffers in order of birth; and each one's index in that
    /// order.
    births: Vec<i64>,
    born: Vec<u32>,
    rank: Vec<u32>,
    /// The placed buffers, by rank.
    placed: Vec<u64>,
    /// A segment tree over `births`: each placed buffer is in the nodes that make up its lifetime, and in no two
    /// nodes of which one is above the other.
    nodes: Vec<Vec<u32>>,
    /// The begin and the end of each placed buffer.
    reach: Vec<(u64, u64)>,
    found: Vec<(u64, u64)>,
}

impl Stretches {
    /// Makes a set of these buffers in which none is placed.
    pub(super) fn new(lives: Vec<Lifetime>) -> Self {
        let n = lives.len();
        let mut born: Vec<u32> = (0..n as u32).collect();
        born.sort_by_key(|&i| lives[i as usize].lower);
        let mut rank = vec![0; n];
        born.iter().enumerate().for_each(|(at, &i)| rank[i as usize] = at as u32);
        let mut births: Vec<i64> = born.iter().map(|&i| lives[i as usize].lower).collect();
        births.dedup();
        let nodes = vec![Vec::new(); 2 * births.len()];
        let placed = vec![0; bits::words(n)];
        Self { lives, births, born, rank, placed, nodes, reach: vec![(0, 0); n], found: Vec::new() }
    }

    /// Returns the number of births before `step`.
    fn births_before(&self, step: i64) -> usize {
        self.births.partition_point(|&birth| birth < step)
    }
}

impl Around for Stretches {
    fn find(&mut self, buffer: usize) -> &[(u64, u64)] {
        let life = self.lives[buffer];
        self.found.clear();
        let mut node = self.births.len() + self.births_before(life.lower);
        while node > 0 {
            self.found.extend(self.nodes[node].iter().map(|&i| self.reach[i as usize]));
            node /= 2;
        }
        let born_before = |step: i64| self.born.partition_point(|&i| self.lives[i as usize].lower < step);
        let later = born_before(life.lower.saturating_add(1))..born_before(life.upper);
        let words = later.start / bits::WORD..bits::words(later.end);
        let placed = words
            .clone()
            .zip(&self.placed[words])
            .flat_map(|(word, &set)| bits::ones_of(set).map(move |bit| word * bits::WORD + bit));
        let (born, reach) = (&self.born, &self.reach);
        self.found.extend(placed.filter(|at| later.contains(at)).map(|at| reach[born[at] as usize]));
        self.found.sort_unstable();
        &self.found
    }

    fn place(&mut self, buffer: usize, begin: u64, end: u64) {
        let life = self.lives[buffer];
        self.reach[buffer] = (begin, end);
        bits::put(&mut self.placed, self.rank[buffer] as usize);
        let leaves = self.births.len();
        let (mut low, mut high) = (leaves + self.births_before(life.lower), leaves + self.births_before(life.upper));
        while low < high {
            if low % 2 == 1 {
                self.nodes[low].push(buffer as u32);
                low += 1;
            }
            if high % 2 == 1 {
                high -= 1;
                self.nodes[high].push(buffer as u32);
            }
            (low, high) = (low / 2, high / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_find_the_same() {
        let mut seed = 9u64;
        let mut below = |end: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % end
        };
        for n in [1, 2, 63, 65, 200] {
            let lives: Vec<Lifetime> = (0..n)
                .map(|_| (below(80) as i64 - 40, 1 + below(30) as i64))
                .map(|(lower, length)| Lifetime { lower, upper: lower + length })
                .collect();
            let mut stretches = Stretches::new(lives.clone());
            let mut scan = Scan::new(n, |i: usize| {
                let lives = &lives;
                move |j: usize| lives[i].meets(lives[j])
            });
            for buffer in 0..n {
                let mut expected = scan.find(buffer).to_vec();
                expected.sort_unstable();
                assert_eq!(stretches.find(buffer), expected);
                let begin = below(1000);
                let end = begin + 1 + below(100);
                stretches.place(buffer, begin, end);
                scan.place(buffer, begin, end);
            }
        }
    }

    #[test]
    fn lives_at_the_ends_of_time_are_found() {
        let life = |lower, upper| Lifetime { lower, upper };
        let mut stretches = Stretches::new(vec![life(i64::MIN, i64::MAX), life(i64::MAX - 1, i64::MAX), life(0, 1)]);
        stretches.place(0, 0, 5);
        stretches.place(2, 5, 6);
        assert_eq!(stretches.find(1), [(0, 5)]);
        stretches.place(1, 5, 9);
        assert_eq!(stretches.find(0), [(0, 5), (5, 6), (5, 9)]);
    }
}
