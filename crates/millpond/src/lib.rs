//! Stream-ordered GPU memory with graphs: allocate, use and free memory in stream order, as with `cudaMallocAsync`. A
//! use or a free in the wrong order returns an error at the offending line.
//!
//! The [guide] begins with the concepts. It also has the differences from other allocators, and recipes.
//!
//! # Which device
//! * [`Device::host`] needs no GPU: streams are threads, and closures are kernels ([`Stream::launch`]). It is for tests
//!   and for programs without a GPU.
//! * [`Device::cuda`] opens a GPU. It runs no closures. Launch CUDA kernels through [cuda-core, cudarc or
//!   candle](guide::rust), or by [`Stream::enqueue`] with addresses, which does not check for data races: call
//!   [`Stream::declare`] first.
//!
//! # A tour, on the host device
//! ```
//! use millpond::{Device, HostConfig, MIB, PoolConfig};
//!
//! # fn main() -> millpond::Result<()> {
//! let device = Device::host(HostConfig::default())?;
//! let pool = device.pool(PoolConfig::default().release_threshold(16 * MIB))?;
//! let (left, right) = (device.stream()?, device.stream()?);
//!
//! let x = left.alloc::<f32>(&pool, 1024)?; // exists from this point of `left` on
//! left.launch(x.write(), |x| x.fill(1.0))?; // declaring an access hands you the slice
//!
//! // Unordered: refused before it runs, with both sides and what is missing between them.
//! let refused = right.launch(x.read(), |_| ()).unwrap_err();
//! assert!(refused.report().to_string().contains("help: make stream 2 wait for an event recorded on stream 1"));
//!
//! right.wait(&left.record()?)?; // an event orders it
//! let y = right.alloc::<f32>(&pool, 1024)?;
//! right.launch((x.read(), y.write()), |(x, y)| y.iter_mut().zip(x).for_each(|(y, x)| *y = 2.0 * x))?;
//! right.free(x)?; // on another stream than its own; on error, the `Err` returns `x`
//! assert_eq!(right.copy_to_host(y.read())?, vec![2.0; 1024]);
//! # Ok(())
//! # }
//! ```
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]
#![deny(clippy::print_stdout, clippy::print_stderr)]

// The layers: each uses only itself and those before it in the table of ARCHITECTURE.md. The public items of `graph`,
// `pool` and `share` are listed in their `mod.rs`. What programs call most comes first, what other languages and
// libraries call comes last: the documentation of `Stream`, `Buffer`, `Pool` and `Device` has their methods in this
// order.
mod operations;

pub mod pool;
mod stream;

mod clock;
pub mod graph;
mod names;
pub mod share;
mod state;
mod sync;
mod trace;

mod api;

/// The program in `README.md` compiles as pasted.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The guide. The Rust programs on these pages that have a `main` are complete: they run as pasted into `src/main.rs`.
/// [The table of pages](https://github.com/millpond/millpond/blob/main/docs/guide.md) also has the pages that are not
/// about Rust. Read in this order:
///
/// 1. [Concepts](guide::concepts): points, orders, verdicts, the ownership of memory.
/// 2. The step from what you know: from [`cudaMallocAsync`](guide::from_cuda), from [RMM](guide::from_rmm), from
///    [PyTorch](guide::from_pytorch).
/// 3. Kernels for a GPU: [cuda-core, cudarc or candle](guide::rust), or
///    [`Stream::enqueue`](crate::Stream::enqueue). Closures run on the host device only.
/// 4. [Cookbook](guide::cookbook): a pipeline, a loop over a graph, a server with a limit, results in local variables.
/// 5. [Questions](guide::faq), [troubleshooting](guide::troubleshooting), and [supported platforms](guide::platforms).
///
/// Then read what you need: [graphs](guide::graphs), several [devices](guide::devices), several
/// [processes](guide::sharing), the memory that a pool [keeps](guide::slack), [checking](guide::check) recorded
/// programs, [litmus](guide::litmus) programs, [placing](guide::plan) buffers ahead, the [page](guide::view) that shows
/// a program, [measuring](guide::bench) a machine, file [formats](guide::formats). For other programs: [any CUDA
/// program](guide::any_program), [C and C++](guide::c), [PyTorch](guide::pytorch), [CuPy](guide::cupy), programs of
/// [Rust's CUDA libraries](guide::rust): cuda-core, cudarc, candle.
///
/// These pages are in the folder `docs` of the repository. This module exists only in the documentation.
#[cfg(doc)]
pub mod guide {
    #[doc = include_str!("../docs/concepts.md")]
    #[doc = include_str!("guide.html")]
    pub mod concepts {}
    #[doc = include_str!("../docs/from-cuda.md")]
    #[doc = include_str!("guide.html")]
    pub mod from_cuda {}
    #[doc = include_str!("../docs/from-rmm.md")]
    #[doc = include_str!("guide.html")]
    pub mod from_rmm {}
    #[doc = include_str!("../docs/from-pytorch.md")]
    #[doc = include_str!("guide.html")]
    pub mod from_pytorch {}
    #[doc = include_str!("../docs/cookbook.md")]
    #[doc = include_str!("guide.html")]
    pub mod cookbook {}
    #[doc = include_str!("../docs/faq.md")]
    #[doc = include_str!("guide.html")]
    pub mod faq {}
    #[doc = include_str!("../docs/troubleshooting.md")]
    #[doc = include_str!("guide.html")]
    pub mod troubleshooting {}
    #[doc = include_str!("../docs/platforms.md")]
    #[doc = include_str!("guide.html")]
    pub mod platforms {}
    #[doc = include_str!("../docs/graphs.md")]
    #[doc = include_str!("guide.html")]
    pub mod graphs {}
    #[doc = include_str!("../docs/devices.md")]
    #[doc = include_str!("guide.html")]
    pub mod devices {}
    #[doc = include_str!("../docs/sharing.md")]
    #[doc = include_str!("guide.html")]
    pub mod sharing {}
    #[doc = include_str!("../docs/slack.md")]
    #[doc = include_str!("guide.html")]
    pub mod slack {}
    #[doc = include_str!("../docs/check.md")]
    #[doc = include_str!("guide.html")]
    pub mod check {}
    #[doc = include_str!("../docs/litmus.md")]
    #[doc = include_str!("guide.html")]
    pub mod litmus {}
    #[doc = include_str!("../docs/plan.md")]
    #[doc = include_str!("guide.html")]
    pub mod plan {}
    #[doc = include_str!("../docs/view.md")]
    #[doc = include_str!("guide.html")]
    pub mod view {}
    #[doc = include_str!("../docs/bench.md")]
    #[doc = include_str!("guide.html")]
    pub mod bench {}
    #[doc = include_str!("../docs/formats.md")]
    #[doc = include_str!("guide.html")]
    pub mod formats {}
    #[doc = include_str!("../docs/any-program.md")]
    #[doc = include_str!("guide.html")]
    pub mod any_program {}
    #[doc = include_str!("../docs/c.md")]
    #[doc = include_str!("guide.html")]
    pub mod c {}
    #[doc = include_str!("../docs/pytorch.md")]
    #[doc = include_str!("guide.html")]
    pub mod pytorch {}
    #[doc = include_str!("../docs/cupy.md")]
    #[doc = include_str!("guide.html")]
    pub mod cupy {}
    // Its programs are compiled by the adaptors.
    #[cfg_attr(not(doctest), doc = include_str!("../docs/rust.md"))]
    #[doc = include_str!("guide.html")]
    pub mod rust {}
}

pub use api::device::Device;
pub use names::config::{DeviceConfig, HostConfig, PoolConfig};
pub use names::error::{Error, Result};
pub use operations::scope::Scope;
pub use pool::handle::Pool;
pub use state::access::{Access, Read, Write};
pub use stream::buffer::{Buffer, View};
pub use stream::event::Event;
pub use stream::handle::Stream;
pub use stream::host_memory::{PinnedBuffer, PinnedRead, PinnedWrite};
pub use stream::refused::Refused;

pub use bytemuck::Pod;
pub use millpond_core::units::{GIB, KIB, MIB};

/// Settings of devices and pools, and the values that they take.
pub mod config {
    pub use crate::names::config::{DeviceConfig, HostConfig, PoolConfig, StreamConfig};
    pub use crate::names::role::StreamKind;
    pub use crate::names::trace_file::Trace;
    pub use crate::names::violations::{Reporter, Violations};
    pub use millpond_core::pool::{ReusePolicy, Slack};
    pub use millpond_driver::Schedule;
}

/// The properties of a device, and the counts of its driver calls.
pub mod device {
    pub use crate::names::device_name::DeviceName;
    pub use millpond_driver::{CallCounts, CallKind, Properties};
}

/// The errors of calls that are refused, and the types of which [`Error`] is made.
pub mod error {
    pub use crate::names::error::{Error, Holder, Invalid, Nearest, OutOfMemory, Report, Result};
    pub use crate::names::share_error::ShareError;
    pub use crate::stream::refused::Refused;
    pub use millpond_core::pool::Exhausted;
    pub use millpond_driver::DriverError;
}

/// Violations as data: a [`Finding`](check::Finding) names both sides, the missing edge between them, and an edit that
/// fixes the program.
pub mod check {
    pub use millpond_core::check::{Act, Edge, Edit, Finding, Kind, Known, Place, Side, Spot, Subject};
}

/// The numbers that messages use as names.
pub mod ids {
    pub use millpond_core::ids::{AllocId, PoolId, StreamId};
}

/// Sizes in bytes.
pub mod units {
    pub use millpond_core::units::{Bytes, GIB, KIB, MIB};
}

/// Settings of CUDA devices, beyond the defaults of [`Device::cuda`].
pub mod cuda {
    pub use millpond_driver::CudaConfig;
}

/// Memory by pointer and streams by handle: for other languages, for foreign kernels, and for programs whose order is
/// trusted.
pub mod raw {
    pub use crate::api::access_list::AccessList;
    pub use crate::api::held::Freeing;
    pub use crate::api::raw::{AllWork, LiveAllocation, PoolPicture, RawMemory};
    pub use crate::api::trusted::Trusted;
    pub use crate::operations::launch::Queue;
    pub use crate::state::access::Elements;
    #[doc(hidden)] // For crates that call this one under locks of their own.
    pub use crate::sync::ranks::FIRST as FIRST_RANK;
    pub use crate::trace::callers::{Caller, name_callers_with};
    pub use millpond_driver::RawStream;
}
