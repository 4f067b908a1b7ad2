//! Why floors are where they are: for each buffer the decisions that its floor follows from.
//!
//! A decision is named by its buffer: that it sits where it sits, or that it waits. So a reason is a set of buffers,
//! and what a floor follows from is a row of bits. When a line of search fails, the reasons of the floors that made it
//! fail are the *blame*; a decision that is not in it would not help if it were changed.
//!
//! Invariants: **enough**: whatever else is decided, no plan that agrees with the decisions in a buffer's row puts it
//! below its floor; **last in, first out**: rows are taken back in the order in which they were set. Knows nothing of
//! floors.

use millpond_core::plan::bits;

/// The reasons of all floors, and the latest blame.
pub(super) struct Reasons {
    width: usize,
    rows: Vec<u64>,
    saved: Vec<u64>,
    /// A reason being put together.
    pub(super) draft: Vec<u64>,
    /// What the last failure follows from.
    pub(super) blame: Vec<u64>,
}

impl Reasons {
    /// No floor has a reason: all are 0.
    pub(super) fn new(buffers: usize) -> Self {
        let width = bits::words(buffers);
        let set = vec![0; width];
        Self { width, rows: vec![0; width * buffers], saved: Vec::new(), draft: set.clone(), blame: set }
    }

    /// What the floor of `buffer` follows from.
    pub(super) fn row(&self, buffer: usize) -> &[u64] {
        &self.rows[buffer * self.width..][..self.width]
    }

    /// The draft becomes the reason of `buffer`.
    pub(super) fn set(&mut self, buffer: usize) {
        let row = &mut self.rows[buffer * self.width..][..self.width];
        self.saved.extend_from_slice(row);
        row.copy_from_slice(&self.draft);
    }

    /// The last buffer whose reason was set gets the one before it back.
    pub(super) fn take_back(&mut self, buffer: usize) {
        let last = self.saved.len() - self.width;
        self.rows[buffer * self.width..][..self.width].copy_from_slice(&self.saved[last..]);
        self.saved.truncate(last);
    }

    /// The draft begins as the reason of a buffer, or as none.
    pub(super) fn begin(&mut self, buffer: Option<usize>) {
        match buffer {
            Some(buffer) => self.draft.copy_from_slice(&self.rows[buffer * self.width..][..self.width]),
            None => self.draft.fill(0),
        }
    }

    /// The draft is to blame.
    pub(super) fn blame_draft(&mut self) {
        self.blame.copy_from_slice(&self.draft);
    }

    /// The reasons of `buffers` are to blame, together.
    pub(super) fn blame_all(&mut self, buffers: impl Iterator<Item = usize>) {
        self.blame.fill(0);
        for buffer in buffers {
            bits::join(&mut self.blame, &self.rows[buffer * self.width..][..self.width]);
        }
    }
}
