//! How a CUDA device is opened. Plain data; each setting has a method of its name.

use std::path::PathBuf;

/// How a CUDA device is opened.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct CudaConfig {
    /// Which of the visible devices.
    pub ordinal: u32,
    /// The driver library. Without it, that of the setting [`LIBRARY_VARIABLE`](super::LIBRARY_VARIABLE), else
    /// `libcuda.so.1` as the system's loader finds it.
    pub library: Option<PathBuf>,
    /// The most bytes that chunks may have together, where that is less than the device has.
    pub limit_bytes: Option<u64>,
}

impl CudaConfig {
    /// With this device of the visible ones.
    #[must_use]
    pub fn ordinal(self, ordinal: u32) -> Self {
        Self { ordinal, ..self }
    }

    /// With this driver library.
    #[must_use]
    pub fn library(self, library: impl Into<Option<PathBuf>>) -> Self {
        Self { library: library.into(), ..self }
    }

    /// With at most so many bytes of chunks.
    #[must_use]
    pub fn limit_bytes(self, limit_bytes: impl Into<Option<u64>>) -> Self {
        Self { limit_bytes: limit_bytes.into(), ..self }
    }
}
