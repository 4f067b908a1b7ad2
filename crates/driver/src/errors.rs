//! The errors of driver calls: the contract's errors, and the refusals of calls that a device does not have.

/// The result of a driver call.
pub type Result<T> = std::result::Result<T, DriverError>;

/// The error of a driver call. The states of the caller and of the device are as before the call.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// The system has no more physical memory for a chunk (CUDA: `CUDA_ERROR_OUT_OF_MEMORY`).
    #[error("{call}: the device has no {bytes} B of physical memory left")]
    OutOfMemory {
        /// The call that failed.
        call: &'static str,
        /// The bytes that it requested.
        bytes: u64,
    },
    /// The host has no more memory that the device can copy from and to (CUDA: `CUDA_ERROR_OUT_OF_MEMORY`).
    #[error("{call}: the host has no {bytes} B of memory left{limits}")]
    OutOfHostMemory {
        /// The call that failed.
        call: &'static str,
        /// The bytes that it requested.
        bytes: u64,
        /// The limit that was reached, if it is known.
        limits: &'static str,
    },
    /// The process has no free range of addresses of this size, or none that it could take and still leave some to
    /// others (CUDA: `CUDA_ERROR_OUT_OF_MEMORY`).
    #[error("{call}: no {bytes} B of addresses are left in one piece: {reason}")]
    OutOfAddresses {
        /// The call that failed.
        call: &'static str,
        /// The bytes that it requested.
        bytes: u64,
        /// The limit that was reached, and the remedy.
        reason: String,
    },
    /// The handle names no object, or one that is gone.
    #[error("{call}: no {what} with handle {handle:#x}")]
    UnknownHandle {
        /// The call that failed.
        call: &'static str,
        /// The kind of object.
        what: &'static str,
        /// The handle given.
        handle: u64,
    },
    /// The system refused for another reason.
    #[error("{call}: {reason}")]
    Failed {
        /// The call that failed.
        call: &'static str,
        /// The system's reason.
        reason: String,
    },
    /// Other code of the process captures the stream. Its work can be neither queried nor waited for, and submitted
    /// work does not run now.
    #[error("{call}: the program is capturing this stream into a graph; call this before the capture or after its end")]
    Captured {
        /// The call that was refused. The capture goes on.
        call: &'static str,
    },
    /// The call would never return: it waits for an event that comes after the calling work, or nothing can run any
    /// more.
    #[error("{call}: the event waits for the work that blocks on it")]
    Deadlock {
        /// The call that was refused.
        call: &'static str,
    },
    /// A kernel faulted or panicked; nothing runs on this device any more.
    #[error("the device is lost: {reason}")]
    Lost {
        /// The first failure.
        reason: String,
    },
}

/// The reasons why a device refuses a call that it does not have.
pub(crate) mod without {
    pub(crate) const GRAPHS: &str = "this device has no graphs of its own";
    pub(crate) const TIMES: &str = "this device takes no times";
    pub(crate) const HOST_MEMORY: &str = "this device has no host memory to give";
    pub(crate) const PEERS: &str = "this device has nothing to do with other devices";
    pub(crate) const SHARING: &str = "this device cannot share this with other processes";
    pub(crate) const FILES_TO_READ: &str = "the device cannot hand out memory that can only be read";
}

/// Returns a refusal with a reason.
#[cold]
pub(crate) fn failed(call: &'static str, reason: impl Into<String>) -> DriverError {
    DriverError::Failed { call, reason: reason.into() }
}

/// Returns the error of a handle that names no object.
#[cold]
pub(crate) fn unknown(call: &'static str, what: &'static str, handle: u64) -> DriverError {
    DriverError::UnknownHandle { call, what, handle }
}
