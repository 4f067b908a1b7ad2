//! Another process, as far as verdicts of this one depend on it; what is done to memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use millpond_reach::{Past, Point};

use crate::finding::lock;

/// Another process, as far as verdicts of this one depend on it.
#[derive(Debug, Default)]
pub(super) struct Party {
    /// It was ended, or is about to be.
    pub(super) is_gone: AtomicBool,
    /// What its host knows to have completed. Of memory that it was lent this process learns that.
    pub(super) known: Mutex<Past>,
    /// What comes before some event of it that this process has imported.
    pub(super) reached: Mutex<Past>,
}

impl Party {
    /// Whether it is ended.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// Whether what it did there has completed for all: with memory that it was lent.
    pub(super) fn is_over(&self, point: Point) -> bool {
        self.is_gone() || lock(&self.known).covers(point)
    }
}

/// Bytes that another process wrote, or a copy of them: it may be killed before.
#[derive(Clone, Debug)]
pub(crate) struct Doubt {
    /// Who.
    pub(super) party: Arc<Party>,
    /// Where.
    pub(super) point: Point,
}

impl Doubt {
    /// Whether the bytes may never have been written.
    pub(crate) fn is_true(&self) -> bool {
        self.party.is_gone() && !lock(&self.party.known).covers(self.point)
    }
}

/// What is about to be done to a life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Act {
    Read,
    Write,
    Free,
}
