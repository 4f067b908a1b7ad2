//! Graphs that own memory: what they are, what is wrong with them, where their memory is.
//!
//! Decides and never acts: no stream is captured here, nothing runs, no memory is mapped.
//!
//! | file | one law |
//! |---|---|
//! | `node` | numbers, kinds of nodes, what a node says of memory |
//! | `edges` | an order that all edges agree with; no circle gets in |
//! | `index` | which node comes before which, in constant time |
//! | `address` | bytes serve again only after the free, by edges that exist |
//! | `error` | why a change is refused |
//! | `graph` | building: nodes, edges, allocations with their addresses |

mod address;
mod edges;
mod error;
#[allow(clippy::module_inception)]
mod graph;
mod index;
mod node;

pub use address::GRAIN;
pub use error::GraphError;
pub use graph::{Addressing, DEPTH_MAX, FreedBy, Graph, GraphAlloc};
pub use index::Index;
pub use node::{Access, EventKey, GraphAllocId, GraphId, Label, Memory, Node, NodeId, NodeKind, Work};
