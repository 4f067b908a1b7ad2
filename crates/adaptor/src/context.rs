//! Millpond beside a context of another library: one device, and the streams that both know.

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

/// A context of the library's, with Millpond's device over it. Clones name the same one.
pub struct Context<L: Library> {
    device: Device,
    theirs: Arc<L::Context>,
    streams: Arc<Streams<L>>,
}

impl<L: Library> Context<L> {
    /// Opens a CUDA device with both libraries. Millpond comes first: it says what is missing.
    ///
    /// # Errors
    /// Either library's.
    pub fn open_with(driver: CudaConfig, config: DeviceConfig) -> Result<Self, L::Error> {
        let ordinal = driver.ordinal;
        let device = Device::cuda_with(driver, config)?;
        Self::beside(L::open(ordinal)?, device)
    }

    /// Puts Millpond beside a context that the program has.
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

    /// Millpond's device: pools, graphs, statistics.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The context as the library knows it.
    pub fn theirs(&self) -> &Arc<L::Context> {
        &self.theirs
    }

    /// Opens a non-blocking stream, by the library.
    ///
    /// # Errors
    /// Either library could not.
    pub fn stream(&self) -> Result<Stream<L>, L::Error> {
        self.adopt(&L::new_stream(&self.theirs)?)
    }

    /// Adopts a stream that the program has: default streams as well. The same stream adopted again is the same
    /// stream of Millpond's.
    ///
    /// # Errors
    /// [`Fault::OtherContext`] for a stream of another context.
    pub fn adopt(&self, stream: &Arc<L::Stream>) -> Result<Stream<L>, L::Error> {
        if !L::is_of(stream, &self.theirs) {
            return Err(Fault::OtherContext.into());
        }
        self.streams.known_or(stream, || {
            // The libraries' own streams are non-blocking. Of a borrowed one that is not, less is known than is so.
            // SAFETY: the context was compared, and what keeps the stream open is kept.
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
    /// A violation, with the buffer: the stream does not come after all that uses it.
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
