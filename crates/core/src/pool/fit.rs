//! Serves nearly all requests: takes a free block that is wholly mapped, in constant time.
//!
//! The search goes by cost. First come the blocks that the stream itself freed and those open to all streams; the
//! better fit of the two is taken. Otherwise blocks are taken that other streams freed before points that this stream
//! has waited for. The work is bounded: a few blocks of each index, and at most [`FOREIGN`] other streams.

use super::heap::is_past;
use super::lanes::{Lanes, MIXED};
use super::{Grant, Pool, Shortage};
use super::{block::NONE, frontier::Frontier};
use crate::ids::BlockId;
use crate::order::Knows;

/// The number of other streams whose blocks a request looks at.
const FOREIGN: usize = 16;
/// The number of blocks of one other stream that a request looks at.
const LOOKS: usize = 16;

impl Pool {
    /// Returns a block of `bytes`, rounded up to the grain, that `who` may use at once and that needs no mapping.
    ///
    /// # Errors
    /// [`Shortage`] if none is found. Try again after [`retire`](Self::retire), then [`grow`](Self::grow).
    #[inline(always)] // The result is built in the caller's place instead of being copied there.
    pub fn fit(&mut self, bytes: u64, who: &impl Knows) -> Result<Grant, Shortage> {
        debug_assert!(self.plan.steps.is_empty(), "STEPWISE: a chunk that is to be unmapped must not be pinned");
        let bytes = self.rounded(bytes).ok_or(Shortage)?;
        let heap = &self.heap;
        let open = heap.open.find(&heap.blocks, bytes);
        let own = heap.lanes.of(who.chain()).and_then(|lane| heap.lanes.lane(lane).bins.find(&heap.blocks, bytes));
        let found = match (own, open) {
            (Some(own), Some(open)) if heap.blocks[open].bytes < heap.blocks[own].bytes => open,
            (Some(own), _) => own,
            (None, Some(open)) => open,
            (None, None) => self.find_foreign(bytes, who).ok_or(Shortage)?,
        };
        let held = self.heap.take(found, bytes);
        let range = self.heap.blocks[held].range();
        self.heap.shadow.take(range, who);
        self.space.pin(range);
        self.held += bytes;
        self.budget.earn(1);
        self.audit_in_turn();
        Ok(Grant { block: BlockId(held), range, after: Frontier::EMPTY, ready: true })
    }

    #[cold]
    fn find_foreign(&self, bytes: u64, who: &impl Knows) -> Option<u32> {
        if !self.config.reuse.follow_event_dependencies {
            return None;
        }
        let (lanes, blocks): (&Lanes, _) = (&self.heap.lanes, &self.heap.blocks);
        let known = |id: u32| is_past(&blocks[id].after, who, true);
        let mut best: Option<u32> = None;
        for lane in lanes.busy().filter(|&lane| Some(lane) != lanes.of(who.chain())).take(FOREIGN) {
            let at = lanes.lane(lane);
            debug_assert_ne!(at.earliest, NONE, "BUSY: the lane has blocks");
            if lane != MIXED && !known(at.earliest) {
                continue;
            }
            let found = match lane != MIXED && known(at.latest) {
                true => at.bins.find(blocks, bytes),
                false => at.bins.find_where(blocks, bytes, LOOKS, known),
            };
            best = match (best, found) {
                (Some(one), Some(two)) if blocks[two].bytes < blocks[one].bytes => Some(two),
                (one, two) => one.or(two),
            };
        }
        best
    }
}
