//! What a device makes for graphs and streams to order each other by, and what messages call it.

use std::sync::Arc;

use crate::api::device::Device;
use crate::names::device_name::DeviceName;
use crate::stream::external::ExternalEvent;

impl Device {
    /// An event for graphs and streams to order each other by; not recorded yet (CUDA: `cudaEventCreate`).
    pub fn external_event(&self) -> ExternalEvent {
        ExternalEvent::new(Arc::clone(self.context()))
    }
}

impl Device {
    /// What messages call it.
    pub fn name(&self) -> DeviceName {
        self.context().name()
    }
}
