//! What memory there is, by the names that the program gives it.
//!
//! A name leads to a *life*: the history of an allocation from its birth to its free. Two names can lead to one life
//! (an import in another process), and the name of an alloc node leads to whatever life the latest launch began.
//!
//! Knows no stream and no verdict. Invariant **flat**: of what was freed no more than the last [`FREED`] are
//! remembered, so that a long program takes no more memory than it has live (a recorder that gives numbers out again
//! makes even those few).

use std::collections::VecDeque;
use std::sync::Arc;

use super::numbers::Numbers;
pub(super) use super::numbers::{Found, LifeId, Named};
use crate::graph::GraphAllocId;
use crate::ids::{AllocId, DeviceId, ExecId, PoolId, ProcessId, TicketId};
use crate::life::{Fault, History, Use};
use crate::op::{Memory, Name, Part, Place, Space};
use crate::order::{Base, Knows};
use rustc_hash::{FxHashMap, FxHashSet};

/// How many freed names are remembered.
const FREED: usize = 1 << 16;

/// Where a life comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// A stream's order.
    Stream {
        /// Whether other processes may have it.
        exportable: bool,
        /// Its pool.
        pool: PoolId,
        /// The device that it is of.
        device: DeviceId,
    },
    /// Made at once.
    Now(Space),
    /// A launch.
    Launch(ExecId, GraphAllocId),
}

/// Another process's hold on a life.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    pub(super) memory: Memory,
    pub(super) process: ProcessId,
    pub(super) place: Place,
    /// Whether its free was refused: it is not reported as a leak, too.
    pub(super) is_doubtful: bool,
    /// What the importer did with it: its free must come after that.
    pub(super) history: History,
}

impl Lease {
    /// Whether the importer may free it now.
    pub(super) fn check_free(&mut self, who: &impl Knows) -> Result<(), Fault> {
        let checked = self.history.check_free(who);
        self.is_doubtful |= checked.is_err();
        checked
    }
}

/// One life of an allocation.
#[derive(Clone, Debug)]
pub(super) struct Life {
    pub(super) memory: Memory,
    pub(super) history: History,
    pub(super) bytes: u64,
    pub(super) name: Option<Name>,
    pub(super) source: Source,
    /// Counts births: the order in which leaks are reported.
    pub(super) serial: u64,
    /// Whether something done to it was refused: it is not reported as a leak, too.
    pub(super) is_doubtful: bool,
    /// Entries of the history at which those that all streams know are thrown away.
    pub(super) settle_at: usize,
    /// Behind a pointer: nearly no memory has any, and a life should be small.
    pub(super) leases: Vec<Lease>,
    /// What it was called before its present name; nearly no memory has such.
    #[expect(clippy::box_collection, reason = "a life should be small")]
    former: Option<Box<Vec<Memory>>>,
    /// The owner has dropped it while others held it: it ends with the last of those.
    pub(super) is_dropped: bool,
}

impl Life {
    /// What is remembered of it once it is freed.
    pub(super) fn freed_by(&self, by: Use) -> Freed {
        Freed { by, bytes: self.bytes, name: self.name }
    }

    /// Whether another process may use it.
    pub(super) fn is_exportable(&self) -> bool {
        matches!(self.source, Source::Stream { exportable: true, .. } | Source::Now(Space::Device(_)))
    }
}

/// A life that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Freed {
    pub(super) by: Use,
    pub(super) bytes: u64,
    pub(super) name: Option<Name>,
}

/// An offer of memory to other processes.
#[derive(Clone, Debug)]
pub(super) struct Ticket {
    pub(super) life: LifeId,
    /// What the thread knew that made it.
    pub(super) known: Arc<Base>,
}

/// All memory of a program: see the module.
#[derive(Debug, Default)]
pub(super) struct Lives {
    /// Whoever makes a number lead elsewhere does that by a function of this: *written-back*.
    pub(super) names: Numbers,
    lives: Vec<Option<Life>>,
    vacant: Vec<LifeId>,
    /// The last frees; the first of them has the number `forgotten`.
    freed: VecDeque<(Memory, Freed)>,
    forgotten: u64,
    births: u64,
    pub(super) tickets: FxHashMap<TicketId, Ticket>,
    /// Offers that were refused.
    pub(super) void_tickets: FxHashSet<TicketId>,
}

impl Lives {
    /// What a name leads to.
    #[inline]
    pub(super) fn find(&self, memory: Memory) -> Found {
        self.names.find(memory)
    }

    /// What freed memory that its name does not lead to any more, if it is among the latest that were freed.
    #[cold]
    pub(super) fn freed_as(&self, memory: Memory) -> Option<Freed> {
        self.freed.iter().rev().find(|(freed, _)| *freed == memory).map(|(_, freed)| *freed)
    }

    /// What began the life that a number leads to.
    #[cold]
    pub(super) fn latest(&self, id: AllocId) -> Option<Use> {
        self.names.life_of(id).map(|life| self.birth(life).1)
    }

    /// A name leads somewhere from now on.
    #[inline]
    pub(super) fn name(&mut self, memory: Memory, named: Named) {
        if let Some((life, newest)) = self.names.put(memory, named) {
            self.put_back(life, newest);
        }
    }

    /// A life begins.
    pub(super) fn begin(
        &mut self,
        memory: Memory,
        born: Use,
        bytes: u64,
        name: Option<Name>,
        source: Source,
    ) -> LifeId {
        self.births += 1;
        let life = Life {
            memory,
            history: History::new(born),
            bytes,
            name,
            source,
            serial: self.births,
            is_doubtful: false,
            settle_at: 16,
            leases: Vec::new(),
            former: None,
            is_dropped: false,
        };
        match self.vacant.pop() {
            Some(id) => {
                self.lives[id as usize] = Some(life);
                id
            }
            None => {
                self.lives.push(Some(life));
                self.lives.len() as LifeId - 1
            }
        }
    }

    /// A life, by the number that its names lead to.
    #[inline]
    pub(super) fn at(&self, id: LifeId) -> &Life {
        let life = self.lives[id as usize].as_ref().expect("no name leads to a life that has ended");
        debug_assert!(!self.names.is_behind(life.memory.id, id), "written-back");
        life
    }

    /// The serial number of a life, if one has this number.
    pub(super) fn serial(&self, id: LifeId) -> Option<u64> {
        self.lives.get(id as usize)?.as_ref().map(|life| life.serial)
    }

    /// Whose a life is and what began it: of a history that is behind, too.
    #[cold]
    pub(super) fn birth(&self, id: LifeId) -> (Memory, Use) {
        let life = self.lives[id as usize].as_ref().expect("no name leads to a life that has ended");
        (life.memory, life.history.born())
    }

    /// As [`at`](Self::at), to change it.
    #[inline]
    pub(super) fn at_mut(&mut self, id: LifeId) -> &mut Life {
        self.end_line(id);
        self.lives[id as usize].as_mut().expect("no name leads to a life that has ended")
    }

    /// Adds a use of a life that was found right; `who` stood before it then. One by an `import` of the memory is one
    /// that the import's own free must come after, too.
    #[inline]
    pub(super) fn add_use(&mut self, id: LifeId, import: Option<Memory>, new: Use, part: Part, who: &impl Knows) {
        self.at_mut(id).history.add_use(new, part, who);
        if let Some(lease) = import.and_then(|import| self.lease_mut(id, import)) {
            lease.history.add_use(new, part, who);
        }
    }

    /// The import of a life that has this name.
    pub(super) fn lease_mut(&mut self, id: LifeId, import: Memory) -> Option<&mut Lease> {
        self.at_mut(id).leases.iter_mut().find(|lease| lease.memory == import)
    }

    /// A history has this as its newest use of all bytes, or begins with it: it may be repeated.
    #[inline]
    pub(super) fn note_newest(&mut self, id: LifeId, newest: Use) {
        if let Some(Some(life)) = self.lives.get(id as usize)
            && life.history.is_whole()
        {
            self.names.note(life.memory, id, newest);
        }
    }

    #[inline]
    fn end_line(&mut self, id: LifeId) {
        if let Some(Some(life)) = self.lives.get(id as usize)
            && let Some(newest) = self.names.end(life.memory.id, id)
        {
            self.put_back(id, newest);
        }
    }

    #[cold]
    fn put_back(&mut self, id: LifeId, newest: Use) {
        if let Some(Some(life)) = self.lives.get_mut(id as usize) {
            life.history.repeat(newest);
        }
    }

    /// Whether the history of any life is behind.
    #[inline]
    pub(super) fn is_any_behind(&self) -> bool {
        self.names.any_behind().is_some()
    }

    /// The history that a name leads to is not behind any more.
    pub(super) fn write_back(&mut self, memory: Memory) {
        match self.current(memory) {
            Some(Named::Life(id) | Named::Lease(id)) => {
                if let Some(Some(life)) = self.lives.get(id as usize)
                    && let Some((behind, newest)) = self.names.take(life.memory.id)
                {
                    self.put_back(behind, newest);
                }
            }
            // An alloc node's: what a launch left there may have been used by another name.
            Some(Named::Node { .. }) => self.write_all_back(),
            _ => {}
        }
    }

    /// No history is behind any more.
    pub(super) fn write_all_back(&mut self) {
        while let Some(id) = self.names.any_behind() {
            if let Some((life, newest)) = self.names.take(id) {
                self.put_back(life, newest);
            }
        }
    }

    /// A life ends: its names lead to the free.
    pub(super) fn end(&mut self, id: LifeId, by: Use) -> Option<Life> {
        self.end_line(id);
        let life = self.lives[id as usize].take()?;
        debug_assert!(life.leases.is_empty(), "held-by-all: {:?} is held by other processes", life.memory);
        self.vacant.push(id);
        let freed = life.freed_by(by);
        if let Some(Named::Life(named)) = self.current(life.memory)
            && named == id
        {
            self.forget(life.memory, freed);
        }
        for former in life.former.iter().flat_map(|former| former.iter()) {
            if matches!(self.current(*former), Some(Named::Life(named)) if named == id) {
                self.forget(*former, freed);
            }
        }
        if !self.tickets.is_empty() {
            self.tickets.retain(|_, ticket| ticket.life != id);
        }
        Some(life)
    }

    /// A life gets a new name; the one before still leads to it.
    pub(super) fn rename(&mut self, id: LifeId, memory: Memory) {
        let old = std::mem::replace(&mut self.at_mut(id).memory, memory);
        if matches!(self.current(old), Some(Named::Life(named)) if named == id) && old != memory {
            self.at_mut(id).former.get_or_insert_default().push(old);
        }
        self.name(memory, Named::Life(id));
    }

    /// A name leads to a life, beside its own.
    pub(super) fn name_also(&mut self, id: LifeId, memory: Memory) {
        let life = self.at_mut(id);
        if life.memory != memory {
            life.former.get_or_insert_default().push(memory);
        }
        self.name(memory, Named::Life(id));
    }

    fn current(&self, memory: Memory) -> Option<Named> {
        match self.names.find(memory) {
            Found::Named(named) => Some(named),
            _ => None,
        }
    }

    /// A name leads to a free from now on, for as long as that is remembered.
    pub(super) fn forget(&mut self, memory: Memory, freed: Freed) {
        if self.current(memory).is_none() {
            return;
        }
        self.name(memory, Named::Freed(self.forgotten + self.freed.len() as u64));
        self.freed.push_back((memory, freed));
        if self.freed.len() > FREED
            && let Some((oldest, _)) = self.freed.pop_front()
        {
            let number = self.forgotten;
            self.forgotten += 1;
            // A name whose life began anew may lead to a later free.
            if matches!(self.current(oldest), Some(Named::Freed(named)) if named == number) {
                self.leave(oldest.id);
            }
        }
    }

    /// A free that is remembered.
    pub(super) fn freed(&self, number: u64) -> Option<Freed> {
        let at = usize::try_from(number.checked_sub(self.forgotten)?).ok()?;
        self.freed.get(at).map(|(_, freed)| *freed)
    }

    /// The owner drops a life that others hold: its name and its offers end, the life with the last holder.
    pub(super) fn drop_held(&mut self, id: LifeId, by: Use) {
        let life = self.at_mut(id);
        life.is_dropped = true;
        let (memory, freed) = (life.memory, life.freed_by(by));
        self.forget(memory, freed);
        self.tickets.retain(|_, ticket| ticket.life != id);
    }

    /// A name leads nowhere.
    pub(super) fn remove(&mut self, memory: Memory) {
        if self.current(memory).is_some() {
            self.leave(memory.id);
        }
    }

    fn leave(&mut self, id: AllocId) {
        if let Some((life, newest)) = self.names.remove(id) {
            self.put_back(life, newest);
        }
    }

    /// All that live, in the order of their births.
    pub(super) fn living(&self) -> Vec<&Life> {
        let mut living: Vec<&Life> = self.lives.iter().flatten().collect();
        living.sort_unstable_by_key(|life| life.serial);
        living
    }

    /// How many entries the tables have: what the memory of a checker grows with.
    pub(super) fn entries(&self) -> usize {
        self.names.len() + self.lives.len() + self.freed.len()
    }
}
