//! The errors between the two libraries.

use bytemuck::Pod;
use cuda_core::DriverError;
use millpond::Refused;
use millpond_adaptor::Fault;

/// The reason why nothing was done, or what failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Millpond refused the call, or one of its own calls failed: nothing was submitted.
    #[error(transparent)]
    Millpond(#[from] millpond::Error),
    /// A call of cuda-core failed.
    #[error("a call of cuda-core failed: {0}")]
    CudaCore(#[from] DriverError),
    /// The error that the closure returned. The declared accesses count as used, because part of the work may be in
    /// flight.
    #[error("the work was declared, and submitting it failed")]
    Submit(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The context is not the device's primary one.
    #[error("memory is served in the primary context of a device: make the context with `CudaContext::new`")]
    NotPrimary,
    /// The stream belongs to another context of cuda-core's.
    #[error("the stream is of another context: take it over with that one's `Context`")]
    OtherContext,
    /// The host buffer and the device memory have different lengths, or no elements.
    #[error(
        "the host buffer has {host} elements, and the device memory {device}: both must have as many, and at least one"
    )]
    Length {
        /// Elements of the host buffer.
        host: usize,
        /// Elements of the device memory.
        device: usize,
    },
    /// The `DeviceBuffer` is not one that this context lent, as a whole and with the type that it was lent with.
    #[error(
        "this `DeviceBuffer` is not one that `Context::device_buffer` of this context made, whole and of that type"
    )]
    NotLent,
    /// The `DeviceBuffer` has other views, or is in use on another stream: cuda-core cannot give it back yet.
    #[error(
        "this `DeviceBuffer` has other views, or another stream uses it: drop those, or synchronise with that stream"
    )]
    InUse,
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
