//! Finds the node of a launch that did the act which a refusal reports.
//!
//! A launch is one operation of a stream, and the uses that it leaves are that operation's. For a refusal, while no
//! lock is held, the instance whose latest launch it was is asked, as long as it has a handle. Decides nothing.

use millpond_core::check::{Act, Side, Sought};
use millpond_core::graph::LastAct;
use millpond_core::ids::StreamId;
use millpond_driver::locks::lock;

use super::exec::ExecShared;
use super::found::{Outside, Whose};
use super::registry::Graphs;

impl Graphs {
    /// Returns the node of a launch that did an act, or `None` if `launch` is no launch. No lock is held.
    #[cold]
    pub(crate) fn node_of(&self, launch: &Side, sought: Sought) -> Option<Side> {
        let (stream, op, act) = (launch.stream?, launch.op?, launch.act?);
        // Dropped after the lock is released: these may be the last references by now.
        let execs = lock(&self.execs).live();
        execs.iter().find_map(|exec| exec.node_of(self, (stream, op), act, sought))
    }
}

impl ExecShared {
    /// Returns the node that did an act on an allocation, if this instance's latest launch is that operation of the
    /// stream.
    fn node_of(&self, graphs: &Graphs, launch: (StreamId, u64), act: Act, sought: Sought) -> Option<Side> {
        // Another thread launches it at this moment, so that launch is not the one in the past.
        let run = self.run.try_lock()?;
        if run.launched != Some(launch) {
            return None;
        }
        let own = |node| self.events.as_ref().and_then(|events| events.last_point(&run.lanes, node));
        let frees = |outside: &Outside| outside.last_acts.iter().any(|last| last.act == Act::Free);
        if act == Act::Free && self.auto_free && !self.outsides.iter().any(frees) {
            return Some(Side::auto_free());
        }
        let output = self.outputs.iter().find(|output| output.allocation.id == sought.id);
        let made = output.filter(|_| act == Act::Allocate).map(|output| output.node);
        let did = |last: &&LastAct| last.act == act && sought.is_by(last, own(last.node));
        let used = || output.and_then(|output| output.last_acts.iter().find(did));
        let is_it = |whose: &Whose| match whose {
            Whose::Held(allocation) => allocation.id == sought.id,
            Whose::Node(graph, alloc) => graphs.named((*graph, *alloc)).is_some_and(|it| it.id == sought.id),
        };
        let outside = || self.outsides.iter().find(|outside| is_it(&outside.whose));
        let taken = || outside()?.last_acts.iter().find(did);
        let site = match made {
            Some(node) => self.body.core.flat_site(node, act),
            None => self.body.core.last_act_site(used().or_else(taken)?, sought.part),
        };
        Some(Side::from(&site?))
    }
}
