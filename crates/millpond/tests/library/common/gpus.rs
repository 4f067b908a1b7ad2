//! The contexts of real GPUs, kept for the whole test process. Creating one takes a third of a second. Releasing one
//! may wait for all work of all GPUs that reach its memory, and another test may be keeping a stream of those busy
//! until that is done.

use std::sync::OnceLock;

use millpond::cuda::CudaConfig;
use millpond_driver::CudaDriver;

/// Keeps the contexts of the first two GPUs, if they exist.
pub(crate) fn keep() {
    static KEPT: OnceLock<Vec<CudaDriver>> = OnceLock::new();
    let open = |ordinal| CudaDriver::new(CudaConfig::default().ordinal(ordinal)).ok();
    KEPT.get_or_init(|| (0..2).map_while(open).collect());
}
