//! The ranks of this crate's locks. They come before the library's, because the library is called under some of them.

millpond_driver::ranks! {
    before millpond::raw::FIRST_RANK;
    Session "the session";
    Current "the current pools";
    /// For the pools, and for the devices that could not be opened: neither is taken under the other.
    Served "what is served";
}
