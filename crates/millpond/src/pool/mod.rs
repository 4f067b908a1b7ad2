//! The source of memory: a pool's heap, the driver calls for its steps, and the devices and processes with access to
//! it. Pools themselves are [`Pool`](crate::Pool).

pub(crate) mod closing;
pub(crate) mod exposed;
pub(crate) mod grants;
pub(crate) mod handle;
#[allow(unsafe_code)]
pub(crate) mod shell;
pub(crate) mod trim;

pub use crate::names::pool_name::PoolName;
pub use crate::names::statistics::PoolStatistics;
pub use millpond_driver::PeerAccess;
