//! The bodies of an instance: the graph's body, and those of all its children and their children.
//!
//! A child is a snapshot. One graph may be contained several times, as it was at different moments. So the contents of
//! a body are looked up in all bodies. Only what all snapshots of a graph share (its arena, its addressing) is looked
//! up by the graph's number. Depends on no order and on no addresses.

use std::sync::Arc;

use millpond_core::graph::Addressing;
use millpond_core::ids::{AllocId, GraphId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::body::Body;
use super::grant::Grant;
use crate::state::allocation::Allocation;

/// See the module.
#[derive(Default)]
pub(super) struct Family<'a> {
    bodies: Vec<&'a Body>,
    by_graph: FxHashMap<GraphId, &'a Body>,
    held: FxHashMap<AllocId, &'a Arc<Allocation>>,
}

impl<'a> Family<'a> {
    /// Returns the family of a graph: its body and those of all its children.
    pub(super) fn of(body: &'a Body) -> Self {
        let mut family = Self::default();
        family.gather(body);
        family
    }

    fn gather(&mut self, body: &'a Body) {
        self.bodies.push(body);
        self.by_graph.entry(body.core.id()).or_insert(body);
        self.held.extend(body.held.iter().map(|(id, allocation)| (*id, allocation)));
        body.children.values().for_each(|child| self.gather(child));
    }

    /// Returns all bodies.
    pub(super) fn bodies(&self) -> impl Iterator<Item = &'a Body> {
        self.bodies.iter().copied()
    }

    /// Returns a body of a graph that is in the family.
    pub(super) fn one_of(&self, graph: GraphId) -> &'a Body {
        self.by_graph[&graph]
    }

    /// Returns `true` if each instance has its own addresses for a graph's memory.
    pub(super) fn is_symbolic(&self, graph: GraphId) -> bool {
        self.one_of(graph).core.addressing() == Addressing::Symbolic
    }

    /// Returns memory from outside the graph that some node names.
    pub(super) fn held(&self, id: AllocId) -> &'a Arc<Allocation> {
        self.held[&id]
    }

    /// Returns the records that keep the graphs' free nodes known.
    pub(super) fn grants(&self) -> Vec<Arc<Grant>> {
        let mut met = FxHashSet::default();
        let grants = self.bodies().map(|body| &body.grant).filter(|grant| met.insert(Arc::as_ptr(grant)));
        grants.cloned().collect()
    }
}
