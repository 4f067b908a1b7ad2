//! The holder of the fixed addresses of a graph with memory nodes: one instance, or the graph that it is a child of.
//!
//! All states of a graph share it. CUDA refuses the same.

use std::sync::{Arc, Weak};

use millpond_core::check::Place;
use millpond_core::graph::{Asked, Graph, GraphId, Holder};
use millpond_driver::locks::{Mutex, lock};

use crate::names::error::Result;
use crate::names::shown::shown;
use crate::sync::ranks;

/// The claim of an instance to the addresses of its graph. It ends with the instance.
#[derive(Debug)]
pub(crate) struct Claim;

/// See the module. An instance is the holder as long as it exists.
#[derive(Debug, Default)]
pub(crate) struct HeldBy(Mutex<ranks::Table, Option<(Holder, Weak<Claim>)>>);

impl HeldBy {
    /// Makes a new instance of the graph the holder of its addresses.
    pub(super) fn claim(&self, graph: &Graph, place: Place) -> Result<Arc<Claim>> {
        let claim = Arc::new(Claim);
        if graph.fixed_memory().is_some() {
            let mut held = lock(&self.0);
            graph.check_unheld(Asked::Instance, holder(held.as_ref()))?;
            *held = Some((Holder::Instance(shown(place)), Arc::downgrade(&claim)));
        }
        Ok(claim)
    }

    /// Makes another graph the holder: `add` adds this graph to it as a child.
    pub(super) fn move_into<R>(
        &self,
        graph: &Graph,
        (parent, place): (GraphId, Place),
        add: impl FnOnce(Option<Holder>) -> Result<R>,
    ) -> Result<R> {
        if graph.fixed_memory().is_none() {
            return add(None);
        }
        let mut held = lock(&self.0);
        let added = add(holder(held.as_ref()))?;
        *held = Some((Holder::Parent(parent, shown(place)), Weak::new()));
        Ok(added)
    }

    /// Returns the holder of the addresses.
    pub(super) fn holder(&self) -> Option<Holder> {
        holder(lock(&self.0).as_ref())
    }
}

/// Returns the holder that is still there.
fn holder(held: Option<&(Holder, Weak<Claim>)>) -> Option<Holder> {
    match held? {
        (Holder::Instance(_), claim) if claim.strong_count() == 0 => None,
        (holder, _) => Some(*holder),
    }
}
