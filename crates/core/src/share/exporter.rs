//! The exporter's end of a connection, as a state machine without I/O: the importer's requests, and what it holds.
//!
//! Inputs: a received request, a granted lease, the end of the connection, the end of the process. Outputs:
//! [`Effect`]s on leases, which the caller applies in their order before the next input, and one question at a time,
//! which the caller answers when it can. Depends on no socket, thread, lock, clock or memory.
//!
//! Invariant **own-word**: everything that a request names is looked up among what this end has lent, and all uses of
//! releases are on chains of one device, that of the first use. A request that breaks the rules ends the connection.
//! What the importer still holds then stays lent until its process has ended, because work of a killed process may
//! run for another moment.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::message::{ChunkName, PARTS_MAX, Part, Refusal, Request};
use super::{ForeignUse, LeaseId};

/// The most leases of one importer.
const LEASES_MAX: usize = 1 << 15;
/// The number of completed leases to remember for an importer whose host never learned of their completion.
pub(super) const COMPLETED_MAX: usize = 4096;
/// The most unexpected messages about forgotten leases. An importer that sends more breaks the rules.
pub(super) const STRAYS_MAX: usize = 2 * COMPLETED_MAX;

/// The phase of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// The importer holds it.
    Held,
    /// It was returned in the order of the program; its uses may still run.
    Returned,
    /// Its uses have completed, but the importer's host does not know it yet.
    Completed,
}

/// The stage of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Stage {
    /// Its requests are read.
    #[default]
    Talks,
    /// No more requests are read; its process has not ended yet.
    Leaves,
    /// It has nothing any more.
    Gone,
}

/// An effect of a request on a lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// The lease ends in the order of the program. These uses may not have completed. If they cannot be true, call
    /// [`ExporterEnd::disbelieve`] next.
    Returned {
        /// The lease.
        lease: LeaseId,
        /// The uses under the lease that the importer's host does not know to have completed.
        uses: Vec<ForeignUse>,
    },
    /// The uses listed at the return have completed: the memory can be used again.
    Completed(LeaseId),
    /// The importer's host knows that the uses have completed, and the lease is gone: everything that the owner does
    /// from now on comes after them.
    Known(LeaseId),
    /// The lease is gone. Events must order what was done under it.
    Forgotten(LeaseId),
}

/// The effects of one request: one, or two.
pub type Effects = SmallVec<[Effect; 2]>;

/// The error of an importer that broke the rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broken;

/// The leases of an importer that left.
#[derive(PartialEq, Eq, Debug)]
pub struct Left {
    /// All its leases, which are gone now.
    pub leases: Vec<LeaseId>,
    /// The number of these that it had not returned.
    pub held: usize,
}

/// The exporter's end of a connection. See the module.
#[derive(Clone, Debug, Default)]
pub struct ExporterEnd {
    stage: Stage,
    /// The question that is not answered yet.
    question: Option<Request>,
    leases: FxHashMap<LeaseId, Lease>,
    /// The number of leases that were returned.
    returned: u64,
    /// The number of leases that are `Completed`.
    completed: usize,
    /// The number of messages that may still come about forgotten leases.
    owed: usize,
    strays: usize,
    /// The number of event names that the importer has.
    events: usize,
    /// The device of the importer's uses.
    device: Option<u128>,
    /// The chunks whose files the importer has.
    fetched: FxHashSet<ChunkName>,
}

#[derive(Clone, Debug)]
struct Lease {
    parts: Arc<[Part]>,
    can_write: bool,
    phase: Phase,
    /// The number of leases that were returned before it.
    returned: u64,
}

/// Requests of the importer.
impl ExporterEnd {
    /// Receives a request.
    ///
    /// # Errors
    /// If the request breaks the rules. It has no effect then, and no more requests are received.
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
                    // The host knew it before its device was observed to have passed them.
                    Some(Phase::Returned) => self.owed += 1,
                    Some(Phase::Held) | None => return self.stray().map(|()| effects),
                }
                self.leases.remove(&id);
                effects.push(Effect::Known(id));
            }
        }
        Ok(effects)
    }

    /// Takes back a release that cannot be true: the lease is held as before, and no more requests are received.
    pub fn disbelieve(&mut self, id: LeaseId) {
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.phase = Phase::Held;
        }
        self.leave();
    }

    /// Forgets the oldest completed lease if there are too many. The importer's end remembers the last ones, too.
    fn forget_oldest(&mut self) -> Option<Effect> {
        if self.completed <= COMPLETED_MAX {
            return None;
        }
        let completed = self.leases.iter().filter(|(_, lease)| lease.phase == Phase::Completed);
        let oldest = *completed.min_by_key(|(_, lease)| lease.returned)?.0;
        self.leases.remove(&oldest);
        self.completed -= 1;
        // The host may still learn of it.
        self.owed += 1;
        Some(Effect::Forgotten(oldest))
    }

    /// Counts a message about a lease that is forgotten or never existed.
    fn stray(&mut self) -> Result<(), Broken> {
        match self.owed {
            0 => self.strays += 1,
            _ => self.owed -= 1,
        }
        if self.strays > STRAYS_MAX { Err(Broken) } else { Ok(()) }
    }
}

/// The end of a connection.
impl ExporterEnd {
    /// Returns the stage.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Ends the connection: no more requests are received.
    pub fn leave(&mut self) {
        if self.stage == Stage::Talks {
            (self.stage, self.question) = (Stage::Leaves, None);
        }
    }

    /// Returns everything that the importer had, if it is gone: the connection has ended, and its process has ended
    /// or nothing that it has depends on that.
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

/// The leases, events and chunks of the importer.
impl ExporterEnd {
    /// Takes the open question, to answer it.
    pub fn take_question(&mut self) -> Option<Request> {
        self.question.take()
    }

    /// Returns `true` if a question is open.
    pub fn has_question(&self) -> bool {
        self.question.is_some()
    }

    /// Returns `true` if the importer may have another lease.
    pub fn has_room(&self) -> bool {
        self.leases.len() < LEASES_MAX
    }

    /// Returns `true` if the importer has leases.
    pub fn has_leases(&self) -> bool {
        !self.leases.is_empty()
    }

    /// Returns the number of leases that the importer has not returned.
    pub fn held(&self) -> usize {
        self.leases.values().filter(|lease| lease.phase == Phase::Held).count()
    }

    /// Adds a lease on these chunks. Returns `false` if the connection has ended.
    pub fn lend(&mut self, id: LeaseId, parts: Arc<[Part]>, can_write: bool) -> bool {
        if self.stage != Stage::Talks {
            return false;
        }
        self.leases.insert(id, Lease { parts, can_write, phase: Phase::Held, returned: 0 });
        true
    }

    /// Records that the importer has the name of another event.
    pub fn name_event(&mut self) {
        self.events += 1;
    }

    /// Records that the importer does not use an event's name any more.
    pub fn close_event(&mut self) {
        self.events -= 1;
    }

    /// Returns the chunks under a lease, from an index on.
    ///
    /// # Errors
    /// If the importer holds no such lease.
    pub fn parts(&self, id: LeaseId, from: u32) -> Result<Vec<Part>, Refusal> {
        let lease = self.leases.get(&id).filter(|lease| lease.phase == Phase::Held).ok_or(Refusal::NotLent)?;
        Ok(lease.parts.iter().skip(from as usize).take(PARTS_MAX).copied().collect())
    }

    /// Returns for each of these chunks whether the importer may write to it.
    ///
    /// # Errors
    /// If one of them is under no lease that the importer holds.
    pub fn may_fetch(&self, chunks: &[ChunkName]) -> Result<Vec<bool>, Refusal> {
        let mut lent = FxHashMap::<ChunkName, bool>::default();
        for lease in self.leases.values().filter(|lease| lease.phase == Phase::Held) {
            lease.parts.iter().for_each(|part| *lent.entry(part.chunk).or_default() |= lease.can_write);
        }
        chunks.iter().map(|chunk| lent.get(chunk).copied().ok_or(Refusal::NotLent)).collect()
    }

    /// Records that the importer is sent the files of these chunks.
    pub fn fetched(&mut self, chunks: &[ChunkName]) {
        self.fetched.extend(chunks);
    }

    /// Returns chunks whose files the importer has and that do not exist any more. Each is listed once, at most
    /// [`PARTS_MAX`] at a time.
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

    /// Returns `true` if the importer has files of any chunk.
    pub fn has_fetched(&self) -> bool {
        !self.fetched.is_empty()
    }
}
