//! The naive order: a clock is a list of numbers, one for each stream that there ever was.
//!
//! It knows nothing of the library's own clocks, which share slots, drop what is settled and compare by versions. Here
//! nothing is ever dropped and everything is compared in full.

/// A place on a stream: the `seq`-th thing that the program did there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Point {
    /// The stream, by its number among all streams of the program.
    pub chain: usize,
    /// From 1 on.
    pub seq: u64,
}

/// How much of each stream a party comes after.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Clock(Vec<u64>);

impl Clock {
    /// How much of one stream.
    pub fn at(&self, chain: usize) -> u64 {
        self.0.get(chain).copied().unwrap_or(0)
    }

    /// Comes after everything that `other` comes after, too.
    pub fn join(&mut self, other: &Clock) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(own, other)| *own = (*own).max(*other));
    }

    /// One more thing is done on a stream: its place there.
    pub fn step(&mut self, chain: usize) -> Point {
        if self.0.len() <= chain {
            self.0.resize(chain + 1, 0);
        }
        self.0[chain] += 1;
        Point { chain, seq: self.0[chain] }
    }

    /// Comes after nothing of one stream.
    pub fn forget(&mut self, chain: usize) {
        self.0.iter_mut().skip(chain).take(1).for_each(|seq| *seq = 0);
    }

    /// Whether the point comes before.
    pub fn covers(&self, point: Point) -> bool {
        self.at(point.chain) >= point.seq
    }
}
