//! Which node of a launch did what a side of a finding says that the launch did.
//!
//! A launch is one operation of a stream, and uses that it leaves are that operation's. An instance knows its latest
//! launch; of earlier ones, and of instances that are destroyed or were updated since, the node is not known. Decides
//! nothing.

use super::checker::{Call, Checker};
use super::finding::{Finding, Side};
use super::graph_state::Instance;
use super::lives::{Found, Named};
use crate::graph::Memory as NodeMemory;
use crate::ids::AllocId;
use crate::op::Act;

impl Finding {
    /// Says of each side that had to come first, where a launch did it, which node did: `node` tells that of an
    /// operation of a stream and the allocation that it did something to.
    #[cold]
    pub fn name_nodes(&mut self, node: impl Fn(&Side, AllocId) -> Option<Side>) {
        let Some(id) = self.subject.as_ref().map(|subject| subject.id) else { return };
        for side in self.earlier.iter_mut().chain(&mut self.others).filter(|side| side.within.is_none()) {
            if let Some(node) = node(side, id) {
                side.node = node.node.clone();
                side.within = Some(Box::new(node));
            }
        }
    }
}

impl Side {
    /// What a launch itself frees, of what one before it left (CUDA: `cudaGraphInstantiateFlagAutoFreeOnLaunch`).
    pub fn auto_free() -> Self {
        let who = "auto free on launch".to_owned();
        Side { verb: Act::Free.past().to_owned(), act: Some(Act::Free), who, ..Side::default() }
    }
}

impl Checker {
    /// The node of a launch that did what the side says.
    #[cold]
    pub(super) fn node_of(&self, call: Call<'_>, side: &Side, id: AllocId) -> Option<Side> {
        let (launch, act) = ((side.stream?, side.op?), side.act?);
        let exec = self.graphs.execs.values().find(|it| it.launched == Some(launch) && !it.is_destroyed)?;
        let mut marks = exec.exec.summary().marks.iter().filter(|mark| mark.act == act);
        if act == Act::Free && exec.exec.auto_free_on_launch() && marks.clone().next().is_none() {
            return Some(Side::auto_free());
        }
        let mark = marks.find(|mark| self.id_of(exec, mark.memory) == Some(id))?;
        Some(Side::of_node(&exec.exec.nodes()[mark.node.index()].site(act), call.names))
    }

    /// The allocation that a node of an instance names, by the number that findings give it.
    fn id_of(&self, instance: &Instance, memory: NodeMemory) -> Option<AllocId> {
        let memory = Self::name_of(instance, memory)?;
        let life = match self.lives.find(memory) {
            Found::Named(Named::Life(life) | Named::Lease(life)) => Some(life),
            Found::Named(Named::Node { .. }) => self.output(memory).and_then(Result::ok),
            _ => None,
        };
        Some(life.map_or(memory, |life| self.lives.birth(life).0).id)
    }
}
