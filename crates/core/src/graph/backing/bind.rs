//! Which chunks serve a launch: those that are mapped under it already where they are free for it, others that are
//! free, and new ones for the rest.
//!
//! Addresses and chunks are two questions. *Addresses* are the arenas' own; work of launches before, or on what they
//! left, may still use them: the launching stream waits for that. *Chunks* are shared by all: one that is in use by
//! a launch that is not ordered before this one is left alone, and another one is mapped in its place. That needs the
//! old mapping gone, and the last launch in the arena over. While that one runs the host need not wait: the launching
//! stream waits for whoever uses the chunk instead. Two graphs that meet so again and again would run one after the
//! other for ever, so after every [`DELAYS`] times the host may wait for a moment, until they can have memory of their
//! own; where that was in vain [`IN_VAIN_MAX`] times, it does so no more.
//!
//! Knows the tables; nothing of steps but their names.

use super::{ArenaKey, Backing, BackingStep, Blocked, Chunk, Tenure};
use crate::ids::{ChunkId, Point};
use crate::order::{Completed, Knows};
use crate::pool::Frontier;

/// So often in a row launches in an arena wait on the device for memory that others use, before the host may wait.
const DELAYS: u32 = 4;
/// So often in a row the host waits in vain.
const IN_VAIN_MAX: u32 = 5;

/// Where the host may wait after so many delays: how often it did before.
fn waits_in_vain(delays: u32) -> Option<u32> {
    let (times, rest) = (delays / (DELAYS + 1), delays % (DELAYS + 1));
    (rest == DELAYS && times < IN_VAIN_MAX).then_some(times)
}

/// What a launch may count on: what its stream knows, what it will be made to wait for, what has completed.
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

/// What a launch has to change.
#[derive(Default)]
struct Wanted {
    /// Granules whose chunks are taken as they are mapped.
    kept: Vec<(ArenaKey, u64, ChunkId)>,
    /// Mappings that must go.
    misfits: Vec<(u64, ChunkId)>,
    /// Granules that need a chunk, and whether outputs lie there.
    holes: Vec<(bool, u64, ArenaKey)>,
    /// What still uses the addresses of the misfits.
    after: Frontier,
    /// What uses the chunks of those misfits that will be free once that has completed.
    busy: Frontier,
}

impl Tenure {
    /// Whether the arena has all its memory. What was taken for a launch that was not made may have been free for that
    /// launch's stream only.
    #[inline]
    fn is_settled(&self) -> bool {
        self.strange == 0 && !self.is_new
    }

    /// Adds what still uses the arena's addresses, unless that comes before `who` or has completed.
    #[inline]
    fn add_waits(&self, waits: &mut Frontier, who: &impl Knows, completed: &impl Completed) {
        let before = self.last.points().chain(self.freed.points());
        before
            .filter(|&point| !who.covers(point) && !completed.is_over(point))
            .for_each(|point| waits.join(&point.into()));
    }
}

impl Backing {
    /// Plans the memory for one launch (or upload) in these arenas by a party that knows `who`: the launching stream,
    /// after it was made to wait for the launches before. Returns the points that the stream must be made to wait for
    /// before the launch: nearly always none.
    ///
    /// Costs the same for any graph where the arenas still have all their memory.
    ///
    /// # Errors
    /// [`Blocked`]: wait, and bind again.
    ///
    /// # Panics
    /// Where an arena is unknown or steps are left.
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

    /// What [`bind`](Self::bind) returns where it has nothing to change: the hot half. `None` where it has.
    ///
    /// # Panics
    /// Where an arena is unknown.
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

    /// The cold half of [`bind`](Self::bind): a first launch, one after others took memory, one on another stream.
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

    /// LEGAL, asked of each point anew: each one is known to the stream, waited for, or over.
    fn is_legal(&self, chunk: ChunkId, ground: &Ground<'_, impl Knows, impl Completed>) -> bool {
        let chunk = &self.chunks[chunk.index()];
        let is_past = |point: Point| {
            let is_waited = ground.waits.points().any(|wait| wait.chain == point.chain && point.seq <= wait.seq);
            ground.who.covers(point) || is_waited || ground.completed.is_over(point)
        };
        self.last_use(chunk).flat_map(Frontier::points).all(is_past)
    }

    /// What has to change; marks the chunks that stay as taken.
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
                // Under its own unfreed allocation it is the arena's, whoever else has the chunk mapped.
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

    /// Plans a chunk for each hole. Outputs take those that are mapped at the fewest places: the memory of an output
    /// that stays unfreed is then missed by the fewest.
    fn fill(&mut self, mut holes: Vec<(bool, u64, ArenaKey)>, ground: &Ground<'_, impl Knows, impl Completed>) {
        let there = self.chunks.iter().enumerate().filter(|(_, chunk)| chunk.is_there && chunk.taken != self.binds);
        let mut free: Vec<ChunkId> = there
            .filter(|(_, chunk)| chunk.pins == 0 && self.is_free(chunk, ground))
            .map(|(at, _)| ChunkId(at as u32))
            .collect();
        free.sort_by_key(|id| std::cmp::Reverse(self.chunks[id.index()].places.len()));
        let mut free = free.into_iter();
        holes.sort_unstable();
        // Inner granules from the much shared end, then outputs from the other.
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

    /// LEGAL: whether a chunk's last use is before the launch or over.
    fn is_free(&self, chunk: &Chunk, ground: &Ground<'_, impl Knows, impl Completed>) -> bool {
        self.last_use(chunk).all(|frontier| ground.is_past(frontier))
    }
}
