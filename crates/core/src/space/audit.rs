//! Re-derives the invariants of the page table and the chunks from scratch.
//!
//! Slow on purpose. Called by tests and by the pool's own audit.

use super::{CLOSED, NONE, Place, Space};
use crate::ids::ChunkId;
use crate::units::Range;

impl Space {
    /// Checks PAGES, IDLE and BYTES. `pins` returns the number of held blocks that overlap a range; `closed` is the
    /// number of granules that old mappings occupy.
    ///
    /// # Errors
    /// The first invariant that does not hold, with the chunk.
    pub fn audit(&self, pins: impl Fn(Range) -> u32, closed: usize) -> Result<(), String> {
        let mut sums = (0, 0, 0);
        let mut granules = 0;
        for (number, chunk) in self.chunks.iter().enumerate() {
            let id = ChunkId(number as u32);
            match chunk.place {
                Place::Nowhere => continue,
                Place::Spare => sums.2 += 1,
                Place::At(_) => {
                    let range = chunk.range();
                    let (from, to) = (self.page(range.start), self.page(range.end()));
                    if self.pages[from..to].iter().any(|&page| page != id.0) {
                        return Err(format!("PAGES: {id} is not mapped at the whole of {range}"));
                    }
                    if chunk.pins != pins(range) {
                        return Err(format!("PINS: {id} has {} pins, {} blocks", chunk.pins, pins(range)));
                    }
                    granules += to - from;
                    sums.1 += if chunk.pins == 0 { chunk.bytes } else { 0 };
                }
            }
            sums.0 += chunk.bytes;
        }
        if granules != self.pages.iter().filter(|&&page| page != NONE && page != CLOSED).count() {
            return Err("PAGES: a granule names a chunk that is not mapped there".into());
        }
        if closed != self.pages.iter().filter(|&&page| page == CLOSED).count() {
            return Err("PAGES: closed granules and old mappings differ".into());
        }
        if sums != (self.reserved, self.idle, self.spares.len()) {
            return Err(format!("BYTES: {sums:?} counted, reserved {}, idle {}", self.reserved, self.idle));
        }
        let listed: u64 = self.idle_chunks().map(|id| self.chunk(id).bytes).sum();
        if listed != self.idle || self.idle_chunks().any(|id| self.chunk(id).pins != 0) {
            return Err("IDLE: the list holds other chunks than those without a pin".into());
        }
        Ok(())
    }
}
