//! Copies from and to cuda-core's pinned host buffers, in stream order. The caller gives the buffer away and gets it
//! back when the copy has completed, so that no host code can touch it meanwhile.

use std::fmt;
use std::sync::Arc;

use bytemuck::Pod;
use cuda_core::completion::retain_until_complete;
use cuda_core::memory::{memcpy_dtoh_async, memcpy_htod_async};
use cuda_core::{CudaStream, DeviceCopy, PinnedHostBuffer};
use millpond::{Event, Read, Write};

use crate::error::Error;
use crate::stream::Stream;

/// A pinned host buffer that a copy uses. If this is dropped, the buffer is kept until the copy has completed, and no
/// thread waits.
pub struct InFlight<T: DeviceCopy + Send + 'static> {
    host: Option<PinnedHostBuffer<T>>,
    copied: Event,
    stream: Arc<CudaStream>,
}

impl<T: DeviceCopy + Send + 'static> InFlight<T> {
    /// Waits for the copy, and gives the buffer back.
    ///
    /// # Errors
    /// The device is lost: the buffer stays with the driver.
    pub fn wait(mut self) -> Result<PinnedHostBuffer<T>, Error> {
        self.copied.synchronize()?;
        Ok(self.host.take().expect("it is taken at the end only"))
    }

    /// Returns `true` if the copy has completed, so that [`wait`](Self::wait) returns at once.
    ///
    /// # Errors
    /// The device is lost.
    pub fn is_over(&self) -> Result<bool, Error> {
        Ok(self.copied.is_over()?)
    }
}

impl<T: DeviceCopy + Send + 'static> Drop for InFlight<T> {
    fn drop(&mut self) {
        if let Some(host) = self.host.take() {
            // If the device is lost, cuda-core forgets the buffer.
            let _ = retain_until_complete(host, &self.stream);
        }
    }
}

impl<T: DeviceCopy + Send + 'static> fmt::Debug for InFlight<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight").field("host", &self.host).field("copied", &self.copied).finish_non_exhaustive()
    }
}

/// A copy that was refused or failed.
pub struct RefusedHost<T: DeviceCopy> {
    /// The reason.
    pub error: Error,
    /// The buffer; `None` if the copy may be in flight: the buffer is then kept until the copy has completed.
    pub host: Option<PinnedHostBuffer<T>>,
}

impl<T: DeviceCopy> fmt::Debug for RefusedHost<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RefusedHost").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<T: DeviceCopy> fmt::Display for RefusedHost<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl<T: DeviceCopy> std::error::Error for RefusedHost<T> {}

impl<T: DeviceCopy> From<RefusedHost<T>> for Error {
    /// Drops the buffer.
    fn from(refused: RefusedHost<T>) -> Self {
        refused.error
    }
}

impl Stream {
    /// Copies a pinned host buffer of cuda-core's to device memory, in stream order.
    ///
    /// # Errors
    /// [`Error::Length`]; as of [`run`](millpond_adaptor::Stream::run).
    #[track_caller]
    pub fn copy_from_pinned_host<T: Pod + DeviceCopy + Send + 'static>(
        &self,
        to: Write<'_, T>,
        host: PinnedHostBuffer<T>,
    ) -> Result<InFlight<T>, RefusedHost<T>> {
        let (len, from, bytes) = (to.len(), host.as_ptr(), host.num_bytes());
        let host = check(host, len)?;
        let submitted = self.run(to, |s, to| {
            s.context().bind_to_thread()?;
            // SAFETY: the same number of bytes on both sides; the host's are kept until the copy has completed.
            unsafe { memcpy_htod_async(to.cu_deviceptr(), from, bytes, s.cu_stream()) }
        });
        self.in_flight(host, submitted)
    }

    /// Copies device memory to a pinned host buffer of cuda-core's, in stream order.
    ///
    /// # Errors
    /// [`Error::Length`]; as of [`run`](millpond_adaptor::Stream::run).
    #[track_caller]
    pub fn copy_to_pinned_host<T: Pod + DeviceCopy + Send + 'static>(
        &self,
        from: Read<'_, T>,
        mut host: PinnedHostBuffer<T>,
    ) -> Result<InFlight<T>, RefusedHost<T>> {
        let (len, to, bytes) = (from.len(), host.as_mut_ptr(), host.num_bytes());
        let host = check(host, len)?;
        let submitted = self.run(from, |s, from| {
            s.context().bind_to_thread()?;
            // SAFETY: the same number of bytes on both sides; the host's are kept until the copy has completed.
            unsafe { memcpy_dtoh_async(to, from.cu_deviceptr(), bytes, s.cu_stream()) }
        });
        self.in_flight(host, submitted)
    }

    #[track_caller]
    fn in_flight<T: DeviceCopy + Send + 'static>(
        &self,
        host: PinnedHostBuffer<T>,
        submitted: Result<(), Error>,
    ) -> Result<InFlight<T>, RefusedHost<T>> {
        let recorded = match submitted {
            Ok(()) => self.record().map_err(Error::from),
            // Refused before cuda-core was called.
            Err(error @ Error::Millpond(_)) => return Err(RefusedHost { error, host: Some(host) }),
            Err(error) => Err(error),
        };
        match recorded {
            Ok(copied) => Ok(InFlight { host: Some(host), copied, stream: Arc::clone(self.cuda_core()) }),
            Err(error) => {
                // The copy may be in flight. If no event can be recorded, cuda-core forgets the buffer.
                let _ = retain_until_complete(host, self.cuda_core());
                Err(RefusedHost { error, host: None })
            }
        }
    }
}

/// Checks that both sides have the same number of elements, and at least one: the driver refuses copies of nothing.
fn check<T: DeviceCopy>(host: PinnedHostBuffer<T>, device: usize) -> Result<PinnedHostBuffer<T>, RefusedHost<T>> {
    if host.len() == device && host.num_bytes() > 0 {
        return Ok(host);
    }
    let error = Error::Length { host: host.len(), device };
    Err(RefusedHost { error, host: Some(host) })
}
