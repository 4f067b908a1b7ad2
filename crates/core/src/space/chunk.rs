//! A physical chunk: its size, its place, and the number of blocks that pin it.
//!
//! Does not depend on the page table that names it.

use super::NONE;
use crate::units::Range;

/// The place of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Place {
    /// It does not exist: it was destroyed, or is not created yet.
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
    /// The place where it is mapped for use.
    pub place: Place,
    /// The number of held blocks that overlap it.
    pub pins: u32,
    /// The number of its older mappings that were not removed yet.
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
    /// Returns the range where it is mapped for use, empty if it is not mapped.
    #[inline]
    pub fn range(&self) -> Range {
        match self.place {
            Place::At(at) => Range::new(at, self.bytes),
            _ => Range::default(),
        }
    }
}
