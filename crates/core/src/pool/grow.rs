//! The way of a request that nothing fits: addresses first, then memory for them.
//!
//! Memory for the holes of a window comes from spare chunks; from idle chunks, longest idle first; from new chunks.
//! Which of the last two is a matter of the limits in `slack.rs`. An idle chunk whose frees have completed is unmapped,
//! then mapped again if it fits, else destroyed, so that a chunk of the right size can be made instead (*late*). One
//! whose frees only precede the request is mapped a second time where it fits (*early*).
//!
//! What is tried, one after the other: windows near holes; windows anywhere; then, where that is allowed, memory that
//! other streams still use, with a wait.
//!
//! Knows the heap and the space, and that steps will be taken; not who takes them.

use super::block::{Block, State};
use super::heap::is_past;
use super::slack::{CREATE_NS, Limits, MAP_NS, MOVE_NS, release_cost};
use super::steps::Step;
use super::window::{Search, Segment, Window};
use super::{Exhausted, Frontier, Grant, Pool};
use crate::ids::{BlockId, ChunkId};
use crate::order::{Completed, Knows};
use crate::units::{Range, round_down, round_up};
use std::collections::VecDeque;

/// How many idle chunks that it cannot use a request looks at while there is another way.
const IDLE_LOOKS: usize = 256;
/// So many refusals by the system end the attempts.
const REFUSALS_MAX: u32 = 3;

/// What a request may use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    Near,
    Anywhere,
    /// Also what other streams have not finished with.
    Waiting,
}

/// How an idle chunk may be used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Late,
    Early,
}

impl Pool {
    /// A block of `bytes`, rounded up to the grain, for `who`, with the memory that it takes.
    ///
    /// To be called after [`fit`](Self::fit) has failed, the caches are drained and the device was asked how far it
    /// is. `refusals` says how often the system has already refused memory in this request: the pool then uses all idle
    /// memory before it asks again (1), asks for no more than it gave back (2), gives up (3).
    ///
    /// [`next_step`](Self::next_step) then names what to do, if anything; until a grant is ready that must be done.
    ///
    /// # Errors
    /// [`Exhausted`] where the limit, the refusals or the range of addresses leave no way.
    #[cold]
    pub fn grow(
        &mut self,
        bytes: u64,
        who: &impl Knows,
        completed: &impl Completed,
        refusals: u32,
    ) -> Result<Grant, Exhausted> {
        debug_assert!(self.plan.steps.is_empty(), "STEPWISE: all steps are taken before the pool grows");
        if self.config.reuse.allow_opportunistic {
            self.retire(completed);
        }
        self.open_closed(completed);
        self.budget.earn(1);
        let Some(rounded) = self.rounded(bytes).filter(|_| refusals < REFUSALS_MAX) else {
            return Err(self.exhausted(bytes));
        };
        for reach in [Reach::Near, Reach::Anywhere, Reach::Waiting] {
            if reach == Reach::Waiting && !self.config.reuse.allow_internal_dependencies {
                break;
            }
            let window = self.window(rounded, who, reach);
            if let Some(grant) = window.and_then(|window| self.occupy(&window, who, reach, refusals)) {
                return Ok(grant);
            }
        }
        Err(self.exhausted(bytes))
    }

    fn window(&self, bytes: u64, who: &impl Knows, reach: Reach) -> Option<Window> {
        let follow = self.config.reuse.follow_event_dependencies;
        let waiting = reach == Reach::Waiting;
        let legal = |block: &Block| {
            self.heap.is_legal(block, who, follow) || (waiting && matches!(block.state, State::Free | State::Hole))
        };
        let search = Search { heap: &self.heap, bytes, granule: self.space.granule(), legal };
        match reach {
            Reach::Near => search.near_holes(),
            Reach::Anywhere | Reach::Waiting => search.anywhere(),
        }
    }

    /// Takes the window and plans its memory; `None`, and nothing has changed, where there is not enough.
    fn occupy(&mut self, window: &Window, who: &impl Knows, reach: Reach, refusals: u32) -> Option<Grant> {
        let segments = window.segments(&self.heap, self.space.granule());
        let target = self.heap.carve(window.range);
        match reach {
            Reach::Waiting => self.heap.shadow.forget(window.range),
            Reach::Near | Reach::Anywhere => self.heap.shadow.take(window.range, who),
        }
        self.heap.blocks.hold(target);
        self.space.pin(window.range);
        self.held += window.range.bytes;
        let mut after = self.heap.blocks[target].after.clone();
        if window.need > 0 {
            let Some((steps, moved)) = self.gather(Fill { segments }, who, reach, refusals) else {
                self.cancel(BlockId(target));
                return None;
            };
            after.join(&moved);
            self.plan.steps.extend(steps);
            self.plan.target = Some(target);
        }
        let after = match reach {
            Reach::Waiting => Frontier::of(after.points().filter(|&point| !who.covers(point))),
            Reach::Near | Reach::Anywhere => Frontier::EMPTY,
        };
        Some(Grant { block: BlockId(target), range: window.range, after, ready: window.need == 0 })
    }

    /// The steps that fill the holes, and the frontier of what is moved early.
    fn gather(
        &mut self,
        fill: Fill,
        who: &impl Knows,
        reach: Reach,
        refusals: u32,
    ) -> Option<(VecDeque<Step>, Frontier)> {
        let reserved = self.space.reserved();
        let cap = if refusals >= 2 { reserved.min(self.limit()) } else { self.limit() };
        let goal = Goal { limits: self.budget.limits(self.held), reserved, cap, frugal: refusals > 0 };
        let mut found = Found { fill, ..Found::default() };
        self.use_spares(&goal, &mut found);
        self.use_idle(&goal, &mut found, who, reach);
        let total = goal.total(&found);
        if total > cap {
            return None;
        }
        debug_assert!(self.is_bound(&goal, &found), "BOUND: {total} bytes are reserved, and chunks are idle and over");
        self.budget.spend(found.cost);
        self.is_holed |= !found.clear.is_empty();
        // After a refusal nothing beyond what the request lacks: it may be just that for which there is no room.
        let made = self.create(&found.fill, goal.limits, total, if goal.frugal { total } else { cap });
        let mut steps = found.clear;
        steps.extend(found.maps);
        steps.extend(made);
        Some((steps, found.moved))
    }

    /// BOUND: what is reserved stays below the loose limit, or rises where no chunk is left that is idle and over. This
    /// is not asked where there are more idle chunks than a request looks at.
    fn is_bound(&self, goal: &Goal, found: &Found) -> bool {
        let total = goal.total(found);
        let is_taken = |chunk: ChunkId| {
            found.clear.iter().any(|step| matches!(*step, Step::Unmap { chunk: taken, .. } if taken == chunk))
        };
        let mut idle = self.space.idle_chunks();
        total <= goal.reserved.max(goal.limits.loose)
            || self.space.idle_chunks().count() > IDLE_LOOKS
            || !idle.any(|chunk| self.is_late(chunk) && !is_taken(chunk))
    }

    /// Chunks mapped nowhere: those that fit are mapped, others destroyed while memory is lacking.
    fn use_spares(&self, goal: &Goal, found: &mut Found) {
        let mut others = Vec::new();
        for &chunk in self.space.spares() {
            let bytes = self.space.chunk(chunk).bytes;
            match found.fill.place(bytes) {
                Some(at) => found.maps.push(Step::Map { chunk, at, bytes }),
                None => others.push((chunk, bytes)),
            }
        }
        for (chunk, bytes) in others {
            if goal.is_met(found) {
                break;
            }
            found.clear.push_back(Step::Destroy { chunk, bytes });
            found.released += bytes;
        }
    }

    /// Idle chunks, longest idle first, as long as memory is lacking and the cost is right.
    fn use_idle(&self, goal: &Goal, found: &mut Found, who: &impl Knows, reach: Reach) {
        let mut looks = if goal.frugal || reach != Reach::Near { usize::MAX } else { IDLE_LOOKS };
        for chunk in self.space.idle_chunks() {
            let cost = found.cost + MOVE_NS;
            if goal.is_met(found) || looks == 0 || (!goal.is_pressing(found) && !self.budget.affords(cost)) {
                return;
            }
            let Range { start: at, bytes } = self.space.chunk(chunk).range();
            let Some(way) = self.usable(chunk, who, reach) else {
                looks -= 1;
                continue;
            };
            let place = found.fill.place(bytes);
            match (way, place) {
                (Use::Early, None) => continue,
                (Use::Early, Some(_)) => found.moved.join(&self.heap.after(Range::new(at, bytes))),
                (Use::Late, _) => found.clear.push_back(Step::Unmap { chunk, at, bytes }),
            }
            if let Some(at) = place {
                found.maps.push(Step::Map { chunk, at, bytes });
                found.cost = cost;
            } else {
                found.clear.push_back(Step::Destroy { chunk, bytes });
                found.released += bytes;
                found.cost += release_cost(bytes) + CREATE_NS + MAP_NS;
            }
        }
    }

    /// New chunks for what is still open; `total` bytes are reserved with them. The last of a segment may be larger
    /// than what it lacks, up to the tight limit and the cap.
    fn create(&mut self, fill: &Fill, limits: Limits, total: u64, cap: u64) -> Vec<Step> {
        let mut room = limits.tight.min(cap).saturating_sub(total);
        let mut steps = Vec::new();
        for segment in &fill.segments {
            let lacks = segment.to - segment.from;
            let size = self.budget.chunk_bytes(self.held, lacks, limits.loose.saturating_sub(total));
            let mut at = segment.from;
            while at < segment.to {
                let lacks = segment.to - at;
                let most = lacks.saturating_add(room).min(segment.ceiling - at);
                let bytes = round_down(size.min(most), self.space.granule());
                room -= bytes.saturating_sub(lacks);
                let chunk = self.space.plan();
                steps.push(Step::Create { chunk, bytes });
                steps.push(Step::Map { chunk, at, bytes });
                at += bytes;
            }
        }
        steps
    }

    /// How an idle chunk may be used for `who`, if at all.
    fn usable(&self, chunk: ChunkId, who: &impl Knows, reach: Reach) -> Option<Use> {
        if self.is_late(chunk) {
            return Some(Use::Late);
        }
        let after = self.heap.after(self.space.chunk(chunk).range());
        let early = reach == Reach::Waiting || is_past(&after, who, self.config.reuse.follow_event_dependencies);
        early.then_some(Use::Early)
    }

    /// Whether an idle chunk can be unmapped: nothing on it is still in use, and no older mapping of it is left.
    pub(super) fn is_late(&self, chunk: ChunkId) -> bool {
        let at = self.space.chunk(chunk);
        let range = at.range();
        let opening =
            |step: &&Step| matches!(**step, Step::Unmap { chunk: of, at, .. } if of == chunk && at != range.start);
        let aliases = at.aliases as usize - self.plan.steps.iter().filter(opening).count();
        aliases == 0 && self.heap.over(range).all(|id| self.heap.blocks[id].after.is_empty())
    }

    /// Plans to take away the old mappings whose last use has completed.
    pub(super) fn open_closed(&mut self, completed: &impl Completed) {
        for old in &self.closed {
            if self.heap.blocks[old.block].after.is_over(completed) {
                let (chunk, at, bytes) = (old.chunk, old.range.start, old.range.bytes);
                self.plan.steps.push_back(Step::Unmap { chunk, at, bytes });
            }
        }
    }

    /// The most that may be reserved.
    pub(super) fn limit(&self) -> u64 {
        match self.config.max_bytes {
            0 => u64::MAX,
            bytes => round_up(bytes, self.config.granularity).unwrap_or(u64::MAX),
        }
    }

    /// Why a request cannot be served however much comes back, where the device has `memory` bytes: it is larger than
    /// the memory or the limit, the pool's held blocks taken off where `with_held` says so. Asked before
    /// [`grow`](Self::grow), so that no memory is taken for what must be refused in the end.
    #[cold]
    pub fn beyond(&mut self, bytes: u64, memory: u64, with_held: bool) -> Option<Exhausted> {
        let held = if with_held { self.held } else { 0 };
        let most = self.limit().min(memory).saturating_sub(held);
        match self.rounded(bytes) {
            Some(rounded) if rounded <= most => None,
            _ => Some(self.exhausted(bytes)),
        }
    }

    /// The pool's figures, for a refusal. Leaves no steps: a caller that was refused has nothing to carry out.
    #[cold]
    pub fn exhausted(&mut self, requested: u64) -> Exhausted {
        self.plan.steps.clear();
        let largest = self.heap.open.largest(&self.heap.blocks);
        Exhausted {
            requested,
            held: self.held,
            reserved: self.space.reserved(),
            idle: self.space.idle(),
            largest_free: largest.map_or(0, |id| self.heap.blocks[id].bytes),
            limit: Some(self.config.max_bytes).filter(|bytes| *bytes > 0),
        }
    }
}

/// How far memory that is there already must go before new memory is made.
struct Goal {
    limits: Limits,
    reserved: u64,
    /// No more than this, whatever happens.
    cap: u64,
    /// The system has refused: everything idle before anything new.
    frugal: bool,
}

/// What was found so far.
#[derive(Default)]
struct Found {
    fill: Fill,
    /// Unmap and destroy, before all else.
    clear: VecDeque<Step>,
    maps: Vec<Step>,
    /// The frontier of what is moved early.
    moved: Frontier,
    released: u64,
    cost: u64,
}

impl Goal {
    /// What will be reserved when new chunks are made for all that is still lacking.
    fn total(&self, found: &Found) -> u64 {
        (self.reserved + found.fill.need()).saturating_sub(found.released)
    }

    /// Whether the rest may be new.
    fn is_met(&self, found: &Found) -> bool {
        let total = self.total(found);
        total <= self.reserved || (total <= self.limits.tight && total <= self.cap && !self.frugal)
    }

    /// Whether cost does not matter.
    fn is_pressing(&self, found: &Found) -> bool {
        let total = self.total(found);
        total > self.limits.loose || total > self.cap || self.frugal
    }
}

/// The holes of a window, as they are filled.
#[derive(Default)]
struct Fill {
    segments: Vec<Segment>,
}

impl Fill {
    /// Bytes still open.
    fn need(&self) -> u64 {
        self.segments.iter().map(|segment| segment.to - segment.from).sum()
    }

    /// A place for a chunk that is not larger than what a segment lacks.
    fn place(&mut self, bytes: u64) -> Option<u64> {
        let segment = self.segments.iter_mut().find(|segment| segment.to - segment.from >= bytes)?;
        let at = segment.from;
        segment.from += bytes;
        Some(at)
    }
}
