//! The reasons of floors: for each buffer, the decisions that its floor follows from.
//!
//! A decision is identified by its buffer: that the buffer sits where it sits, or that it waits. So a reason is a set
//! of buffers, and the reasons of a floor are a row of bits. When a line of search fails, the reasons of the floors
//! that caused the failure are the *blame*. To change a decision that is not in the blame would not help.
//!
//! Invariants: **enough**: whatever else is decided, no plan that agrees with the decisions in a buffer's row places it
//! below its floor; **last in, first out**: rows are taken back in the reverse of the order in which they were set.
//! This module does not know floors.

use millpond_core::plan::bits;

/// The reasons of all floors, and the latest blame.
pub(super) struct Reasons {
    width: usize,
    rows: Vec<u64>,
    saved: Vec<u64>,
    /// A reason that is being built.
    pub(super) draft: Vec<u64>,
    /// The reasons of the last failure.
    pub(super) blame: Vec<u64>,
}

impl Reasons {
    /// Starts without reasons: all floors are 0.
    pub(super) fn new(buffers: usize) -> Self {
        let width = bits::words(buffers);
        let set = vec![0; width];
        Self { width, rows: vec![0; width * buffers], saved: Vec::new(), draft: set.clone(), blame: set }
    }

    /// Returns the reasons of the floor of `buffer`.
    pub(super) fn row(&self, buffer: usize) -> &[u64] {
        &self.rows[buffer * self.width..][..self.width]
    }

    /// Makes the draft the reason of `buffer`.
    pub(super) fn set(&mut self, buffer: usize) {
        let row = &mut self.rows[buffer * self.width..][..self.width];
        self.saved.extend_from_slice(row);
        row.copy_from_slice(&self.draft);
    }

    /// Restores the former reason of the buffer whose reason was set last.
    pub(super) fn take_back(&mut self, buffer: usize) {
        let last = self.saved.len() - self.width;
        self.rows[buffer * self.width..][..self.width].copy_from_slice(&self.saved[last..]);
        self.saved.truncate(last);
    }

    /// Starts the draft as the reason of a buffer, or empty.
    pub(super) fn begin(&mut self, buffer: Option<usize>) {
        match buffer {
            Some(buffer) => self.draft.copy_from_slice(&self.rows[buffer * self.width..][..self.width]),
            None => self.draft.fill(0),
        }
    }

    /// Makes the draft the blame.
    pub(super) fn blame_draft(&mut self) {
        self.blame.copy_from_slice(&self.draft);
    }

    /// Makes the union of the reasons of `buffers` the blame.
    pub(super) fn blame_all(&mut self, buffers: impl Iterator<Item = usize>) {
        self.blame.fill(0);
        for buffer in buffers {
            bits::join(&mut self.blame, &self.rows[buffer * self.width..][..self.width]);
        }
    }
}
