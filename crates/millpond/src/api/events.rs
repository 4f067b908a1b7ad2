//! The external events of a device, and the device's name.

use std::sync::Arc;

use crate::api::device::Device;
use crate::names::device_name::DeviceName;
use crate::stream::external::ExternalEvent;

impl Device {
    /// Creates an external event, by which graphs and streams order each other (CUDA: `cudaEventCreate`). It is not
    /// recorded yet.
    pub fn external_event(&self) -> ExternalEvent {
        ExternalEvent::new(Arc::clone(self.context()))
    }
}

impl Device {
    /// Returns the name of the device, as messages have it.
    pub fn name(&self) -> DeviceName {
        self.context().name()
    }
}
