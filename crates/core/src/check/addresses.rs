//! Addresses for alloc nodes: which of a graph's allocations share bytes is decided as in the library, at addresses
//! that no memory has.

use crate::graph::{Addressing, Graph, GraphAllocId, GraphError, Label};
use crate::ids::{GraphId, NodeId};
use crate::units::{Range, round_up};

/// A device's, as a rule.
const GRANULARITY: u64 = 2 << 20;

/// A graph without nodes.
pub(super) fn empty_graph(graph: GraphId, symbolic: bool) -> Graph {
    Graph::new(graph, GRANULARITY, if symbolic { Addressing::Symbolic } else { Addressing::Fixed })
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

    /// The first granule is not an allocation's: 0 is not an address.
    fn reserve(&mut self, bytes: u64) -> Option<Range> {
        let (start, bytes) = (self.next.max(GRANULARITY), round_up(bytes.max(GRANULARITY), GRANULARITY)?);
        self.next = start.checked_add(bytes)?;
        Some(Range::new(start, bytes))
    }
}
