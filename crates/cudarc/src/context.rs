//! Millpond beside a context of cudarc: one device, and the streams that both know.

use std::sync::Arc;

use bytemuck::Pod;
use cudarc::driver::{CudaContext, CudaStream};
use millpond::config::StreamKind;
use millpond::cuda::CudaConfig;
use millpond::{Buffer, Device, DeviceConfig, Refused};

use crate::error::{Error, Result};
use crate::slice::Slice;
use crate::stream::Stream;
use crate::streams::Streams;

/// A context of cudarc's, with Millpond's device over it. Clones name the same one.
///
/// Make one for a context, and keep it: each has its own pools, and knows nothing of what others allocate.
#[derive(Clone, Debug)]
pub struct Context {
    device: Device,
    cudarc: Arc<CudaContext>,
    streams: Arc<Streams>,
}

impl Context {
    /// Opens a CUDA device by its number among the visible ones, with both libraries.
    ///
    /// # Errors
    /// [`Error::Millpond`] that says what is missing: the driver library, a function of it, the device. cudarc, which
    /// panics where there is no driver library, is asked only afterwards.
    pub fn open(ordinal: u32) -> Result<Context> {
        Self::open_with(CudaConfig::default().ordinal(ordinal), DeviceConfig::default())
    }

    /// As [`open`](Self::open), with all settings of Millpond's.
    ///
    /// # Errors
    /// As of [`open`](Self::open).
    pub fn open_with(driver: CudaConfig, config: DeviceConfig) -> Result<Context> {
        let ordinal = driver.ordinal as usize;
        let device = Device::cuda_with(driver, config)?;
        Self::beside(CudaContext::new(ordinal)?, device)
    }

    /// Puts Millpond beside a context that the program has.
    ///
    /// # Errors
    /// [`Error::NotPrimary`] for a context that was not made by `CudaContext::new`; as of [`open`](Self::open).
    pub fn new(cudarc: &Arc<CudaContext>) -> Result<Context> {
        let device = Device::cuda(u32::try_from(cudarc.ordinal()).unwrap_or(u32::MAX))?;
        Self::beside(Arc::clone(cudarc), device)
    }

    fn beside(cudarc: Arc<CudaContext>, device: Device) -> Result<Context> {
        if !cudarc.is_primary() {
            return Err(Error::NotPrimary);
        }
        Ok(Context { device, cudarc, streams: Arc::default() })
    }

    /// Millpond's device: pools, graphs, statistics.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The context as cudarc knows it.
    pub fn cudarc(&self) -> &Arc<CudaContext> {
        &self.cudarc
    }

    /// Opens a stream, as `CudaContext::new_stream` does.
    ///
    /// # Errors
    /// cudarc or Millpond could not.
    pub fn stream(&self) -> Result<Stream> {
        self.adopt(&self.cudarc.new_stream()?)
    }

    /// Adopts a stream that the program has: cudarc's default streams as well. The same stream adopted again is
    /// the same [`Stream`].
    ///
    /// # Errors
    /// [`Error::OtherContext`] for a stream of another context.
    pub fn adopt(&self, stream: &Arc<CudaStream>) -> Result<Stream> {
        if **stream.context() != *self.cudarc {
            return Err(Error::OtherContext);
        }
        self.streams.known_or(stream, || {
            let native = stream.cu_stream() as u64;
            // cudarc's streams are non-blocking ones. Of a borrowed one that is not, less is known than is so.
            // SAFETY: the context was compared, and what keeps the stream open is kept.
            let ours = unsafe {
                self.device.adopt_stream_keeping(native, StreamKind::NonBlocking, Arc::clone(stream) as Arc<_>)
            }?;
            Ok(Stream::new(ours, Arc::clone(stream)))
        })
    }

    /// Hands a buffer to code that wants a `CudaSlice`: from this point of the stream on, until the [`Slice`] ends, its
    /// uses are ordered by cudarc.
    ///
    /// # Errors
    /// A violation, with the buffer: the stream does not come after all that uses it.
    #[track_caller]
    pub fn slice<T: Pod>(&self, stream: &Stream, buffer: Buffer<T>) -> std::result::Result<Slice<T>, Refused<T>> {
        Slice::new(&self.streams, stream, buffer)
    }
}
