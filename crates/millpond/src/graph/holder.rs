//! Who has the fixed addresses of a graph with memory nodes: one instance, or the graph that it is a child of.
//!
//! All states of a graph have them in common. CUDA refuses the same.

use std::sync::{Arc, Weak};

use millpond_core::check::Place;
use millpond_core::graph::{Asked, GraphId, Holder as Refused};
use millpond_driver::locks::{Mutex, lock};

use super::body::Body;
use crate::names::error::Result;
use crate::names::graph_error::GraphError;
use crate::names::shown::shown;
use crate::sync::ranks;

/// An instance holds one of its own, so that its graph can see whether it is there.
#[derive(Debug)]
pub(crate) struct Instance;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Holder(Mutex<ranks::Holder, Option<Held>>);

#[derive(Debug)]
enum Held {
    /// By an instance, if it is there still, that was made there.
    Instance(Weak<Instance>, Place),
    /// By the graph that it became a child of, there.
    Parent(GraphId, Place),
}

impl Body {
    /// A new instance of the graph, which has its addresses from now on.
    pub(super) fn claim(&self, place: Place) -> Result<Arc<Instance>> {
        let instance = Arc::new(Instance);
        if self.core.fixed_memory().is_some() {
            let mut held = lock(&self.holder.0);
            self.check_unheld(Asked::Instance, held.as_ref())?;
            *held = Some(Held::Instance(Arc::downgrade(&instance), place));
        }
        Ok(instance)
    }

    /// The graph becomes a child of another one, as which `add` adds it.
    pub(super) fn move_into<R>(&self, parent: GraphId, place: Place, add: impl FnOnce() -> Result<R>) -> Result<R> {
        if self.core.fixed_memory().is_none() {
            return add();
        }
        let mut held = lock(&self.holder.0);
        self.check_unheld(Asked::Child, held.as_ref())?;
        let added = add()?;
        *held = Some(Held::Parent(parent, place));
        Ok(added)
    }

    fn check_unheld(&self, asked: Asked, held: Option<&Held>) -> Result<()> {
        let holder = match held {
            Some(Held::Instance(instance, place)) if instance.strong_count() > 0 => Refused::Instance(shown(*place)),
            Some(Held::Parent(parent, place)) => Refused::Parent(*parent, shown(*place)),
            _ => return Ok(()),
        };
        Ok(self.core.check_copy(asked, Some(holder)).map_err(GraphError::Copy)?)
    }

    /// Refuses what would need the addresses twice.
    pub(super) fn check_copy(&self, asked: Asked) -> Result<()> {
        Ok(self.core.check_copy(asked, None).map_err(GraphError::Copy)?)
    }
}
