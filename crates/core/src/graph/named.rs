//! Checks that the nodes and memory that a change of a graph names exist. Changes nothing.

use super::error::GraphError;
use super::graph::{Graph, Node, NodeKind};
use super::node::{GraphAllocId, GraphId, Memory, NodeId};

impl Graph {
    pub(super) fn check_node(&self, id: NodeId) -> Result<(), GraphError> {
        self.node(id).map(|_| ()).ok_or(GraphError::UnknownNode(id))
    }

    /// Checks the dependencies of a new node.
    ///
    /// # Errors
    /// A node that does not exist, or is given twice; no room for another node.
    pub fn check_dependencies(&self, dependencies: &[NodeId]) -> Result<(), GraphError> {
        let to = NodeId(self.nodes.len() as u32);
        if self.index.is_full() {
            return Err(GraphError::TooManyNodes);
        }
        for &from in dependencies {
            self.check_node(from)?;
        }
        let twice = match dependencies {
            [] | [_] => None,
            few if few.len() <= 8 => {
                few.iter().enumerate().find(|(at, node)| few[..*at].contains(node)).map(|it| *it.1)
            }
            many => {
                let mut sorted = many.to_vec();
                sorted.sort_unstable();
                sorted.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
            }
        };
        twice.map_or(Ok(()), |from| Err(GraphError::DuplicateEdge { from, to }))
    }

    /// Returns `true` if another graph is contained in it, as a child at any depth.
    pub fn has_child(&self, id: GraphId) -> bool {
        self.nodes().any(|(_, node)| match &node.kind {
            NodeKind::Child(child) => child.id() == id || child.has_child(id),
            _ => false,
        })
    }

    pub(super) fn check_memory(&self, memory: Memory) -> Result<(), GraphError> {
        match memory {
            Memory::Own(alloc) if self.alloc(alloc).is_none() => Err(GraphError::UnknownAlloc(alloc)),
            _ => Ok(()),
        }
    }

    pub(super) fn check_unused(&self, node: NodeId, alloc: GraphAllocId) -> Result<(), GraphError> {
        if let Some(user) = self.allocs[alloc.index()].freed {
            return Err(GraphError::InUse { node, user });
        }
        let uses = |user: &Node| user.accesses.iter().any(|access| access.memory == Memory::Own(alloc));
        match self.nodes().find(|(_, other)| uses(other)) {
            Some((user, _)) => Err(GraphError::InUse { node, user }),
            None => Ok(()),
        }
    }
}
