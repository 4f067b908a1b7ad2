//! Where memory comes from: a pool's heap, its steps taken by the driver, which devices and processes reach it. Pools
//! themselves are [`Pool`](crate::Pool).

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
