//! Who has the fixed addresses of a graph with memory nodes: one instance, or the graph that it is a child of.
//!
//! All states of a graph have them in common. CUDA refuses the same.

use std::sync::{Arc, Weak};

use millpond_core::check::Place;
use millpond_core::graph::{Asked, Graph, GraphId, Holder};
use millpond_driver::locks::{Mutex, lock};

use crate::names::error::Result;
use crate::names::shown::shown;
use crate::sync::ranks;

/// The handles of an instance share one of its own, so that its graph can see whether any is left.
#[derive(Debug)]
pub(crate) struct Instance;

/// See the module: an instance is the holder for as long as it is there.
#[derive(Debug, Default)]
pub(crate) struct HeldBy(Mutex<ranks::Table, Option<(Holder, Weak<Instance>)>>);

impl HeldBy {
    /// A new instance of the graph, which has its addresses from now on.
    pub(super) fn claim(&self, graph: &Graph, place: Place) -> Result<Arc<Instance>> {
        let instance = Arc::new(Instance);
        if graph.fixed_memory().is_some() {
            let mut held = lock(&self.0);
            graph.check_unheld(Asked::Instance, holder(held.as_ref()))?;
            *held = Some((Holder::Instance(shown(place)), Arc::downgrade(&instance)));
        }
        Ok(instance)
    }

    /// The graph becomes a child of another one, as which `add` adds it.
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
fn holder(held: Option<&(Holder, Weak<Instance>)>) -> Option<Holder> {
    match held? {
        (Holder::Instance(_), instance) if instance.strong_count() == 0 => None,
        (holder, _) => Some(*holder),
    }
}
