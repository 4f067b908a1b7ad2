//! The ranks of this crate's locks: before those of the library, which it calls under them.

millpond_driver::ranks! {
    before millpond::raw::FIRST_RANK;
    Served "the devices that serve";
    Streams "the streams that are adopted";
    Live "what a device has served";
}
