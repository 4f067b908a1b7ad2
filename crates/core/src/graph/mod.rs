//! Graphs that own memory: their nodes, their faults, and the addresses and chunks of their memory.
//!
//! Decides and never acts: nothing here captures a stream, runs work or maps memory.
//!
//! | file | one law |
//! |---|---|
//! | `node` | numbers, kinds of nodes, the accesses of a node |
//! | `edges` | an order that all edges agree with; an edge that would close a cycle is refused |
//! | `index` | decides in constant time if one node comes before another |
//! | `address` | bytes are used again only after the free, by edges that exist |
//! | `error` | the reasons to refuse a change |
//! | `named` | checks that the nodes and memory that a change names exist |
//! | `graph` | building: nodes, edges, allocations with their addresses |
//! | `flat` | child graphs inlined in place of their nodes |
//! | `fault` | the text of a fault |
//! | `life` | the uses of one piece of memory by nodes, and their faults |
//! | `validate` | checks the order of the nodes of a graph |
//! | `place` | symbolic addresses, planned together |
//! | `pins` | lifetimes that nodes name, of memory that launches of other graphs left live |
//! | `summary` | what a launch requires of, and leaves to, the operations outside the graph |
//! | `copy` | refusals for graphs with memory nodes at fixed addresses |
//! | `exec` | instances: what a launch may do and what it leaves live |
//! | `lanes` | points for the nodes of a launch, if the graph records events |
//! | `others` | changes that other graphs may forbid |
//! | `uses` | the checks of `validate`, for each node as a capture adds it |
//! | `capture` | streams whose operations become nodes |
//! | `backing` | the physical chunks under the addresses of launches |

mod address;
mod backing;
mod capture;
mod copy;
mod copy_refused;
mod edges;
mod error;
mod exec;
mod fault;
mod flat;
#[allow(clippy::module_inception)]
mod graph;
mod index;
mod lanes;
mod life;
mod named;
mod node;
mod others;
mod pins;
mod place;
mod summary;
mod uses;
mod validate;

pub use address::GRAIN;
pub use backing::{ArenaKey, Backing, BackingStatistics, BackingStep, Blocked};
pub use capture::{Adding, Caller, CaptureError, CaptureId, CaptureMode, CapturedEvent, Captures, Ended, Tails};
pub use copy_refused::{Asked, CopyRefused, Holder};
pub use error::GraphError;
pub use exec::{Draft, Exec, Refusal, UpdateRefused};
pub use fault::{FaultSubject, GraphFault, NodeSite, Words};
pub use flat::{FlatAlloc, FlatNode};
pub use graph::{Addressing, Graph, GraphAlloc, Node, NodeKind};
pub use index::Index;
pub use lanes::{Lanes, Standing};
pub use node::{Access, DEPTH_MAX, EventKey, GraphAllocId, GraphId, Label, Memory, NodeId, Origin, Work};
pub use others::Others;
pub use pins::Pin;
pub use place::PLANNED_MAX;
pub use summary::{Demand, LastAct, Summary};
pub use uses::Uses;
pub use validate::FAULTS_MAX;
