//! The order of a random program, by plain vector clocks: one entry a stream, copied whole at every point.

use millpond_core::ids::{Point, Seq, Slot};
use millpond_core::order::{Completed, Knows, Learns};
use millpond_core::pool::Frontier;

/// What one stream knows: for each stream, the last point that comes before its next.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    pub(crate) slot: u32,
    pub(crate) known: Vec<u64>,
    learned: Seq,
}

impl Learns for Clock {
    fn learned(&self) -> Seq {
        self.learned
    }
}

impl Knows for Clock {
    fn slot(&self) -> Slot {
        Slot(self.slot)
    }

    fn covers(&self, point: Point) -> bool {
        self.known[point.slot.index()] >= point.seq
    }
}

/// How far the device is on each stream.
#[derive(Clone, Debug)]
pub(crate) struct Over(pub(crate) Vec<u64>);

impl Completed for Over {
    fn is_over(&self, point: Point) -> bool {
        self.0[point.slot.index()] >= point.seq
    }
}

/// All streams, what each knew at each of its points, and what is over.
pub(crate) struct Order {
    pub(crate) clocks: Vec<Clock>,
    history: Vec<Vec<Clock>>,
    pub(crate) over: Over,
}

impl Order {
    pub(crate) fn new(streams: u32) -> Self {
        let clock = |slot| Clock { slot, known: vec![0; streams as usize], learned: 0 };
        let clocks: Vec<Clock> = (0..streams).map(clock).collect();
        let history = clocks.iter().map(|clock| vec![clock.clone()]).collect();
        Self { clocks, history, over: Over(vec![0; streams as usize]) }
    }

    /// One operation of a stream.
    pub(crate) fn step(&mut self, stream: usize) -> Point {
        let clock = &mut self.clocks[stream];
        clock.known[stream] += 1;
        self.history[stream].push(clock.clone());
        Point { slot: Slot(stream as u32), seq: clock.known[stream] }
    }

    /// `stream` waits for a point of any stream.
    pub(crate) fn wait(&mut self, stream: usize, point: Point) {
        let then = self.history[point.slot.index()][point.seq as usize].known.clone();
        for (known, then) in self.clocks[stream].known.iter_mut().zip(then) {
            *known = (*known).max(then);
        }
        self.clocks[stream].learned = self.step(stream).seq;
    }

    pub(crate) fn last(&self, stream: usize) -> Point {
        Point { slot: Slot(stream as u32), seq: self.clocks[stream].known[stream] }
    }

    /// The device gets past `point`, and so past all that comes before it.
    pub(crate) fn complete(&mut self, point: Point) {
        let then = &self.history[point.slot.index()][point.seq as usize];
        for (over, &then) in self.over.0.iter_mut().zip(&then.known) {
            *over = (*over).max(then);
        }
    }

    pub(crate) fn complete_all(&mut self) {
        for stream in 0..self.clocks.len() {
            self.complete(self.last(stream));
        }
    }

    /// Whether `stream`, after waiting for `after`, may use what is free after `free`.
    pub(crate) fn allows(&self, stream: usize, after: &Frontier, free: &Frontier) -> bool {
        free.points().all(|point| {
            let named = |wait: &Point| {
                self.history[wait.slot.index()][wait.seq as usize].known[point.slot.index()] >= point.seq
            };
            self.clocks[stream].covers(point) || self.over.is_over(point) || after.points().any(|wait| named(&wait))
        })
    }
}
