//! Stream-ordered GPU memory: allocate, use and free memory in stream order, with every wrong order refused at the line
//! that makes it.
//!
//! # A tour
//! ```
//! use millpond::{Device, HostConfig, MIB, PoolConfig};
//!
//! # fn main() -> millpond::Result<()> {
//! let device = Device::host(HostConfig::default())?;
//! let pool = device.pool(PoolConfig { release_threshold: 16 * MIB, ..Default::default() })?;
//! let (left, right) = (device.stream()?, device.stream()?);
//!
//! let x = left.alloc::<f32>(&pool, 1024)?; // exists from this point of `left` on
//! left.launch(x.write(), |x| x.fill(1.0))?; // declaring an access hands you the slice
//!
//! // Unordered: refused before it runs, with both sides and what is missing between them.
//! let refused = right.launch(x.read(), |_| ()).unwrap_err();
//! assert!(refused.to_string().contains("help: make stream 2 wait for an event recorded on stream 1"));
//!
//! right.wait(&left.record()?)?; // an event orders it
//! let y = right.alloc::<f32>(&pool, 1024)?;
//! right.launch((x.read(), y.write()), |(x, y)| y.iter_mut().zip(x).for_each(|(y, x)| *y = 2.0 * x))?;
//! right.free(x)?; // on another stream than its own; a refusal gives x back
//! assert_eq!(right.copy_to_host(y.read())?, vec![2.0; 1024]);
//! # Ok(())
//! # }
//! ```
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]

// The floors, each of which uses only its own and those before it in ARCHITECTURE.md's table.
mod api;
mod clock;
mod graph;
mod names;
mod pool;
mod share;
mod state;
mod stream;
mod sync;
mod trace;

#[cfg(doctest)]
#[doc = include_str!("../docs/graphs.md")]
struct GraphsPage;
/// The examples of the guide.
#[cfg(doctest)]
#[doc = include_str!("../docs/devices.md")]
mod devices_guide {}

/// The examples of the page about sharing compile and run.
#[cfg(doctest)]
#[doc = include_str!("../docs/sharing.md")]
mod sharing_page {}

pub use api::device::Device;
pub use api::held::Freeing;
pub use api::raw::{AccessList, AllWork, LiveAllocation, PoolPicture, RawMemory};
pub use api::trusted::Trusted;
pub use clock::hosts::Told;
pub use graph::{Graph, GraphExec, GraphMemoryStatistics, Instantiate, Launch};
pub use names::config::{DeviceConfig, HostConfig, HostThreads, PoolConfig, SimConfig};
pub use names::device_name::DeviceName;
pub use names::error::{CaptureError, Error, GraphError, Holder, Invalid, Nearest, OutOfMemory, Result};
pub use names::role::StreamKind;
pub use names::share_error::ShareError;
pub use names::statistics::PoolStatistics;
pub use names::trace_file::Trace;
pub use names::violations::{Reporter, Violations};
pub use pool::handle::Pool;
pub use share::{
    MemoryFile, Peers, Refusal, SharedPool, SharingStatistics, TICKET_BYTES, Ticket, TicketError, TicketKind,
};
pub use state::access::{Access, Elements, Read, Write};
pub use state::buffer::{Buffer, View};
pub use state::node::{GraphNode, MemAllocNode};
pub use state::refused::Refused;
pub use stream::event::Event;
pub use stream::external::ExternalEvent;
pub use stream::handle::Stream;
pub use stream::launch::Queue;

pub use bytemuck::Pod;
pub use millpond_core::check::{Act, Edge, Edit, Finding, Kind, Known, Place, Side, Spot, Subject};
pub use millpond_core::graph::CaptureMode;
pub use millpond_core::ids::{AllocId, PoolId, StreamId};
pub use millpond_core::pool::{Exhausted, ReusePolicy, Slack};
pub use millpond_core::units::{Bytes, GIB, KIB, MIB};
pub use millpond_driver as driver;
pub use millpond_driver::{CallCounts, CallKind, Completion, CudaConfig, PeerAccess, Properties, Schedule, Watch};
