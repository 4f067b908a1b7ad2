//! The settings of a CUDA device. Plain data; each setting has a method of its name.

use std::path::PathBuf;

/// The settings of a CUDA device.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct CudaConfig {
    /// The number of the device among the visible ones.
    pub ordinal: u32,
    /// The driver library. Without it, the library of the setting [`LIBRARY_VARIABLE`](super::LIBRARY_VARIABLE), or
    /// `libcuda.so.1` from the system's loader.
    pub library: Option<PathBuf>,
    /// The most bytes that chunks may have together, if less than the device has.
    pub limit_bytes: Option<u64>,
}

impl CudaConfig {
    /// Sets the number of the device among the visible ones.
    #[must_use]
    pub fn ordinal(self, ordinal: u32) -> Self {
        Self { ordinal, ..self }
    }

    /// Sets the driver library.
    #[must_use]
    pub fn library(self, library: impl Into<Option<PathBuf>>) -> Self {
        Self { library: library.into(), ..self }
    }

    /// Limits the bytes of all chunks.
    #[must_use]
    pub fn limit_bytes(self, limit_bytes: impl Into<Option<u64>>) -> Self {
        Self { limit_bytes: limit_bytes.into(), ..self }
    }
}
