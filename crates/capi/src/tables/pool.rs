//! Pools by handle.

use millpond::Pool;

use super::handle::Table;

/// Opaque handle.
pub enum millpond_pool {}
/// A pool (CUDA: cudaMemPool_t).
pub type millpond_pool_t = *mut millpond_pool;

pub(crate) static POOLS: Table<Pool> = Table::new("pool", 2);
