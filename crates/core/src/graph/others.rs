//! Changes of memory nodes that other graphs may forbid: only one node of all graphs frees the memory of an alloc node,
//! and a graph that has moved into another one keeps its memory nodes.
//!
//! Depends on one graph. The caller knows all graphs and passes the facts about the others.

use std::sync::Arc;

use super::copy_refused::{Asked, Holder};
use super::error::GraphError;
use super::graph::{Graph, NodeKind};
use super::node::{GraphAllocId, GraphId, Label, Memory, NodeId};

/// The facts about other graphs that decide a change.
#[derive(Clone, Copy, Debug, Default)]
pub struct Others {
    /// The holder of the graph's fixed addresses.
    pub holder: Option<Holder>,
    /// The graph that has the free node for the memory.
    pub freed_by: Option<GraphId>,
}

impl Graph {
    /// Returns the allocation that no other graph may free once this graph has a free node for `memory`. The memory of
    /// a child graph is excluded: each launch of this graph frees it, independently of launches of the child itself.
    pub fn freed_alone(&self, memory: Memory) -> Option<(GraphId, GraphAllocId)> {
        match memory {
            Memory::Own(alloc) => self.alloc(alloc).map(|_| (self.id(), alloc)),
            Memory::Foreign { graph, alloc } => (!self.has_child(graph)).then_some((graph, alloc)),
            Memory::External { .. } => None,
        }
    }

    /// As [`add_free`](Self::add_free), if the other graphs allow it. `others.freed_by` is of the allocation that
    /// [`freed_alone`](Self::freed_alone) returns.
    ///
    /// # Errors
    /// As for [`add_free`](Self::add_free); the graph has moved into another one; another graph has the free node.
    pub fn add_only_free(
        &mut self,
        dependencies: &[NodeId],
        memory: Memory,
        label: Label,
        others: Others,
    ) -> Result<NodeId, GraphError> {
        self.check_unmoved(others.holder)?;
        self.check_dependencies(dependencies)?;
        if let Some((owner, alloc)) = self.freed_alone(memory)
            && let Some(by) = others.freed_by.filter(|by| *by != self.id())
        {
            return Err(GraphError::FreedByOther { alloc, owner, by });
        }
        self.add_free(dependencies, memory, label)
    }

    /// As [`add_child`](Self::add_child), if nothing else has the addresses of either graph. `child_holder` is of the
    /// child.
    ///
    /// # Errors
    /// As for [`add_child`](Self::add_child). The child has memory nodes with fixed addresses, and this graph has moved
    /// into another one, or the child has an instance or is a child already.
    pub fn add_unheld_child(
        &mut self,
        dependencies: &[NodeId],
        child: Arc<Graph>,
        label: Label,
        (holder, child_holder): (Option<Holder>, Option<Holder>),
    ) -> Result<NodeId, GraphError> {
        if child.fixed_memory().is_some() {
            self.check_unmoved(holder)?;
            child.check_unheld(Asked::Child, child_holder)?;
        }
        self.add_child(dependencies, child, label)
    }

    /// As [`remove_node`](Self::remove_node), if the other graphs allow it. `others.freed_by` is of the memory that the
    /// node allocates.
    ///
    /// # Errors
    /// As for [`remove_node`](Self::remove_node); a memory node, and the graph has moved into another one; an alloc
    /// node whose memory another graph frees.
    pub fn remove_unshared(&mut self, node: NodeId, others: Others) -> Result<NodeKind, GraphError> {
        if self.is_memory_node(node) {
            self.check_unmoved(others.holder)?;
        }
        let is_alloc = self.node(node).is_some_and(|it| matches!(it.kind, NodeKind::MemAlloc(_)));
        match others.freed_by.filter(|by| is_alloc && *by != self.id()) {
            Some(by) => Err(GraphError::FreedElsewhere { node, by }),
            None => self.remove_node(node),
        }
    }
}
