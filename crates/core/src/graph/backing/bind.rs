//! The choice of chunks for a launch: those already mapped under it if they are free for it, then other free chunks,
//! then new ones.
//!
//! Addresses and chunks are separate questions. *Addresses* belong to the arenas. Earlier launches, or work on their
//! outputs, may still use them: the launching stream waits for that. *Chunks* are shared by all arenas. A chunk that a
//! launch uses which is not ordered before this one is left alone, and another one is mapped in its place. For that,
//! the old mapping must be removed, so the last launch in the arena must have completed. While it runs, the host need
//! not wait: the launching stream waits for the users of the chunk instead. But two graphs that meet like this
//! repeatedly would then run one after the other for ever. So after every [`DELAYS`] delays the host may wait for a
//! moment, until the two graphs can have memory of their own. After [`IN_VAIN_MAX`] waits in vain it stops doing so.
//!
//! Depends on the tables, and on steps by their names only.

use super::{ArenaKey, Backing, BackingStep, Blocked, Chunk, Tenure};
use crate::ids::{ChunkId, Point};
use crate::order::{Completed, Knows};
use crate::pool::Frontier;

/// The number of launches in a row in an arena that wait on the device for memory that others use, before the host may
/// wait.
const DELAYS: u32 = 4;
/// The number of waits in a row by the host that may be in vain.
const IN_VAIN_MAX: u32 = 5;

/// Returns how often the host waited before, if it may wait now after so many delays.
fn waits_in_vain(delays: u32) -> Option<u32> {
    let (times, rest) = (delays / (DELAYS + 1), delays % (DELAYS + 1));
    (rest == DELAYS && times < IN_VAIN_MAX).then_some(times)
}

/// The facts that a launch may rely on: what its stream knows, what the stream will wait for, and what has completed.
struct Ground<'a, K, C> {
    who: &'a K,
    waits: Frontier,
    completed: &'a C,
}

impl<K: Knows, C: Completed> Ground<'_, K, C> {
    fn has_passed(&self, point: Point) -> bool {
        let waits = self.waits.points().any(|it| it.chain == point.chain && it.seq >= point.seq);
        waits || self.who.covers(point) || self.completed.is_over(point)
    }

    fn is_past(&self, frontier: &Frontier) -> bool {
        frontier.points().all(|point| self.has_passed(point))
    }
}

/// The changes that a launch needs.
#[derive(Default)]
struct Wanted {
    /// The granules whose chunks are used as they are mapped.
    kept: Vec<(ArenaKey, u64, ChunkId)>,
    /// The mappings to remove.
    misfits: Vec<(u64, ChunkId)>,
    /// The granules that need a chunk, each with `true` if an output is in it.
    holes: Vec<(bool, u64, ArenaKey)>,
    /// The last uses of the addresses of the misfits.
    after: Frontier,
    /// The last uses of the misfits' chunks that are free once these have completed.
    busy: Frontier,
}

impl Tenure {
    /// Returns `true` if the arena has all its memory. Chunks that were taken for a launch that was then not made do
    /// not count: they may have been free for the stream of that launch only.
    #[inline]
    fn is_settled(&self) -> bool {
        self.strange == 0 && !self.is_new
    }

    /// Adds the last uses of the arena's addresses, except those that come before `who` or have completed.
    #[inline]
    fn add_waits(&self, waits: &mut Frontier, who: &impl Knows, completed: &impl Completed) {
        let before = self.last.points().chain(self.freed.points());
        before
            .filter(|&point| !who.covers(point) && !completed.is_over(point))
            .for_each(|point| waits.join(&point.into()));
    }
}

impl Backing {
    /// Plans the memory for one launch (or upload) in these arenas. `who` is what the launching stream knows after it
    /// was made to wait for the launches before. Returns the points that the stream must wait for before the launch:
    /// usually none.
    ///
    /// If the arenas still have all their memory, the cost is the same for any graph.
    ///
    /// # Errors
    /// [`Blocked`]: wait, then bind again.
    ///
    /// # Panics
    /// If an arena is unknown or steps are left.
    pub fn bind(
        &mut self,
        arenas: &[ArenaKey],
        who: &impl Knows,
        completed: &impl Completed,
    ) -> Result<Frontier, Blocked> {
        assert!(self.steps.is_empty(), "STEPWISE: all steps were applied");
        if let Some(waits) = self.settled(arenas, who, completed) {
            return Ok(waits);
        }
        let mut waits = Frontier::EMPTY;
        arenas.iter().for_each(|arena| self.arenas[arena].add_waits(&mut waits, who, completed));
        let mut ground = Ground { who, waits, completed };
        self.find_memory(arenas, &mut ground).map(|()| ground.waits)
    }

    /// The hot half of [`bind`](Self::bind): returns the same if nothing has to change, or else `None`.
    ///
    /// # Panics
    /// If an arena is unknown.
    #[inline]
    pub fn settled(&self, arenas: &[ArenaKey], who: &impl Knows, completed: &impl Completed) -> Option<Frontier> {
        let mut waits = Frontier::EMPTY;
        for arena in arenas {
            let tenure = &self.arenas[arena];
            if !tenure.is_settled() {
                return None;
            }
            tenure.add_waits(&mut waits, who, completed);
        }
        Some(waits)
    }

    /// The cold half of [`bind`](Self::bind): for a first launch, after others took memory, or on another stream.
    #[cold]
    fn find_memory(
        &mut self,
        arenas: &[ArenaKey],
        ground: &mut Ground<'_, impl Knows, impl Completed>,
    ) -> Result<(), Blocked> {
        let mut wanted = self.look(arenas, ground);
        let delays = arenas.iter().map(|arena| self.arenas[arena].delays).max().unwrap_or(0);
        let mut now = 0;
        if !wanted.after.is_over(ground.completed) {
            now = delays.saturating_add(1);
            let in_vain = waits_in_vain(delays);
            if in_vain.is_none() {
                ground.waits.join(&wanted.busy);
                wanted = self.look(arenas, ground);
            }
            if in_vain.is_some() || !wanted.after.is_over(ground.completed) {
                arenas.iter().for_each(|arena| self.tenure(*arena).delays = now);
                return Err(Blocked { after: wanted.after, in_vain });
            }
        }
        arenas.iter().for_each(|arena| self.tenure(*arena).delays = now);
        let is_legal = |(_, at, chunk): &(_, u64, _)| self.pages[at].pins > 0 || self.is_legal(*chunk, ground);
        debug_assert!(wanted.kept.iter().all(is_legal), "LEGAL: a chunk that is in use");
        for (arena, at, chunk) in wanted.kept {
            self.take_over(at, chunk, arena);
        }
        self.steps.extend(wanted.misfits.into_iter().map(|(at, chunk)| BackingStep::Unmap { chunk, at }));
        self.fill(wanted.holes, ground);
        Ok(())
    }

    /// LEGAL, checked again for each point: each point is known to the stream, waited for, or completed.
    fn is_legal(&self, chunk: ChunkId, ground: &Ground<'_, impl Knows, impl Completed>) -> bool {
        let chunk = &self.chunks[chunk.index()];
        let is_past = |point: Point| {
            let is_waited = ground.waits.points().any(|wait| wait.chain == point.chain && point.seq <= wait.seq);
            ground.who.covers(point) || is_waited || ground.completed.is_over(point)
        };
        self.last_use(chunk).flat_map(Frontier::points).all(is_past)
    }

    /// Finds what has to change. Marks the chunks that stay as taken.
    fn look(&mut self, arenas: &[ArenaKey], ground: &Ground<'_, impl Knows, impl Completed>) -> Wanted {
        self.binds += 1;
        let mut wanted = Wanted::default();
        for &arena in arenas {
            let granules = std::mem::take(&mut self.tenure(arena).granules);
            let mut has_misfits = false;
            for &(at, is_output) in &granules {
                let Some(page) = self.pages.get(&at) else {
                    wanted.holes.push((is_output, at, arena));
                    continue;
                };
                let (id, pins, chunk) = (page.chunk, page.pins, &self.chunks[page.chunk.index()]);
                // A chunk under the arena's own unfreed allocation is the arena's, even if it is mapped elsewhere too.
                let fits = pins > 0 || (chunk.pins == 0 && self.is_free(chunk, ground));
                if fits && chunk.taken != self.binds {
                    self.chunks[id.index()].taken = self.binds;
                    wanted.kept.push((arena, at, id));
                } else {
                    if !fits && chunk.pins == 0 {
                        self.last_use(chunk).for_each(|frontier| wanted.busy.join(frontier));
                    }
                    has_misfits = true;
                    wanted.misfits.push((at, id));
                    wanted.holes.push((is_output, at, arena));
                }
            }
            let tenure = self.tenure(arena);
            tenure.granules = granules;
            if has_misfits {
                wanted.after.join(&tenure.last);
                wanted.after.join(&tenure.freed);
            }
        }
        wanted
    }

    /// Plans a chunk for each hole. Outputs get the chunks that are mapped at the fewest places, so that an output that
    /// stays unfreed withholds its memory from the fewest arenas.
    fn fill(&mut self, mut holes: Vec<(bool, u64, ArenaKey)>, ground: &Ground<'_, impl Knows, impl Completed>) {
        let there = self.chunks.iter().enumerate().filter(|(_, chunk)| chunk.is_there && chunk.taken != self.binds);
        let mut free: Vec<ChunkId> = there
            .filter(|(_, chunk)| chunk.pins == 0 && self.is_free(chunk, ground))
            .map(|(at, _)| ChunkId(at as u32))
            .collect();
        free.sort_by_key(|id| std::cmp::Reverse(self.chunks[id.index()].places.len()));
        let mut free = free.into_iter();
        holes.sort_unstable();
        // Inner granules take chunks from the end with the most mappings, then outputs from the other end.
        for (is_output, at, arena) in holes {
            let taken = if is_output { free.next_back() } else { free.next() };
            let chunk = taken.unwrap_or_else(|| {
                let chunk = self.new_chunk();
                self.steps.push_back(BackingStep::Create { chunk });
                chunk
            });
            debug_assert!(self.is_legal(chunk, ground), "LEGAL: {chunk} is in use");
            self.chunks[chunk.index()].taken = self.binds;
            self.steps.push_back(BackingStep::Map { arena, chunk, at });
        }
    }

    /// LEGAL: returns `true` if the chunk's last use comes before the launch or has completed.
    fn is_free(&self, chunk: &Chunk, ground: &Ground<'_, impl Knows, impl Completed>) -> bool {
        self.last_use(chunk).all(|frontier| ground.is_past(frontier))
    }
}
