//! How far the device is, and what hosts know of that: chains, ends of streams, work in flight.

pub(crate) mod chains;
pub(crate) mod device_event;
pub(crate) mod hosts;
pub(crate) mod progress;
