//! The error of a refused free, which gives the buffer back.

use std::fmt;

use crate::names::error::{Error, Report};
use crate::stream::buffer::Buffer;

/// The error of a refused free, with the buffer, which is unchanged.
///
/// With `?` in a function that returns [`Error`] the buffer is dropped, which frees it after all uses declared so far.
/// A function or closure that ends with a free ends with `Ok(stream.free(x)?)`.
///
/// ```
/// # use millpond::{Device, HostConfig};
/// # fn main() -> millpond::Result<()> {
/// let device = Device::host(HostConfig::default())?;
/// let (stream, other) = (device.stream()?, device.stream()?);
/// let x = stream.alloc::<u32>(&device.default_pool(), 4)?;
/// let refused = other.free(x).unwrap_err();
/// println!("{}", refused.report()); // both sides, and what is missing between them
/// stream.free(refused.buffer)?;
/// # Ok(())
/// # }
/// ```
pub struct Refused<T> {
    /// The reason of the refusal.
    pub error: Error,
    /// The buffer that was to be freed. It is still the caller's.
    pub buffer: Buffer<T>,
}

impl<T> Refused<T> {
    /// Returns a report of the error, as [`Error::report`].
    pub fn report(&self) -> Report<'_> {
        self.error.report()
    }
}

impl<T> fmt::Debug for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.error, f)
    }
}

impl<T> fmt::Display for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T> std::error::Error for Refused<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl<T> From<Refused<T>> for Error {
    fn from(refused: Refused<T>) -> Self {
        refused.error
    }
}
