//! The ranks of this crate's locks: the last of all, for no driver calls who calls it.

crate::ranks! {
    pub before 240; // What the library calls back under its locks may have some of its own, which come after all.
    FailureRules "which calls fail";
    FailuresStruck "which calls failed";
    Checked "what a checked device knows";
    CudaOccupant "a CUDA stream";
    CudaStandIn "the stream that is marked for those that capture";
    CudaUploads "uploads in flight";
    CudaPassing "events of other processes";
    CudaLedger "memory of a CUDA device";
    /// Calls that must be apart from captures take it to read, and captures to write.
    CudaCaptures "captures of CUDA";
    /// The record of an event and the wait for it are one.
    CudaCrossing "the way to another context";
    CudaGraph "a CUDA graph";
    CudaPinned "page-locked memory";
    CudaTimes "times of a CUDA device";
    CudaKept "memory that a CUDA device keeps";
    HostKept "memory that a host device keeps";
    HostMemory "memory of a host device";
    HostTimes "times of a host device";
    Pages "pages of the host";
}
