//! Ground floor: the ranks of locks, and what is dropped behind them. Knows nothing of devices.

pub(crate) mod garbage;
pub(crate) mod ranks;
pub(crate) mod sweep;
