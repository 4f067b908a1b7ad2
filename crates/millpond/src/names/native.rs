//! CUDA's handles of default streams.

/// CUDA's handle of the legacy default stream, in addition to 0.
pub(crate) const LEGACY: u64 = 1;
/// CUDA's handle of the calling thread's default stream.
pub(crate) const PER_THREAD: u64 = 2;
