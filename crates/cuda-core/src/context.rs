//! Millpond with a context of cuda-core.

use std::ops::Deref;
use std::sync::Arc;

use bytemuck::Pod;
use cuda_core::{CudaContext, CudaStream, DeviceBuffer, DeviceCopy};
use millpond::cuda::CudaConfig;
use millpond::{Buffer, DeviceConfig, Refused};

use crate::error::Result;
use crate::lent::{Lent, Unreturned};
use crate::library::CudaCore;
use crate::stream::Stream;

/// A context of cuda-core's, with a Millpond device on it, which [`device`](millpond_adaptor::Context::device) returns.
/// Clones name the same context.
///
/// Make one for a context, and keep it: each has its own pools, and does not know what others allocate.
#[derive(Clone, Debug)]
pub struct Context {
    shared: millpond_adaptor::Context<CudaCore>,
    lent: Arc<Lent>,
}

impl Deref for Context {
    type Target = millpond_adaptor::Context<CudaCore>;

    fn deref(&self) -> &Self::Target {
        &self.shared
    }
}

impl From<millpond_adaptor::Context<CudaCore>> for Context {
    fn from(shared: millpond_adaptor::Context<CudaCore>) -> Self {
        Self { shared, lent: Arc::default() }
    }
}

impl Context {
    /// Opens a CUDA device by its number among the visible ones, with both libraries.
    ///
    /// # Errors
    /// An [`Error::Millpond`](crate::Error::Millpond) says what is missing: the driver library, one of its functions,
    /// or the device. [`Error::CudaCore`](crate::Error::CudaCore) if cuda-core finds no driver of its version.
    pub fn open(ordinal: u32) -> Result<Context> {
        Self::open_with(CudaConfig::default().ordinal(ordinal), DeviceConfig::default())
    }

    /// As [`open`](Self::open), with all of Millpond's settings.
    ///
    /// # Errors
    /// As of [`open`](Self::open).
    pub fn open_with(driver: CudaConfig, config: DeviceConfig) -> Result<Context> {
        millpond_adaptor::Context::open_with(driver, config).map(Self::from)
    }

    /// Adds Millpond to a context that the program has.
    ///
    /// # Errors
    /// [`Error::NotPrimary`](crate::Error::NotPrimary) for a context that `CudaContext::new` does not make; as of
    /// [`open`](Self::open).
    pub fn new(cuda_core: &Arc<CudaContext>) -> Result<Context> {
        millpond_adaptor::Context::new(cuda_core).map(Self::from)
    }

    /// Returns cuda-core's own context.
    pub fn cuda_core(&self) -> &Arc<CudaContext> {
        self.theirs()
    }

    /// Opens a non-blocking stream of cuda-core's.
    ///
    /// # Errors
    /// An error of either library.
    pub fn stream(&self) -> Result<Stream> {
        Ok(self.shared.stream()?.into())
    }

    /// Adopts a stream of the program's, also a default stream. Adopting a stream again returns the same Millpond
    /// stream.
    ///
    /// # Errors
    /// [`Error::OtherContext`](crate::Error::OtherContext) for a stream of another context.
    pub fn adopt(&self, stream: &Arc<CudaStream>) -> Result<Stream> {
        Ok(self.shared.adopt(stream)?.into())
    }

    /// Lends a buffer to code that needs a `DeviceBuffer`, without a copy. From this point of the stream on cuda-core
    /// tracks its uses. Once its last view is gone and the work that cuda-core knows of has completed, the memory is
    /// freed in Millpond, after all work that is then in the context's streams.
    ///
    /// Work on other streams than this one comes after the allocation only if the program orders it so. cuda-core
    /// refuses an access on another stream (`CUDA_ERROR_NOT_READY`) until the access before it has completed.
    ///
    /// # Errors
    /// A violation, with the buffer: the stream does not come after all uses of the buffer.
    #[track_caller]
    pub fn device_buffer<T: Pod + DeviceCopy>(
        &self,
        stream: &Stream,
        buffer: Buffer<T>,
    ) -> std::result::Result<DeviceBuffer<T>, Refused<T>> {
        Ok(self.lent.enter(self.cuda_core(), self.lend(stream, buffer)?))
    }

    /// Takes a lent buffer back from cuda-core, and Millpond orders it from here on. Its stream is the one on which it
    /// was lent. That stream is made to wait for all work in the context's other streams.
    ///
    /// # Errors
    /// [`Error::NotLent`](crate::Error::NotLent), [`Error::InUse`](crate::Error::InUse), with the buffer. If the device
    /// is lost, or a stream captures, the memory is freed as by a drop.
    #[track_caller]
    pub fn buffer<T: Pod + DeviceCopy>(
        &self,
        buffer: DeviceBuffer<T>,
    ) -> std::result::Result<Buffer<T>, Unreturned<T>> {
        self.lent.leave(buffer)
    }
}
