//! The objects of a device and their references: the device's context, allocations with their lifetimes and owners, and
//! declared accesses.

#[allow(unsafe_code)]
pub(crate) mod access;
pub(crate) mod aliased;
pub(crate) mod allocation;
pub(crate) mod caches;
pub(crate) mod context;
pub(crate) mod ends;
pub(crate) mod freed;
pub(crate) mod guests;
pub(crate) mod in_flight;
pub(crate) mod lent;
pub(crate) mod listening;
pub(crate) mod named;
pub(crate) mod numbers;
pub(crate) mod origin;
pub(crate) mod peers;
pub(crate) mod pool;
pub(crate) mod retired;
pub(crate) mod running;
pub(crate) mod session;
pub(crate) mod stream;
pub(crate) mod traced;
