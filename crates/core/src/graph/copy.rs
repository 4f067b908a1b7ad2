//! The refusals for a graph with memory nodes and fixed addresses, whose memory would be live twice at one address. A
//! graph that moved into another graph also cannot get or lose memory nodes, because the other graph would not follow.
//! CUDA refuses the same (`CUDA_ERROR_NOT_SUPPORTED`).

use std::fmt;

use super::error::GraphError;
use super::fault::NodeSite;
use super::graph::{Addressing, Graph, NodeKind};
use super::node::{GraphId, NodeId};
use crate::op::{Act, Names, Place, Thing};

/// The request to a graph with memory nodes and fixed addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Asked {
    /// To be cloned.
    Clone,
    /// To be instantiated.
    Instance,
    /// To become a child graph: it moves into its parent, and is then only there.
    Child,
    /// To have its instance launched into a capture, where that would be a child graph.
    Captured,
    /// To be the graph from which an instance of another graph is updated.
    Update,
    /// To have its instance updated from another graph.
    Updated,
    /// To get a memory node, or to lose one.
    MemoryNode,
}

/// The holder of the graph's addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holder {
    /// An instance, and the place where it was made.
    Instance(Place),
    /// The graph that it became a child of, and the place.
    Parent(GraphId, Place),
}

/// The refusal of a second place for a graph with memory nodes and fixed addresses (CUDA: `cudaErrorNotSupported`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyRefused {
    /// The graph.
    pub graph: GraphId,
    /// Its first memory node.
    pub node: NodeSite,
    /// The request.
    pub asked: Asked,
    /// The holder of its addresses, if there is one.
    pub holder: Option<Holder>,
}

impl CopyRefused {
    /// Returns the error as one sentence, with the program's names for places and graphs.
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

    /// Returns the advice.
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

    /// Returns `true` if launches allocate at fixed addresses, here or in a child. No two of these launches may run at
    /// once, of any instances.
    pub fn has_addresses(&self) -> bool {
        self.fixed_nodes > 0
            && self.nodes().any(|(_, node)| match &node.kind {
                NodeKind::MemAlloc(_) => self.addressing == Addressing::Fixed,
                NodeKind::Child(child) => child.has_addresses(),
                NodeKind::MemFree(_) | NodeKind::Work(_) => false,
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

    /// Refuses to add or remove a memory node if the graph has moved into the one around it.
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
