//! Another process, as far as verdicts of this one depend on it; parts of buffers, and what is done to them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::finding::lock;
use millpond_reach::{Past, Point};

/// Another process, as far as verdicts of this one depend on it.
#[derive(Debug, Default)]
pub struct Party {
    /// It was ended, or is about to be.
    pub is_gone: AtomicBool,
    /// What its host knows to have completed. Of memory that it was lent this process learns that.
    pub known: Mutex<Past>,
    /// What comes before some event of it that this process has imported.
    pub reached: Mutex<Past>,
}

impl Party {
    /// Whether it is ended.
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// Whether what it did there has completed for all: with memory that it was lent.
    pub fn is_over(&self, point: Point) -> bool {
        self.is_gone() || lock(&self.known).covers(point)
    }
}

/// Bytes that another process wrote, or a copy of them: it may be killed before.
#[derive(Clone, Debug)]
pub struct Doubt {
    /// Who.
    pub party: Arc<Party>,
    /// Where.
    pub point: Point,
}

impl Doubt {
    /// Whether the bytes may never have been written.
    pub fn is_true(&self) -> bool {
        self.party.is_gone() && !lock(&self.party.known).covers(self.point)
    }
}

/// Words of a buffer: those from `from` on, before `to`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// The first.
    pub from: usize,
    /// The first behind them.
    pub to: usize,
}

/// All words.
pub(crate) const ALL: Part = Part { from: 0, to: usize::MAX };

impl Part {
    /// Whether some words are of both.
    pub(crate) fn meets(self, other: Part) -> bool {
        self.from < other.to && other.from < self.to
    }

    /// Whether all of the other are in it.
    pub(crate) fn has(self, other: Part) -> bool {
        self.from <= other.from && other.to <= self.to
    }
}

/// What is about to be done to a life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    Read,
    Write,
    Free,
}
