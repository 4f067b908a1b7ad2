//! The objects of the caller's handles and pointers, and the state that is kept with each. No call of `millpond.h` is
//! here.

pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod graph;
pub(crate) mod handle;
pub(crate) mod pointers;
pub(crate) mod pool;
pub(crate) mod ranks;
pub(crate) mod stream;
