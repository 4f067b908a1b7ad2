//! The order of a random program: for each stream, the set of operations that come before its next one.

use millpond_core::ids::{ChainIndex, Point, Seq};
use millpond_core::order::{Completed, Knows, Learns};
use millpond_core::pool::Frontier;
use millpond_reach::Past;

/// Returns a point as reachability names it.
fn named(point: Point) -> millpond_reach::Point {
    millpond_reach::Point { chain: point.chain.index(), seq: point.seq }
}

/// A stream, with everything that comes before its next operation.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    chain: u32,
    past: Past,
    learned: Seq,
}

impl Learns for Stream {
    fn learned(&self) -> Seq {
        self.learned
    }
}

impl Knows for Stream {
    fn chain(&self) -> ChainIndex {
        ChainIndex(self.chain)
    }

    fn covers(&self, point: Point) -> bool {
        self.past.covers(named(point))
    }
}

/// The work that the device has completed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Over(Past);

impl Completed for Over {
    fn is_over(&self, point: Point) -> bool {
        self.0.covers(named(point))
    }
}

/// All streams, each of their points with what came before it, and the completed work.
pub(crate) struct Order {
    pub(crate) streams: Vec<Stream>,
    history: Vec<Vec<Past>>,
    pub(crate) over: Over,
}

impl Order {
    pub(crate) fn new(streams: u32) -> Self {
        let stream = |chain| Stream { chain, past: Past::default(), learned: 0 };
        let history = vec![vec![Past::default()]; streams as usize];
        Self { streams: (0..streams).map(stream).collect(), history, over: Over::default() }
    }

    /// Makes one operation of a stream.
    pub(crate) fn step(&mut self, stream: usize) -> Point {
        let past = &mut self.streams[stream].past;
        let seq = past.step(stream).seq;
        self.history[stream].push(past.clone());
        Point { chain: ChainIndex(stream as u32), seq }
    }

    /// Returns a point and what comes before it.
    fn before(&self, point: Point) -> &Past {
        &self.history[point.chain.index()][point.seq as usize]
    }

    /// Makes `stream` wait for a point of any stream.
    pub(crate) fn wait(&mut self, stream: usize, point: Point) {
        let before = self.before(point).clone();
        self.streams[stream].past.join(&before);
        self.streams[stream].learned = self.step(stream).seq;
    }

    pub(crate) fn last(&self, stream: usize) -> Point {
        Point { chain: ChainIndex(stream as u32), seq: self.history[stream].len() as Seq - 1 }
    }

    /// Completes `point` on the device, and all that comes before it.
    pub(crate) fn complete(&mut self, point: Point) {
        let before = self.before(point).clone();
        self.over.0.join(&before);
    }

    pub(crate) fn complete_all(&mut self) {
        for stream in 0..self.streams.len() {
            self.complete(self.last(stream));
        }
    }

    /// Returns `true` if `stream`, after waiting for `after`, may use what is free after `free`.
    pub(crate) fn allows(&self, stream: usize, after: &Frontier, free: &Frontier) -> bool {
        free.points().all(|point| {
            let is_before = |wait: Point| self.before(wait).covers(named(point));
            self.streams[stream].covers(point) || self.over.is_over(point) || after.points().any(is_before)
        })
    }
}
