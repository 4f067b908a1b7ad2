//! The ranks of this crate's locks: before those of the library, which it calls under them.

millpond_driver::ranks! {
    before millpond::raw::FIRST_RANK;
    /// A device of PyTorch's is opened under it.
    Opening "the devices of PyTorch";
    /// Two graphs are locked in the order of their addresses.
    Graph "a graph" several;
    /// Of a handle, of the CUDA devices, and of the pools and the late frees of a device of PyTorch's. The library is
    /// called under each of them, and none is taken under another.
    Entry "an entry of a table";
    Captured "the allocations of captures";
}
