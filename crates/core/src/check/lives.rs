//! The memory of a program, by the names that the program gives it.
//!
//! A name refers to a *lifetime* ([`Life`]): the history of an allocation from its beginning to its free. Two names can
//! refer to one lifetime (an import in another process). The name of an alloc node refers to the lifetime that the
//! latest launch began.
//!
//! Knows no stream and no verdict. Invariant **flat**: only the last [`FREED`] frees are remembered, so that a long
//! program takes no more memory than it has live. (With a recorder that uses numbers again, even these names are few.)

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

/// The number of freed names that are remembered.
const FREED: usize = 1 << 16;

/// The origin of a lifetime.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// An allocation in stream order.
    Stream {
        /// `true` if other processes may import it.
        exportable: bool,
        /// Its pool.
        pool: PoolId,
        /// Its device.
        device: DeviceId,
    },
    /// An immediate allocation.
    Now(Space),
    /// A launch.
    Launch(ExecId, GraphAllocId),
}

/// The lease of an importing process.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    pub(super) memory: Memory,
    pub(super) process: ProcessId,
    pub(super) place: Place,
    /// `true` if its free was refused, so that it is not reported as a leak, too.
    pub(super) is_doubtful: bool,
    /// The importer's uses, which its free must come after.
    pub(super) history: History,
}

impl Lease {
    /// Checks that the importer may free it now.
    pub(super) fn check_free(&mut self, who: &impl Knows) -> Result<(), Fault> {
        let checked = self.history.check_free(who);
        self.is_doubtful |= checked.is_err();
        checked
    }
}

/// One lifetime of an allocation.
#[derive(Clone, Debug)]
pub(super) struct Life {
    pub(super) memory: Memory,
    pub(super) history: History,
    pub(super) bytes: u64,
    pub(super) name: Option<Name>,
    pub(super) source: Source,
    /// Counts lifetimes: leaks are reported in this order.
    pub(super) serial: u64,
    /// `true` if an operation on it was refused, so that it is not reported as a leak, too.
    pub(super) is_doubtful: bool,
    /// The length of the history at which uses that all streams come after are dropped.
    pub(super) settle_at: usize,
    /// Behind a pointer: nearly no memory has any, and a `Life` should be small.
    pub(super) leases: Vec<Lease>,
    /// Its former names, which nearly no memory has.
    #[expect(clippy::box_collection, reason = "a life should be small")]
    former: Option<Box<Vec<Memory>>>,
    /// `true` if the owner dropped it while others held it: it ends with the last lease.
    pub(super) is_dropped: bool,
}

impl Life {
    /// Returns what is remembered after the free.
    pub(super) fn freed_by(&self, by: Use) -> Freed {
        Freed { by, bytes: self.bytes, name: self.name }
    }

    /// Returns `true` if another process may use it.
    pub(super) fn is_exportable(&self) -> bool {
        matches!(self.source, Source::Stream { exportable: true, .. } | Source::Now(Space::Device(_)))
    }
}

/// A lifetime that has ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Freed {
    pub(super) by: Use,
    pub(super) bytes: u64,
    pub(super) name: Option<Name>,
}

/// The right of another process to import memory.
#[derive(Clone, Debug)]
pub(super) struct Ticket {
    pub(super) life: LifeId,
    /// The knowledge of the exporting thread.
    pub(super) known: Arc<Base>,
}

/// All memory of a program: see the module.
#[derive(Debug, Default)]
pub(super) struct Lives {
    /// Only the methods of `Lives` may make a number refer to something else: *written-back*.
    pub(super) names: Numbers,
    lives: Vec<Option<Life>>,
    vacant: Vec<LifeId>,
    /// The last frees. The first of them has the number `forgotten`.
    freed: VecDeque<(Memory, Freed)>,
    forgotten: u64,
    births: u64,
    pub(super) tickets: FxHashMap<TicketId, Ticket>,
    /// Tickets of refused exports.
    pub(super) void_tickets: FxHashSet<TicketId>,
}

impl Lives {
    /// Returns what a name refers to.
    #[inline]
    pub(super) fn find(&self, memory: Memory) -> Found {
        self.names.find(memory)
    }

    /// Returns the free of memory whose name no longer refers to it, if it is among the last frees.
    #[cold]
    pub(super) fn freed_as(&self, memory: Memory) -> Option<Freed> {
        self.freed.iter().rev().find(|(freed, _)| *freed == memory).map(|(_, freed)| *freed)
    }

    /// Returns the allocation of the lifetime that a number refers to.
    #[cold]
    pub(super) fn latest(&self, id: AllocId) -> Option<Use> {
        self.names.life_of(id).map(|life| self.birth(life).1)
    }

    /// Makes a name refer to something else.
    #[inline]
    pub(super) fn name(&mut self, memory: Memory, named: Named) {
        if let Some((life, newest)) = self.names.put(memory, named) {
            self.put_back(life, newest);
        }
    }

    /// Begins a lifetime.
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

    /// Returns a lifetime by its index.
    #[inline]
    pub(super) fn at(&self, id: LifeId) -> &Life {
        let life = self.lives[id as usize].as_ref().expect("no name leads to a life that has ended");
        debug_assert!(!self.names.is_behind(life.memory.id, id), "written-back");
        life
    }

    /// Returns the name of a lifetime, and its allocation. Its history may be behind.
    #[cold]
    pub(super) fn birth(&self, id: LifeId) -> (Memory, Use) {
        let life = self.lives[id as usize].as_ref().expect("no name leads to a life that has ended");
        (life.memory, life.history.born())
    }

    /// As [`at`](Self::at), for a change.
    #[inline]
    pub(super) fn at_mut(&mut self, id: LifeId) -> &mut Life {
        self.end_line(id);
        self.lives[id as usize].as_mut().expect("no name leads to a life that has ended")
    }

    /// Adds a use that was judged right. `who` is the party as it was before the use. The free of an `import` must come
    /// after the uses by that import, too.
    #[inline]
    pub(super) fn add_use(&mut self, id: LifeId, import: Option<Memory>, new: Use, part: Part, who: &impl Knows) {
        self.at_mut(id).history.add_use(new, part, who);
        if let Some(lease) = import.and_then(|import| self.lease_mut(id, import)) {
            lease.history.add_use(new, part, who);
        }
    }

    /// Returns the lease of a lifetime that has this name.
    pub(super) fn lease_mut(&mut self, id: LifeId, import: Memory) -> Option<&mut Lease> {
        self.at_mut(id).leases.iter_mut().find(|lease| lease.memory == import)
    }

    /// Notes the newest use of all bytes, or the allocation, of a history: a later use may repeat it.
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

    /// Returns `true` if the history of any lifetime is behind.
    #[inline]
    pub(super) fn is_any_behind(&self) -> bool {
        self.names.any_behind().is_some()
    }

    /// Writes back the history that a name refers to, so that it is not behind.
    pub(super) fn write_back(&mut self, memory: Memory) {
        match self.current(memory) {
            Some(Named::Life(id) | Named::Lease(id)) => {
                if let Some(Some(life)) = self.lives.get(id as usize)
                    && let Some((behind, newest)) = self.names.take(life.memory.id)
                {
                    self.put_back(behind, newest);
                }
            }
            // Memory that a launch left there may have been used by another name.
            Some(Named::Node { .. }) => self.write_all_back(),
            _ => {}
        }
    }

    /// Writes back all histories that are behind.
    pub(super) fn write_all_back(&mut self) {
        while let Some(id) = self.names.any_behind() {
            if let Some((life, newest)) = self.names.take(id) {
                self.put_back(life, newest);
            }
        }
    }

    /// Ends a lifetime. Its names then refer to the free.
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

    /// Gives a lifetime a new name. The former name still refers to it.
    pub(super) fn rename(&mut self, id: LifeId, memory: Memory) {
        let old = std::mem::replace(&mut self.at_mut(id).memory, memory);
        if matches!(self.current(old), Some(Named::Life(named)) if named == id) && old != memory {
            self.at_mut(id).former.get_or_insert_default().push(old);
        }
        self.name(memory, Named::Life(id));
    }

    /// Gives a lifetime another name beside its own.
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

    /// Makes a name refer to a free, for as long as that is remembered.
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
            // If the name got another lifetime since, it may refer to a later free.
            if matches!(self.current(oldest), Some(Named::Freed(named)) if named == number) {
                self.leave(oldest.id);
            }
        }
    }

    /// Returns a free that is still remembered.
    pub(super) fn freed(&self, number: u64) -> Option<Freed> {
        let at = usize::try_from(number.checked_sub(self.forgotten)?).ok()?;
        self.freed.get(at).map(|(_, freed)| *freed)
    }

    /// Drops a lifetime that others hold. Its name and its tickets end now, and the lifetime with its last lease.
    pub(super) fn drop_held(&mut self, id: LifeId, by: Use) {
        let life = self.at_mut(id);
        life.is_dropped = true;
        let (memory, freed) = (life.memory, life.freed_by(by));
        self.forget(memory, freed);
        self.tickets.retain(|_, ticket| ticket.life != id);
    }

    /// Makes a name refer to nothing.
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

    /// Returns all lifetimes that have not ended, in the order in which they began.
    pub(super) fn living(&self) -> Vec<&Life> {
        let mut living: Vec<&Life> = self.lives.iter().flatten().collect();
        living.sort_unstable_by_key(|life| life.serial);
        living
    }

    /// Returns the number of entries in the tables, with which the checker's use of memory grows.
    pub(super) fn entries(&self) -> usize {
        self.names.len() + self.lives.len() + self.freed.len()
    }
}
