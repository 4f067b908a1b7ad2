//! Which chunks serve a launch: those that are mapped under it already where they are free for it, others that are
//! free, and new ones for the rest.
//!
//! Addresses and chunks are two questions. *Addresses* are the instance's own; work of its earlier launches, or on what
//! they left, may still use them: the launching stream waits for that. *Chunks* are everybody's: one that is in use by
//! somebody who is not ordered before this launch is left alone, and another one is mapped in its place. That needs the
//! old mapping gone, so the host first waits until the instance's own last launch is over.
//!
//! Knows the tables; nothing of steps but their names.

use super::{Backing, BackingStep, Chunk, ExecKey, Refused};
use crate::ids::{ChunkId, Point};
use crate::order::{Completed, Knows};
use crate::pool::Frontier;

/// What a launch may count on: what its stream knows, what it will be made to wait for, what is over.
struct Ground<'a, K, C> {
    who: &'a K,
    waits: Frontier,
    completed: &'a C,
}

impl<K: Knows, C: Completed> Ground<'_, K, C> {
    fn has_passed(&self, point: Point) -> bool {
        let waits = self.waits.points().any(|it| it.slot == point.slot && it.seq >= point.seq);
        waits || self.who.covers(point) || self.completed.is_over(point)
    }

    fn is_past(&self, frontier: &Frontier) -> bool {
        frontier.points().all(|point| self.has_passed(point))
    }
}

impl Backing {
    /// Plans the memory for a launch (or upload) of an instance by somebody who knows `who`: the launching stream,
    /// after it was made to wait for the instance's launch before. Returns the points that the stream must be made to
    /// wait for before the launch: nearly always none.
    ///
    /// Costs the same for any graph where the instance still has all its memory.
    ///
    /// # Errors
    /// [`Refused::Unfreed`]: an allocation of another instance of the same graph lies at its addresses.
    ///
    /// # Panics
    /// Where the instance does not live or steps are left.
    pub fn bind(&mut self, exec: ExecKey, who: &impl Knows, completed: &impl Completed) -> Result<Frontier, Refused> {
        assert!(self.steps.is_empty(), "all steps were applied");
        let tenure = self.tenure(exec);
        if tenure.pinned > 0 {
            return Err(self.unfreed(exec));
        }
        let before = tenure.last.points().chain(tenure.freed.points());
        let waits = Frontier::of(before.filter(|&point| !who.covers(point) && !completed.is_over(point)));
        // Memory taken for a launch that was not made may have been free for that launch's stream only.
        if tenure.strange == 0 && !tenure.is_new {
            return Ok(waits);
        }
        let ground = Ground { who, waits, completed };
        self.find_memory(exec, &ground);
        Ok(ground.waits)
    }

    #[cold]
    fn unfreed(&self, exec: ExecKey) -> Refused {
        let mut granules = self.execs[&exec].granules.iter().map(|(at, _)| *at);
        let is_pinned = |at: &u64| self.pages.get(at).is_some_and(|page| page.pins > 0);
        Refused::Unfreed { at: granules.find(is_pinned).expect("COUNTED") }
    }

    /// The cold half of [`bind`](Self::bind): a first launch, one after others took memory, one on another stream.
    #[cold]
    fn find_memory(&mut self, exec: ExecKey, ground: &Ground<'_, impl Knows, impl Completed>) {
        self.binds += 1;
        let granules = std::mem::take(&mut self.tenure(exec).granules);
        let (mut holes, mut misfits) = (Vec::new(), Vec::new());
        for &(at, is_output) in &granules {
            let Some(page) = self.pages.get(&at) else {
                holes.push((at, is_output));
                continue;
            };
            let (id, chunk) = (page.chunk, &self.chunks[page.chunk.index()]);
            let is_own = page.exec == Some(exec) && chunk.taken != self.binds && chunk.pins == 0;
            if is_own && self.is_free(chunk, ground) {
                self.chunks[id.index()].taken = self.binds;
                self.let_to(id, exec);
            } else {
                misfits.push((at, id));
                holes.push((at, is_output));
            }
        }
        self.tenure(exec).granules = granules;
        if holes.is_empty() {
            return;
        }
        self.target = Some(exec);
        self.clear(exec, &misfits, ground.completed);
        self.fill(holes, ground);
    }

    /// Plans to take mappings away, once nothing uses their addresses.
    fn clear(&mut self, exec: ExecKey, misfits: &[(u64, ChunkId)], completed: &impl Completed) {
        if misfits.is_empty() {
            return;
        }
        let tenure = &self.execs[&exec];
        let mut after = tenure.last.clone();
        after.join(&tenure.freed);
        misfits.iter().for_each(|(at, _)| after.join(&self.pages[at].after));
        if !after.is_over(completed) {
            self.steps.push_back(BackingStep::Await { after });
        }
        self.steps.extend(misfits.iter().map(|&(at, chunk)| BackingStep::Unmap { chunk, at }));
    }

    /// Plans a chunk for each hole. Outputs take those that are mapped at the fewest places: the memory of an output
    /// that stays unfreed is then missed by the fewest.
    fn fill(&mut self, mut holes: Vec<(u64, bool)>, ground: &Ground<'_, impl Knows, impl Completed>) {
        let there = self.chunks.iter().enumerate().filter(|(_, chunk)| chunk.is_there && chunk.taken != self.binds);
        let mut free: Vec<ChunkId> = there
            .filter(|(_, chunk)| chunk.pins == 0 && self.is_free(chunk, ground))
            .map(|(at, _)| ChunkId(at as u32))
            .collect();
        free.sort_by_key(|id| std::cmp::Reverse(self.chunks[id.index()].places.len()));
        let mut free = free.into_iter();
        holes.sort_by_key(|&(at, is_output)| (is_output, at));
        // Inner granules from the much shared end, then outputs from the other.
        for (at, is_output) in holes {
            let taken = if is_output { free.next_back() } else { free.next() };
            let chunk = taken.unwrap_or_else(|| {
                let chunk = self.new_chunk();
                self.steps.push_back(BackingStep::Create { chunk });
                chunk
            });
            self.chunks[chunk.index()].taken = self.binds;
            self.steps.push_back(BackingStep::Map { chunk, at });
        }
    }

    /// LEGAL: whether a chunk's last use is before the launch or over.
    fn is_free(&self, chunk: &Chunk, ground: &Ground<'_, impl Knows, impl Completed>) -> bool {
        self.last_use(chunk).all(|frontier| ground.is_past(frontier))
    }
}
