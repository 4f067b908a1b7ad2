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
//! | `named` | nodes and memory that a change names are there |
//! | `graph` | building: nodes, edges, allocations with their addresses |
//! | `flat` | child graphs in place of their nodes |
//! | `fault` | what is wrong, in words |
//! | `life` | what nodes do to one piece of memory, and what of it is wrong |
//! | `validate` | is the graph's own order right |
//! | `place` | symbolic addresses, all together |
//! | `pins` | lives that nodes name of what other graphs left |
//! | `summary` | what the outside sees of a graph |
//! | `copy` | what a graph with fixed addresses cannot be |
//! | `exec` | instances: what a launch may do and leaves behind |
//! | `lanes` | launches seen from inside, where events are recorded in them |
//! | `others` | what other graphs have a say in |
//! | `uses` | the same, checked for each node as a capture adds it |
//! | `capture` | streams whose work becomes nodes |
//! | `backing` | which physical chunks lie under whose launches |

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
pub use capture::{CaptureError, CaptureId, CaptureMode, CapturedEvent, Captures, Ended, Tails};
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
