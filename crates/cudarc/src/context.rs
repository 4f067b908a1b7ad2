//! Millpond with a context of cudarc.

use std::ops::Deref;
use std::sync::Arc;

use bytemuck::Pod;
use cudarc::driver::{CudaContext, CudaStream};
use millpond::cuda::CudaConfig;
use millpond::{Buffer, DeviceConfig, Refused};

use crate::error::Result;
use crate::library::Cudarc;
use crate::slice::Slice;
use crate::stream::Stream;

/// A context of cudarc's, with a Millpond device on it, which [`device`](millpond_adaptor::Context::device) returns.
/// Clones name the same context.
///
/// Make one for a context, and keep it: each has its own pools, and does not know what others allocate.
#[derive(Clone, Debug)]
pub struct Context(millpond_adaptor::Context<Cudarc>);

impl Deref for Context {
    type Target = millpond_adaptor::Context<Cudarc>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Context {
    /// Opens a CUDA device by its number among the visible ones, with both libraries.
    ///
    /// # Errors
    /// An [`Error::Millpond`](crate::Error::Millpond) says what is missing: the driver library, one of its functions,
    /// or the device. cudarc is called only afterwards, because it panics if there is no driver library.
    pub fn open(ordinal: u32) -> Result<Context> {
        Self::open_with(CudaConfig::default().ordinal(ordinal), DeviceConfig::default())
    }

    /// As [`open`](Self::open), with all of Millpond's settings.
    ///
    /// # Errors
    /// As of [`open`](Self::open).
    pub fn open_with(driver: CudaConfig, config: DeviceConfig) -> Result<Context> {
        millpond_adaptor::Context::open_with(driver, config).map(Self)
    }

    /// Adds Millpond to a context that the program has.
    ///
    /// # Errors
    /// [`Error::NotPrimary`](crate::Error::NotPrimary) for a context that `CudaContext::new` did not make; as of
    /// [`open`](Self::open).
    pub fn new(cudarc: &Arc<CudaContext>) -> Result<Context> {
        millpond_adaptor::Context::new(cudarc).map(Self)
    }

    /// Returns cudarc's own context.
    pub fn cudarc(&self) -> &Arc<CudaContext> {
        self.theirs()
    }

    /// Opens a non-blocking stream of cudarc's.
    ///
    /// # Errors
    /// An error of either library.
    pub fn stream(&self) -> Result<Stream> {
        Ok(self.0.stream()?.into())
    }

    /// Adopts a stream of the program's, also a default stream. Adopting a stream again returns the same Millpond
    /// stream.
    ///
    /// # Errors
    /// [`Error::OtherContext`](crate::Error::OtherContext) for a stream of another context.
    pub fn adopt(&self, stream: &Arc<CudaStream>) -> Result<Stream> {
        Ok(self.0.adopt(stream)?.into())
    }

    /// Lends a buffer to code that needs a `CudaSlice`. From this point of the stream until the [`Slice`] ends, cudarc
    /// orders its uses.
    ///
    /// # Errors
    /// A violation, with the buffer: the stream does not come after all uses of the buffer.
    #[track_caller]
    pub fn slice<T: Pod>(&self, stream: &Stream, buffer: Buffer<T>) -> std::result::Result<Slice<T>, Refused<T>> {
        self.lend(stream, buffer).map(Slice::new)
    }
}
