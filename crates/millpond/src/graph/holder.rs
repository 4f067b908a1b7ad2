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
            check_unheld(graph, Asked::Instance, held.as_ref())?;
            *held = Some((Holder::Instance(shown(place)), Arc::downgrade(&instance)));
        }
        Ok(instance)
    }

    /// The graph becomes a child of another one, as which `add` adds it.
    pub(super) fn move_into<R>(
        &self,
        graph: &Graph,
        (parent, place): (GraphId, Place),
        add: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        if graph.fixed_memory().is_none() {
            return add();
        }
        let mut held = lock(&self.0);
        check_unheld(graph, Asked::Child, held.as_ref())?;
        let added = add()?;
        *held = Some((Holder::Parent(parent, shown(place)), Weak::new()));
        Ok(added)
    }

    /// Returns who has the addresses, or had them last.
    pub(super) fn holder(&self) -> Option<Holder> {
        lock(&self.0).as_ref().map(|(holder, _)| *holder)
    }
}

fn check_unheld(graph: &Graph, asked: Asked, held: Option<&(Holder, Weak<Instance>)>) -> Result<()> {
    match held {
        Some((Holder::Instance(_), instance)) if instance.strong_count() == 0 => Ok(()),
        Some((holder, _)) => Ok(graph.check_copy(asked, Some(*holder))?),
        None => Ok(()),
    }
}
