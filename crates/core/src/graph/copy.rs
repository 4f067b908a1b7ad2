//! The refusals for a graph with memory nodes and fixed addresses, whose memory would be live twice at one address. A
//! graph that moved into another graph also cannot get or lose memory nodes, because the other graph would not follow.
//! CUDA refuses the same (`CUDA_ERROR_NOT_SUPPORTED`).

use super::copy_refused::{Asked, CopyRefused, Holder};
use super::error::GraphError;
use super::fault::NodeSite;
use super::graph::{Addressing, Graph, NodeKind};
use super::node::{GraphId, NodeId};
use crate::op::Act;

impl Graph {
    /// Returns the first alloc or free node with a fixed address in this graph or in one of its children.
    pub fn fixed_memory(&self) -> Option<NodeSite> {
        if self.fixed_nodes == 0 {
            return None;
        }
        self.nodes().find_map(|(id, node)| match &node.kind {
            NodeKind::Child(child) => {
                let mut inside = child.fixed_memory()?;
                inside.origin.insert(0, id);
                Some(inside)
            }
            NodeKind::MemAlloc(_) => self.site(id, Act::Allocate).filter(|_| self.addressing == Addressing::Fixed),
            NodeKind::MemFree(_) => self.site(id, Act::Free).filter(|_| self.addressing == Addressing::Fixed),
            NodeKind::Work(_) => None,
        })
    }

    /// Returns `true` if the node allocates or frees, or is a child with a node that does so at a fixed address.
    pub fn is_memory_node(&self, id: NodeId) -> bool {
        self.node(id).is_some_and(|node| match &node.kind {
            NodeKind::MemAlloc(_) | NodeKind::MemFree(_) => true,
            NodeKind::Child(child) => child.fixed_memory().is_some(),
            NodeKind::Work(_) => false,
        })
    }

    /// Makes a copy with its own number. Its allocations are its own: names of the original's memory do not name the
    /// copy's.
    ///
    /// # Errors
    /// The graph has memory nodes with fixed addresses.
    pub fn duplicate(&self, id: GraphId) -> Result<Self, GraphError> {
        self.check_copy(Asked::Clone, None)?;
        Ok(self.copied(id))
    }

    /// Refuses a request that the graph cannot meet while it has memory nodes with fixed addresses.
    ///
    /// # Errors
    /// The graph has such nodes; `holder` has their addresses.
    pub fn check_copy(&self, asked: Asked, holder: Option<Holder>) -> Result<(), GraphError> {
        match self.fixed_memory() {
            Some(node) => Err(GraphError::Copy(Box::new(CopyRefused { graph: self.id(), node, asked, holder }))),
            None => Ok(()),
        }
    }

    /// As [`check_copy`](Self::check_copy), if anything has the addresses.
    ///
    /// # Errors
    /// As for [`check_copy`](Self::check_copy).
    pub fn check_unheld(&self, asked: Asked, holder: Option<Holder>) -> Result<(), GraphError> {
        holder.map_or(Ok(()), |holder| self.check_copy(asked, Some(holder)))
    }

    /// Refuses another memory node, or the removal of one, where the graph has moved into the one around it.
    ///
    /// # Errors
    /// `holder` is a graph around it.
    pub fn check_unmoved(&self, holder: Option<Holder>) -> Result<(), GraphError> {
        match holder {
            Some(Holder::Parent(..)) => self.check_copy(Asked::MemoryNode, holder),
            _ => Ok(()),
        }
    }
}
