//! What a graph with memory nodes and fixed addresses cannot be: one memory of it would be live twice at one address.
//! Nor does one that moved into another graph get memory nodes, or lose them, which that graph would not have, too.
//! CUDA refuses the same (`CUDA_ERROR_NOT_SUPPORTED`).

use super::copy_refused::{Asked, CopyRefused, Holder};
use super::error::GraphError;
use super::fault::NodeSite;
use super::graph::{Addressing, Graph, NodeKind};
use super::node::{GraphId, NodeId};
use crate::op::Act;

impl Graph {
    /// The first alloc or free node with a fixed address in this graph or in one of its children.
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

    /// Whether launches allocate at fixed addresses, here or in a child: no two of them may run at once, of whichever
    /// instances.
    pub fn has_addresses(&self) -> bool {
        self.fixed_nodes > 0
            && self.nodes().any(|(_, node)| match &node.kind {
                NodeKind::MemAlloc(_) => self.addressing == Addressing::Fixed,
                NodeKind::Child(child) => child.has_addresses(),
                NodeKind::MemFree(_) | NodeKind::Work(_) => false,
            })
    }

    /// Whether a node allocates or frees, or is a child with a node that does at a fixed address.
    pub fn is_memory_node(&self, id: NodeId) -> bool {
        self.node(id).is_some_and(|node| match &node.kind {
            NodeKind::MemAlloc(_) | NodeKind::MemFree(_) => true,
            NodeKind::Child(child) => child.fixed_memory().is_some(),
            NodeKind::Work(_) => false,
        })
    }

    /// A copy under a number of its own. Its allocations are its own: whoever names the original's memory does not
    /// name the copy's.
    ///
    /// # Errors
    /// It has memory nodes with fixed addresses.
    pub fn duplicate(&self, id: GraphId) -> Result<Self, GraphError> {
        self.check_copy(Asked::Clone, None)?;
        Ok(self.copied(id))
    }

    /// Refuses what it cannot be as long as it has memory nodes with fixed addresses.
    ///
    /// # Errors
    /// It has such, and `holder` their addresses.
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
