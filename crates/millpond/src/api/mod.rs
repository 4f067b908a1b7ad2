//! The top floor: the device's handle, and memory by pointer for other languages and for programs that are trusted.

pub(crate) mod access_list;
#[allow(unsafe_code)]
pub(crate) mod adopt;
pub(crate) mod cuda;
pub(crate) mod device;
pub(crate) mod events;
pub(crate) mod grants;
pub(crate) mod graphs;
pub(crate) mod handles;
pub(crate) mod held;
pub(crate) mod host_free;
pub(crate) mod pinned;
pub(crate) mod raw;
pub(crate) mod sharing;
pub(crate) mod trusted;
#[cfg(doctest)]
mod untypable;
