//! Figures that a program can ask for. Plain data.

/// Memory that a pool uses and reserves, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct PoolStatistics {
    /// Bytes allocated and not freed, as requested. Falls when `free` is called (CUDA:
    /// `cudaMemPoolAttrUsedMemCurrent`).
    pub used_bytes: u64,
    /// The most bytes in use since the last reset (CUDA: `cudaMemPoolAttrUsedMemHigh`), never more than were
    /// reserved. It is exact while, between two requests that need the shared heap (or reads of these figures), only
    /// one stream is served from what it freed itself. If several are, their peaks are added as if they had been
    /// simultaneous: the figure is then not below the truth, and above it by at most what each of the others took in
    /// that time.
    pub used_high_bytes: u64,
    /// Physical memory of the pool in bytes (CUDA: `cudaMemPoolAttrReservedMemCurrent`).
    pub reserved_bytes: u64,
    /// The most bytes reserved since the last reset (CUDA: `cudaMemPoolAttrReservedMemHigh`).
    pub reserved_high_bytes: u64,
    /// The number of times that the lock shared by streams was taken.
    pub shared_locks: u64,
}
