//! Millpond beside a context of cuda-core.

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

/// A context of cuda-core's, with Millpond's device over it: [`device`](millpond_adaptor::Context::device) is that,
/// and clones name the same one.
///
/// Make one for a context, and keep it: each has its own pools, and knows nothing of what others allocate.
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
    /// [`Error::Millpond`](crate::Error::Millpond) that says what is missing: the driver library, a function of it, the
    /// device. [`Error::CudaCore`](crate::Error::CudaCore) where cuda-core finds no driver of its version.
    pub fn open(ordinal: u32) -> Result<Context> {
        Self::open_with(CudaConfig::default().ordinal(ordinal), DeviceConfig::default())
    }

    /// As [`open`](Self::open), with all settings of Millpond's.
    ///
    /// # Errors
    /// As of [`open`](Self::open).
    pub fn open_with(driver: CudaConfig, config: DeviceConfig) -> Result<Context> {
        millpond_adaptor::Context::open_with(driver, config).map(Self::from)
    }

    /// Puts Millpond beside a context that the program has.
    ///
    /// # Errors
    /// [`Error::NotPrimary`](crate::Error::NotPrimary) for another context than `CudaContext::new` makes; as of
    /// [`open`](Self::open).
    pub fn new(cuda_core: &Arc<CudaContext>) -> Result<Context> {
        millpond_adaptor::Context::new(cuda_core).map(Self::from)
    }

    /// The context as cuda-core knows it.
    pub fn cuda_core(&self) -> &Arc<CudaContext> {
        self.theirs()
    }

    /// Opens a non-blocking stream, by cuda-core.
    ///
    /// # Errors
    /// Either library could not.
    pub fn stream(&self) -> Result<Stream> {
        Ok(self.shared.stream()?.into())
    }

    /// Adopts a stream that the program has: default streams as well. The same stream adopted again is the same
    /// stream of Millpond's.
    ///
    /// # Errors
    /// [`Error::OtherContext`](crate::Error::OtherContext) for a stream of another context.
    pub fn adopt(&self, stream: &Arc<CudaStream>) -> Result<Stream> {
        Ok(self.shared.adopt(stream)?.into())
    }

    /// Hands a buffer to code that wants a `DeviceBuffer`, without a copy. From this point of the stream on cuda-core
    /// tracks its uses; when its last view is gone and the work that cuda-core knows of has completed, the memory is
    /// free, to Millpond, after everything that the context's streams have in them by then.
    ///
    /// Work on other streams than this one comes after the allocation only if the program orders it so. cuda-core
    /// refuses (`CUDA_ERROR_NOT_READY`) an access on another stream until the one before has completed.
    ///
    /// # Errors
    /// A violation, with the buffer: the stream does not come after all that uses it.
    #[track_caller]
    pub fn device_buffer<T: Pod + DeviceCopy>(
        &self,
        stream: &Stream,
        buffer: Buffer<T>,
    ) -> std::result::Result<DeviceBuffer<T>, Refused<T>> {
        Ok(self.lent.enter(self.cuda_core(), self.lend(stream, buffer)?))
    }

    /// Takes a buffer back that was handed to cuda-core, for Millpond to order from here on: its stream is the one on
    /// which it was lent, which is made to wait for what the context's other streams have in them.
    ///
    /// # Errors
    /// [`Error::NotLent`](crate::Error::NotLent), [`Error::InUse`](crate::Error::InUse), with the buffer. The device is
    /// lost, or a stream captures: the memory is then freed as by a drop.
    #[track_caller]
    pub fn buffer<T: Pod + DeviceCopy>(
        &self,
        buffer: DeviceBuffer<T>,
    ) -> std::result::Result<Buffer<T>, Unreturned<T>> {
        self.lent.leave(buffer)
    }
}
