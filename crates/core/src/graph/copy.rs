//! What a graph with memory nodes and fixed addresses cannot be: one memory of it would be live twice at one address.
//! Nor does one that moved into another graph get memory nodes, or lose them, which that graph would not have, too.
//! CUDA refuses the same (`CUDA_ERROR_NOT_SUPPORTED`).

use std::fmt;

use super::error::GraphError;
use super::fault::NodeSite;
use super::graph::{Addressing, Graph, NodeKind};
use super::node::{GraphId, NodeId};
use crate::op::{Act, Names, Place, Thing};

/// What was asked of a graph with memory nodes and fixed addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Asked {
    /// A clone.
    Clone,
    /// An instance.
    Instance,
    /// To become a child graph: it moves into its parent, and is in one place.
    Child,
    /// A launch of its instance into a capture, where that would be a child graph.
    Captured,
    /// To be what an instance of another graph is updated from.
    Update,
    /// An update of its instance from another graph.
    Updated,
    /// To get a memory node, or to lose one.
    MemoryNode,
}

/// Who has its addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holder {
    /// An instance that was made there.
    Instance(Place),
    /// The graph that it became a child of, there.
    Parent(GraphId, Place),
}

/// Why a graph with memory nodes and fixed addresses is refused a second place (CUDA: `cudaErrorNotSupported`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyRefused {
    /// The graph.
    pub graph: GraphId,
    /// Its first memory node.
    pub node: NodeSite,
    /// What was asked.
    pub asked: Asked,
    /// Who has its addresses, if anyone has.
    pub holder: Option<Holder>,
}

impl CopyRefused {
    /// What is wrong, in one sentence; places and graphs as the program calls them.
    pub fn sentence(&self, names: &Names) -> String {
        let graph = names.title(Thing::Graph(self.graph));
        let what = match self.asked {
            Asked::Clone => "be cloned",
            Asked::Instance => "be instantiated",
            Asked::Child => "become a child graph",
            Asked::Captured => "be launched into a capture",
            Asked::Update => "update an instance of another graph",
            Asked::Updated => "have its instance updated from another graph",
            Asked::MemoryNode => "get or lose memory nodes",
        };
        let at = |place: Place| match place.describe(names) {
            place if place.is_empty() => place,
            place => format!(" ({place})"),
        };
        let node = self.node.title(names);
        let holder = match self.holder {
            None => String::new(),
            Some(Holder::Instance(place)) => format!(", and it has an instance already{}", at(place)),
            Some(Holder::Parent(parent, place)) => {
                format!(", and it is a child of {} already{}", names.title(Thing::Graph(parent)), at(place))
            }
        };
        format!("{graph} cannot {what}: its {node} is a memory node at a fixed address{holder}")
    }

    /// What to do instead.
    pub fn help(&self) -> &'static str {
        match (self.asked, self.holder) {
            (Asked::Captured, _) => "launch it outside of the capture, or build the graph with symbolic addresses",
            (Asked::Update | Asked::Updated, _) => "make an instance of the graph that is meant",
            (Asked::MemoryNode, _) => "add and remove memory nodes before it becomes a child graph",
            (_, Some(Holder::Instance(_))) => "destroy that instance first, or build the graph with symbolic addresses",
            (_, Some(Holder::Parent(..))) => "use the graph around it, or build the child with symbolic addresses",
            (_, None) => "build it with symbolic addresses: each copy has its own then",
        }
    }
}

impl fmt::Display for CopyRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  help: {}", self.sentence(&Names::default()), self.help())
    }
}

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
