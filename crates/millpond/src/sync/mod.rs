//! Ground floor: the ranks of locks, and what is dropped behind them. Knows nothing of devices.

pub(crate) mod garbage;
#[allow(unsafe_code)]
pub(crate) mod handle;
pub(crate) mod ranks;
pub(crate) mod sweep;
