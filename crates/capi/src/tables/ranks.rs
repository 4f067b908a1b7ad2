//! The ranks of this crate's locks. They come before the library's, because the library is called under them.

millpond_driver::ranks! {
    before millpond::raw::FIRST_RANK;
    /// A device for PyTorch is opened under it.
    Opening "the devices of PyTorch";
    /// Two graphs are locked in the order of their addresses.
    Graph "a graph" several;
    /// For handles, for the CUDA devices, and for the pools and the late frees of a device for PyTorch. The library is
    /// called under each of them, and none is taken under another.
    Entry "an entry of a table";
    Captured "the allocations of captures";
}
