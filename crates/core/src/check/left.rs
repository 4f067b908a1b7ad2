//! What launches leave: live memory by the names of alloc nodes, its ends, and instances that are gone.
//!
//! Knows instances and lives; no stream.

use super::checker::{Call, Checker, Step};
use super::graph_state::{Instance, Output};
use super::lives::{Freed, LifeId, Source};
use super::names::Key;
use crate::graph::GraphAllocId;
use crate::ids::ExecId;
use crate::op::{Act, Memory};

impl Checker {
    /// The life that the latest launch gave memory of an alloc node; what freed it; none where there was no launch.
    pub(super) fn output(&self, memory: Memory) -> Option<Result<LifeId, Freed>> {
        let Some((exec, alloc)) = self.graphs.latest.get(&memory) else {
            let parted = self.graphs.parted_as.get(&memory).map(|life| Ok(*life));
            return parted.or_else(|| self.graphs.freed.get(&memory).map(|freed| Err(*freed)));
        };
        match self.graphs.execs.get(exec)?.outputs.get(alloc)? {
            Output::Live(life) => Some(Ok(*life)),
            Output::Freed(freed) => Some(Err(*freed)),
        }
    }

    /// The alloc node whose latest launch gave memory its latest life.
    pub(super) fn latest_key(&self, memory: Memory) -> Option<Key> {
        match self.graphs.latest.get(&memory) {
            Some((exec, alloc)) => Some(self.graphs.execs.get(exec)?.left_as(*alloc)),
            None => Some(self.graphs.parted.get(self.graphs.parted_as.get(&memory)?)?.key),
        }
    }

    /// What freed the memory of an alloc node that an instance has, of whose copy the latest launch was.
    #[cold]
    pub(super) fn freed_of(&self, key: Key) -> Option<Freed> {
        let of = |instance: &Instance| {
            let outputs = instance.outputs.iter();
            outputs.filter(|(alloc, _)| instance.left_as(**alloc) == key).find_map(|(_, output)| match output {
                Output::Freed(freed) => Some(*freed),
                Output::Live(_) => None,
            })
        };
        let freed = self.graphs.execs.iter().filter_map(|(exec, instance)| Some((exec, of(instance)?)));
        freed.max_by_key(|(exec, _)| **exec).map(|(_, freed)| freed)
    }

    /// What a launch left, as other graphs name it: by its alloc node. Of a graph with symbolic addresses each instance
    /// has its own, which nodes use by the name of its life, and free nodes do not free.
    pub(super) fn left_by_launch(&self, life: LifeId) -> Option<(Key, Memory)> {
        let (exec, alloc) = match self.lives.at(life).source {
            Source::Launch(exec, alloc) => (exec, alloc),
            Source::Parted => return self.graphs.parted.get(&life).map(|it| (it.key, it.memory)),
            _ => return None,
        };
        let instance = self.graphs.execs.get(&exec)?;
        let key = instance.left_as(alloc);
        let is_named = !instance.exec.allocs()[alloc.index()].is_symbolic;
        is_named.then(|| Some((key, instance.names.of(key)?)))?
    }

    /// The name of the alloc node that made what a launch left.
    pub(super) fn node_of_left(&self, life: LifeId) -> Option<Memory> {
        match self.lives.at(life).source {
            Source::Launch(exec, alloc) => {
                let instance = self.graphs.execs.get(&exec)?;
                instance.names.of(instance.left_as(alloc))
            }
            Source::Parted => self.graphs.parted.get(&life).map(|it| it.memory),
            _ => None,
        }
    }

    /// Memory of an instance was freed from outside.
    pub(super) fn output_freed(&mut self, exec: ExecId, alloc: GraphAllocId, freed: Freed) {
        let Some(instance) = self.graphs.execs.get_mut(&exec) else { return };
        instance.freed(alloc, freed);
        // What comes after that free is wrong by itself.
        if let Some(memory) = instance.names.of(instance.left_as(alloc)) {
            self.graphs.unmade.remove(&memory);
        }
        match instance.former.get(&alloc).copied() {
            Some(key) => self.graphs.forget_former(key, (exec, alloc)),
            None => {
                let families = instance.families.clone();
                self.graphs.forget_left(&families, (exec, alloc));
            }
        }
        self.bury(exec);
    }

    /// Gives the latest launch's life a name of its own.
    pub(super) fn take(&mut self, call: Call<'_>, exec: ExecId, node: Memory, memory: Memory) -> Step {
        let site = self.host_site(call, Act::Read);
        let instance = self.instance(call, exec)?;
        let alloc = instance.outputs.keys().find(|alloc| instance.names.of(instance.left_as(**alloc)) == Some(node));
        match alloc.and_then(|alloc| instance.outputs.get(alloc)) {
            Some(Output::Live(life)) => {
                let life = *life;
                self.lives.rename(life, memory);
                Ok(())
            }
            Some(Output::Freed(freed)) => Err(self.after_free(call, node, Some(*freed), site)),
            None => self.resolve(call, node, site).map(drop),
        }
    }

    pub(super) fn destroy_exec(&mut self, call: Call<'_>, exec: ExecId) -> Step {
        self.instance(call, exec)?;
        if let Some(instance) = self.graphs.execs.get_mut(&exec) {
            instance.is_destroyed = true;
        }
        self.bury(exec);
        Ok(())
    }

    /// An instance that is destroyed and left nothing that lives is forgotten.
    fn bury(&mut self, exec: ExecId) {
        let lives = |output: &Output| matches!(output, Output::Live(_));
        let is_over = |it: &Instance| it.is_destroyed && !it.outputs.values().any(lives);
        if !self.graphs.execs.get(&exec).is_some_and(is_over) {
            return;
        }
        let Some(instance) = self.graphs.execs.remove(&exec) else { return };
        self.graphs.withdraw_from(&instance.families);
        for alloc in instance.exec.outputs() {
            if let Some(memory) = instance.names.of(instance.left_as(*alloc))
                && self.graphs.latest.get(&memory).is_some_and(|(latest, _)| *latest == exec)
            {
                self.graphs.latest.remove(&memory);
                if let Some(Output::Freed(freed)) = instance.outputs.get(alloc) {
                    self.graphs.freed.insert(memory, *freed);
                }
            }
        }
        self.forget_names(&instance.names);
        instance.lanes.close().for_each(|last| self.time.close_slot(last));
    }
}
