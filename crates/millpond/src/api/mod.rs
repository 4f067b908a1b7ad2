//! The top floor: the device's handle, and memory by pointer for other languages and for programs that are trusted.

pub(crate) mod cuda;
pub(crate) mod device;
pub(crate) mod handles;
pub(crate) mod held;
pub(crate) mod locate;
pub(crate) mod raw;
pub(crate) mod trusted;
#[cfg(doctest)]
mod untypable;
