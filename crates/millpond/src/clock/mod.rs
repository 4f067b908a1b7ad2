//! The device's progress, and the hosts' knowledge of it: chains, ends of streams, work in flight.

pub(crate) mod chains;
pub(crate) mod device_event;
pub(crate) mod hosts;
pub(crate) mod progress;
