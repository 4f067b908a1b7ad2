//! Millpond with a context of another library: one device, and the streams that both libraries know.

use std::fmt;
use std::sync::Arc;

use bytemuck::Pod;
use millpond::config::StreamKind;
use millpond::cuda::CudaConfig;
use millpond::{Buffer, Device, DeviceConfig, Refused};

use crate::fault::Fault;
use crate::library::Library;
use crate::loan::Loan;
use crate::stream::Stream;
use crate::streams::Streams;

/// A context of the library's, with a Millpond device on it. Clones name the same context.
pub struct Context<L: Library> {
    device: Device,
    theirs: Arc<L::Context>,
    streams: Arc<Streams<L>>,
}

impl<L: Library> Context<L> {
    /// Opens a CUDA device with both libraries. Millpond comes first, because its errors say what is missing.
    ///
    /// # Errors
    /// An error of either library.
    pub fn open_with(driver: CudaConfig, config: DeviceConfig) -> Result<Self, L::Error> {
        let ordinal = driver.ordinal;
        let device = Device::cuda_with(driver, config)?;
        Self::beside(L::open(ordinal)?, device)
    }

    /// Adds Millpond to a context that the program has.
    ///
    /// # Errors
    /// [`Fault::NotPrimary`]; as of [`open_with`](Self::open_with).
    pub fn new(theirs: &Arc<L::Context>) -> Result<Self, L::Error> {
        let device = Device::cuda(L::ordinal(theirs))?;
        Self::beside(Arc::clone(theirs), device)
    }

    fn beside(theirs: Arc<L::Context>, device: Device) -> Result<Self, L::Error> {
        if !L::is_primary(&theirs) {
            return Err(Fault::NotPrimary.into());
        }
        Ok(Self { device, theirs, streams: Arc::default() })
    }

    /// Returns Millpond's device: pools, graphs, statistics.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the library's own context.
    pub fn theirs(&self) -> &Arc<L::Context> {
        &self.theirs
    }

    /// Opens a non-blocking stream of the library.
    ///
    /// # Errors
    /// An error of either library.
    pub fn stream(&self) -> Result<Stream<L>, L::Error> {
        self.adopt(&L::new_stream(&self.theirs)?)
    }

    /// Adopts a stream of the program's, also a default stream. Adopting a stream again returns the same Millpond
    /// stream.
    ///
    /// # Errors
    /// [`Fault::OtherContext`] for a stream of another context.
    pub fn adopt(&self, stream: &Arc<L::Stream>) -> Result<Stream<L>, L::Error> {
        if !L::is_of(stream, &self.theirs) {
            return Err(Fault::OtherContext.into());
        }
        self.streams.known_or(stream, || {
            // The libraries' own streams are non-blocking. If a borrowed stream is blocking, Millpond knows fewer edges
            // than there are.
            // SAFETY: the context was compared, and `keep` keeps the stream open.
            let ours = unsafe {
                let keep = Arc::clone(stream) as Arc<_>;
                self.device.adopt_stream_keeping(L::native(stream), StreamKind::NonBlocking, keep)
            }?;
            Ok(Stream::new(ours, Arc::clone(stream)))
        })
    }

    /// Lends a buffer to the library, from this point of the stream on.
    ///
    /// # Errors
    /// A violation, with the buffer: the stream does not come after all uses of the buffer.
    #[track_caller]
    pub fn lend<T: Pod>(&self, stream: &Stream<L>, buffer: Buffer<T>) -> Result<Loan<T, L>, Refused<T>> {
        Loan::new(&self.streams, stream, buffer)
    }
}

impl<L: Library> Clone for Context<L> {
    fn clone(&self) -> Self {
        Self { device: self.device.clone(), theirs: Arc::clone(&self.theirs), streams: Arc::clone(&self.streams) }
    }
}

impl<L: Library> fmt::Debug for Context<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("device", &self.device).field("theirs", &self.theirs).finish_non_exhaustive()
    }
}
