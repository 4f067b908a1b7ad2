//! The errors between the two libraries.

use bytemuck::Pod;
use cudarc::driver::DriverError;
use millpond::Refused;
use millpond_adaptor::Fault;

/// The reason why nothing was done, or what failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Millpond refused the call, or one of its own calls failed: nothing was submitted.
    #[error(transparent)]
    Millpond(#[from] millpond::Error),
    /// A call of cudarc failed.
    #[error("a call of cudarc failed")]
    Cudarc(#[from] DriverError),
    /// The error that the closure returned. The declared accesses count as used, because part of the work may be in
    /// flight.
    #[error("the work was declared, and submitting it failed")]
    Submit(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The context is not one that `CudaContext::new` makes.
    #[error("memory is served in the primary context of a device: make the context with `CudaContext::new`")]
    NotPrimary,
    /// The stream belongs to another context of cudarc's.
    #[error("the stream is of another context: take it over with that one's `Context`")]
    OtherContext,
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Submit(error) => Error::Submit(error),
            Fault::NotPrimary => Error::NotPrimary,
            Fault::OtherContext => Error::OtherContext,
        }
    }
}

impl<T: Pod> From<Refused<T>> for Error {
    /// Drops the buffer, which frees it after everything declared so far.
    fn from(refused: Refused<T>) -> Self {
        Error::Millpond(refused.error)
    }
}

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;
