//! One physical chunk: how big, where, pinned by how many blocks.
//!
//! Knows nothing of the page table that names it.

use super::NONE;
use crate::units::Range;

/// Where a chunk is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Place {
    /// It does not exist (any more, or yet).
    #[default]
    Nowhere,
    /// It exists and is mapped nowhere.
    Spare,
    /// It is mapped at this address.
    At(u64),
}

/// A physical chunk.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// Its size, a multiple of the granularity.
    pub bytes: u64,
    /// Where it is mapped for use.
    pub place: Place,
    /// Held blocks that overlap it.
    pub pins: u32,
    /// Older mappings of it that have not been taken away.
    pub aliases: u32,
    pub(super) older: u32,
    pub(super) newer: u32,
}

impl Default for Chunk {
    fn default() -> Self {
        Self { bytes: 0, place: Place::Nowhere, pins: 0, aliases: 0, older: NONE, newer: NONE }
    }
}

impl Chunk {
    /// The range where it is mapped for use; empty where it is not.
    #[inline]
    pub fn range(&self) -> Range {
        match self.place {
            Place::At(at) => Range::new(at, self.bytes),
            _ => Range::default(),
        }
    }
}
