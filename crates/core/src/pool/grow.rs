//! Serves a request for which no free block fits: first finds addresses, then memory for them.
//!
//! The holes of a window are filled from spare chunks, then from idle chunks (longest idle first), then with new
//! chunks. The limits in `slack.rs` decide between the last two. An idle chunk whose frees have completed is
//! unmapped. If it fits it is mapped again, otherwise it is destroyed, so that a chunk of the right size can be
//! created instead (*late*). An idle chunk whose frees only precede the request is mapped a second time if it fits
//! (*early*).
//!
//! These are tried one after the other: windows near holes; windows anywhere; then, if the policy allows it, memory
//! that other streams still use, with a wait.
//!
//! Depends on the heap and the space. The caller takes the steps.

use super::block::{Block, State};
use super::heap::is_past;
use super::slack::{CREATE_NS, Limits, MAP_NS, MOVE_NS, release_cost};
use super::steps::Step;
use super::window::{Search, Segment, Window};
use super::{DeviceRoom, Exhausted, Frontier, Grant, Pool};
use crate::ids::{BlockId, ChunkId};
use crate::order::{Completed, Knows};
use crate::units::{Range, round_down, round_up};
use std::collections::VecDeque;

/// The number of unusable idle chunks that a request looks at while there is another way.
const IDLE_LOOKS: usize = 256;
/// The number of refusals by the system after which a request fails.
const REFUSALS_MAX: u32 = 3;

/// The memory that a request may use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    Near,
    Anywhere,
    /// Also memory that other streams still use.
    Waiting,
}

/// The way in which an idle chunk may be used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Late,
    Early,
}

impl Pool {
    /// Returns a block of `bytes`, rounded up to the grain, for `who`, and plans the memory for it.
    ///
    /// Call this after [`fit`](Self::fit) has failed, the caches are drained and the device was queried for its
    /// progress. `refusals` is the number of times that the system has already refused memory in this request. The
    /// pool then uses all idle memory before it asks again (1), asks for no more than it gave back (2), or gives up
    /// (3).
    ///
    /// [`next_step`](Self::next_step) then returns what to do, if anything. A grant that is not ready must not be
    /// used before all steps are done.
    ///
    /// # Errors
    /// [`Exhausted`] if the limit, the refusals or the range of addresses leave no way.
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

    /// Returns `true` if the pool wants to know, before it grows, how much memory the device has
    /// ([`see_room`](Self::see_room)).
    pub fn asks_room(&self) -> bool {
        self.budget.asks_room()
    }

    /// Reports the device's memory, or that its driver does not know it. The report counts until the next one.
    pub fn see_room(&mut self, device: Option<DeviceRoom>) {
        let (limit, reserved) = (self.limit(), self.space.reserved());
        let limited = DeviceRoom { free: limit.saturating_sub(reserved), total: limit };
        self.budget.see_room(reserved, device, Some(limited).filter(|_| self.config.max_bytes > 0));
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

    /// Takes the window and plans its memory. Returns `None`, with nothing changed, if there is not enough memory.
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

    /// Returns the steps that fill the holes, and the frontier of the chunks that are moved early.
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
        // After a refusal, ask for nothing beyond what the request lacks: the excess may be what there is no room
        // for.
        let made = self.create(&found.fill, goal.limits, total, if goal.frugal { total } else { cap });
        let mut steps = found.clear;
        steps.extend(found.maps);
        steps.extend(made);
        Some((steps, found.moved))
    }

    /// Checks BOUND: what is reserved stays below the loose limit, or rises only if no chunk is left that is idle and
    /// over. Holds trivially if there are more idle chunks than a request looks at.
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

    /// Uses chunks that are mapped nowhere: those that fit are mapped, others destroyed while memory is lacking.
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

    /// Uses idle chunks, longest idle first, while memory is lacking and the cost is acceptable.
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

    /// Plans new chunks for the holes that are still open; with them `total` bytes are reserved. The last chunk of a
    /// segment may be larger than what the segment lacks, up to the tight limit and the cap.
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

    /// Returns the way in which an idle chunk may be used for `who`, if there is one.
    fn usable(&self, chunk: ChunkId, who: &impl Knows, reach: Reach) -> Option<Use> {
        if self.is_late(chunk) {
            return Some(Use::Late);
        }
        let after = self.heap.after(self.space.chunk(chunk).range());
        let early = reach == Reach::Waiting || is_past(&after, who, self.config.reuse.follow_event_dependencies);
        early.then_some(Use::Early)
    }

    /// Returns `true` if an idle chunk can be unmapped: nothing on it is still in use, and no older mapping of it is
    /// left.
    pub(super) fn is_late(&self, chunk: ChunkId) -> bool {
        let at = self.space.chunk(chunk);
        let range = at.range();
        let opening =
            |step: &&Step| matches!(**step, Step::Unmap { chunk: of, at, .. } if of == chunk && at != range.start);
        let aliases = at.aliases as usize - self.plan.steps.iter().filter(opening).count();
        aliases == 0 && self.heap.over(range).all(|id| self.heap.blocks[id].after.is_empty())
    }

    /// Plans to unmap the old mappings whose last use has completed.
    pub(super) fn open_closed(&mut self, completed: &impl Completed) {
        for old in &self.closed {
            if self.heap.blocks[old.block].after.is_over(completed) {
                let (chunk, at, bytes) = (old.chunk, old.range.start, old.range.bytes);
                self.plan.steps.push_back(Step::Unmap { chunk, at, bytes });
            }
        }
    }

    /// Returns the most that may be reserved.
    pub(super) fn limit(&self) -> u64 {
        match self.config.max_bytes {
            0 => u64::MAX,
            bytes => round_up(bytes, self.config.granularity).unwrap_or(u64::MAX),
        }
    }

    /// Returns an error if a request cannot be served however much memory comes back, on a device with `memory`
    /// bytes: it is larger than the memory or the limit, less the held bytes if `with_held` is set. Called before
    /// [`grow`](Self::grow), so that no memory is taken for a request that must be refused in the end.
    #[cold]
    pub fn beyond(&mut self, bytes: u64, memory: u64, with_held: bool) -> Option<Exhausted> {
        let held = if with_held { self.held } else { 0 };
        let most = self.limit().min(memory).saturating_sub(held);
        match self.rounded(bytes) {
            Some(rounded) if rounded <= most => None,
            _ => Some(self.exhausted(bytes)),
        }
    }

    /// Returns the pool's figures for a refusal. Drops all steps, because a caller that was refused has nothing to
    /// carry out.
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

/// The point up to which existing memory must be used before new memory is created.
struct Goal {
    limits: Limits,
    reserved: u64,
    /// The absolute limit of what may be reserved.
    cap: u64,
    /// `true` after a refusal by the system: everything idle is used before anything new.
    frugal: bool,
}

/// The chunks and steps found so far.
#[derive(Default)]
struct Found {
    fill: Fill,
    /// Steps that unmap and destroy; they run before all others.
    clear: VecDeque<Step>,
    maps: Vec<Step>,
    /// The frontier of the chunks that are moved early.
    moved: Frontier,
    released: u64,
    cost: u64,
}

impl Goal {
    /// Returns what will be reserved once new chunks are created for everything that is still lacking.
    fn total(&self, found: &Found) -> u64 {
        (self.reserved + found.fill.need()).saturating_sub(found.released)
    }

    /// Returns `true` if the rest may be new memory.
    fn is_met(&self, found: &Found) -> bool {
        let total = self.total(found);
        total <= self.reserved || (total <= self.limits.tight && total <= self.cap && !self.frugal)
    }

    /// Returns `true` if idle chunks are to be used regardless of cost.
    fn is_pressing(&self, found: &Found) -> bool {
        let total = self.total(found);
        total > self.limits.loose || total > self.cap || self.frugal
    }
}

/// The holes of a window while they are being filled.
#[derive(Default)]
struct Fill {
    segments: Vec<Segment>,
}

impl Fill {
    /// Returns the bytes that are still open.
    fn need(&self) -> u64 {
        self.segments.iter().map(|segment| segment.to - segment.from).sum()
    }

    /// Returns a place for a chunk that is not larger than what a segment lacks.
    fn place(&mut self, bytes: u64) -> Option<u64> {
        let segment = self.segments.iter_mut().find(|segment| segment.to - segment.from >= bytes)?;
        let at = segment.from;
        segment.from += bytes;
        Some(at)
    }
}
