//! Graphs that own memory: built node by node or by capture, checked once, launched many times.
//!
//! [`Device::graph`](crate::Device::graph) and [`Stream::capture`](crate::Stream::capture) make a [`Graph`].
//! [`Graph::instantiate`] makes an instance of it. [`GraphExec::launch`] runs the instance.

// `millpond_core::graph` decides what is right. This module builds graphs (by hand or by capture), keeps what their
// nodes do, binds them to physical memory, and runs them.
//
// | file | one law |
// |---|---|
// | `address` | the alloc node at an address |
// | `arena` | the addresses that one graph has for itself |
// | `attempt` | captures into an existing graph |
// | `body` | a graph in the making: core's graph, and what each node does |
// | `build` | [`Graph`]: building node by node |
// | `capture` | captures in progress: a stream's calls become nodes |
// | `captured` | the operations of a capturing stream |
// | `check` | the checks of a launch |
// | `events` | external event nodes of an instance: order at the precision of nodes |
// | `exec` | [`GraphExec`]: an instance, its lanes and its outputs |
// | `family` | the bodies of an instance: the graph's and its children's |
// | `fault` | the text of faults in a graph's order |
// | `found` | the memory that a launch uses and leaves live |
// | `gone` | the addresses of arenas that are gone, until their work has completed |
// | `grant` | the record that a graph has free nodes |
// | `holder` | the holder of the addresses of a graph with memory nodes |
// | `inside` | the node of a launch that did an act, for refusals |
// | `lane` | the lane of each node |
// | `last` | the end of a launch, for the next one |
// | `launch` | a launch as one point of a stream: checked, submitted, recorded |
// | `memory` | physical memory of all graphs of a device |
// | `native_nodes` | an instance as a graph of the device's own |
// | `outputs` | the memory that launches leave live and captures allocate, by every name |
// | `program` | the work that an instance submits, in order, each part on its lane |
// | `registry` | the state that the graphs of a device share |
// | `submit` | the submission of a program to the driver, lane by lane |
// | `traced` | the records of graphs in a trace |

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
