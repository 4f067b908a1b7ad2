//! Millpond's memory in programs that use [cuda_core]: allocated in stream order, checked before it is used, and freed
//! by Millpond, without a synchronisation.
//!
//! # Use
//! A [`Context`] adds Millpond to a context of cuda-core; its streams are cuda-core's streams. Work that uses memory is
//! passed to [`Stream::run`](millpond_adaptor::Stream::run) with its accesses. The closure gets cuda-core's stream, and
//! the memory as [`In`] and [`Out`].
//!
//! ```no_run
//! use cuda_core::{LaunchConfig, launch_kernel_on_stream};
//! use millpond_cuda_core::{Context, argument};
//!
//! # fn show(ptx: &str) -> Result<(), Box<dyn std::error::Error>> {
//! let context = Context::open(0)?;
//! let scale = context.cuda_core().load_module_from_ptx_src(ptx)?.load_function("scale")?;
//! let (stream, pool) = (context.stream()?, context.device().default_pool());
//!
//! let n = 1024_u32;
//! let x = stream.upload(&pool, &vec![1.0_f32; n as usize])?;
//! let y = stream.alloc::<f32>(&pool, n as usize)?; // from Millpond, in stream order
//! let config = LaunchConfig::for_num_elems(n);
//! stream.run((y.write(), x.read()), |s, (y, x)| unsafe {
//!     let arguments = &mut [y.argument(), x.argument(), argument(&n)];
//!     launch_kernel_on_stream(&scale, config.grid_dim, config.block_dim, 0, s, arguments)
//! })?;
//! stream.free(x)?; // checked: refused while another stream may still read it
//! assert_eq!(stream.copy_to_host(y.read())?, vec![2.0; n as usize]);
//! # Ok(())
//! # }
//! ```
//!
//! Code that needs a `DeviceBuffer` gets one that owns the memory: [`Context::device_buffer`]. [`Context::buffer`]
//! takes it back.
//!
//! # Versions of cuda-core
//! 0.5. It needs libclang and CUDA's headers to build, and finds the driver library when the program runs.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod context;
mod error;
mod lent;
mod library;
mod pinned;
mod stream;
mod views;

pub use context::Context;
pub use error::{Error, Result};
pub use lent::Unreturned;
pub use library::CudaCore;
pub use millpond_adaptor::Views;
pub use pinned::{InFlight, RefusedHost};
pub use stream::Stream;
pub use views::{Borrowed, In, Out, argument};

pub use cuda_core;
pub use millpond;

/// Compiles the code in the document.
#[cfg(doctest)]
#[doc = include_str!("../docs/rust.md")]
struct Document;
