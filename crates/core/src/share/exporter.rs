//! The exporter's end of a connection, as a state machine without I/O: what an importer has said, and what it holds.
//!
//! Inputs: a request was received, a lease was granted, the talk ended, the process ended. Outputs: [`Effect`]s on
//! leases, which the caller applies in their order before the next input; and one question at a time, which the caller
//! answers when it can. Knows no socket, thread, lock, clock or memory.
//!
//! Invariant **own-word**: all that a request names is looked up among what this end has lent, and the uses that
//! releases name are all on chains of one device, that of the first. A request that breaks the rules ends the talk.
//! What the importer still holds then stays lent until its process has ended: work of a process that was killed may run
//! on for a moment.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::message::{ChunkName, PARTS_MAX, Part, Refusal, Request};
use super::{ForeignUse, LeaseId};

/// The most leases of one importer.
const LEASES_MAX: usize = 1 << 15;
/// Leases remembered of one importer whose host never learned that their uses have completed.
pub(super) const COMPLETED_MAX: usize = 4096;
/// Words about leases that are forgotten, beyond those that are owed; whoever says more breaks the rules.
pub(super) const STRAYS_MAX: usize = 2 * COMPLETED_MAX;

/// How far a lease is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// The importer has it.
    Held,
    /// It was given back in the order of the program; its uses may run.
    Returned,
    /// Its uses have completed, and its importer's host does not know it.
    Completed,
}

/// What becomes of an importer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Stage {
    /// It is read.
    #[default]
    Talks,
    /// Nothing comes from it any more; its process has yet to end.
    Leaves,
    /// It has nothing any more.
    Gone,
}

/// What follows for a lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// The hold ends in the order of the program. These uses may not have completed; where they cannot be true,
    /// [`ExporterEnd::disbelieve`] comes next.
    Returned {
        /// Which.
        lease: LeaseId,
        /// What was done under it that the importer's host does not know to have completed.
        uses: Vec<ForeignUse>,
    },
    /// The uses that it was given back with have completed: the memory can serve again.
    Completed(LeaseId),
    /// The importer's host knows that the uses have completed, and the lease is gone: whatever the owner does from now
    /// on comes after them.
    Known(LeaseId),
    /// The lease is gone; what was done under it is left to be ordered by events.
    Forgotten(LeaseId),
}

/// What follows from one request: one effect, or two.
pub type Effects = SmallVec<[Effect; 2]>;

/// The importer broke the rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broken;

/// What an importer left.
#[derive(PartialEq, Eq, Debug)]
pub struct Left {
    /// All its leases, which are gone.
    pub leases: Vec<LeaseId>,
    /// How many of them it had not given back.
    pub held: usize,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct ExporterEnd {
    stage: Stage,
    /// Asked and not answered.
    question: Option<Request>,
    leases: FxHashMap<LeaseId, Lease>,
    /// How many were given back.
    returned: u64,
    /// How many leases are `Completed`.
    completed: usize,
    /// Words that may yet come about leases that are forgotten.
    owed: usize,
    strays: usize,
    /// Names of events that it knows.
    events: usize,
    /// The device that it speaks for.
    device: Option<u128>,
    /// Chunks that it has files of.
    fetched: FxHashSet<ChunkName>,
}

#[derive(Clone, Debug)]
struct Lease {
    parts: Arc<[Part]>,
    can_write: bool,
    phase: Phase,
    /// How many were given back before it.
    returned: u64,
}

/// What the importer says.
impl ExporterEnd {
    /// A request was received.
    ///
    /// # Errors
    /// It breaks the rules: nothing follows from it, and nothing more is received.
    pub fn receive(&mut self, request: Request) -> Result<Effects, Broken> {
        let effects = match self.stage {
            Stage::Talks => self.take_in(request),
            Stage::Leaves | Stage::Gone => Err(Broken),
        };
        if effects.is_err() {
            self.leave();
        }
        effects
    }

    fn take_in(&mut self, request: Request) -> Result<Effects, Broken> {
        let mut effects = Effects::new();
        match request {
            Request::Claim { .. } | Request::Parts { .. } | Request::Fetch(_) => {
                if self.question.replace(request).is_some() {
                    return Err(Broken);
                }
            }
            Request::Release { lease: id, uses } => {
                let lease = self.leases.get_mut(&id).filter(|lease| lease.phase == Phase::Held).ok_or(Broken)?;
                let device = self.device.or(uses.first().map(|first| first.point.device));
                if uses.iter().any(|known| Some(known.point.device) != device) {
                    return Err(Broken);
                }
                self.device = device;
                (lease.phase, lease.returned) = (Phase::Returned, self.returned);
                self.returned += 1;
                let is_own = |used: &ForeignUse| Some(used.point.device) == self.device;
                debug_assert!(uses.iter().all(is_own), "own-word: uses of another device");
                let is_settled = uses.is_empty();
                effects.push(Effect::Returned { lease: id, uses });
                if is_settled {
                    self.leases.remove(&id);
                    effects.push(Effect::Known(id));
                }
            }
            Request::Over(id) => match self.leases.get_mut(&id) {
                Some(lease) if lease.phase == Phase::Returned => {
                    lease.phase = Phase::Completed;
                    self.completed += 1;
                    effects.push(Effect::Completed(id));
                    effects.extend(self.forget_oldest());
                }
                _ => self.stray()?,
            },
            Request::Known(id) => {
                match self.leases.get(&id).map(|lease| lease.phase) {
                    Some(Phase::Completed) => self.completed -= 1,
                    // Its host knew before its device was seen to be past them.
                    Some(Phase::Returned) => self.owed += 1,
                    Some(Phase::Held) | None => return self.stray().map(|()| effects),
                }
                self.leases.remove(&id);
                effects.push(Effect::Known(id));
            }
        }
        Ok(effects)
    }

    /// What a release says cannot be true: the lease is held as before, and nothing more is received.
    pub fn disbelieve(&mut self, id: LeaseId) {
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.phase = Phase::Held;
        }
        self.leave();
    }

    /// As the importer's end does, which remembers the last.
    fn forget_oldest(&mut self) -> Option<Effect> {
        if self.completed <= COMPLETED_MAX {
            return None;
        }
        let completed = self.leases.iter().filter(|(_, lease)| lease.phase == Phase::Completed);
        let oldest = *completed.min_by_key(|(_, lease)| lease.returned)?.0;
        self.leases.remove(&oldest);
        self.completed -= 1;
        // Its host may yet learn of it.
        self.owed += 1;
        Some(Effect::Forgotten(oldest))
    }

    /// A word about a lease that is forgotten, or never was.
    fn stray(&mut self) -> Result<(), Broken> {
        match self.owed {
            0 => self.strays += 1,
            _ => self.owed -= 1,
        }
        if self.strays > STRAYS_MAX { Err(Broken) } else { Ok(()) }
    }
}

/// How a connection ends.
impl ExporterEnd {
    /// What becomes of it.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// The talk ended, or is broken off: nothing more is received.
    pub fn leave(&mut self) {
        if self.stage == Stage::Talks {
            (self.stage, self.question) = (Stage::Leaves, None);
        }
    }

    /// All comes back that the importer had, if it is gone: the talk ended, and so did its process, or nothing that it
    /// has depends on that.
    pub fn end(&mut self, has_process_ended: bool) -> Option<Left> {
        let needs_nothing = self.events == 0 && self.completed == self.leases.len();
        if self.stage != Stage::Leaves || !(has_process_ended || needs_nothing) {
            return None;
        }
        self.stage = Stage::Gone;
        let held = self.held();
        Some(Left { leases: self.leases.drain().map(|(id, _)| id).collect(), held })
    }
}

/// What it has.
impl ExporterEnd {
    /// The question that waits for its answer, to be answered.
    pub fn take_question(&mut self) -> Option<Request> {
        self.question.take()
    }

    /// Whether a question waits for its answer.
    pub fn has_question(&self) -> bool {
        self.question.is_some()
    }

    /// Whether it may have one lease more.
    pub fn has_room(&self) -> bool {
        self.leases.len() < LEASES_MAX
    }

    /// Whether something depends on what it says.
    pub fn has_leases(&self) -> bool {
        !self.leases.is_empty()
    }

    /// How many leases it has not given back.
    pub fn held(&self) -> usize {
        self.leases.values().filter(|lease| lease.phase == Phase::Held).count()
    }

    /// It has a lease more, on these chunks; not where it talks no more.
    pub fn lend(&mut self, id: LeaseId, parts: Arc<[Part]>, can_write: bool) -> bool {
        if self.stage != Stage::Talks {
            return false;
        }
        self.leases.insert(id, Lease { parts, can_write, phase: Phase::Held, returned: 0 });
        true
    }

    /// It knows the name of an event more.
    pub fn name_event(&mut self) {
        self.events += 1;
    }

    /// It has let go of an event.
    pub fn close_event(&mut self) {
        self.events -= 1;
    }

    /// The chunks under a lease of it, from this one on.
    ///
    /// # Errors
    /// It holds no such lease.
    pub fn parts(&self, id: LeaseId, from: u32) -> Result<Vec<Part>, Refusal> {
        let lease = self.leases.get(&id).filter(|lease| lease.phase == Phase::Held).ok_or(Refusal::NotLent)?;
        Ok(lease.parts.iter().skip(from as usize).take(PARTS_MAX).copied().collect())
    }

    /// Of each of these chunks whether it may be written to.
    ///
    /// # Errors
    /// One of them lies under no lease that it holds.
    pub fn may_fetch(&self, chunks: &[ChunkName]) -> Result<Vec<bool>, Refusal> {
        let mut lent = FxHashMap::<ChunkName, bool>::default();
        for lease in self.leases.values().filter(|lease| lease.phase == Phase::Held) {
            lease.parts.iter().for_each(|part| *lent.entry(part.chunk).or_default() |= lease.can_write);
        }
        chunks.iter().map(|chunk| lent.get(chunk).copied().ok_or(Refusal::NotLent)).collect()
    }

    /// It is sent files of these chunks.
    pub fn fetched(&mut self, chunks: &[ChunkName]) {
        self.fetched.extend(chunks);
    }

    /// Chunks that it has files of and that exist no more: each is listed once, and so many at a time.
    pub fn forget_gone(&mut self, mut exists: impl FnMut(&ChunkName) -> bool) -> Vec<ChunkName> {
        let mut gone = Vec::new();
        self.fetched.retain(|name| {
            let keeps = gone.len() == PARTS_MAX || exists(name);
            if !keeps {
                gone.push(*name);
            }
            keeps
        });
        gone
    }

    /// Whether it has files of any chunk.
    pub fn has_fetched(&self) -> bool {
        !self.fetched.is_empty()
    }
}
