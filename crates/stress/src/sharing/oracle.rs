//! The order of operations, kept beside the library.
//!
//! It is naive on purpose. If several threads use a stream at once, it knows less than the library, never more: it
//! notes the effect of a call after the call, and what a call may rely on before the call.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use millpond_reach::{Past, Point};

use super::party::Party;
use crate::finding::{finding, lock};
use crate::ground::{Before, Done};
use crate::maker::Tie;

/// The program's knowledge of one stream.
#[derive(Debug)]
pub(super) struct Line {
    /// Its number among all streams of the program.
    pub(super) chain: usize,
    /// `true` if it is a stream of this process.
    pub(super) is_here: bool,
    /// Its relation to the legacy default stream.
    pub(super) tie: Tie,
    /// The operations that its next operation comes after.
    pub(super) past: Mutex<Past>,
    /// For the legacy default stream: the operations that blocking streams come after.
    pub(super) published: Mutex<Past>,
    /// `true` if other threads use it.
    pub(super) is_unsure: AtomicBool,
    /// Set by the first operation. Until then the legacy default stream does not come after what only its opener knew.
    pub(super) has_worked: AtomicBool,
    pending: Mutex<VecDeque<(u64, Done)>>,
}

/// One use of a buffer.
#[derive(Clone, Debug)]
pub(super) struct Use {
    /// The operation.
    pub(super) point: Point,
    /// `true` if it wrote.
    pub(super) writes: bool,
    /// `true` if it only returned a lease, so that only a free must come after it.
    pub(super) frees: bool,
    /// The process that did it, if it is not this one.
    pub(super) party: Option<Arc<Party>>,
    /// The flag that is set when it has run; `None` if no kernel sets it.
    pub(super) done: Option<Done>,
}

/// All streams of a program, including those of other processes.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    lines: Mutex<Vec<Arc<Line>>>,
}

impl Line {
    /// Adds an operation, with the flag of its kernel if it has one.
    pub(super) fn step(&self, done: Option<&Done>) -> Point {
        let mut past = lock(&self.past);
        let point = past.step(self.chain);
        if let Some(done) = done {
            lock(&self.pending).push_back((point.seq, Arc::clone(done)));
        }
        point
    }

    /// Returns what its next operation comes after.
    pub(super) fn now(&self) -> Past {
        lock(&self.past).clone()
    }

    /// Returns `true` if no other thread uses it.
    pub(super) fn is_sure(&self) -> bool {
        !self.is_unsure.load(Ordering::Relaxed)
    }
}

impl Oracle {
    /// Opens a stream by a thread with this knowledge.
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

    /// Returns the streams of this process, including closed ones.
    pub(super) fn lines(&self) -> Vec<Arc<Line>> {
        lock(&self.lines).iter().filter(|line| line.is_here).cloned().collect()
    }

    /// Checks that everything in `past` has completed, as a thread now knows.
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

    /// Returns the kernels in `past` that have not run.
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
