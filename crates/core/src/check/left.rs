//! The memory that launches leave: its lifetimes by the names of alloc nodes, its frees, and instances that no longer
//! exist.
//!
//! Knows instances and lifetimes; no stream.

use rustc_hash::FxHashSet;

use super::checker::{Call, Checker, Step};
use super::graph_state::{Before, Instance, Output};
use super::lives::{Freed, LifeId, Source};
use super::names::Key;
use crate::graph::GraphAllocId;
use crate::ids::{ExecId, GraphId};
use crate::op::{Act, Memory};

impl Checker {
    /// Returns the lifetime that the latest launch gave the memory of an alloc node, or its free as the `Err`. Returns
    /// `None` if there was no launch.
    pub(super) fn output(&self, memory: Memory) -> Option<Result<LifeId, Freed>> {
        let Some((exec, alloc)) = self.graphs.latest.get(&memory) else {
            return self.graphs.freed.get(&memory).map(|freed| Err(*freed));
        };
        match self.graphs.execs.get(exec)?.outputs.get(alloc)? {
            Output::Live(life) => Some(Ok(*life)),
            Output::Freed(freed) => Some(Err(*freed)),
        }
    }

    /// Keeps the names of memory that an instance left before it was updated to another graph. The names of the former
    /// graph's alloc nodes refer to that memory, and not to the memory that is allocated there next.
    pub(super) fn keep_names(&mut self, exec: ExecId, left: Vec<(GraphAllocId, Memory, Output)>) {
        for (alloc, memory, output) in left {
            let is_same = self.name_of_output(exec, alloc) == Some(memory);
            if is_same || self.graphs.latest.get(&memory) != Some(&(exec, alloc)) {
                continue;
            }
            self.graphs.latest.remove(&memory);
            match output {
                Output::Live(life) => self.lives.name_also(life, memory),
                Output::Freed(freed) => drop(self.graphs.freed.insert(memory, freed)),
            }
        }
    }

    /// Returns the alloc node of memory that a launch left, by which other graphs name it. Returns `None` for a graph
    /// with symbolic addresses: each instance has memory of its own, which nodes use by the name of its lifetime, and
    /// which free nodes do not free.
    pub(super) fn left_by_launch(&self, life: LifeId) -> Option<Key> {
        let Source::Launch(exec, alloc) = self.lives.at(life).source else { return None };
        let instance = self.graphs.execs.get(&exec)?;
        Some(instance.key(alloc)).filter(|_| !instance.exec.allocs()[alloc.index()].is_symbolic)
    }

    /// Returns the name of the alloc node that allocated memory that a launch left.
    pub(super) fn node_of_left(&self, life: LifeId) -> Option<Memory> {
        let Source::Launch(exec, alloc) = self.lives.at(life).source else { return None };
        self.name_of_output(exec, alloc)
    }

    fn name_of_output(&self, exec: ExecId, alloc: GraphAllocId) -> Option<Memory> {
        self.graphs.names.of(self.graphs.execs.get(&exec)?.key(alloc))
    }

    /// Notes that an operation outside of the instance freed its memory.
    pub(super) fn output_freed(&mut self, exec: ExecId, alloc: GraphAllocId, freed: Freed) {
        let Some(instance) = self.graphs.execs.get_mut(&exec) else { return };
        instance.outputs.insert(alloc, Output::Freed(freed));
        // Operations after that free are wrong for a reason of their own.
        if let Some(memory) = self.name_of_output(exec, alloc) {
            self.graphs.unmade.remove(&memory);
        }
        self.bury(exec);
    }

    /// Gives the lifetime that the latest launch began a name of its own.
    pub(super) fn take(&mut self, call: Call<'_>, exec: ExecId, node: Memory, memory: Memory) -> Step {
        let site = self.host_site(call, Act::Read);
        let instance = self.instance(call, exec)?;
        let alloc = instance.outputs.keys().find(|alloc| self.graphs.names.of(instance.key(**alloc)) == Some(node));
        match alloc.and_then(|alloc| instance.outputs.get(alloc)) {
            Some(Output::Live(life)) => {
                let life = *life;
                self.lives.rename(life, memory);
                Ok(())
            }
            Some(Output::Freed(freed)) => Err(self.after_free(call, node, Some(*freed), site)),
            None => {
                let life = self.resolve(call, node, site)?.life;
                // The instance left it before it was updated.
                if matches!(self.lives.at(life).source, Source::Launch(by, _) if by == exec) {
                    self.lives.rename(life, memory);
                }
                Ok(())
            }
        }
    }

    pub(super) fn destroy_exec(&mut self, call: Call<'_>, exec: ExecId) -> Step {
        self.instance(call, exec)?;
        let Some(instance) = self.graphs.execs.get_mut(&exec) else { return Ok(()) };
        instance.is_destroyed = true;
        let made = self.graphs.graphs.get_mut(&instance.graph.id());
        if let Some(made) = made.filter(|made| matches!(made.holder, Some((_, Some(of))) if of == exec)) {
            made.holder = None;
            made.before.extend(std::mem::take(&mut instance.before));
            if instance.last.is_some() {
                let graphs: FxHashSet<GraphId> = instance.exec.allocs().iter().map(|alloc| alloc.graph).collect();
                let with_addresses = graphs.into_iter().filter(|graph| instance.has_addresses(*graph));
                made.before.extend(with_addresses.map(|graph| (graph, Before { last: instance.last.clone(), exec })));
            }
        }
        self.bury(exec);
        Ok(())
    }

    /// Forgets an instance that is destroyed and has left no live memory.
    fn bury(&mut self, exec: ExecId) {
        let lives = |output: &Output| matches!(output, Output::Live(_));
        let is_over = |it: &Instance| it.is_destroyed && !it.outputs.values().any(lives);
        if !self.graphs.execs.get(&exec).is_some_and(is_over) {
            return;
        }
        let Some(instance) = self.graphs.execs.remove(&exec) else { return };
        for alloc in instance.exec.outputs() {
            if let Some(memory) = self.graphs.names.of(instance.key(*alloc))
                && self.graphs.latest.get(&memory).is_some_and(|(latest, _)| *latest == exec)
            {
                self.graphs.latest.remove(&memory);
                if let Some(Output::Freed(freed)) = instance.outputs.get(alloc) {
                    self.graphs.freed.insert(memory, *freed);
                }
            }
        }
        self.forget_names(&instance.held);
        instance.lanes.close().for_each(|last| self.time.close_chain(last));
    }
}
