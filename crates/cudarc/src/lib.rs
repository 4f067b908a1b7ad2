//! Millpond's memory in [cudarc] programs: allocated in stream order, accepted by its launch builder, its copies and
//! its libraries, checked before it is used, and freed by Millpond.
//!
//! # Use
//! A [`Context`] adds Millpond to a cudarc context; its streams are cudarc's streams. Work that uses memory is passed
//! to [`Stream::run`](millpond_adaptor::Stream::run) with its accesses. The closure gets cudarc's stream, and the
//! memory as arguments for cudarc:
//!
//! ```no_run
//! use cudarc::driver::{LaunchConfig, PushKernelArg};
//! use cudarc::nvrtc::compile_ptx;
//! use millpond_cudarc::Context;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! const SCALE: &str = r#"
//! extern "C" __global__ void scale(float *y, const float *x, size_t n) {
//!     size_t i = blockIdx.x * blockDim.x + threadIdx.x;
//!     if (i < n) y[i] = 2.0f * x[i];
//! }"#;
//! let context = Context::open(0)?;
//! let module = context.cudarc().load_module(compile_ptx(SCALE)?)?;
//! let scale = module.load_function("scale")?;
//! let (stream, pool) = (context.stream()?, context.device().default_pool());
//!
//! let n = 1024;
//! let x = stream.alloc::<f32>(&pool, n)?; // from Millpond, in stream order
//! let y = stream.alloc::<f32>(&pool, n)?;
//! stream.run(x.write(), |s, mut x| s.memcpy_htod(&vec![1.0; n], &mut x))?;
//! stream.run((y.write(), x.read()), |s, (mut y, x)| {
//!     let mut launch = s.launch_builder(&scale);
//!     launch.arg(&mut y).arg(&x).arg(&n);
//!     unsafe { launch.launch(LaunchConfig::for_num_elems(n as u32)) }.map(drop)
//! })?;
//! stream.free(x)?; // checked: refused while another stream may still read it
//! let y = stream.run(y.read(), |s, y| s.clone_dtoh(&y))?;
//! assert_eq!(y, vec![2.0; n]);
//! # Ok(())
//! # }
//! ```
//!
//! Code that needs a `CudaSlice` or a `CudaView` gets a [`Slice`], which is one, and which gives its memory back to
//! Millpond.
//!
//! An unchanged program that links the driver library can have all its allocations from Millpond: [`interpose`].
//!
//! # Versions of cudarc
//! 0.19. The program chooses cudarc's CUDA version and its way of loading. This crate's default features choose CUDA
//! 13.0 and loading at run time; with `default-features = false` it chooses nothing.
//!
//! [cudarc]: https://docs.rs/cudarc

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod context;
mod error;
pub mod interpose;
mod library;
mod ranks;
mod slice;
mod stream;
mod views;

pub use context::Context;
pub use error::{Error, Result};
pub use library::Cudarc;
pub use millpond_adaptor::Views;
pub use slice::Slice;
pub use stream::Stream;
pub use views::{In, Out};

pub use cudarc;
pub use millpond;

/// Compiles the code in the documents.
#[cfg(doctest)]
#[doc = include_str!("../docs/cudarc.md")]
#[doc = include_str!("../docs/candle.md")]
struct Documents;
