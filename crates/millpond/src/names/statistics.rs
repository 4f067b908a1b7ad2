//! Figures that a program can ask for. Plain data.

/// What a pool uses and reserves, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct PoolStatistics {
    /// Allocated and not freed, as asked for; falls when `free` is called (CUDA: `cudaMemPoolAttrUsedMemCurrent`).
    pub used_bytes: u64,
    /// The most that was used since the last reset (CUDA: `cudaMemPoolAttrUsedMemHigh`), never more than was reserved.
    /// Exact while one stream at a time is served from what it freed itself, between two requests that need the shared
    /// heap (or looks at these figures). Where several are, their peaks count as if they had been at one time: not
    /// less than the truth, and at most what each of the others took meanwhile above it.
    pub used_high_bytes: u64,
    /// Physical memory of the pool (CUDA: `cudaMemPoolAttrReservedMemCurrent`).
    pub reserved_bytes: u64,
    /// The most that was reserved since the last reset (CUDA: `cudaMemPoolAttrReservedMemHigh`).
    pub reserved_high_bytes: u64,
    /// How often the lock that streams share was taken.
    pub shared_locks: u64,
}
