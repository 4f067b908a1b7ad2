//! Graphs that own memory: built by hand or of what streams do, checked once, launched often.
//!
//! [`Device::graph`](crate::Device::graph) and [`Stream::capture`](crate::Stream::capture) make a [`Graph`],
//! [`Graph::instantiate`] an instance, [`GraphExec::launch`] runs that.

// What is right is decided in `millpond_core::graph`; here graphs are built (by hand or by capture), get what their
// nodes do, are bound to physical memory, and run.
//
// | file | one law |
// |---|---|
// | `address` | which alloc node an address means |
// | `arena` | the addresses that one graph has for itself |
// | `attempt` | captures into a graph that is there |
// | `body` | a graph in the making: core's graph, and what each node does |
// | `build` | [`Graph`]: building node by node |
// | `capture` | captures in progress: a stream's calls become nodes |
// | `captured` | what operations of a capturing stream do |
// | `check` | whether a launch may be made |
// | `events` | external event nodes of an instance: order at the precision of nodes |
// | `exec` | [`GraphExec`]: an instance, its lanes and its outputs |
// | `fault` | what is wrong with its order, in words |
// | `found` | the memory that a launch has to do with |
// | `gone` | addresses of arenas that are gone, until no work is left |
// | `grant` | says that a graph has free nodes |
// | `lane` | which lane each node runs on |
// | `last` | the end of a launch, for the next one |
// | `launch` | a launch as one point of a stream: checked, submitted, recorded |
// | `holder` | who has the addresses of a graph with memory nodes |
// | `memory` | physical memory of all graphs of a device |
// | `native_nodes` | what an instance is as a graph of the device's own |
// | `outputs` | what launches leave and captures allocate, by every name |
// | `program` | what an instance submits, in order, on which lane |
// | `registry` | what the graphs of a device share |
// | `submit` | a program goes to the driver, lane by lane |
// | `traced` | what a trace says of graphs |

mod address;
pub(crate) mod arena;
mod attempt;
mod body;
mod build;
mod capture;
mod captured;
mod check;
mod events;
mod exec;
mod family;
mod fault;
mod found;
mod gone;
mod grant;
mod holder;
mod inside;
mod lane;
mod last;
mod launch;
mod memory;
mod native_nodes;
mod outputs;
mod program;
mod registry;
mod submit;
mod traced;

pub use crate::state::named::{GraphNode, MemAllocNode};
pub use crate::stream::external::ExternalEvent;
pub use build::Graph;
pub use exec::{GraphExec, Instantiate};
pub use launch::Launch;
pub use memory::GraphMemoryStatistics;
pub use millpond_core::graph::CaptureMode;

pub(crate) use body::Body;
pub(crate) use capture::{drop_captured, name_captured};
pub(crate) use exec::ExecShared;
pub(crate) use memory::trim as trim_graph_memory;
pub(crate) use registry::{Graphs, find_in_graphs, freed_in_graphs};
