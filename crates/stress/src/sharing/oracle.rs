//! Who comes after what, beside the library.
//!
//! It is naive on purpose. Where several threads use a stream at once it knows less than the library does, never more:
//! it takes down what a call did after the call, and what a call may rely on before it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use millpond_reach::{Past, Point};

use super::party::Party;
use crate::finding::{finding, lock};
use crate::ground::{Before, Done};
use crate::maker::Tie;

/// What the program knows of one stream.
#[derive(Debug)]
pub(super) struct Line {
    /// Its number among all streams of the program.
    pub(super) chain: usize,
    /// Whether it is of this process.
    pub(super) is_here: bool,
    /// How it stands to the legacy default stream.
    pub(super) tie: Tie,
    /// What its next operation comes after.
    pub(super) past: Mutex<Past>,
    /// Of the legacy default stream: what blocking streams come after.
    pub(super) published: Mutex<Past>,
    /// Whether other threads use it.
    pub(super) is_unsure: AtomicBool,
    /// Whether anything was ever done on it: what only its opener knew, the legacy default stream does not come after.
    pub(super) has_worked: AtomicBool,
    pending: Mutex<VecDeque<(u64, Done)>>,
}

/// One use of a buffer.
#[derive(Clone, Debug)]
pub(super) struct Use {
    /// Where.
    pub(super) point: Point,
    /// Whether it wrote.
    pub(super) writes: bool,
    /// Whether it only ended a hold: nothing but a free must come after it.
    pub(super) frees: bool,
    /// The other process that did it.
    pub(super) party: Option<Arc<Party>>,
    /// Set when it has run; none for what has no kernel to say so.
    pub(super) done: Option<Done>,
}

/// All streams of a program, those of other processes, too.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    lines: Mutex<Vec<Arc<Line>>>,
}

impl Line {
    /// Something was done on it, by a kernel that says when it has run.
    pub(super) fn step(&self, done: Option<&Done>) -> Point {
        let mut past = lock(&self.past);
        let point = past.step(self.chain);
        if let Some(done) = done {
            lock(&self.pending).push_back((point.seq, Arc::clone(done)));
        }
        point
    }

    /// What its next operation comes after.
    pub(super) fn now(&self) -> Past {
        lock(&self.past).clone()
    }

    /// Whether no other thread uses it.
    pub(super) fn is_sure(&self) -> bool {
        !self.is_unsure.load(Ordering::Relaxed)
    }
}

impl Oracle {
    /// A stream was opened, by a thread that knows so much.
    pub(super) fn open(&self, is_here: bool, tie: Tie, knows: Past) -> Arc<Line> {
        let mut lines = lock(&self.lines);
        let line = Arc::new(Line {
            chain: lines.len(),
            is_here,
            tie,
            past: Mutex::new(knows),
            published: Mutex::default(),
            is_unsure: AtomicBool::new(false),
            has_worked: AtomicBool::new(false),
            pending: Mutex::default(),
        });
        lines.push(Arc::clone(&line));
        line
    }

    /// The streams of this process, closed ones too.
    pub(super) fn lines(&self) -> Vec<Arc<Line>> {
        lock(&self.lines).iter().filter(|line| line.is_here).cloned().collect()
    }

    /// A thread knows that everything up to `past` has completed: it must be so.
    pub(super) fn check_over(&self, past: &Past, call: &str) {
        for line in lock(&self.lines).iter() {
            let mut pending = lock(&line.pending);
            while let Some((seq, done)) =
                pending.front().filter(|(seq, _)| past.covers(Point { chain: line.chain, seq: *seq }))
            {
                if !done.load(Ordering::Acquire) {
                    finding(&format!("{call} came back before kernel {seq} of stream s{} had run", line.chain));
                }
                pending.pop_front();
            }
        }
    }

    /// The kernels of what comes before, but for those that have run.
    pub(super) fn kernels(&self, past: &Past) -> Before {
        let mut kernels = Before::default();
        for line in lock(&self.lines).iter() {
            let comes_before = |seq: u64| past.covers(Point { chain: line.chain, seq });
            let pending = lock(&line.pending);
            pending.iter().filter(|(seq, _)| comes_before(*seq)).for_each(|(_, done)| kernels.add(done));
        }
        kernels
    }
}
