//! The top layer: the device's handle, and memory by pointer for other languages and for programs whose order is
//! trusted.

// The documentation of `Device` has its methods in this order.
pub(crate) mod device;

pub(crate) mod cuda;
pub(crate) mod events;
pub(crate) mod grants;
pub(crate) mod graphs;
pub(crate) mod handles;
pub(crate) mod host_free;
pub(crate) mod pinned;
pub(crate) mod sharing;

// For other languages and libraries.
pub(crate) mod access_list;
#[allow(unsafe_code)]
pub(crate) mod adopt;
pub(crate) mod held;
pub(crate) mod raw;
pub(crate) mod trusted;

#[cfg(doctest)]
mod untypable;
