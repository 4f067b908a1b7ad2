//! The bodies of an instance: the graph's, and those of all children around and in each other.
//!
//! A child is a snapshot, so that one graph may be there several times, as it was at different moments: what a body
//! holds is asked of all bodies, and only what all snapshots of a graph share (its arena, how it is addressed) is found
//! by the graph's number. Knows no order and no address.

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
    /// The graph and all its children.
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

    /// All of them.
    pub(super) fn bodies(&self) -> impl Iterator<Item = &'a Body> {
        self.bodies.iter().copied()
    }

    /// One of a graph that is there.
    pub(super) fn one_of(&self, graph: GraphId) -> &'a Body {
        self.by_graph[&graph]
    }

    /// Whether each instance places a graph's memory anew.
    pub(super) fn is_symbolic(&self, graph: GraphId) -> bool {
        self.one_of(graph).core.addressing() == Addressing::Symbolic
    }

    /// Memory of the outside that some node names.
    pub(super) fn held(&self, id: AllocId) -> &'a Arc<Allocation> {
        self.held[&id]
    }

    /// What keeps the graphs' free nodes known.
    pub(super) fn grants(&self) -> Vec<Arc<Grant>> {
        let mut met = FxHashSet::default();
        let grants = self.bodies().map(|body| &body.grant).filter(|grant| met.insert(Arc::as_ptr(grant)));
        grants.cloned().collect()
    }
}
