//! The ranks of this crate's locks: before those of the library, which it calls under some of them.

millpond_driver::ranks! {
    before millpond::raw::FIRST_RANK;
    Session "the session";
    Current "the current pools";
    /// Of the pools, and of the devices that could not be opened: none is taken under the other.
    Served "what is served";
}
