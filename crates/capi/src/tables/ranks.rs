//! The ranks of this crate's locks: before those of the library, which it calls under them.

millpond_driver::ranks! {
    before millpond::raw::FIRST_RANK;
    TorchOpening "the devices of PyTorch";
    /// In the order of their places.
    Graph "a graph" several;
    CudaDevices "the CUDA devices";
    TorchPools "the pools of PyTorch";
    TorchLate "what captures have freed";
    /// Nothing that waits for the device is done under it.
    Handle "a handle";
    Captured "what captures allocate";
    Streams "which streams a device has";
    Report "where a device reports";
    Trace "the trace";
}
