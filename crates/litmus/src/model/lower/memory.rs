//! Maps names of memory to lives.

use millpond_core::ids::StreamId;
use millpond_core::op::{Access, Act, Memory, What};

use super::Lower;
use crate::model::{Effect, Task};

/// The meaning of a name.
#[derive(Clone, Copy, Debug)]
pub(super) enum Named {
    /// A life.
    Life(usize),
    /// Another process's life, and this process's lease on it.
    Lease(usize, usize),
    /// The life that the latest launch gave the memory of an alloc node.
    Node,
}

impl Lower<'_> {
    /// Performs an operation on memory. Returns `true` if it is one.
    pub(super) fn memory_step(&mut self, what: &What) -> bool {
        match *what {
            What::Alloc { memory, stream, .. } => {
                if !self.captured_alloc(stream, memory) {
                    let life = self.begin(memory, false);
                    self.own(life, what);
                    self.submit(stream, vec![Effect::of_all(life, Act::Allocate)]);
                }
            }
            What::AllocNow { memory, .. } => {
                let life = self.begin(memory, true);
                self.own(life, what);
            }
            What::Free { memory, stream, .. } => {
                if !self.captured_free(stream, memory) {
                    self.free(memory, stream);
                }
            }
            What::FreeNow { memory } => {
                let effects = self.effect(memory, Act::Free);
                self.act(Vec::new(), effects);
            }
            What::Drop { memory } => {
                // Leased memory stays until its last importer returns it.
                if !self.captured_drop(memory) && !self.is_lent(memory) {
                    let effects = self.effect(memory, Act::Free);
                    let needs: Vec<usize> = effects.iter().flat_map(|effect| self.users(effect.life)).collect();
                    self.push(Task { needs, effects, who: "host".into(), ..Task::default() });
                }
            }
            What::HostAccess { ref accesses } => {
                let effects = self.effects(accesses);
                self.act(Vec::new(), effects);
            }
            What::Export { memory, ticket } => {
                let (life, known) = (self.life(memory), self.timeline(self.host));
                self.tickets.insert(ticket, (life, known));
            }
            What::Import { ticket, memory } => {
                if let Some(&(life, known)) = self.tickets.get(&ticket) {
                    self.learn(self.host, known);
                    let lease = self.new_life(memory, true);
                    self.model.lives[life].leases.push(lease);
                    self.named.insert(memory, Named::Lease(life, lease));
                }
            }
            _ => return false,
        }
        true
    }

    fn free(&mut self, memory: Memory, stream: StreamId) {
        let mut effects = self.effect(memory, Act::Free);
        if effects.iter().any(|effect| self.of_host.contains(&effect.life)) {
            // The memory is in no stream, so this frees a life that never began.
            effects = vec![Effect::of_all(self.new_life(memory, false), Act::Free)];
        }
        self.submit(stream, effects);
    }

    fn is_lent(&self, memory: Memory) -> bool {
        matches!(self.named.get(&memory), Some(Named::Life(life)) if !self.model.lives[*life].leases.is_empty())
    }

    fn begin(&mut self, memory: Memory, is_there: bool) -> usize {
        let life = self.new_life(memory, is_there);
        self.named.insert(memory, Named::Life(life));
        life
    }

    /// Returns the life that a name means now, or one that never begins if there is none.
    pub(super) fn life(&mut self, memory: Memory) -> usize {
        let found = match self.named.get(&memory) {
            Some(Named::Life(life) | Named::Lease(life, _)) => Some(*life),
            Some(Named::Node) => self.latest.get(&memory).copied(),
            None => None,
        };
        found.unwrap_or_else(|| self.new_life(memory, false))
    }

    /// Returns the effects on lives of an act on a name.
    pub(super) fn effect(&mut self, memory: Memory, act: Act) -> Vec<Effect> {
        match self.named.get(&memory).copied() {
            // The end of a lease does not end the life.
            Some(Named::Lease(_, lease)) if act == Act::Free => vec![Effect::of_all(lease, act)],
            Some(Named::Lease(life, lease)) => vec![Effect::of_all(lease, Act::Read), Effect::of_all(life, act)],
            _ => vec![Effect::of_all(self.life(memory), act)],
        }
    }

    pub(super) fn effects(&mut self, accesses: &[Access]) -> Vec<Effect> {
        let of = |access: &Access| {
            let (effects, part) = (self.effect(access.memory, access.act), access.part);
            effects.into_iter().map(move |effect| Effect { part, ..effect })
        };
        accesses.iter().flat_map(of).collect()
    }
}
