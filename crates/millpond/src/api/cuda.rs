//! Opening of CUDA devices. Everything else is as on every device.

use std::sync::Arc;

use millpond_driver::{CudaConfig, CudaDriver};

use crate::api::device::Device;
use crate::names::config::DeviceConfig;
use crate::names::error::Result;

impl Device {
    /// Opens a CUDA device by its number among the visible ones, with its primary context. Its kernels are foreign
    /// code: use [`Stream::enqueue`](crate::Stream::enqueue) in place of [`Stream::launch`](crate::Stream::launch).
    ///
    /// # Errors
    /// Returns [`Error::Driver`](crate::Error::Driver), which says what is missing: the driver library, a function of
    /// it, the device, or its virtual memory calls.
    pub fn cuda(ordinal: u32) -> Result<Device> {
        Self::cuda_with(CudaConfig::default().ordinal(ordinal), DeviceConfig::default())
    }

    /// As [`cuda`](Self::cuda), with all settings.
    ///
    /// # Errors
    /// As for [`cuda`](Self::cuda).
    pub fn cuda_with(driver: CudaConfig, config: DeviceConfig) -> Result<Device> {
        Self::with_driver(Arc::new(CudaDriver::new(driver)?), config)
    }
}
