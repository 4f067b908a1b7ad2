//! Why a graph with memory nodes and fixed addresses is refused a second place, in words. Plain data.

use std::fmt;

use super::fault::NodeSite;
use super::node::GraphId;
use crate::op::{Names, Place, Thing};

/// A request to a graph with memory nodes and fixed addresses.
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

/// The holder of a graph's fixed addresses.
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
    /// The request.
    pub asked: Asked,
    /// The holder of its addresses, if there is one.
    pub holder: Option<Holder>,
}

impl CopyRefused {
    /// Returns the refusal as one sentence, with the program's names for places and graphs.
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

    /// Returns what the program can do instead.
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
