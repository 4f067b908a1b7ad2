//! Millpond beside a context of cudarc.

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

/// A context of cudarc's, with Millpond's device over it: [`device`](millpond_adaptor::Context::device) is that,
/// and clones name the same one.
///
/// Make one for a context, and keep it: each has its own pools, and knows nothing of what others allocate.
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
    /// [`Error::Millpond`](crate::Error::Millpond) that says what is missing: the driver library, a function of it, the
    /// device. cudarc, which panics where there is no driver library, is asked only afterwards.
    pub fn open(ordinal: u32) -> Result<Context> {
        Self::open_with(CudaConfig::default().ordinal(ordinal), DeviceConfig::default())
    }

    /// As [`open`](Self::open), with all settings of Millpond's.
    ///
    /// # Errors
    /// As of [`open`](Self::open).
    pub fn open_with(driver: CudaConfig, config: DeviceConfig) -> Result<Context> {
        millpond_adaptor::Context::open_with(driver, config).map(Self)
    }

    /// Puts Millpond beside a context that the program has.
    ///
    /// # Errors
    /// [`Error::NotPrimary`](crate::Error::NotPrimary) for a context that was not made by `CudaContext::new`; as of
    /// [`open`](Self::open).
    pub fn new(cudarc: &Arc<CudaContext>) -> Result<Context> {
        millpond_adaptor::Context::new(cudarc).map(Self)
    }

    /// The context as cudarc knows it.
    pub fn cudarc(&self) -> &Arc<CudaContext> {
        self.theirs()
    }

    /// Opens a non-blocking stream, by cudarc.
    ///
    /// # Errors
    /// Either library could not.
    pub fn stream(&self) -> Result<Stream> {
        Ok(self.0.stream()?.into())
    }

    /// Adopts a stream that the program has: default streams as well. The same stream adopted again is the same
    /// stream of Millpond's.
    ///
    /// # Errors
    /// [`Error::OtherContext`](crate::Error::OtherContext) for a stream of another context.
    pub fn adopt(&self, stream: &Arc<CudaStream>) -> Result<Stream> {
        Ok(self.0.adopt(stream)?.into())
    }

    /// Hands a buffer to code that wants a `CudaSlice`: from this point of the stream on, until the [`Slice`] ends, its
    /// uses are ordered by cudarc.
    ///
    /// # Errors
    /// A violation, with the buffer: the stream does not come after all that uses it.
    #[track_caller]
    pub fn slice<T: Pod>(&self, stream: &Stream, buffer: Buffer<T>) -> std::result::Result<Slice<T>, Refused<T>> {
        self.lend(stream, buffer).map(Slice::new)
    }
}
