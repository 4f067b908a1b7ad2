//! Another process, as far as this process's verdicts depend on it; the acts on memory.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use millpond_reach::{Past, Point};

use crate::finding::lock;

/// Another process, as far as this process's verdicts depend on it.
#[derive(Debug, Default)]
pub(super) struct Party {
    /// `true` if it was ended, or is about to be.
    pub(super) is_gone: AtomicBool,
    /// The operations that its host knows to have completed. This process learns it for memory that it exported to that
    /// process.
    pub(super) known: Mutex<Past>,
    /// The operations before the events of that process that this process has imported.
    pub(super) reached: Mutex<Past>,
}

impl Party {
    /// Returns `true` if the process has ended.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }

    /// Returns `true` if its use of memory that was exported to it has completed for all.
    pub(super) fn is_over(&self, point: Point) -> bool {
        self.is_gone() || lock(&self.known).covers(point)
    }
}

/// Bytes that another process writes, or a copy of them. The process may be killed before it writes them.
#[derive(Clone, Debug)]
pub(crate) struct Doubt {
    /// The process.
    pub(super) party: Arc<Party>,
    /// The write.
    pub(super) point: Point,
}

impl Doubt {
    /// Returns `true` if the bytes may never have been written.
    pub(crate) fn is_true(&self) -> bool {
        self.party.is_gone() && !lock(&self.party.known).covers(self.point)
    }
}

/// An act on a life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Act {
    Read,
    Write,
    Free,
}
