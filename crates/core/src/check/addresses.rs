//! Made-up addresses for alloc nodes. They decide which allocations of a graph share bytes, as in the library, but no
//! memory has them.

use crate::graph::{Addressing, Graph, GraphAllocId, GraphError, Label};
use crate::ids::{GraphId, NodeId};
use crate::units::{Range, round_up};

/// The usual granularity of a device.
const GRANULARITY: u64 = 2 << 20;

pub(super) fn empty_graph(graph: GraphId, symbolic: bool) -> Graph {
    Graph::new(graph, GRANULARITY, if symbolic { Addressing::Symbolic } else { Addressing::Fixed })
}

/// A source of addresses for graphs. It gives each range to one graph only.
#[derive(Debug, Default)]
pub(super) struct FreshAddresses {
    next: u64,
}

impl FreshAddresses {
    /// Adds an alloc node. Gives the graph more addresses if it needs them.
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

    /// Reserves a range. The first granule is never part of one, because 0 is not an address.
    fn reserve(&mut self, bytes: u64) -> Option<Range> {
        let (start, bytes) = (self.next.max(GRANULARITY), round_up(bytes.max(GRANULARITY), GRANULARITY)?);
        self.next = start.checked_add(bytes)?;
        Some(Range::new(start, bytes))
    }
}
