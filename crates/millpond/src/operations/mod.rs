//! The operations of streams, as programs call them: allocate and free, launch, copy, record, wait. Each goes to the
//! device, or into a graph if the stream captures.

// The documentation of `Stream` has its methods in this order.
pub(crate) mod memory;

pub(crate) mod launch;

pub(crate) mod copy;
pub(crate) mod order;

pub(crate) mod external;
pub(crate) mod locate;
pub(crate) mod pinned;
#[allow(unsafe_code)]
pub(crate) mod scope;
pub(crate) mod wanted;
