//! Whose addresses graphs have, and which of them hold memory that a launch left.
//!
//! A graph and its copies are a family: they have the same addresses, so that their launches come one after the other,
//! and what one of them left unfreed is in the way of another. A graph with children has theirs as well. Graphs with
//! symbolic addresses have none. Knows no stream.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::names::Key;
use crate::graph::{Addressing, Graph, GraphAllocId, GraphError, Label};
use crate::ids::{ExecId, GraphId, NodeId};
use crate::order::Snapshot;
use crate::units::{Range, round_up};

/// A device's, as a rule.
const GRANULARITY: u64 = 2 << 20;

/// A graph without nodes.
pub(super) fn empty_graph(graph: GraphId, symbolic: bool) -> Graph {
    Graph::new(graph, GRANULARITY, if symbolic { Addressing::Symbolic } else { Addressing::Fixed })
}

/// Which family each graph is of: a graph itself and its children.
#[derive(Clone, Debug, Default)]
pub(super) struct Homes(SmallVec<[(GraphId, GraphId); 1]>);

impl Homes {
    /// A new graph is a family of its own.
    pub(super) fn of(graph: GraphId, symbolic: bool) -> Self {
        Self(if symbolic { SmallVec::new() } else { SmallVec::from_elem((graph, graph), 1) })
    }

    /// Those of a copy.
    pub(super) fn copied(&self, from: GraphId, to: GraphId) -> Self {
        Self(self.0.iter().map(|&(graph, family)| (if graph == from { to } else { graph }, family)).collect())
    }

    /// The graph has a child with these.
    pub(super) fn adopt(&mut self, child: &Homes) {
        for home in &child.0 {
            if !self.0.contains(home) {
                self.0.push(*home);
            }
        }
    }

    /// The family of a graph; none where its instances have addresses of their own.
    pub(super) fn family(&self, graph: GraphId) -> Option<GraphId> {
        self.0.iter().find(|home| home.0 == graph).map(|home| home.1)
    }

    /// Whether it has addresses of that family.
    pub(super) fn has(&self, family: GraphId) -> bool {
        self.0.iter().any(|home| home.1 == family)
    }
}

/// Addresses for graphs that no other graph has.
#[derive(Debug, Default)]
pub(super) struct FreshAddresses {
    next: u64,
}

impl FreshAddresses {
    /// Adds an alloc node.
    pub(super) fn add_alloc(
        &mut self,
        graph: &mut Graph,
        after: &[NodeId],
        bytes: u64,
        label: Label,
    ) -> Result<(NodeId, GraphAllocId), GraphError> {
        loop {
            match graph.add_alloc(after, bytes, label.clone()) {
                Err(GraphError::NoAddresses { bytes }) => {
                    let range = self.reserve(bytes).ok_or(GraphError::NoAddresses { bytes })?;
                    graph.extend(range);
                }
                added => return added,
            }
        }
    }

    /// The first granule is no allocation's: 0 is no address.
    fn reserve(&mut self, bytes: u64) -> Option<Range> {
        let (start, bytes) = (self.next.max(GRANULARITY), round_up(bytes.max(GRANULARITY), GRANULARITY)?);
        self.next = start.checked_add(bytes)?;
        Some(Range::new(start, bytes))
    }
}

/// Memory that a launch left unfreed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    /// As graphs name it.
    pub(super) key: Key,
    pub(super) range: Range,
}

/// Instances with addresses in common.
#[derive(Debug, Default)]
pub(super) struct Family {
    /// The launch before, of any of them.
    pub(super) last: Option<Snapshot>,
    /// What their launches left: the instance that was launched, and the number there.
    pub(super) left: BTreeMap<(ExecId, GraphAllocId), Left>,
    /// How many instances there are.
    pub(super) instances: usize,
}
